"""One input or output of an opened project: its rows at a version or label, what changed, its updates."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Literal

from ddcore.base.errors import UsageError
from ddcore.base.schema import Schema
from ddcore.io.project.times import Time, greatest, shown
from ddcore.io.reading.log_rows import Kind, Rows
from ddcore.text.cells import count
from ddcore.text.wording import brief

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcore.io.reading.folded import FoldedLog
    from ddcore.text.markup import Html

Version = int | str | date | Sequence[int] | Mapping[str, int]

_STEPS = 10  # versions of a log that a notebook shows


class Log:
    """The log of an input or output, as it was when it was taken from the project; take it again after a run.

    Versions are given as in the commands: numbers, ``"latest"``, ``-1`` for the one before it, labels, dates; with
    several time dimensions also tuples and dicts. What cannot be read is a UsageError, as in ``dd show`` and ``dd
    diff``: with ``or_before`` it is the newest version before. An input is read at the versions that are folded;
    :meth:`updates` has those that wait as well.
    """

    def __init__(
        self, log: FoldedLog, kind: Literal["input", "output"], key: tuple[str, ...], complete: Callable[[], object]
    ) -> None:
        self._log, self.kind, self.key, self._complete = log, kind, key, complete

    @property
    def name(self) -> str:
        """The name of the input or output."""
        return self._log.name

    @property
    def schema(self) -> Schema:
        """The names and types of a row's columns."""
        return dict(self._log.schema)

    @property
    def columns(self) -> list[str]:
        """The names of a row's columns."""
        return list(self._log.schema)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the time columns."""
        return self._log.log.dims

    @property
    def latest(self) -> int | tuple[int, ...]:
        """The last folded version; with several dimensions its coordinates. UsageError if nothing is folded."""
        return self._time("latest", "latest").plain

    def at(self, version: Version = "latest", *, where: Any = None, or_before: bool = False) -> Rows:
        """The collection as of a version, inclusive: its distinct rows, and in ``diff`` how often each is there.

        ``where``, here and below: only rows that meet this condition, as SQL text or as an expression of Polars. Of
        files only what may have such rows is read.
        """
        return self._rows("at", None, self._time(version, "at", or_before=or_before), where)

    def between(
        self, start: Version | None, end: Version = "latest", *, where: Any = None, or_before: bool = False
    ) -> Rows:
        """What changed after ``start``, up to and including ``end``; None for ``start``: from nothing.

        With ``start`` later than ``end`` it is the way back.
        """
        first = None if start is None else self._time(start, "start", or_before=or_before)
        return self._rows("between", first, self._time(end, "end", or_before=or_before), where)

    def updates(
        self, start: Version | None = None, end: Version | None = None, *, where: Any = None, or_before: bool = False
    ) -> Rows:
        """The updates after ``start``, up to and including ``end``, with their times; by default all of them."""
        first = None if start is None else self._time(start, "start", or_before=or_before)
        last = None if end is None else self._time(end, "end", or_before=or_before)
        if first is not None and last is not None and greatest([first, last]) != last:
            names = self._log.names
            raise UsageError(
                f"{self.name}: {names.named(last)} is not at or after {names.named(first)}",
                "name the earlier one first",
            )
        return self._rows("updates", first, last, where)

    def _rows(self, kind: Kind, start: Time | None, end: Time | None, where: Any) -> Rows:
        return Rows(self._log, kind, start, end, self.key, where=self._log.condition(where, f"{self.name}: where"))

    def _time(self, version: Any, what: str, *, or_before: bool = False) -> Time:
        origin = f"{self.name}: {what}"
        text = version_text(version, self.dims, origin)
        self._complete()
        time = self._log.readable.time(text, origin, or_before=or_before)
        self._log.check(time)
        return time

    def __repr__(self) -> str:
        return f"{self.kind} {self._log.heading}{self._span()}"

    def _span(self) -> str:
        log = self._log
        tops = log.readable.tops
        if not tops:
            return ", not folded yet"
        if len(self.dims) > 1:
            return f", folded up to {' and '.join(map(log.names.shown, tops))}"
        return f", versions {shown(log.least, self.dims)}..{log.names.shown(tops[0])}"

    def _repr_html_(self) -> str:
        from ddcore.text.markup import table
        from ddcore.text.notebook import fragment, heading, note

        rows = [[name, str(kind), "key" if name in self.key else ""] for name, kind in self.schema.items()]
        parts = [heading(self.name, f"{self.kind}{self._span()}"), table(["column", "type", ""], rows, label=self.name)]
        tops = self._log.readable.tops
        steps = self._log.steps(None, tops[0]) if len(tops) == 1 else []
        if steps:
            parts.append(self._versions(steps[: -_STEPS - 1 : -1]))
            if len(steps) > _STEPS:
                parts.append(note(f"The last {_STEPS} of {count(len(steps))} versions that changed something."))
        return fragment(*parts)

    def _versions(self, steps: list[tuple[Time, int, int]]) -> Html:
        """A table of versions with their labels, if any has one, and how much each inserted and deleted."""
        from ddcore.text.markup import table, tag

        heads, rows = ["version" if len(self.dims) == 1 else "time", "inserted", "deleted"], []
        for time, plus, minus in steps:
            sides = tag("span", f"+{count(plus)}", class_="up"), tag("span", f"-{count(minus)}", class_="down")
            rows.append([shown(time, self.dims), *sides, self._log.names.label(time)])
        if any(row[-1] for row in rows):
            return table([*heads, "label"], rows, right=(0, 1, 2), label="versions")
        return table(heads, [row[:-1] for row in rows], right=(0, 1, 2), label="versions")


def version_text(version: Any, dims: Sequence[str], origin: str) -> str:
    """A version as commands take it. UsageError, beginning with ``origin``, for what is none."""
    if isinstance(version, str):
        return version
    if isinstance(version, datetime):
        moment = version if version.tzinfo is None else version.astimezone(UTC)
        return moment.replace(tzinfo=None).isoformat() + ("" if version.tzinfo is None else "Z")
    if isinstance(version, date):
        return version.isoformat()
    if isinstance(version, Mapping):
        return ",".join(f"{name}={coordinate}" for name, coordinate in version.items())
    if isinstance(version, tuple | list) and len(version) == len(dims):
        return ",".join(f"{name}={coordinate}" for name, coordinate in zip(dims, version, strict=True))
    if not isinstance(version, bool) and hasattr(version, "__index__"):
        return str(operator.index(version))
    example = ", ".join(f"{name}=1" for name in dims)
    raise UsageError(
        f"{origin}: {brief(version)} is not a version",
        'give a number, "latest", a label or a date' if len(dims) == 1 else f"give a time: dict({example})",
    )
