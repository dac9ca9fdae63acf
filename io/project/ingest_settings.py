"""The options of ``dd ingest`` as one object: flags fill it, and a table of ``dd.toml`` can, by the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from ddcore.base.errors import UsageError
from ddcore.base.record import record
from ddcore.io.project.event_words import words_of
from ddcore.io.project.section import quoted
from ddcore.io.project.times import Time
from ddcore.text.wording import listed, meant

EVENT_FORMS = ("upsert", "op", "debezium")
FORMS = ("log", "append", "snapshot", "feed", *EVENT_FORMS)  # how the rows of sources become updates
LATE = ("refuse", "move", "restate")
FIRST = "first"  # restate from the first version of the sources on

Version = Time | str | tuple[int | str, ...]  # a time, "next", or coordinates of which some are "next"

_SWITCHES = ("append", "snapshot", "feed", "upsert", "debezium", "allow_gap", "new_warehouse")
_TABLES = ("op_values", "column", "option")
_PAIRS = {"column": ("OURS=THEIRS", "src=from_station"), "option": ("KEY=VALUE", "rowTag=row")}


@record
class IngestSettings:
    """How an ingest reads its sources, and what it does with their rows. Each field but ``form`` is an option's name.

    ``form`` is what the sources hold: ``log``, change logs; ``append``, rows to insert; ``snapshot``, the whole content
    at a version each, one after the other; ``feed``, Delta tables whose changes since the last ingest are taken in;
    ``upsert``, ``op`` and ``debezium``, events (:class:`ddcore.io.sources.events.Events`), of which ``op``,
    ``op_values``, ``key`` (without columns that of ``dd.toml``) and ``order_by`` say more.

    ``version`` and ``diff`` replace columns that the sources lack; without it, rows, snapshots and events get the next
    versions, and the changes of a commit its number; ``next`` gives them the next version, too. With several dimensions
    it may stand for coordinates of snapshots and events. ``column`` maps our name of a column to theirs. ``format`` and
    ``option`` are those of ``spark.read``, for sources that only Spark reads.

    ``late`` is what to do with rows at closed times: ``refuse``, ``move`` to the next open one, or ``restate``: take
    them in at their own times, so that the next run folds again from there. With ``restate``, a time or ``first`` (the
    least time of the sources), the sources are the input's history from then on: they replace what it holds at or
    beyond that time. ``allow_gap`` allows a version far beyond all others. ``label`` labels the one version of the
    rows. ``new_warehouse`` allows a new warehouse outside of the project's folder (see :meth:`Warehouse.begin`).
    """

    form: str = "log"
    op: str | None = None
    op_values: Mapping[str, int] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    version: Version | None = None
    diff: int | None = None
    column: Mapping[str, str] = field(default_factory=dict)
    format: str | None = None
    option: Mapping[str, str] = field(default_factory=dict)
    late: str = "refuse"
    restate: Time | str | None = None
    allow_gap: bool = False
    label: tuple[str, ...] = ()
    new_warehouse: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> IngestSettings:
        """The settings that options say, by their names; None, False and an empty list say nothing. A list may be a
        text with commas, and a table may be texts with ``=``. UsageError.
        """
        said = {name: value for name, value in options.items() if not (value is None or value is False or value == [])}
        names = [*FORMS[1:], *(entry.name for entry in fields(cls) if entry.name != "form")]
        if unknown := [name for name in said if name not in names]:
            raise UsageError(f"{unknown[0]}: ingest has no such option", meant(unknown[0], names) or listed(names))
        for name, value in said.items():
            _check_kind(name, value)
        forms = [form for form in FORMS if form in said]
        if len(forms) > 1:
            raise UsageError(f"--{forms[0]} and --{forms[1]}: only one of them", "see: ddcore ingest --help")
        values = {name: value for name, value in said.items() if name == "op" or name not in FORMS}
        for name in ("key", "order_by"):
            columns = (column.strip() for text in _texts(values.get(name, ())) for column in text.split(","))
            values[name] = tuple(filter(None, columns))
        values["op_values"], values["label"] = (_texts(values.get(name, ())) for name in ("op_values", "label"))
        values["op_values"] = words_of(values["op_values"])
        values |= {name: _pairs(name, _texts(values.get(name, ()))) for name in _PAIRS}
        values |= {name: str(values[name]) for name in ("version", "restate") if name in values}
        return cls(form=forms[0] if forms else "log", **values)

    def check(self, engine: str = "spark") -> None:
        """Raise UsageError for what is not known, and for settings that do not go together."""
        for option in ("key", "order_by", "op_values") if self.form not in EVENT_FORMS else ():
            if getattr(self, option):
                hint = "say what the sources hold: --upsert, --op COLUMN or --debezium"
                raise UsageError(f"--{option.replace('_', '-')}: only for events", hint)
        if self.op_values and self.op is None:
            raise UsageError("--op-values without --op", "name the column with the operation: --op COLUMN")
        if self.form != "log" and self.diff is not None:
            raise UsageError(
                f"--diff and --{self.form}: only one of them", f"--{self.form} says itself what each row adds"
            )
        if self.late not in LATE:
            hint = meant(self.late, LATE) or "see: ddcore ingest --help"
            raise UsageError(f"--late: {self.late!r} is none of {', '.join(LATE)}", hint)
        if self.restate is not None and self.late != "refuse":
            raise UsageError(
                f"--late {self.late} and --restate: a restatement takes its rows in at their own versions",
                "leave one of the two out",
            )
        if self.format is None and self.option:
            raise UsageError("--option: only with --format", "say how Spark reads the sources: --format NAME")
        if self.format is not None and engine != "spark":
            raise UsageError(f"--format {self.format}: only Spark reads it", "use --engine spark")
        if self.format is not None and self.form == "feed":
            raise UsageError("--format and --feed: only one of them", "--feed reads Delta tables")


def _check_kind(name: str, value: Any) -> None:
    """Raise UsageError for a value of ``dd.toml`` that is of another kind than the option's; flags are right."""
    if name in _SWITCHES:
        right, kind = value is True, "true or false"
    elif name == "diff":
        right, kind = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    elif name in ("op", "format", "late"):
        right, kind = isinstance(value, str) and value != "", "text"
    elif name in ("version", "restate"):
        right, kind = isinstance(value, str | int) and not isinstance(value, bool), "a number or text"
    else:
        plain = isinstance(value, str) or _are_texts(value)
        table = isinstance(value, dict) and all(isinstance(text, str) or _are_texts(text) for text in value.values())
        right = plain or (table and name in _TABLES)
        kind = f"text, a list of texts{' or a table of them' * (name in _TABLES)}"
    if not right:
        raise UsageError(f"--{name.replace('_', '-')}: must be {kind}, not {quoted(value)}")


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def _texts(value: Any) -> tuple[str, ...]:
    """A text, a list of texts, or a table of these as texts of the form NAME=VALUE."""
    if isinstance(value, Mapping):
        return tuple(f"{name}={text}" for name, item in value.items() for text in _texts(item))
    return (value,) if isinstance(value, str) else tuple(value)


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """What an option of the form NAME=VALUE says, by name."""
    pairs: dict[str, str] = {}
    form, example = _PAIRS[option]
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name and value):
            raise UsageError(f"--{option}: {text!r} is not {form}", f"for example: --{option} {example}")
        if name in pairs:
            raise UsageError(f"--{option}: {name!r} is named twice", "name each one once")
        pairs[name] = value
    return pairs
