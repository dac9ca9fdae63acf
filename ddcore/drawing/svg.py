"""A diagram as SVG: one file without scripts, fonts or links, legible on light and on dark pages."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from ddcore.drawing.diagram import Box, Diagram, Edge, Frame
from ddcore.drawing.layout import Layout, Point, layout
from ddcore.text.cells import printable

NAMESPACE = "http://www.w3.org/2000/svg"

_LINE = 15.0  # the height of a line of text
_CHARACTER = 7.3  # the width of one
_MARGIN = 10.0
_LONGEST = 44  # characters of a line; the rest is in the tooltip
LIGHT = """--page: #ffffff; --ink: #1f2328; --dim: #59636e; --line: #818b98; --frame: #f6f8fa; --box: #ffffff;
  --input: #ddf4ff; --output: #dafbe1; --index: #8250df; --back: #bc4c00; --share: #0969da;"""
DARK = """--page: #0d1117; --ink: #e6edf3; --dim: #9198a1; --line: #6e7681;
  --frame: #161b22; --box: #21262d; --input: #0c2d6b; --output: #033a16; --index: #be8fff; --back: #f0883e;
  --share: #58a6ff;"""
_STYLE = (
    f"svg.dataflow {{ {LIGHT} }}\n@media (prefers-color-scheme: dark) {{ svg.dataflow {{ {DARK} }} }}\n"
    + """\
.dataflow text { font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.dataflow text { fill: var(--ink); white-space: pre; }
.dataflow text.dim { fill: var(--dim); } .dataflow text.index { fill: var(--index); }
.dataflow rect { stroke: var(--line); fill: var(--box); } .dataflow .page { fill: var(--page); stroke: none; }
.dataflow .share { fill: var(--share); stroke: none; }
.dataflow .frame { fill: var(--frame); stroke-dasharray: 5 3; }
.dataflow .input { fill: var(--input); } .dataflow .output { fill: var(--output); }
.dataflow path { fill: none; stroke: var(--line); stroke-width: 1.2; } .dataflow path.index { stroke: var(--index); }
.dataflow path.back { stroke: var(--back); stroke-dasharray: 4 3; }
.dataflow marker path { fill: var(--line); stroke: none; }
.dataflow #index path { fill: var(--index); } .dataflow #back path { fill: var(--back); }
"""
)


@dataclass(frozen=True)
class Note:
    """What a drawing says about one box beside its name: lines, a tooltip, and a share of a whole that is shown as a
    bar, 0 to 1.
    """

    lines: tuple[str, ...]
    told: str
    share: float = 0.0


def svg(drawing: Diagram, title: str, notes: Mapping[int, Note] | None = None) -> str:
    """The SVG file's text; ``notes`` by the numbers of boxes. Cost: that of the layout."""
    known = notes or {}
    lines = {box: list(_lines(drawing, box, known.get(box.number))) for box in drawing.boxes}
    texts = {box: [text for _, text in parts] for box, parts in lines.items()}
    sizes = {box: (max(map(_wide, of)) + 2 * _MARGIN, len(of) * _LINE + _MARGIN) for box, of in texts.items()}
    positions = layout(drawing, sizes, {frame.scope: _wide(_name(frame)) for frame in drawing.frames})
    text = "\n".join(_elements(drawing, lines, positions, printable(title), known)) + "\n"
    return text.encode("ascii", "xmlcharrefreplace").decode()  # right in every encoding of a stream


def _lines(drawing: Diagram, box: Box, note: Note | None) -> Iterator[tuple[str, str]]:
    """The class and text of each line in a box."""
    yield "", _cut(f"{box.number} {box.title}")
    if box.source_lines:
        yield "dim", _cut(box.source_line)
    for index in drawing.kept(box):
        yield "index", _cut(f"{index.label} {index.brief}")
    for line in () if note is None else note.lines:
        yield "dim", _cut(line)


def _elements(
    drawing: Diagram, lines: dict[Box, list[tuple[str, str]]], positions: Layout, title: str, notes: Mapping[int, Note]
) -> Iterator[str]:
    width, height = f"{positions.width:.0f}", f"{positions.height:.0f}"
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield (
        f'<svg xmlns="{NAMESPACE}" class="dataflow" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img">'
    )
    yield f"<title>{escape(title)}</title>\n<style>\n{_STYLE}</style>"
    yield "<defs>" + "".join(map(_marker, ("flow", "index", "back"))) + "</defs>"
    yield '<rect class="page" width="100%" height="100%"/>'
    for frame in sorted(drawing.frames, key=lambda frame: positions.frames[frame.scope].y):
        yield from _frame(frame, positions)
    for edge, points in positions.paths.items():
        yield _edge(edge, points)
    for box, parts in lines.items():
        yield from _box(drawing, box, parts, positions, notes.get(box.number))
    yield "</svg>"


def _marker(name: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 Z"/></marker>'
    )


def _frame(frame: Frame, positions: Layout) -> Iterator[str]:
    area = positions.frames[frame.scope]
    yield f'<rect class="frame" id="loop{frame.scope}" {_area(area.x, area.y, area.width, area.height)} rx="8"/>'
    yield f'<text class="dim" x="{area.x + _MARGIN:.1f}" y="{area.y + _LINE:.1f}">{escape(_name(frame))}</text>'


def _box(
    drawing: Diagram, box: Box, parts: list[tuple[str, str]], positions: Layout, note: Note | None
) -> Iterator[str]:
    area = positions.boxes[box]
    told = drawing.shown(box) if note is None else note.told
    yield f'<g id="box{box.number}"><title>{escape(told)}</title>'
    kind = box.kind if box.kind in ("input", "output") else "operator"
    yield f'<rect class="{kind}" {_area(area.x, area.y, area.width, area.height)} rx="4"/>'
    for number, (style, text) in enumerate(parts, 1):
        x, y = area.x + _MARGIN, area.y + number * _LINE
        yield f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
    if note is not None and note.share > 0:
        wide = max(1.0, area.width * min(1.0, note.share))
        yield f'<rect class="share" {_area(area.x, area.y + area.height - 3, wide, 3)}/>'
    yield "</g>"


def _edge(edge: Edge, points: list[Point]) -> str:
    kind = "back" if edge.feedback else "flow" if edge.index is None else "index"
    told = f"{edge.source.number} to {edge.target.number}"
    if edge.index is not None:
        told += f": {edge.index.label} {edge.index.brief}"
    return f'<path class="{kind}" d="{curve(points)}" marker-end="url(#{kind})"><title>{escape(told)}</title></path>'


def curve(points: list[Point]) -> str:
    """Straight lines along the axes; otherwise a curve that leaves and arrives downwards."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x, y), (u, v) in pairwise(points):
        if abs(x - u) < 0.05 or abs(y - v) < 0.05:
            parts.append(f"L{u:.1f} {v:.1f}")
        else:
            middle = (y + v) / 2
            parts.append(f"C{x:.1f} {middle:.1f} {u:.1f} {middle:.1f} {u:.1f} {v:.1f}")
    return " ".join(parts)


def _area(x: float, y: float, width: float, height: float) -> str:
    return f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'


def _name(frame: Frame) -> str:
    return _cut(frame.title, 2 * _LONGEST)


def _cut(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _wide(text: str) -> float:
    return sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in text) * _CHARACTER
