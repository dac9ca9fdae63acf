"""Text of commands: values and tables as everywhere, and lines of messages and of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ddcore.text.cells import cell, count, plain, printable
from ddcore.text.listing import aligned, cut, laid_out

__all__ = [
    "aligned", "cell", "count", "cut", "duration", "json_text", "laid_out", "message", "plain", "printable",
    "size", "titled",
]  # fmt: skip

MESSAGE = 2_000  # characters of a message


def titled(headers: Sequence[str], rows: Iterable[Sequence[str]], width: int, right: Sequence[int] = ()) -> list[str]:
    """A table under its headers, after an empty line; nothing where it has no rows."""
    table = [headers, *rows]
    return ["", *aligned(table, right, width, header=True)] if len(table) > 1 else []


def message(text: str) -> str:
    """``text`` as one printable line; the middle of a very long one is left out."""
    if len(text) > MESSAGE:
        head, tail = text[: MESSAGE * 3 // 4], text[-MESSAGE // 4 :]
        text = f"{head} … ({count(len(text) - len(head) - len(tail))} characters left out) … {tail}"
    return printable(text)


def json_text(value: Any, *, ascii_only: bool = False) -> str:
    """``value`` as one line of JSON. Characters that are not printable are spelt ``\\u001b``: the value is the same."""
    text = json.dumps(value, ensure_ascii=ascii_only, allow_nan=False)
    return text if text.isprintable() else re.sub(r"[^ -~]", _json_character, text)


def _json_character(char: re.Match[str]) -> str:
    return char[0] if char[0].isprintable() else json.dumps(char[0])[1:-1]


def size(number: float) -> str:
    """Bytes for people: ``13.2 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def duration(seconds: float) -> str:
    """Seconds for people: ``1.4 s``, ``12 ms``."""
    if seconds >= 1:
        return f"{seconds:,.1f} s"
    if seconds >= 0.001 or seconds == 0:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.00005 else "<0.1 ms"
