"""Pages as one HTML file: no script, no network, light and dark, narrow and wide.

Text is escaped: see :mod:`ddcore.text.markup`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddcore.text.markup import Html, joined, scrolling, svg_inline, table, tag

__all__ = [
    "Html", "figure", "joined", "page", "scrolling", "section", "svg_inline", "table", "tag", "tiles",
]  # fmt: skip

_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1f2328; --dim: #59636e; --line: #d1d9e0; --soft: #f6f8fa;
  --accent: #0969da; --heat: #0a58ca; --plus: #116329; --minus: #b31d28; --plus-soft: #dafbe1; --minus-soft: #ffebe9;
  --change: #7d4e00; --warn: #7d4e00; --warn-soft: #fff8c5; }
@media (prefers-color-scheme: dark) { :root { --page: #0d1117; --ink: #e6edf3; --dim: #9198a1; --line: #3d444d;
  --soft: #161b22; --accent: #58a6ff; --heat: #58a6ff; --plus: #56d364; --minus: #ff7b72; --plus-soft: #12261e;
  --minus-soft: #301b1e; --change: #e3b341; --warn: #e3b341; --warn-soft: #272115; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1680px; margin: 0 auto; padding: 24px 20px 48px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 40px 0 8px; }
p { margin: 4px 0 12px; max-width: 75ch; overflow-wrap: anywhere; } .dim, caption, figcaption { color: var(--dim); }
code, .mono { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13px; }
dl.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 10px; margin: 20px 0 0; }
dl.tiles div { border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; background: var(--soft); }
dt { color: var(--dim); font-size: 13px; } dd { margin: 0; font-size: 19px; font-weight: 600; }
dd small { display: block; font-size: 12px; font-weight: 400; color: var(--dim); }
.scroll { overflow: auto; border: 1px solid var(--line); border-radius: 8px; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
caption { text-align: left; padding: 8px 12px; }
th, td { text-align: left; padding: 6px 12px; border-top: 1px solid var(--line); vertical-align: top; }
thead th { border-top: 0; color: var(--dim); font-weight: 600; white-space: nowrap; background: var(--soft); }
tbody th { font-weight: 600; } td.right, th.right { text-align: right; white-space: nowrap; }
td.wrap { overflow-wrap: break-word; max-width: 60ch; } td .mono { overflow-wrap: anywhere; }
figure { margin: 0 0 16px; } figcaption { font-size: 14px; margin: 0 0 8px; }
.multiples { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); gap: 20px; }
.chart { width: 100%; max-width: 560px; height: auto; display: block; }
.dataflow { display: block; }
.scroll:has(> .dataflow) { max-height: 60vh; }
.chart text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--dim); }
.chart .axis { stroke: var(--line); } .chart .grid { stroke: var(--line); stroke-dasharray: 2 3; }
.chart .area { fill: var(--accent); fill-opacity: 0.14; stroke: none; }
.chart .series { fill: none; stroke: var(--accent); stroke-width: 2; } .chart .dot { fill: var(--accent); }
.chart .bar { fill: var(--accent); } .heat rect { fill: var(--heat); } .heat .none { fill: var(--soft); }
.meter { display: block; width: 90px; height: 10px; margin-top: 6px; } .meter .back { fill: var(--line); }
.meter .bar { fill: var(--accent); }
.warning { border-left: 4px solid var(--warn); background: var(--warn-soft); padding: 8px 12px; border-radius: 4px; }
tr.plus td { background: var(--plus-soft); } tr.minus td { background: var(--minus-soft); }
.sign { font-weight: 700; } .plus .sign { color: var(--plus); } .minus .sign { color: var(--minus); }
td.narrow { width: 1%; white-space: nowrap; }
.change .sign { color: var(--change); } td ins { color: var(--plus); text-decoration: none; font-weight: 600; }
td del { color: var(--minus); } summary { cursor: pointer; color: var(--accent); margin: 8px 0; }
@media (max-width: 600px) { main { padding: 16px 12px 32px; } h1 { font-size: 21px; } th, td { padding: 6px 8px; } }
@media print { .scroll { overflow: visible; } }
"""


def page(title: str, *parts: Html) -> str:
    """The text of a whole page, in ASCII: it is right in every encoding."""
    head = joined([
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content="ddcore"),
        tag("title", title),
        Html(f"<style>{_STYLE}</style>"),
    ])  # fmt: skip
    whole = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{tag("main", *parts)}</body></html>\n'
    return whole.encode("ascii", "xmlcharrefreplace").decode()


def section(title: str, about: str, *parts: Html) -> Html:
    """A part of a page under a heading, with a sentence that says what it shows."""
    return tag("section", tag("h2", title), tag("p", about, class_="dim") if about else "", *parts)


def tiles(values: Sequence[tuple[str, str, str]]) -> Html:
    """Names, values and remarks, side by side."""
    return tag(
        "dl",
        *(
            tag("div", tag("dt", name), tag("dd", value, tag("small", remark) if remark else ""))
            for name, value, remark in values
        ),
        class_="tiles",
    )


def figure(caption: str, *parts: Html) -> Html:
    """A picture under its caption."""
    return tag("figure", tag("figcaption", caption), *parts)
