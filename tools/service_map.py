"""The demo's service map during an incident, as SVG: a box per service, above what it needs; colour: affected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from html import escape

from ddcore.drawing.diagram import Box, Diagram, Edge
from ddcore.drawing.layout import Layout, layout
from ddcore.drawing.svg import NAMESPACE, curve

__all__ = ["service_map"]

_CHARACTER, _MARGIN, _HEIGHT, _FOOT = 7.3, 10.0, 26.0, 34.0
_STYLE = """\
svg.map { --page: #ffffff; --ink: #1f2328; --dim: #59636e; --line: #afb8c1; --box: #f6f8fa; --cause: #ffcecb;
  --hit: #ffe8b3; --path: #bc4c00; --wrong: #b31d28; }
@media (prefers-color-scheme: dark) { svg.map { --page: #0d1117; --ink: #e6edf3; --dim: #9198a1; --line: #565d66;
  --box: #21262d; --cause: #67060c; --hit: #4d3800; --path: #f0883e; --wrong: #ff7b72; } }
.map text { font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: var(--ink); }
.map text.dim { fill: var(--dim); } .map text.wrong { fill: var(--wrong); } .map text.path { fill: var(--path); }
.map rect { stroke: var(--line); fill: var(--box); } .map .page { fill: var(--page); stroke: none; }
.map .hit { fill: var(--hit); } .map .cause { fill: var(--cause); }
.map path { fill: none; stroke: var(--line); stroke-width: 1.2; } .map marker path { fill: var(--line); stroke: none; }
.map path.path { stroke: var(--path); stroke-width: 1.8; } .map #path path { fill: var(--path); }
.map path.wrong { stroke: var(--wrong); stroke-width: 2.2; stroke-dasharray: 6 4; }
.map #wrong path { fill: var(--wrong); }
"""


def service_map(
    needs: Sequence[tuple[str, str]], affected: Mapping[str, int], wrong: tuple[str, str], title: str
) -> str:
    """The SVG file's text. ``needs``: pairs of a service and one that it needs, without cycles; ``affected``: services
    with their distance from the incident, 0 for the cause; ``wrong``: the pair that should not be there.
    """
    boxes = {name: Box("service", name, [], (), 0) for name in _ordered(needs)}
    for number, box in enumerate(boxes.values(), 1):
        box.number = number
    edges = {Edge(boxes[service], boxes[needed]): (service, needed) for service, needed in needs}
    sizes = {box: (len(name) * _CHARACTER + 2 * _MARGIN, _HEIGHT) for name, box in boxes.items()}
    locations = layout(Diagram(list(boxes.values()), list(edges), ()), sizes, {})
    kinds = {edge: _kind(pair, affected, wrong) for edge, pair in edges.items()}
    return "\n".join(_elements(locations, kinds, affected, wrong, title)) + "\n"


def _ordered(needs: Sequence[tuple[str, str]]) -> list[str]:
    """The services, each before those that it needs; the same order on every machine."""
    users: dict[str, list[str]] = {}
    for service, needed in sorted(needs):
        users.setdefault(service, [])
        users.setdefault(needed, []).append(service)
    return list(TopologicalSorter(users).static_order())


def _kind(pair: tuple[str, str], affected: Mapping[str, int], wrong: tuple[str, str]) -> str:
    """``wrong``; ``path`` where the incident reached the service by this pair; else ``flow``."""
    if pair == wrong:
        return "wrong"
    user, needed = (affected.get(name, -2) for name in pair)
    return "path" if user == needed + 1 else "flow"


def _elements(
    locations: Layout, kinds: Mapping[Edge, str], affected: Mapping[str, int], wrong: tuple[str, str], title: str
) -> Iterator[str]:
    width, height = f"{locations.width:.0f}", f"{locations.height + _FOOT:.0f}"
    yield (
        f'<svg xmlns="{NAMESPACE}" class="map" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img">'
    )
    yield f"<title>{escape(title)}</title>\n<style>\n{_STYLE}</style>\n<defs>"
    for kind in ("flow", "path", "wrong"):
        yield (
            f'<marker id="{kind}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto" '
            'markerUnits="userSpaceOnUse"><path d="M0 0 L8 4 L0 8 Z"/></marker>'
        )
    yield '</defs>\n<rect class="page" width="100%" height="100%"/>'
    for edge in sorted(locations.paths, key=lambda edge: ("flow", "path", "wrong").index(kinds[edge])):
        kind = kinds[edge]
        told = f"{edge.source.title} needs {edge.target.title}"
        yield (
            f'<path class="{kind}" d="{curve(locations.paths[edge])}" marker-end="url(#{kind})">'
            f"<title>{escape(told)}</title></path>"
        )
    for box, area in locations.boxes.items():
        distance = affected.get(box.title)
        kind = "service" if distance is None else "hit" if distance else "cause"
        yield (
            f'<rect class="{kind}" x="{area.x:.1f}" y="{area.y:.1f}" width="{area.width:.1f}" '
            f'height="{area.height:.1f}" rx="4"/>'
        )
        yield f'<text x="{area.x + _MARGIN:.1f}" y="{area.y + 17:.1f}">{escape(box.title)}</text>'
    yield from _legend(locations.height + 18, wrong, title)
    yield "</svg>"


def _legend(y: float, wrong: tuple[str, str], title: str) -> Iterator[str]:
    x = _MARGIN
    for kind, text in (
        ("dim", title),
        ("path", "-> affected through this"),
        ("wrong", f"-> wrong row: {wrong[0]} needs {wrong[1]}"),
    ):
        yield f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
        x += (len(text) + 3) * _CHARACTER
