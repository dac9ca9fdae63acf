"""The documentation as a site: all pages are in its navigation, its links lead somewhere, and it loads nothing."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

TOP = Path(__file__).resolve().parent.parent
DOCS = TOP / "docs"


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as ``make docs`` does."""
    line = next(line for line in (TOP / "Makefile").read_text("utf-8").splitlines() if "-m sphinx" in line)
    options = line.partition("-m sphinx ")[2].split()
    assert options[-5:] == ["docs", "-d", "build/doctrees", ".", "build/docs"]
    words = [*options[:-5], str(DOCS), "-d", str(target / "doctrees"), str(source), str(target / "site")]
    return subprocess.run([sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, check=False)


class Page(HTMLParser):
    """What a page links to, what it loads by itself, and its anchors."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag == "a" and (target := values.get("href")):
            self.links.append(target)
        elif tag in ("link", "script", "img", "source", "iframe") and (
            target := values.get("href") or values.get("src")
        ):
            self.loads.append(target)


def test_navigation_has_every_page_once() -> None:
    sections = runpy.run_path(str(DOCS / "conf.py"))["sections"]((DOCS / "README.md").read_text("utf-8"))
    assert len(sections) >= 2
    pages = [page for pages in sections.values() for page in pages if page.startswith("docs/")]
    assert sorted(pages) == sorted(f"docs/{page.stem}" for page in DOCS.glob("*.md") if page.stem != "README")


@pytest.mark.long  # test_docs has the links of all pages
def test_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = build(TOP, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    site = tmp_path / "site"
    pages = {file: Page(file) for file in site.rglob("*.html")}
    assert {site / "docs" / f"{page.stem}.html" for page in DOCS.glob("*.md")} <= set(pages)
    for file, page in pages.items():
        for target in [*page.links, *page.loads]:
            if re.match(r"(https?|mailto|data):", target):
                assert target in page.links, f"{file} loads {target}"
                continue
            path, anchor = re.fullmatch(r"([^?#]*)(?:\?[^#]*)?#?(.*)", target).groups()  # type: ignore[union-attr]
            there = (file.parent / unquote(path)).resolve() if path else file
            assert there.is_file(), f"{file} leads to {target}"
            assert not anchor or there not in pages or unquote(anchor) in pages[there].anchors, f"{file}: {target}"
    listed = [target for target in pages[site / "README.html"].links if target.startswith("docs/")]
    assert {f"docs/{page.stem}.html" for page in DOCS.glob("*.md")} <= set(listed)
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text("utf-8")), sheet


@pytest.mark.parametrize(
    ("line", "message"), [("[page](b.md)", "b.md"), ("[heading](a.md#none)", "none")], ids=["page", "heading"]
)
@pytest.mark.slow
def test_broken_link_fails_the_build(line: str, message: str, tmp_path: Path) -> None:
    docs = tmp_path / "source" / "docs"
    docs.mkdir(parents=True)
    (docs.parent / "README.md").write_text("# Start\n")
    (docs / "README.md").write_text("# Contents\n\n## Pages\n\n- [A](a.md): a page\n")
    (docs / "a.md").write_text(f"# A\n\n## Here\n\n{line}\n")
    done = build(docs.parent, tmp_path)
    assert done.returncode != 0
    assert message in done.stderr
