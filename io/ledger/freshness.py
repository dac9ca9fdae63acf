"""How fresh the inputs with a declared source are: the age of their newest rows, and whether it is as expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ddcore.base.errors import LateSource
from ddcore.io.ledger.labels import json_instant
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.declared import DeclaredSource
from ddcore.io.project.project import Project
from ddcore.program import data_tests
from ddcore.text.wording import listed

_UNITS = (("week", 7 * 86_400), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class Freshness:
    """The ``newest`` rows of an input: the date of the newest file or commit of its last ingest, else that of the
    ingest; None where nothing was taken in. ``age`` is that of the newest rows.
    """

    input: str
    source: DeclaredSource
    newest: datetime | None
    age: timedelta | None

    @property
    def is_late(self) -> bool:
        """Whether the newest rows are older than expected; an input without rows is late as well."""
        expect = self.source.expect
        return expect is not None and (self.age is None or self.age > expect)

    def at(self, now: datetime) -> Freshness:
        """The freshness of the same rows at a later moment."""
        return replace(self, age=None if self.newest is None else max(timedelta(), now - self.newest))

    @property
    def sentence(self) -> str:
        """What is known of the input, for people: ``newest rows 3 hours old, expected within 1 day``."""
        what = "no rows yet" if self.age is None else f"newest rows {shown_age(self.age)} old"
        return what if self.source.expect is None else f"{what}, expected within {shown_age(self.source.expect)}"

    @property
    def record(self) -> dict[str, Any]:
        """The fields of the JSON object; ``age`` and ``expect`` are in seconds."""
        age, expect = self.age, self.source.expect
        return {
            "input": self.input,
            "path": list(self.source.paths),
            "form": self.source.form,
            "newest": json_instant(self.newest),
            "age": None if age is None else round(age.total_seconds(), 3),
            "expect": None if expect is None else expect.total_seconds(),
            "severity": self.source.severity,
            "late": self.is_late,
        }


def freshness(project: Project, ledger: Ledger, now: datetime | None = None) -> list[Freshness]:
    """How fresh each input with a declared source is. Reads the index of ingests, and one record an input."""
    now = now or datetime.now(UTC)
    fresh = []
    for name, source in project.sources.items():
        fresh.append(Freshness(name, source, _newest(ledger, name), None).at(now))
    return fresh


def _newest(ledger: Ledger, name: str) -> datetime | None:
    index = ledger.ingest_index(name)
    if not index.numbers:
        return None
    (record,) = ledger.ingests_at(index, [max(index.numbers)])
    return datetime.fromisoformat(record.newest) if record.newest else record.at


def late_source(fresh: Sequence[Freshness]) -> LateSource | None:
    """The error where sources are late that must not be; None without any."""
    late = [one for one in fresh if one.is_late and one.source.severity == data_tests.ERROR]
    if not late:
        return None
    more = f"; late as well: {listed(one.input for one in late[1:])}" if len(late) > 1 else ""
    return LateSource(
        f"input {late[0].input}: {late[0].sentence}{more}",
        f"look at what writes {late[0].source.paths[0]}; what is there was taken in, and folded",
    )


def shown_age(age: timedelta) -> str:
    """A time span in its largest whole unit: ``36 hours`` is ``1.5 days``.

    >>> shown_age(timedelta(hours=36)), shown_age(timedelta(minutes=1))
    ('1.5 days', '1 minute')
    """
    seconds = age.total_seconds()
    unit, size = next((pair for pair in _UNITS if seconds >= pair[1]), _UNITS[-1])
    number = f"{seconds / size:.1f}".removesuffix(".0")
    return f"{number} {unit}{'s' * (number != '1')}"
