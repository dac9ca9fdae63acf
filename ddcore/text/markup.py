"""Markup: text is escaped unless it is :class:`Html`, which only the functions here create.

So no value from data becomes markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ddcore.text.cells import printable

Cell = str  # text, or Html

_VOID = {"meta", "rect", "line", "path", "polyline", "circle", "use"}


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def _text(part: str) -> str:
    return part if isinstance(part, Html) else escape(printable(part))


def joined(parts: Iterable[str], between: str = "") -> Html:
    """Parts one after another; text is escaped."""
    return Html(_text(between).join(map(_text, parts)))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Html:
    """An element: ``tag("td", "text", class_="right")``. Attributes that are None are left out."""
    texts = (
        f' {key.rstrip("_").replace("_", "-")}="{_text(value) if isinstance(value, str) else f"{value:g}"}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = joined(children)
    if name in _VOID and not inside:
        return Html(f"<{name}{''.join(texts)}/>")
    return Html(f"<{name}{''.join(texts)}>{inside}</{name}>")


def table(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: Iterable[int] = (), label: str) -> Html:
    """A table that scrolls by itself where it is too wide; ``right``: columns of numbers."""
    numbers = set(right)
    head = tag("tr", *(tag("th", text, scope="col", class_=_side(i, numbers)) for i, text in enumerate(headers)))
    body = joined(tag("tr", *(tag("td", text, class_=_side(i, numbers)) for i, text in enumerate(row))) for row in rows)
    return scrolling(tag("table", tag("thead", head), tag("tbody", body)), label)


def scrolling(inside: Html, label: str) -> Html:
    """Something that may be wider than the page; the keyboard scrolls it too."""
    return tag("div", inside, class_="scroll", tabindex="0", role="region", aria_label=label)


def svg_inline(text: str) -> Html:
    """A drawing of :mod:`ddcore.drawing.svg` as a part of the page."""
    _, _, drawing = text.partition("?>")
    return Html(drawing.strip())


def _side(position: int, numbers: set[int]) -> str | None:
    return "right" if position in numbers else "wrap"
