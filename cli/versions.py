"""Versions as people type them: ``7``, ``latest``, ``-1``, ``3..7``.

``latest`` is the last folded version; a negative number counts back from it in numbers, so ``-1`` is ``latest - 1``.
A range ``A..B`` is what happened after A, up to and including B; ``..B`` begins with nothing and ``A..`` ends at
latest. Nothing here reads a table: the caller says what is folded.
"""

from __future__ import annotations

import re

from ddcore.errors import UsageError

__all__ = ["one_version", "version_number", "version_range"]

_OFFSET = re.compile(r"(?:latest)?-(\d+)")
_TUPLE = re.compile(r"\s*\w+\s*=\s*-?\d+\s*(,\s*\w+\s*=\s*-?\d+\s*)*")
_GREATEST = 2**63 - 1
_VERSIONS = "what there is: ddcore log --versions"


def one_version(text: str, latest: int, said_by: str = "version") -> int:
    """The version that ``text`` names; UsageError unless it is folded (at most ``latest``)."""
    version = version_number(text, latest, said_by)
    if version > latest:
        raise UsageError(
            f"{said_by}: version {version} is not yet complete: the last folded version is {latest}",
            "what waits to be folded: ddcore status",
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
    start = one_version(first, latest, "A") if first.strip() else None
    return start, one_version(second.strip() or "latest", latest, "B")


def version_number(text: str, latest: int, said_by: str) -> int:
    """The number that ``text`` stands for, where ``latest`` is the latest; whether it is folded is not asked."""
    text = text.strip()
    if text == "latest":
        return latest
    if text.isascii() and text.isdigit():
        version = int(text)
        if version > _GREATEST:
            raise UsageError(f"{said_by}: {text} is beyond the greatest version, {_GREATEST}", _VERSIONS)
        return version
    if offset := _OFFSET.fullmatch(text):
        version = latest - int(offset[1])
        if version < 0:
            raise UsageError(f"{said_by}: {text!r} goes back beyond version 0: the latest is {latest}", _VERSIONS)
        return version
    if _TUPLE.fullmatch(text):
        raise UsageError(
            f"{said_by}: {text!r}: the commands support one time dimension: see docs/limits.md",
            "one dimension is a number, latest, or a negative offset",
        )
    raise UsageError(f"{said_by}: {text!r} is not a version", "say a number, latest, or a negative offset such as -1")
