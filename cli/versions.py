"""Versions as people type them: ``7``, ``latest``, ``-1``, ``3..7``.

``latest`` is the last folded version; a negative number counts back from it in numbers, so ``-1`` is ``latest - 1``.
A range ``A..B`` is what happened after A, up to and including B; ``..B`` begins with nothing and ``A..`` ends at
latest. Nothing here reads a table: the caller passes the last folded version.
"""

from __future__ import annotations

import re

from ddcore.errors import UsageError

__all__ = ["one_version", "version_number", "version_range"]

_OFFSET = re.compile(r"(?:latest)?-([0-9]+)")
_TUPLE = re.compile(r"\s*\w+\s*=\s*-?\d+\s*(,\s*\w+\s*=\s*-?\d+\s*)*")
_GREATEST = 2**63 - 1
_VERSIONS = "the folded versions: ddcore log --versions"


def one_version(text: str, latest: int, origin: str = "version") -> int:
    """The version that ``text`` names; UsageError unless it is folded (at most ``latest``)."""
    version = version_number(text, latest, origin)
    if version > latest:
        raise UsageError(
            f"{origin}: version {version} is not yet complete: the last folded version is {latest}",
            "which versions are waiting: ddcore status",
        )
    return version


def version_range(first: str, second: str | None, latest: int) -> tuple[int | None, int]:
    """``A B`` or ``A..B`` as two versions. None for A is the time before everything."""
    if second is None:
        if ".." not in first:
            raise UsageError(f"diff needs two versions, got {first!r}", "say A B or A..B, for example: -1 latest")
        first, _, second = first.partition("..")
    elif ".." in first or ".." in second:
        raise UsageError(
            f"diff takes A B or A..B, not both: {first!r} {second!r}", "say A B or A..B, for example: -1 latest"
        )
    elif not (first.strip() and second.strip()):
        raise UsageError(f"diff needs two versions, got {first!r} {second!r}", "is a variable not set?")
    start = one_version(first, latest, "A") if first.strip() else None
    return start, one_version(second.strip() or "latest", latest, "B")


def version_number(text: str, latest: int, origin: str) -> int:
    """The number that ``text`` stands for, where ``latest`` is the latest; it need not be folded."""
    text = text.strip()
    if text == "latest":
        return latest
    if text.isascii() and text.isdigit():
        version = _number(text)
        if version > _GREATEST:
            raise UsageError(f"{origin}: {text} is beyond the greatest version, {_GREATEST}", _VERSIONS)
        return version
    if offset := _OFFSET.fullmatch(text):
        version = latest - _number(offset[1])
        if version < 0:
            raise UsageError(f"{origin}: {text!r} goes back beyond version 0: the latest is {latest}", _VERSIONS)
        return version
    if _TUPLE.fullmatch(text):
        raise UsageError(
            f"{origin}: {text!r}: the commands support one time dimension: see docs/limits.md",
            "one dimension is a number, latest, or a negative offset",
        )
    raise UsageError(f"{origin}: {text!r} is not a version", "say a number, latest, or a negative offset such as -1")


def _number(digits: str) -> int:
    """``digits`` as a number; Python refuses to convert thousands of them, and all that are too many mean the same."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= len(str(_GREATEST)) else _GREATEST + 1
