"""Quoted pieces of a program: texts, quoted names and comments, and those that are not closed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ddcore.base.errors import ProgramError
from ddcore.sql.source import DIALECT, Source, cut

_BEGINS = re.compile(r"--|/\*|\{#|(?:(?<!\w)(?:[ebxEBX]|[uU]&))?'|\"|(?<![\w$])\$\w*\$")
_BEGINS_OF_SPARK = re.compile(r"--|/\*|\{#|(?:(?<!\w)[rR])?['\"]|`")
_BLOCK = re.compile(r"/\*|\*/")
_BEHIND = re.compile(r"[\w%]")
_RUNS_ON = re.compile(
    r";\s*\n|\n\s*(?:SELECT|FROM|WHERE|GROUP|HAVING|ORDER|LIMIT|UNION|JOIN|LEFT|AND|OR|CREATE|WITH|QUALIFY)\b", re.I
)
_INSIDE = ("twice: 'it''s'", r"with a backslash: 'it\'s'")
_KINDS = {"name": ("this name in double quotes", '"'), "comment": ("this comment", "*/")}


@dataclass(frozen=True)
class Quoted:
    """A piece with its quotes: ``kind`` is text, name or comment; ``end`` is behind its last character."""

    kind: str
    start: int
    end: int
    closed: bool


def quoted(text: str, dialect: str = DIALECT) -> Iterator[Quoted]:
    """All pieces in which the words of SQL mean nothing, in order."""
    position, is_spark = 0, dialect in ("spark", "databricks")
    begins, names = (_BEGINS_OF_SPARK, "`") if is_spark else (_BEGINS, '"')
    while begin := begins.search(text, position):
        mark = begin.group()
        kind = "comment" if mark in ("--", "/*", "{#") else "name" if mark == names else "text"
        end = _end(text, begin.end(), mark, escapes=is_spark and kind == "text" and len(mark) == 1)
        position = len(text) if end is None else end
        yield Quoted(kind, begin.start(), position, end is not None)


def _end(text: str, position: int, mark: str, *, escapes: bool) -> int | None:
    """Where a piece ends whose first mark ends at ``position``; None where nothing closes it."""
    if mark == "--":
        line = text.find("\n", position)
        return len(text) if line < 0 else line
    if mark == "/*":
        return _end_of_block(text, position)
    if mark[0] in "${":
        mark = "#}" if mark == "{#" else mark
        tag = text.find(mark, position)
        return None if tag < 0 else tag + len(mark)
    quote = mark[-1]
    escape = r"\\.|" if mark[0] in "eE" or escapes else ""
    inner = re.compile(rf"(?:{escape}{quote}{quote}|[^{quote}{escape and chr(92) * 2}])*+", re.DOTALL)
    last = inner.match(text, position)
    end = last.end() if last else position
    return end + 1 if text[end : end + 1] == quote else None


def _end_of_block(text: str, position: int) -> int | None:
    depth = 1
    for mark in _BLOCK.finditer(text, position):
        depth += 1 if mark.group() == "/*" else -1
        if not depth:
            return mark.end()
    return None


def unclosed(source: Source, start: int = 0, end: int | None = None, *, surely: bool = True) -> ProgramError | None:
    """The error of a piece that is not closed and begins between ``start`` and ``end``; None where there is none.

    A forgotten quote closes at the first quote of the next text. So this is the first piece that goes over a line's end
    into further SQL, or ends just before a word, else the one that nothing closes. Not ``surely``: the first alone.
    """
    text = source.text
    pieces = [
        span for span in quoted(text, source.dialect) if start <= span.start and (end is None or span.start < end)
    ]
    for span in pieces:
        piece = text[span.start : span.end]
        runs_on = span.closed and span.kind != "comment" and "\n" in piece
        if runs_on and (_RUNS_ON.search(piece) or _BEHIND.match(text, span.end)):
            return _error(source, span)
    return next((_error(source, span) for span in pieces if not span.closed), None) if surely else None


def _error(source: Source, piece: Quoted) -> ProgramError:
    first, _, _ = source.text[piece.start : piece.end].partition("\n")
    what, mark = _KINDS.get(piece.kind, ("this text", "'"))
    if first[0] in '`"':
        what, mark = ("this name in back quotes" if first[0] == "`" else what), first[0]
    if first[0] == "$":
        mark = first[: first.index("$", 1) + 1]
    elif first[0] == "{":
        mark = "#}"
    hint = f"add {mark} where it ends"
    if piece.kind == "text" and mark == "'":
        is_spark = source.dialect in ("spark", "databricks")
        hint += f"; a quote inside of a text is written {_INSIDE[is_spark]}"
    return source.error_at(piece.start, f"{what} is not closed: {cut(first)}", hint)
