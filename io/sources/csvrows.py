"""The rows of a CSV file, seen as its bytes pass: refused are a quote that never closes, and a row that is too long.

pyarrow takes a quote that is open at the end of a file for closed there, and text after a closing quote for text of the
field. Either way a file that was cut off, or has lost a quote, would have fewer rows, and nobody would know.

A quote opens a field only at its beginning; ``5" pipe`` is text. Quotes are found for a whole portion at once: without
quotes in plain text each second one closes a field, or is the first of two that stand for one. Only a portion that has
quotes in plain text is gone through quote by quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddcore.base.errors import DataError
from ddcore.base.lazy import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Positions = npt.NDArray[np.int64]

LONGEST_ROW = 16 << 20  # bytes without the end of the line

_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
_OPENER = re.compile(rb'(?<![^,\r\n])"')
_NEXT, _CLOSES = b",\r\n", b',\r\n"'  # what a field ends before; what follows a quote in a quoted field
_BOM, _UTF16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_BEGIN, _PLAIN, _QUOTED, _CLOSED = range(4)  # at a field's begin, in plain text, in quotes, after a quote in quotes


class Rows:
    """The rows of a file, whose source has this ``name`` in messages; of at most ``longest`` bytes each."""

    def __init__(self, file: pa.NativeFile, name: str, longest: int = LONGEST_ROW) -> None:
        self._file, self._name, self._longest = file, name, longest
        self._last = _NEWLINE  # the byte before the next one
        self._state, self._opened = _BEGIN, 1  # before the next byte; the line of the newest quote that opened a field
        self._line = 1  # of the next byte
        self._row_line, self._row_bytes = 1, 0  # where the row of the next byte began, and how much of it was read

    def blocks(self, size: int) -> Iterator[bytes]:
        """Whole rows of some ``size`` bytes. DataError for a row or a quote that is wrong."""
        rest, is_utf8 = b"", True
        while portion := bytes(self._file.read(size)):
            if self._line == 1 and not rest:
                is_utf8, portion = not portion.startswith(_UTF16), portion.removeprefix(_BOM)
            if portion and is_utf8:  # pyarrow says what is wrong with the rest
                self._check(portion)
            end = len(portion) - self._row_bytes if is_utf8 else len(portion)
            if end > 0:
                yield rest + portion[:end]
                rest = b""
            rest += portion[max(end, 0) :]
        if self._state == _QUOTED:
            raise DataError(
                f"{self._name}: not a readable CSV file: it ends inside of the quote that opens in line {self._opened}",
                "if the file was cut off, copy it again; else close the quote. A quote in a quoted field is written "
                "twice",
            )
        if rest:
            yield rest

    def _check(self, portion: bytes) -> None:
        data = np.frombuffer(portion, np.uint8)
        is_inside = int(self._state == _QUOTED)
        quotes = self._quotes(portion, data)
        opening, closing = quotes[is_inside::2], quotes[1 - is_inside :: 2]
        begins = opening[self._before(data, opening) != _QUOTE]  # the others are the second of two
        after = closing[closing < len(data) - 1] + 1
        after = after[~_is_any(data[after], _CLOSES)]
        if self._state == _CLOSED and data[0] not in _CLOSES:
            after = np.zeros(1, np.int64)
        if len(after):
            self._refuse_text(portion, begins, int(after[0]))
        has_returns = b"\r" in portion or self._last == _RETURN
        lines = ends = np.flatnonzero((data == _NEWLINE) | (data == _RETURN) if b"\r" in portion else data == _NEWLINE)
        if len(quotes):
            ends = ends[(np.searchsorted(quotes, ends) + is_inside) % 2 == 0]
        elif is_inside:
            ends = ends[:0]
        if (len(quotes) + is_inside) % 2:
            state = _QUOTED
        elif data[-1] in _NEXT:
            state = _BEGIN
        else:
            state = _CLOSED if len(quotes) and quotes[-1] == len(data) - 1 else _PLAIN
        if state in (_QUOTED, _CLOSED) and len(begins):
            self._opened = self._line_at(portion, int(begins[-1]))
        self._state = state
        self._check_lengths(portion, ends, None if has_returns else lines)
        last = self._line_at(portion, len(portion)) if has_returns else self._line + len(lines)
        self._line, self._last = last, int(data[-1])

    def _quotes(self, portion: bytes, data: npt.NDArray[np.uint8]) -> Positions:
        """The quotes that open and close fields, in turn; two that stand for one close it and open it again."""
        quotes: Positions = np.flatnonzero(data == _QUOTE) if b'"' in portion else np.empty(0, np.int64)
        opening = quotes[int(self._state == _QUOTED) :: 2]
        is_text = ~_is_any(self._before(data, opening), _CLOSES)
        if not is_text.any() and not (self._state == _PLAIN and data[0] == _QUOTE):
            return quotes
        found, at, is_inside = list[int](), int(self._state == _PLAIN), self._state == _QUOTED
        if self._state == _CLOSED and data[0] == _QUOTE:
            found, at, is_inside = [0], 1, True
        while at < len(portion):
            if is_inside:
                position = portion.find(b'"', at)
            else:
                match = _OPENER.search(portion, at)
                position = match.start() if match else -1
            if position < 0:
                break
            found.append(position)
            at, is_inside = position + 1, not is_inside
            if not is_inside and portion[at : at + 1] == b'"':
                found.append(at)
                at, is_inside = at + 1, True
        return np.array(found, np.int64)

    def _before(self, data: npt.NDArray[np.uint8], positions: Positions) -> npt.NDArray[np.uint8]:
        """The byte before each of these places."""
        before = data[positions - 1]
        if len(positions) and positions[0] == 0:
            before[0] = self._last
        return before

    def _check_lengths(self, portion: bytes, ends: Positions, lines: Positions | None) -> None:
        """Raise DataError for a row that is too long; ``ends`` are those of rows, ``lines`` those of lines if known."""
        bounds = np.concatenate([[-self._row_bytes - 1], ends, [len(portion)]])
        if (too_long := np.flatnonzero(np.diff(bounds) - 1 > self._longest)).size:
            first = int(too_long[0])
            line = self._line_at(portion, int(ends[first - 1]) + 1) if first else self._row_line
            inside = f", inside of the quote that opens in line {self._opened}" if self._state == _QUOTED else ""
            raise DataError(
                f"{self._name}: not a readable CSV file: a row of more than {self._longest >> 20} MiB (line {line}"
                f"{inside})",
                "look for a quote that is never closed; longer rows are read from Parquet only",
            )
        self._row_bytes = len(portion) - int(bounds[-2]) - 1
        if len(ends):
            begin = int(ends[-1]) + 1
            if lines is None:
                self._row_line = self._line_at(portion, begin)
            else:
                self._row_line = self._line + int(np.searchsorted(lines, begin))

    def _refuse_text(self, portion: bytes, begins: Positions, position: int) -> None:
        begins = begins[begins < position]
        opened = self._line_at(portion, int(begins[-1])) if len(begins) else self._opened
        line = self._line_at(portion, position)
        raise DataError(
            f"{self._name}: not a readable CSV file: text after a closing quote (line {line}), of the field that opens "
            f"in line {opened}",
            "is a quote missing before it? A comma or the end of the line follows a closing quote; a quote in a quoted "
            "field is written twice",
        )

    def _line_at(self, portion: bytes, position: int) -> int:
        """The line of a place in a portion."""
        line = self._line + portion.count(b"\n", 0, position)
        if b"\r" in portion:
            line += portion.count(b"\r", 0, position) - portion.count(b"\r\n", 0, position + 1)
        return line - (position > 0 and self._last == _RETURN and portion[:1] == b"\n")


def _is_any(data: npt.NDArray[np.uint8], of: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(of)] = True
    return table[data]
