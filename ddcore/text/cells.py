"""Values as people read them, and as JSON has them.

Text is for people: a very long value is cut, and what a terminal would obey or hide is spelt out. JSON is for
programs: every value is whole.
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

CELL = 1_000  # characters of a value that people are shown, wherever the text goes


def printable(text: str) -> str:
    """``text`` with every character that a terminal would obey, hide or reorder spelt out, such as ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def cell(value: Any) -> str:
    """A value as people read it: one printable line, and null not to be taken for the text ``null``.

    ``["a", null]`` is a list, ``{city: "Oslo", zip: 12}`` a struct. A text of more than 1,000 characters is cut and
    ends in its length.
    """
    if isinstance(value, list | dict | str):
        return _text_cell(value) if isinstance(value, str) else _nested_cell(value)
    if isinstance(value, bytes):
        return _cell_cut("0x" + value[:CELL].hex(), 2 + 2 * len(value))
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ") + "Z"
    names = {None: "null", True: "true", False: "false"}
    return names[value] if value is None or isinstance(value, bool) else str(value)


def _nested_cell(value: Any) -> str:
    text = _nested(value)
    return _cell_cut(text[:CELL], len(text))


def _nested(value: Any) -> str:
    """A value inside a list or struct, and these themselves; text is quoted."""
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    if isinstance(value, dict):
        if _is_interval(value):
            return interval_text(value)
        return f"{{{', '.join(f'{_name(name)}: {_nested(field)}' for name, field in value.items())}}}"
    if isinstance(value, str):
        return printable(json.dumps(value, ensure_ascii=False))
    return cell(value)


def _name(name: Any) -> str:
    """The name of a field, or a key of a map."""
    return printable(name) if isinstance(name, str) else cell(name)


def _is_interval(value: dict[Any, Any]) -> bool:
    """Whether Python's form of a value is that of an interval."""
    return [*value] == ["months", "days", "microseconds"] and all(isinstance(part, int) for part in value.values())


def interval_text(value: dict[str, int]) -> str:
    """An interval as PostgreSQL writes it, such as ``1 year 2 mons -3 days +04:05:06``."""
    months, days, clock = value.values()
    factor = 1 if months > 0 else -1
    years, months = abs(months) // 12 * factor, abs(months) % 12 * factor
    words, is_behind_minus = [], False
    for number, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if number:
            words.append(f"{'+' if is_behind_minus and number > 0 else ''}{number} {unit}{'' if number == 1 else 's'}")
            is_behind_minus = number < 0
    if clock or not words:
        sign = "-" if clock < 0 else "+" if is_behind_minus else ""
        minutes, rest = divmod(abs(clock), 60_000_000)
        fraction = f"{rest % 1_000_000:06}".rstrip("0")
        point = "." if fraction else ""
        words.append(f"{sign}{minutes // 60:02}:{minutes % 60:02}:{rest // 1_000_000:02}{point}{fraction}")
    return " ".join(words)


def _text_cell(text: str) -> str:
    head = text[:CELL]
    if text in ("", "null") or text != text.strip():
        head = json.dumps(head, ensure_ascii=False)
    return _cell_cut(printable(head), len(text))


def _cell_cut(head: str, length: int) -> str:
    return head if length <= CELL else f"{head[:CELL]}… ({count(length)} characters)"


def plain(value: Any) -> Any:
    """A value as JSON has it: dates, times of day, intervals and decimals as text, bytes in hexadecimal, NaN and
    infinities by name.

    Lists are arrays, structs and maps objects of such values.
    """
    if isinstance(value, list | dict):
        if isinstance(value, dict) and _is_interval(value):
            return interval_text(value)
        return {_key(name): plain(value[name]) for name in value} if isinstance(value, dict) else [*map(plain, value)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, date | time | Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def _key(name: Any) -> str:
    """A key of a map as JSON has it: text."""
    return name if isinstance(name, str) else str(plain(name)) if not isinstance(name, bool) else json.dumps(name)


def count(number: int) -> str:
    """A number with its thousands set apart: ``1,494``."""
    return f"{number:,}"
