"""Tables as text: aligned columns, or one line per column where they do not fit."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from ddcore.text.cells import printable

_NARROW = 8  # terminal columns below which the values of a table column are not cut
_NARROWEST = 4


def aligned(
    rows: Sequence[Sequence[str]], right: Iterable[int] = (), width: int | None = None, *, header: bool = False
) -> list[str]:
    """Rows of cells as lines: columns aligned, those in ``right`` flush right, cut to ``width`` where there is one.

    The widest columns give way first; what is cut ends in an ellipsis. With ``header`` the first row holds names:
    names and numbers are cut only where nothing else is left to cut. Linear in the number of cells.
    """
    if not rows:
        return []
    right = set(right)
    widths = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        room = width - 2 * (len(widths) - 1)
        least = _least(rows[0], widths, right) if header else [min(w, _NARROWEST) for w in widths]
        if sum(least) > room:
            least = [min(w, _NARROWEST) for w in widths]
        widths = _squeezed(widths, least, room)
    lines = []
    for row in rows:
        cells = []
        for number, (text, room) in enumerate(zip(row, widths, strict=True)):
            short = cut(text, room)
            pad = " " * (room - _columns(short))
            cells.append(pad + short if number in right else short + pad)
        line = "  ".join(cells).rstrip()
        lines.append(line if width is None else cut(line, width))
    return lines


def fits(rows: Sequence[Sequence[str]], right: Iterable[int], width: int | None) -> bool:
    """Whether :func:`aligned` can show rows with a header without cutting a name or a number."""
    if width is None:
        return True
    widths = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    return sum(_least(rows[0], widths, set(right))) + 2 * (len(widths) - 1) <= width


def laid_out(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Iterable[int],
    width: int | None,
    *,
    vertical: bool = False,
) -> Iterator[tuple[int | None, str]]:
    """Lines that show ``rows``, each with the place of its row; None stands by the header and by empty lines.

    A table, unless ``vertical`` is set or its names and numbers do not fit into ``width``: then one line per column
    and an empty line between two rows. A first name that is empty belongs to a mark, not to a column.
    """
    names, right = [*map(printable, names)], list(right)
    table = [names, *rows]
    if not vertical and fits(table, right, width):
        yield from zip([None, *range(len(rows))], aligned(table, right, width, header=True), strict=True)
        return
    for number, row in enumerate(rows):
        if number:
            yield None, ""
        yield from ((number, line) for line in _stacked(names, row, width))


def _stacked(names: Sequence[str], row: Sequence[str], width: int | None) -> Iterator[str]:
    mark = f"{row[0]:<2} " if names[0] == "" else ""
    start = 1 if mark else 0
    longest = max(map(_columns, names))
    room = None if width is None else max(_NARROW, width - len(mark) - longest - 2)
    for name, text in zip(names[start:], row[start:], strict=True):
        value = text if room is None else cut(text, room)
        yield f"{mark}{name}{' ' * (longest - _columns(name))}  {value}".rstrip()
        mark = " " * len(mark)


def _least(names: Sequence[str], widths: Sequence[int], right: set[int]) -> list[int]:
    """The width of each column below which a name or a number would be cut, or hardly a text be left."""
    return [
        wide if number in right else max(_columns(name), min(wide, _NARROW))
        for number, (name, wide) in enumerate(zip(names, widths, strict=True))
    ]


def _squeezed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """``widths`` with the widest brought down to one measure, none below ``least``, until they fit into ``room``."""
    if sum(least) >= room:
        return list(least)
    low, high = 0, max(widths)  # the greatest measure that fits lies between the two
    while low < high:
        measure = (low + high + 1) // 2
        if sum(_capped(widths, least, measure)) <= room:
            low = measure
        else:
            high = measure - 1
    return _capped(widths, least, low)


def _capped(widths: Sequence[int], least: Sequence[int], measure: int) -> list[int]:
    return [max(floor, min(wide, measure)) for wide, floor in zip(widths, least, strict=True)]


def _columns(text: str) -> int:
    """How many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def cut(text: str, room: int) -> str:
    """``text``, ending in an ellipsis where it does not fit into ``room`` columns. Linear."""
    if _columns(text) <= room:
        return text
    wide = 0
    for number, char in enumerate(text):
        wide += _columns(char)
        if wide >= room:
            return text[:number] + "…"
    return text
