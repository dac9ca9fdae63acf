"""Values as people read them, and as JSON has them.

Text is for people: a very long value is cut, and what a terminal would obey or hide is spelt out. JSON is for
programs: every value is whole.
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

__all__ = ["cell", "count", "plain", "printable"]

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
        return f"{{{', '.join(f'{printable(name)}: {_nested(field)}' for name, field in value.items())}}}"
    if isinstance(value, str):
        return printable(json.dumps(value, ensure_ascii=False))
    return cell(value)


def _text_cell(text: str) -> str:
    head = text[:CELL]
    if text in ("", "null") or text != text.strip():
        head = json.dumps(head, ensure_ascii=False)
    return _cell_cut(printable(head), len(text))


def _cell_cut(head: str, length: int) -> str:
    return head if length <= CELL else f"{head[:CELL]}… ({count(length)} characters)"


def plain(value: Any) -> Any:
    """A value as JSON has it: dates and decimals as text, bytes in hexadecimal, NaN and infinities by name.

    Lists are arrays and structs objects of such values.
    """
    if isinstance(value, list | dict):
        return {name: plain(value[name]) for name in value} if isinstance(value, dict) else [*map(plain, value)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def count(number: int) -> str:
    """A number with its thousands set apart: ``1,494``."""
    return f"{number:,}"
