"""How objects look in notebooks: pieces of HTML that bring their own style, light and dark, without scripts.

A piece never relies on the page around it: it has its own background, so that its text can be read on any page.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ddcore.text.markup import Html, joined, tag

# What draws an object of a program: by name, so that programs do not depend on drawings.
_DRAWINGS = {"collection": "collection_piece", "plan": "plan_piece"}

_LIGHT = """--page: #ffffff; --ink: #1f2328; --dim: #59636e; --line: #d1d9e0; --soft: #f6f8fa; --plus: #116329;
  --minus: #b31d28; --plus-soft: #dafbe1; --minus-soft: #ffebe9; --change: #7d4e00;"""
_DARK = """--page: #0d1117; --ink: #e6edf3; --dim: #9198a1; --line: #3d444d; --soft: #161b22; --plus: #56d364;
  --minus: #ff7b72; --plus-soft: #12261e; --minus-soft: #301b1e; --change: #e3b341;"""
# The class is doubled to outweigh the notebook's own style of tables.
_STYLE = """\
.ddcore { background: var(--page); color: var(--ink); font: 13px/1.45 system-ui, "DejaVu Sans", sans-serif;
  padding: 8px 10px; border: 1px solid var(--line); border-radius: 6px; }
.ddcore p { margin: 0 0 6px; } .ddcore .dim { color: var(--dim); } .ddcore .up { color: var(--plus); }
.ddcore .down { color: var(--minus); } .ddcore .scroll { overflow-x: auto; margin: 0 0 6px; }
.ddcore.ddcore table { border-collapse: collapse; margin: 0; font-size: 13px; font-variant-numeric: tabular-nums; }
.ddcore.ddcore table tr { background: var(--page); }
.ddcore.ddcore table th, .ddcore.ddcore table td { text-align: left; padding: 3px 10px; vertical-align: top;
  border: 0 solid var(--line); border-top-width: 1px; color: var(--ink); max-width: 60ch; overflow-wrap: break-word; }
.ddcore.ddcore thead th { background: var(--soft); color: var(--dim); font-weight: 600; }
.ddcore.ddcore table .right { text-align: right; white-space: nowrap; }
.ddcore.ddcore tr.plus td { background: var(--plus-soft); }
.ddcore.ddcore tr.minus td { background: var(--minus-soft); }
.ddcore.ddcore .sign { font-weight: 700; } .ddcore.ddcore .plus .sign { color: var(--plus); }
.ddcore.ddcore .minus .sign { color: var(--minus); } .ddcore.ddcore .change .sign { color: var(--change); }
.ddcore.ddcore td ins { color: var(--plus); text-decoration: none; font-weight: 600; }
.ddcore.ddcore td del { color: var(--minus); }
"""


def themed(inside: str, light: str, dark: str) -> str:
    """A style sheet that sets properties of what is selected inside of a piece, on light and on dark pages.

    Jupyter, VS Code and sites of documentation say which theme they show; elsewhere the system's setting counts.
    """
    system = "body:not([data-jp-theme-light]):not(.vscode-light):not([data-theme])"
    told = ('[data-jp-theme-light="false"]', ".vscode-dark", '[data-theme="dark"]')
    chosen = ", ".join(f"{theme} .ddcore {inside}" for theme in told)
    return (
        f".ddcore {inside} {{ {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ {system} .ddcore {inside} {{ {dark} }} }}\n{chosen} {{ {dark} }}\n"
    )


def fragment(*parts: Html, style: str = "") -> str:
    """A piece of a notebook, in ASCII: it is right in every encoding. ``style`` is its own beside that of all."""
    sheet = themed("", _LIGHT, _DARK) + _STYLE + style
    whole = tag("div", tag("style", Html(sheet)), *parts, class_="ddcore")
    return whole.encode("ascii", "xmlcharrefreplace").decode()


def drawn(kind: str, *what: Any) -> str:
    """The piece of a collection (its graph, its node) or of a plan, with a diagram."""
    pieces = import_module("ddcore.drawing.pieces")
    return str(getattr(pieces, _DRAWINGS[kind])(*what))


def heading(name: str, about: str) -> Html:
    """The first line of a piece: a name, and what it is."""
    return tag("p", tag("strong", name), " ", tag("span", about, class_="dim"))


def note(*parts: str) -> Html:
    """A line below."""
    return tag("p", joined(parts), class_="dim")
