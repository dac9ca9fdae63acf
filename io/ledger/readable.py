"""Versions as people type them: ``7``, ``latest``, ``-1``, ``3..7``, ``2026-11-19``; and times of several dimensions.

``latest`` is the last folded version; a negative number counts back from it in numbers, so ``-1`` is ``latest - 1``.
With several dimensions ``latest`` is the greatest complete time, if there is one, and there are no offsets. A range
``A..B`` is what happened after A, up to and including B; ``..B`` begins with nothing and ``A..`` ends at latest.
Labels and dates are looked up in :mod:`ddcore.io.ledger.version_names`. Nothing here reads a table: the caller passes
what is complete, and the names.
"""

from __future__ import annotations

import re

from ddcore.base.errors import UsageError
from ddcore.base.lattice import Frontier
from ddcore.base.record import record
from ddcore.io.ledger.version_names import OR_BEFORE, VersionNames
from ddcore.io.project.frontiers import corners, is_open, shown_frontier
from ddcore.io.project.times import Time, example, named

_OFFSET = re.compile(r"(?:latest)?-([0-9]+)")
_GREATEST = 2**63 - 1
_VERSIONS = "the folded versions: ddcore log --versions"


@record
class Readable:
    """The times that can be read: at or beyond ``since`` and not at or beyond ``upper``; and their names."""

    dims: tuple[str, ...]
    since: Frontier
    upper: Frontier
    names: VersionNames

    def time(self, text: str, origin: str, *, begins: bool = False, or_before: bool = False) -> Time:
        """The time that ``text`` names; UsageError unless it can be read. ``begins``: a range begins there.

        ``or_before``: of a name or number without a version that can be read, the newest one before it.
        """
        if len(self.dims) > 1 and text.strip() == "latest":
            return self.latest(origin)
        latest = Time(coordinate - 1 for coordinate in self.upper[0])  # asked for with one dimension only
        time = time_named(text, latest, origin, self.names, begins=begins, nearest=begins or or_before)
        if len(self.dims) == 1 and time > latest:
            if not or_before or latest.version < 0:
                raise self._unfolded(text, time, latest, origin)
            time = latest
        self.check(time, origin)
        return time

    def _unfolded(self, text: str, time: Time, latest: Time, origin: str) -> UsageError:
        is_number = text.rpartition("=")[2].strip().isdigit()
        what = f"version {time} is" if is_number else f"{text.strip()!r} is version {time}, which is"
        return UsageError(
            f"{origin}: {what} not yet complete: the last folded version is {self.names.shown(latest)}",
            f"which versions are waiting: ddcore status; {OR_BEFORE}",
        )

    def check(self, time: Time, origin: str) -> None:
        """UsageError, with both frontiers, for a time that cannot be read."""
        since, upper = (shown_frontier(frontier, self.dims) for frontier in (self.since, self.upper))
        if is_open(time, self.upper):
            why, hint = "is not yet complete", "which times are waiting: ddcore status"
        elif not is_open(time, self.since):
            why, hint = "can no longer be read", "read a time at or beyond one of since"
            if len(self.dims) == 1:
                hint = f"read {since} or a later one"
        else:
            return
        raise UsageError(f"{origin}: {named(time, self.dims)} {why}: since is {since}, upper is {upper}", hint)

    @property
    def tops(self) -> list[Time]:
        """The greatest complete times; none where nothing is complete."""
        return corners(self.upper)

    def latest(self, origin: str) -> Time:
        """The greatest complete time; UsageError where there are several."""
        tops = self.tops
        if len(tops) != 1:
            texts = " and ".join(named(top, self.dims) for top in tops)
            raise UsageError(f"{origin}: there is no latest time: {texts} are complete, no time after both", "name one")
        return tops[0]

    def range(self, first: str, second: str | None, *, or_before: bool = False) -> tuple[Time | None, Time]:
        """``A B`` or ``A..B`` as two times. None for A is the time before everything."""
        sample = "-1 latest" if len(self.dims) == 1 else f"{example(self.dims)} latest"
        hint = f"say A B or A..B, for example: {sample}"
        if second is None:
            if ".." not in first:
                raise UsageError(f"diff needs two versions, got {first!r}", hint)
            first, _, second = first.partition("..")
        elif ".." in first or ".." in second:
            raise UsageError(f"diff takes A B or A..B, not both: {first!r} {second!r}", hint)
        elif not (first.strip() and second.strip()):
            raise UsageError(f"diff needs two versions, got {first!r} {second!r}", "is a variable not set?")
        start = self.time(first, "A", or_before=or_before) if first.strip() else None
        return start, self.time(second.strip() or "latest", "B", or_before=or_before)


def time_named(
    text: str, latest: Time, origin: str, names: VersionNames, *, begins: bool = False, nearest: bool = False
) -> Time:
    """The time that ``text`` stands for, where ``latest`` is the latest; it need not be folded.

    ``version=7`` is 7. ``names`` has the names of the time dimensions and those of versions. ``begins`` and
    ``nearest``: as in :meth:`VersionNames.coordinate`.
    """
    text = text.strip()
    if text == "latest":
        return latest
    if len(names.dims) > 1 or "=" in text:
        return names.time(text, origin, begins=begins, nearest=nearest)
    if text.isascii() and text.isdigit():
        version = _number(text)
        if version > _GREATEST:
            raise UsageError(f"{origin}: {text} is beyond the greatest version, {_GREATEST}", _VERSIONS)
    elif offset := _OFFSET.fullmatch(text):
        version = latest.version - _number(offset[1])
        if version < 0:
            raise UsageError(f"{origin}: {text!r} goes back beyond version 0: the latest is {latest}", _VERSIONS)
    else:
        version = names.coordinate(text, origin, begins=begins, nearest=nearest)
    return Time([version])


def _number(digits: str) -> int:
    """``digits`` as a number; Python refuses to convert thousands of them, and all that are too many mean the same."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= len(str(_GREATEST)) else _GREATEST + 1
