"""A diagram as text for Mermaid, which forges and notebooks draw."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence

from ddcore.drawing.diagram import Box, Diagram, Frame

_SAFE = set(string.ascii_letters + string.digits + " .,:=_-+/")
_SHAPES = {"input": ("[(", ")]"), "output": ("([", "])"), "variable": ("((", "))")}


def mermaid(drawing: Diagram) -> str:
    """A flowchart. Labels are quoted, and all but plain characters are written as codes. Linear."""
    inner: dict[int, list[Frame]] = {}
    for frame in drawing.frames:
        inner.setdefault(frame.parent, []).append(frame)
    lines = ["flowchart TB", *_inside(drawing, inner, 0, "    ")]
    for edge in drawing.edges:
        source, target = f"n{edge.source.number}", f"n{edge.target.number}"
        if edge.feedback:
            lines.append(f'    {source} -. "next round" .-> {target}')
        elif edge.index is not None:
            lines.append(f'    {source} -- "{_text(f"{edge.index.label} {edge.index.key_text}")}" --> {target}')
        else:
            lines.append(f"    {source} --> {target}")
    return "\n".join(lines) + "\n"


def _inside(drawing: Diagram, inner: Mapping[int, Sequence[Frame]], scope: int, indent: str) -> Iterator[str]:
    for box in drawing.inside(scope):
        yield f"{indent}{_box(box)}"
    for frame in inner.get(scope, ()):
        yield f'{indent}subgraph loop{frame.scope}["{_text(frame.title)}"]'
        yield from _inside(drawing, inner, frame.scope, indent + "    ")
        yield f"{indent}end"


def _box(box: Box) -> str:
    opening, closing = _SHAPES.get(box.kind, ("[", "]"))
    label = _text(f"{box.number} {box.title}")
    if box.source_lines:
        label += f"<br/>{_text(box.source_line)}"
    return f'n{box.number}{opening}"{label}"{closing}'


def _text(text: str) -> str:
    """The inside of a quoted label: nothing that Mermaid reads as markup."""
    return "".join(char if char in _SAFE else f"#{ord(char)};" for char in text)
