"""Names of versions: which version a label, a date, a timestamp, ``today``, ``yesterday`` or ``now`` means.

A date is a day in UTC, and means the last version that was made on that day; a day on which none was made is an error.
A timestamp is an instant: it means the newest version made by then, and is an error after the newest of all. Only who
asks for the nearest version gets one of another day. Where something begins, both mean the first version made then or
later. A version was made when its label says, if that is a date or a timestamp; else at its instant, and not before the
dates in the labels of earlier versions. ``docs/version-names.md`` has the rules for users. Numbers never come here.

With several time dimensions each coordinate has names of its own. Must not import anything heavy.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from ddcore.base.errors import UsageError
from ddcore.base.instants import Instants, microseconds
from ddcore.io.ledger.labels import (
    DATE,
    TIMESTAMP,
    Name,
    Names,
    instant_text,
    json_instant,
    label_text,
    merged,
    moment_of,
)
from ddcore.io.project.times import Time, named, parse, shown

_ANY = "say a number, a label, or a date such as 2026-11-19"
_ALL = "the labels: ddcore log"
_NEW = "a new one is a number, or next, and gets its label with: --label TEXT"
OR_BEFORE = "for the newest one before: --or-before (in Python: or_before=True)"
_NEAR = 3  # labels that an error offers, or versions that it names


def _now() -> datetime:
    return datetime.now(UTC)


class VersionNames:
    """The names of the versions of a warehouse with the time dimensions ``dims``.

    ``notes`` gives the ledger's labels, in whose form :func:`ddcore.io.ledger.labels.merged` reads them; it is called
    when they are needed. ``inputs``: those whose ingests count; None: of all.
    """

    def __init__(
        self,
        dims: Sequence[str],
        notes: Callable[[], Iterable[str]] = tuple,
        inputs: Collection[str] | None = None,
    ) -> None:
        self.dims, self._notes, self._inputs = tuple(dims), notes, inputs

    @cached_property
    def _names(self) -> Names:
        names = merged(self._notes(), self._inputs)
        return names + [{} for _ in self.dims[len(names) :]]

    @cached_property
    def _labelled(self) -> list[dict[str, list[int]]]:
        """For each dimension the coordinates of each label, sorted."""
        labelled: list[dict[str, list[int]]] = [{} for _ in self._names]
        for of, names in zip(labelled, self._names, strict=True):
            for coordinate in sorted(names):
                for label in names[coordinate].labels:
                    of.setdefault(label, []).append(coordinate)
        return labelled

    @cached_property
    def _moments(self) -> list[dict[int, str]]:
        """For each dimension, by coordinate: when it was made. A file may be older than a label that is a date and
        belongs to an earlier version; that version is then not newer than those after it.
        """
        moments: list[dict[int, str]] = [{} for _ in self._names]
        for of, names in zip(moments, self._names, strict=True):
            latest = ""
            for coordinate in sorted(names):
                dated, instant = names[coordinate].dated, names[coordinate].instant
                latest = max(latest, dated or "")
                if dated or instant:
                    of[coordinate] = dated or max(latest, instant or "")
        return moments

    @property
    def instants(self) -> Instants:
        """When the coordinates of each dimension were made, as numbers."""
        return tuple(
            {coordinate: microseconds(datetime.fromisoformat(text)) for coordinate, text in of.items()}
            for of in self._moments
        )

    def read(self) -> VersionNames:
        """These names, read now. Without the warehouse's lock the ledger's files may be others later."""
        assert len(self._names) >= len(self.dims)
        return self

    # --- what a text means ---

    def time(self, text: str, origin: str, *, begins: bool = False, nearest: bool = False) -> Time:
        """The time that a text names: each coordinate by a number or a name, as :meth:`coordinate`."""

        def by_name(part: str, dimension: int) -> int:
            return self.coordinate(part, origin, dimension, begins=begins, nearest=nearest)

        return parse(text, self.dims, origin, by_name)

    def coordinate(
        self, text: str, origin: str, dimension: int = 0, *, begins: bool = False, nearest: bool = False
    ) -> int:
        """The coordinate that a name means, in this dimension. ``begins``: something begins there.

        ``nearest``: a date may mean a version of another day: the newest one before, or the next where something
        begins. UsageError, beginning with ``origin``, where the name means no version, or several.
        """
        text = text.strip()
        if (span := _span(text, origin)) is not None:
            moments = self._dated(text, origin, dimension)
            found = self._at(text, span, moments, origin, dimension, begins=begins)
            if not nearest and text != "now":  # now is the newest one, by its meaning
                self._check_made(text, span, moments, origin, dimension, begins=begins)
            return found
        if (labelled := self._with_label(text, origin, dimension)) is not None:
            return labelled
        if text == "latest":
            raise UsageError(f"{origin}: latest is a whole time, not one coordinate", "name the coordinate by a number")
        raise self._unknown(text, origin, dimension)

    def labelled(self, text: str, origin: str, dimension: int = 0) -> int:
        """The coordinate that has this label: for what is written, where a date must not mean a version near it.

        UsageError, beginning with ``origin``, where none has it, or several.
        """
        if (found := self._with_label(text, origin, dimension)) is not None:
            return found
        close = difflib.get_close_matches(text, list(self._labelled[dimension]), n=_NEAR)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else _NEW
        raise UsageError(f"{origin}: no {self._word(dimension)} has the label {text!r}", hint)

    def _with_label(self, text: str, origin: str, dimension: int) -> int | None:
        """The coordinate that has this label; None where none has it, UsageError where several have."""
        found = self._labelled[dimension].get(text, [])
        if len(found) > 1:
            several = self.listed(found, dimension)
            raise UsageError(f"{origin}: {text!r} is the label of {several}", "say which one, by its number")
        return found[0] if found else None

    def _dated(self, text: str, origin: str, dimension: int) -> dict[int, str]:
        """When the coordinates of a dimension were made. UsageError where none has a date."""
        if not self._moments[dimension]:
            raise UsageError(
                f"{origin}: {text!r}: no {self._word(dimension)} has a date",
                "say a number; ingest gives labels: --label",
            )
        return self._moments[dimension]

    def _at(
        self, text: str, span: tuple[str, str], moments: dict[int, str], origin: str, dimension: int, *, begins: bool
    ) -> int:
        """The last coordinate that was made by the end of a span, or the first made at its beginning or later."""
        begin, end = span
        fits = [coordinate for coordinate, moment in moments.items() if (moment >= begin if begins else moment <= end)]
        fits += self._labelled[dimension].get(_date_text(text, span), [])  # a version may have several dates as labels
        if fits:
            return min(fits) if begins else max(fits)
        nearest = (max if begins else min)(moments, key=moments.__getitem__)
        side, way = ("last", "later than") if begins else ("first", "before")
        raise UsageError(
            f"{origin}: {text!r} is {way} all {self._word(dimension)}s with a date: the {side} is "
            f"{self._spelled(nearest, dimension)}, {moments[nearest]}Z",
            _ALL,
        )

    def _check_made(
        self, text: str, span: tuple[str, str], moments: dict[int, str], origin: str, dimension: int, *, begins: bool
    ) -> None:
        """Raise UsageError for a day on which no coordinate was made, and for an instant after all of them: nobody can
        say what came later. It names the nearest coordinates.
        """
        begin, end = span
        said = _date_text(text, span)
        if said in self._labelled[dimension] or any(begin <= moment <= end for moment in moments.values()):
            return
        is_day, word = begin != end, self._word(dimension)
        earlier = [coordinate for coordinate, moment in moments.items() if moment < begin]
        later = [coordinate for coordinate, moment in moments.items() if moment > end]
        if later and not is_day:
            return
        day = f"{said}, which is {text}" if said != text else said
        what = f"no {word} was made on {day}" if is_day else f"{text!r} is after all {word}s with a date"
        hint = f"say which {word}, by its number or label" if begins else OR_BEFORE
        if not later:
            newest = max(earlier, key=lambda coordinate: (moments[coordinate], coordinate))
            made = "" if is_day else f", made {moments[newest]}Z"
            raise UsageError(f"{origin}: {what}: the newest is {self._labelled_one(newest, dimension)}{made}", hint)
        near = f"{self._labelled_one(max(earlier), dimension)} is before it, " if earlier else ""
        raise UsageError(f"{origin}: {what}: {near}{self._labelled_one(min(later), dimension)} is after it", hint)

    def _labelled_one(self, coordinate: int, dimension: int) -> str:
        """A coordinate with its label for a sentence, or when it was made."""
        label = self.name(coordinate, dimension).label or f"{self._moments[dimension][coordinate]}Z"
        return f"{self._spelled(coordinate, dimension)} ({label})"

    def _unknown(self, text: str, origin: str, dimension: int) -> UsageError:
        labels = self._labelled[dimension]
        if not labels:
            return UsageError(f"{origin}: {text!r} is not a {self._word(dimension)}", _ANY)
        close = difflib.get_close_matches(text, list(labels), n=_NEAR)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"{_ANY}; {_ALL}"
        return UsageError(f"{origin}: {text!r} is not a {self._word(dimension)}, and no label", hint)

    def listed(self, found: Sequence[int], dimension: int = 0) -> str:
        """Coordinates for a message, the last ones of many: ``version 3 and version 7``."""
        last = " and ".join(self._spelled(version, dimension) for version in found[-_NEAR:])
        return last if len(found) <= _NEAR else f"{len(found)} {self._word(dimension)}s, the last are {last}"

    def _word(self, dimension: int) -> str:
        return "version" if len(self.dims) == 1 else self.dims[dimension]

    def _spelled(self, coordinate: int, dimension: int) -> str:
        return f"version {coordinate}" if len(self.dims) == 1 else f"{self.dims[dimension]}={coordinate}"

    # --- the names of a version ---

    def name(self, coordinate: int, dimension: int = 0) -> Name:
        """The name of a coordinate; an empty one where it has none."""
        return self._names[dimension].get(coordinate) or Name()

    def labels(self, dimension: int = 0) -> dict[str, list[int]]:
        """The labels of a dimension, and the coordinates of each, sorted."""
        return self._labelled[dimension]

    def label(self, time: Time) -> str:
        """The label of a time for people: ``2026-11-19``, or ``day=2026-11-19``. The last of several; empty for none"""
        labels = [self.name(coordinate, number).label for number, coordinate in enumerate(time)]
        if len(self.dims) == 1:
            return labels[0]
        return label_text({dim: label for dim, label in zip(self.dims, labels, strict=True) if label})

    def span(self, first: Time, last: Time) -> str:
        """The labels of two times for people: ``2026-11-19..2026-11-23``. Empty where neither has one."""
        labels = [self.label(first), self.label(last)]
        return "..".join(labels) if first != last and any(labels) else labels[0]

    def shown(self, time: Time) -> str:
        """A time with its label: ``7 (2026-11-19)``."""
        return shown(time, self.dims) + self._beside(time)

    def named(self, time: Time) -> str:
        """A time with its label for a sentence: ``version 7 (2026-11-19)``."""
        return named(time, self.dims) + self._beside(time)

    def _beside(self, time: Time) -> str:
        label = self.label(time)
        return f" ({label})" if label else ""

    def fields(self, time: Time | None) -> dict[str, Any]:
        """``label`` and ``instant`` of a time for JSON: text or null; with several dimensions, of each that has one."""
        if time is None:
            return {"label": None, "instant": None}
        names = [self.name(coordinate, number) for number, coordinate in enumerate(time)]
        labels = [name.label or None for name in names]
        instants = [json_instant(name.instant) for name in names]
        if len(self.dims) == 1:
            return {"label": labels[0], "instant": instants[0]}
        both = {"label": labels, "instant": instants}
        return {
            key: {dim: value for dim, value in zip(self.dims, of, strict=True) if value is not None}
            for key, of in both.items()
        }


def _date_text(text: str, span: tuple[str, str]) -> str:
    """A date as a label spells it: ``today`` is one, too."""
    return span[0][:10] if text in ("today", "yesterday") else text


def _span(text: str, origin: str) -> tuple[str, str] | None:
    """The first and the last instant that a word, a date or a timestamp means; None for any other text.

    UsageError for a day that does not exist.
    """
    if text in ("today", "yesterday"):
        text = (_now() - timedelta(days=text == "yesterday")).date().isoformat()
    if text == "now":
        now = instant_text(_now())
        return now, now
    is_date = DATE.fullmatch(text) is not None
    if not (is_date or TIMESTAMP.fullmatch(text)):
        return None
    moment = moment_of(text)
    if moment is None:
        raise UsageError(f"{origin}: {text!r}: there is no such day or time", "for example: 2026-11-19")
    return moment, f"{text}T23:59:59.999999" if is_date else moment
