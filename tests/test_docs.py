"""The pages are all in the table of contents, lead where they say, and their examples are run."""

from __future__ import annotations

import doctest
import re
import unicodedata
from importlib import import_module
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
DOCS = TOP / "docs"
PAGES = sorted(
    [
        TOP / "README.md",
        TOP / "CHANGELOG.md",
        TOP / "CONTRIBUTING.md",
        *DOCS.rglob("*.md"),
        *TOP.glob("examples/*/README.md"),
        TOP / "bench" / "peers" / "README.md",
        TOP / "sample_data" / "README.md",
    ]
)
IDS = [str(page.relative_to(TOP)) for page in PAGES]


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Headings as a forge spells them in links."""
    titles = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    lower = (unicodedata.normalize("NFC", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in lower}


def test_every_page_is_in_the_table_of_contents_once() -> None:
    lines = [line for line in (DOCS / "README.md").read_text("utf-8").splitlines() if line.startswith("- [")]
    listed = [target for line in lines for target in re.findall(r"^- \[[^]]+\]\(([^).][^)]*)\)", line)]
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md") if page.name != "README.md")


def test_every_decision_is_in_the_index_once() -> None:
    """Of each topic its page, and below it each decision in the order of the page."""
    index, wanted = (DOCS / "decisions.md").read_text("utf-8"), []
    topics = re.findall(r"^## \[[^]]+\]\(decisions/([\w-]+)\.md\)", index, flags=re.MULTILINE)
    assert sorted(topics) == sorted(page.stem for page in (DOCS / "decisions").glob("*.md"))
    for topic in topics:
        page = (DOCS / "decisions" / f"{topic}.md").read_text("utf-8")
        wanted += [(title, topic) for title in re.findall(r"^## (.+)$", page, flags=re.MULTILINE)]
    assert re.findall(r"^- \[([^]]+)\]\(decisions/([\w-]+)\.md#", index, flags=re.MULTILINE) == wanted


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_code_names_pages_that_exist_and_no_roadmap() -> None:
    files = [file for folder in ("ddcore", "io", "jobs", "cli", "tools") for file in (TOP / folder).rglob("*.py")]
    pages = {page for file in files for page in re.findall(r"docs/[\w-]+\.md", file.read_text("utf-8"))}
    assert "docs/limits.md" in pages
    assert [page for page in sorted(pages) if not (TOP / page).is_file()] == []
    promise = re.compile(r"roadmap|not there yet|is to come\b", re.IGNORECASE)
    assert [str(file) for file in files if promise.search(file.read_text("utf-8"))] == []


def test_cited_sources_are_on_the_page_of_sources() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (DOCS / "sources.md").read_text("utf-8"), flags=re.MULTILINE)
    known = [row for row in rows if row != "short name" and not row.startswith("---")]
    assert sorted(known) == sorted(set(known))
    folders = ("ddcore", "io", "jobs", "cli", "bench", "tests", "tools", "docs")
    files = [file for folder in folders for kind in ("py", "md") for file in (TOP / folder).rglob(f"*.{kind}")]
    cited = set[str]()
    for file in files:
        if file in (Path(__file__), DOCS / "sources.md"):
            continue
        text = re.sub(r"\s+", " ", file.read_text("utf-8"))
        assert re.search(r"\bthe patent\b|\bseed 0\d\d\b|\bMcSherry's text\b", text) is None, file
        cited |= {
            name for names in re.findall(r"\(sources: ([^)]+)\)", text) for name in re.findall(r"\w+ \d{4}", names)
        }
        cited |= {" ".join(name) for name in re.findall(r"Source: ([A-Z]\w+)[^.]*? (\d{4})", text)}
    assert {"McSherry 2012", "Ngo 2012", "Seidman 1983"} <= cited
    assert sorted(cited - set(known)) == []


@pytest.mark.parametrize("name", ["algorithms.md", "how-it-works.md", "programs.md", "sql.md"])
def test_examples_of_a_page_run(name: str) -> None:
    page = DOCS / name
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name, str(page), 0)
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(test, out=said.append)
    assert result.attempted > 0
    assert result.failed == 0, "".join(said)


def test_examples_in_docstrings_run() -> None:
    """Pure functions show what they do: the modules that have examples, and that none of them lost its own."""
    modules = [file for file in (TOP / "ddcore").rglob("*.py") if ">>> " in file.read_text("utf-8")]
    with_examples = {".".join(file.relative_to(TOP).with_suffix("").parts) for file in modules}
    assert "ddcore.base.lattice" in with_examples
    for name in sorted(with_examples):
        result = doctest.testmod(import_module(name))
        assert result.attempted > 0
        assert result.failed == 0, name


def test_benchmarks_that_pages_name_exist() -> None:
    """What a page calls measured can be measured again; outside of its table the comparison has no figures."""
    names: dict[str, set[str]] = {}
    for page in PAGES:
        calls = re.findall(r"(?:make bench ARGS=\"?|python -m bench )([a-z_]+(?: [a-z_]+)*)", page.read_text("utf-8"))
        names[str(page.relative_to(TOP))] = {name for call in calls for name in call.split()}
    assert len(names["docs/comparison.md"]) >= 4
    for location, benchmarks in names.items():
        assert [name for name in benchmarks if not (TOP / "bench" / f"{name}.py").is_file()] == [], location
    text = re.sub(
        "<!-- make bench: begin -->.*<!-- make bench: end -->",
        "",
        (DOCS / "comparison.md").read_text("utf-8"),
        flags=re.DOTALL,
    )
    assert re.findall(r"\d (?:s|ms|MiB|GB|times|seconds)\b", text) == []
