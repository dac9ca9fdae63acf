"""Settings of the site that `make docs` builds with Sphinx. The pages stay plain Markdown, as a forge shows them.

The source folder is the repository, so that links lead to the same files as on a forge. The navigation is that of
docs/README.md: a page that it lists is in the site, below the same heading.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

project = "ddcore"
html_title = "ddcore"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/decisions/*.md",
    "examples/*/README.md",
    "bench/peers/README.md",
    "sample_data/README.md",
]
exclude_patterns = [".*", "build", "demo", "dist", "*.egg-info"]
myst_heading_anchors = 6
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]  # examples with "..." are no Python for the highlighter
html_theme = "furo"
html_copy_source = False
html_show_copyright = False

_INDEX = "docs/decisions"  # its topics are pages of their own, below it in the navigation
_FRONT = (
    '<!doctype html><meta charset="utf-8"><title>ddcore</title><meta http-equiv="refresh" content="0; url={}.html">\n'
)


def sections(contents: str) -> dict[str, list[str]]:
    """The pages that docs/README.md lists, as names of documents, by the heading that they are below."""
    headings = re.split(r"^## (.+)$", contents, flags=re.MULTILINE)[1:]
    return {
        heading: [
            posixpath.normpath(f"docs/{page}")
            for page in re.findall(r"^- \[[^]]+\]\(([^)#]+)\.md\)", body, flags=re.MULTILINE)
        ]
        for heading, body in zip(headings[::2], headings[1::2], strict=True)
    }


def _add_navigation(app: Any, name: str, source: list[str]) -> None:
    topics = sorted(page for page in app.env.found_docs if page.startswith(f"{_INDEX}/"))
    if name == _INDEX:
        source[0] += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(f"/{page}" for page in topics) + "\n```\n"
    if name != root_doc:
        return
    lists = {"": ["docs/README"]} | sections((Path(app.srcdir) / "docs" / "README.md").read_text("utf-8"))
    listed = {root_doc, *topics, *(page for pages in lists.values() for page in pages)}
    lists["More"] = sorted(app.env.found_docs - listed)
    for heading, pages in lists.items():
        caption = f":caption: {heading}\n" if heading else ""
        source[0] += "\n\n```{toctree}\n:hidden:\n" + caption + "\n" + "\n".join(pages) + "\n```\n"


def _write_front(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "index.html").write_text(_FRONT.format(root_doc), "utf-8")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _write_front)
