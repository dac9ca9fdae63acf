"""Labels of versions: what ingests call the versions that they bring, and when these were made.

A label names one coordinate of one time dimension; with one dimension, a version. Each data file of the ledger has in
its footer the labels of its own rows, as JSON, so that names are looked up without reading records. They are in the
records as well, which say the same.

Every command loads this module, so it imports nothing heavy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from ddcore.io.project.times import time_of

FOOTER = "ddcore.labels"  # the name of the labels in a file's footer
WORDS = ("first", "latest", "now", "today", "yesterday")  # that name a version by themselves
_LONGEST = 100  # characters
_WHOLE = re.compile(r"[+-]?[0-9]+")
_OFFSET = re.compile(r"(?:latest)?-[0-9]+")
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
DATE = re.compile(_DAY)
TIMESTAMP = re.compile(rf"{_DAY}[T ]{_CLOCK}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})?")


@dataclass(frozen=True, slots=True)
class Label:
    """What an ingest says about a version: its label, empty for none, and when it was made, None where unknown.

    An instant without a time zone is in UTC.
    """

    text: str = ""
    instant: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.text) or self.instant is not None


Labels = tuple[Mapping[int, Label], ...]  # for each time dimension, by coordinate; empty where there are none


# --- texts ------------------------------------------------------------------------------------------------------------


def unusable(text: str) -> str:
    """Why a text cannot be a label; empty where it can.

    A number is always a version, and no label may read as something else that a command takes for one.

    >>> unusable("2026-11-19"), unusable("17")
    ('', 'a number is always a version')
    """
    looks_like_date = DATE.fullmatch(text) or TIMESTAMP.fullmatch(text)
    reasons = {
        "it is empty, or begins or ends with a space": not text or text != text.strip(),
        f"it has more than {_LONGEST} characters, or some that cannot be printed": (
            len(text) > _LONGEST or not text.isprintable()
        ),
        "a number is always a version": bool(_WHOLE.fullmatch(text)) or text.isdigit(),
        "commands take it for something else": text in WORDS or _OFFSET.fullmatch(text) or text.startswith("-"),
        "a label has no '=', no ',' and no '..'": any(mark in text for mark in ("=", ",", "..")),
        "it looks like a date, but there is no such day or time": looks_like_date and moment_of(text) is None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def label_text(label: str | Mapping[str, str]) -> str:
    """A label for people: with several dimensions, as ``day=2026-11-19``."""
    return label if isinstance(label, str) else ",".join(f"{dim}={text}" for dim, text in label.items())


def moment_of(text: str) -> str | None:
    """When a label that is a date or a timestamp says that its version was made, as :func:`instant_text`; else None.

    A date stands for the beginning of that day.
    """
    if not (DATE.fullmatch(text) or TIMESTAMP.fullmatch(text)):
        return None
    try:
        return instant_text(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def instant_text(instant: datetime) -> str:
    """An instant in UTC as ISO text without a zone. The order of such texts is that of the instants."""
    utc = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    text = utc.replace(tzinfo=None).isoformat()
    return text.rstrip("0") if "." in text else text


def json_instant(instant: datetime | str | None) -> str | None:
    """An instant, or its :func:`instant_text`, in a command's JSON: ``2026-11-19T14:00:00Z``."""
    text = instant_text(instant) if isinstance(instant, datetime) else instant
    return None if text is None else f"{text}Z"


# --- in records and footers -------------------------------------------------------------------------------------------


def labels_to_json(labels: Labels) -> list[dict[str, list[str]]]:
    """Labels for a record: for each dimension, by coordinate, the text and the instant."""
    return [{str(coordinate): _to_json(label) for coordinate, label in of.items() if label} for of in labels]


def _to_json(label: Label) -> list[str]:
    return [label.text] if label.instant is None else [label.text, instant_text(label.instant)]


def labels_from_json(value: Iterable[Mapping[str, Sequence[str]]]) -> Labels:
    """The labels that :func:`labels_to_json` wrote."""
    return tuple({int(coordinate): _label(*texts) for coordinate, texts in of.items()} for of in value)


def _label(text: str, instant: str | None = None) -> Label:
    return Label(text, None if instant is None else datetime.fromisoformat(instant).replace(tzinfo=UTC))


class Row(Protocol):
    """A row of the ledger."""

    kind: str
    number: int
    name: str
    body: str


def labels_of(rows: Iterable[Row]) -> str:
    """The labels in these rows, and the numbers of the ingests that they undo, as JSON; empty where there are none."""
    undone, ingests = [], []
    for row in rows:
        if row.kind == "undo":
            undone.append(row.number)
        elif row.kind == "ingest" and '"labels":' in row.body:
            body = json.loads(row.body)
            if "labels" in body:
                ingests.append([row.number, row.name, time_of(body.get("replaces")), body["labels"]])
    if not (undone or ingests):
        return ""
    return json.dumps({"undone": undone, "ingests": ingests}, separators=(",", ":"))


# --- all ingests together ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Name:
    """The labels of one coordinate, the last one last, and the instant, as :func:`instant_text`."""

    labels: list[str] = field(default_factory=list)
    instant: str | None = None

    @property
    def label(self) -> str:
        """The last label; empty without one."""
        return self.labels[-1] if self.labels else ""

    @property
    def dated(self) -> str | None:
        """When the version was made, as its labels say: the earliest of those that are dates or timestamps."""
        return min((moment for label in self.labels if (moment := moment_of(label)) is not None), default=None)

    @property
    def moment(self) -> str | None:
        """When the version was made: as its labels say, else its instant."""
        return self.dated or self.instant


Names = list[dict[int, Name]]  # for each time dimension, by coordinate


def merged(notes: Iterable[str], inputs: Collection[str] | None = None) -> Names:
    """The names that the footers' notes give, of all inputs or of some; without those of undone ingests. A note may
    occur twice. O(labels).

    Every label that an input gave a version stays. Its instant is the first that the input gave; of several inputs the
    latest, when the version had all of its parts. A label of a restatement replaces those of its kind (dates, or other
    texts) that its input gave that version, and is taken from versions after the start that had it; an instant replaces
    the instant. What it does not say stays. With several dimensions it replaces labels only if it replaces everything
    from one coordinate on: else other times of these coordinates have rows and names.
    """
    parts = [json.loads(note) for note in notes if note]
    undone = {number for part in parts for number in part["undone"]}
    ingests = {one[0]: one for part in parts for one in part["ingests"] if one[0] not in undone}
    by_input: dict[str, list[dict[int, _Given]]] = {}
    for number in sorted(ingests):
        _, input, replaces, labels = ingests[number]
        if inputs is None or input in inputs:
            own = by_input.setdefault(input, [])
            own += [{} for _ in labels[len(own) :]]
            for dimension, of in enumerate(labels):
                if replaces is not None:
                    _replace(own[dimension], of, replaces, dimension)
                _add(own[dimension], number, of)
    return _joined(by_input.values())


@dataclass(slots=True)
class _Given:
    """What one input says about a coordinate: its labels by the ingests that gave them, and the first instant."""

    labels: dict[str, int] = field(default_factory=dict)
    instant: str | None = None


def _replace(
    given: dict[int, _Given], of: Mapping[str, Sequence[str]], replaces: Sequence[int], dimension: int
) -> None:
    """Take away the labels that a restatement replaces by its own, or gives to other coordinates; and the instants."""
    if any(start for other, start in enumerate(replaces) if other != dimension):
        return
    texts = {of[key][0] for key in of}
    for coordinate, one in given.items():
        if coordinate >= replaces[dimension]:
            text, *instant = of.get(str(coordinate), ("",))
            kept = (label for label in one.labels if label not in texts and not (text and _same_kind(label, text)))
            one.labels = {label: one.labels[label] for label in kept}
            one.instant = None if instant else one.instant


def _same_kind(a: str, b: str) -> bool:
    """Whether both labels say when a version was made, or neither does."""
    return (moment_of(a) is None) == (moment_of(b) is None)


def _add(given: dict[int, _Given], number: int, of: Mapping[str, Sequence[Any]]) -> None:
    for key, (text, *instant) in of.items():
        one = given.setdefault(int(key), _Given())
        if text:
            one.labels[text] = number
        if instant and one.instant is None:
            one.instant = instant[0]


def _joined(inputs: Iterable[list[dict[int, _Given]]]) -> Names:
    """The names of all inputs together."""
    sides = list(inputs)
    names: Names = [{} for _ in range(max(map(len, sides), default=0))]
    for dimension, own in enumerate(names):
        given: dict[int, list[_Given]] = {}
        for side in sides:
            for coordinate, one in side[dimension].items() if dimension < len(side) else ():
                given.setdefault(coordinate, []).append(one)
        for coordinate, several in given.items():
            labels = several[0].labels if len(several) == 1 else _newest(several)
            ordered = [text for _, text in sorted((number, text) for text, number in labels.items())]
            instant = max((one.instant for one in several if one.instant is not None), default=None)
            if ordered or instant:
                own[coordinate] = Name(ordered, instant)
    return names


def _newest(several: Iterable[_Given]) -> dict[str, int]:
    """The labels that several inputs gave a coordinate, and the last ingest that gave each."""
    labels: dict[str, int] = {}
    for one in several:
        labels |= {text: max(number, labels.get(text, 0)) for text, number in one.labels.items()}
    return labels
