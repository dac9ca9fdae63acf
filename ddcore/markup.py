"""Markup: text is escaped unless it is :class:`Html`, which only the functions here create.

So no value from data becomes markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ddcore.cells import printable

__all__ = ["Html", "joined", "tag"]

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
