"""Upserts: events that give keys new values, as updates of an input's change log.

The history of a key is the sequence of its values by version. Events are merged into the history that the input holds,
and what is ingested is the difference between the log of the new history and that of the old one. So events between
versions that are there, events out of order and events that come again are right by construction.

Events without a key are updates by themselves: a row inserted or a row retracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ddcore.base.errors import DataError
from ddcore.base.lazy import numpy as np
from ddcore.base.lazy import polars as pl
from ddcore.base.lazy import pyarrow as pa
from ddcore.data.forms import from_base
from ddcore.io.logs.digests import row_hashes
from ddcore.io.logs.updates import DIFF, ascend, consolidate, repeats
from ddcore.io.project.event_words import BEFORE, DELETE, NOTHING
from ddcore.io.project.times import Time, named
from ddcore.io.sources.events import OP, PLACE, Events
from ddcore.io.sources.layouts import Layout
from ddcore.io.sources.pairs import without_pairs
from ddcore.io.sources.paths import named_again, quoted, spark_columns
from ddcore.io.sources.source import Batches, Source
from ddcore.io.sources.spark import ERROR, cores, in_tasks, shares, through
from ddcore.text.wording import shown_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ddcore.io.delta.table_files import LiveFile, TableState
    from ddcore.io.logs.changelog import ChangeLog

# What is counted: rows read, rows that say nothing by themselves, events that came again, deletes of nothing.
ROWS, SKIPPED, REDELIVERED, ABSENT = TALLIES = ("_rows", "_skipped", "_redelivered", "_absent")

_KEY, _AT, _PRESENT, _NEXT, _FIRST, _ROW = "_key", "_at", "_present", "_next", "_first", "_row"
_BASE = -1  # before all versions
_READ_WHOLE = 4  # a log with fewer updates for each event is read whole

Frames = Iterator["pl.DataFrame"]
How = tuple[Layout, int]


@dataclass(frozen=True, kw_only=True)
class EventLog(Source):
    """The updates that the events of some sources make to the change log of an input.

    ``parts``: the sources with their layouts for ``events``. ``log`` at ``state`` is the input. ``time``: that of all
    events, if the sources do not say it. ``before``: only what the log holds before this version counts.
    """

    kind = "series of events"
    by_spark = True

    log: ChangeLog
    state: TableState | None
    events: Events
    parts: tuple[tuple[Source, Layout], ...]
    time: Time | None = None
    before: int | None = None

    @property
    def size(self) -> int:
        """The bytes of all sources."""
        return sum(source.size for source, _ in self.parts)

    def layout(self) -> Layout:
        """The layout of the updates."""
        return Layout(self.name, {name: name for name in self.log.columns}, {}, False, (), tallies=TALLIES)

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns of the change log, and the tallies."""
        return [*((name, kind.arrow) for name, kind in self.log.columns.items()), *((n, pa.int64()) for n in TALLIES)]

    def batches(self, columns: Sequence[str]) -> Batches:
        """The updates as Arrow batches."""
        for _, frame in self.frames(columns):
            yield from frame.to_arrow().to_batches()

    def frames(self, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
        """The updates. With a key all events are in memory, and the history of their keys."""
        frames = self._events_of(self._work())
        if not self.events.key:
            frames = self._alone(frames)
        else:
            events, files = pl.concat([self._empty(), *frames]), self._files()
            # A log that is not much larger is read whole: looking for its keys takes longer.
            few = len(events) * _READ_WHOLE < sum(file.rows for file in files)
            keys = events.select(self.events.key).unique().lazy() if few else None
            frames = self._merged(iter([events, *self._held_in(files, keys)]))
        row = 1
        for frame in frames:
            yield row, frame.select(columns)
            row += len(frame)

    def spark_frame(self, session: SparkSession) -> DataFrame:
        """The updates: all that concerns a key goes to one task."""
        there = replace(self, log=replace(self.log, writer=None))  # as tasks have it
        schema, given = pa.schema(self.fields()), self._schema()
        frames = []
        for source, (layout, number) in self._work():
            if source.by_spark:
                names, whole = self.events.columns(source, layout), source.spark_frame(session)
                columns = whole.select(*spark_columns(whole, names))
                frames.append(through(columns, partial(there._read, names, layout, number), given, source.name))
        if work := shares(self._work(), cores(session)):
            frames.append(in_tasks(session, work, there._events_of, given))
        if self.events.key and self._files():
            frames.append(in_tasks(session, [[file] for file in self._files()], there._held_in, given))
        union = frames[0]
        for frame in frames[1:]:
            union = union.unionByName(frame)
        if self.events.key:
            keyed = union.repartition(*map(quoted, self.events.key))
            return through(keyed, there._merged, schema, self.name)
        return through(union.select(*map(quoted, [*given.names, ERROR])), there._alone, schema, self.name)

    # --- what tasks and this process read ---

    def _work(self) -> list[tuple[Source, How]]:
        return [(source, (layout, number)) for number, (source, layout) in enumerate(self.parts)]

    def _schema(self) -> pa.Schema:
        """The columns of events and of the log's updates together: an update has no operation."""
        return self.events.schema().append(pa.field(DIFF, pa.int64()))

    def _empty(self) -> pl.DataFrame:
        # A table of no batches: Arrow's empty columns are made from Python's values, for which it imports pandas.
        empty = pl.from_arrow(pa.Table.from_batches([], self._schema()))
        assert isinstance(empty, pl.DataFrame)
        types = {name: kind.polars for name, kind in self.log.columns.items()}
        return empty.with_columns(pl.col(name).cast(kind) for name, kind in types.items())

    def _events_of(self, share: Sequence[tuple[Source, How]]) -> Frames:
        for source, (layout, number) in share:
            for first_row, frame in source.frames(self.events.columns(source, layout)):
                row = None if source.is_table else first_row  # a table has no order
                yield self._with_diff(self.events.read(frame, layout, number, row))

    def _read(self, names: Sequence[str], layout: Layout, number: int, frames: Frames) -> Frames:
        for frame in frames:
            yield self._with_diff(self.events.read(named_again(frame, names), layout, number, None))

    def _with_diff(self, events: pl.DataFrame) -> pl.DataFrame:
        return events.with_columns(pl.lit(None, pl.Int64).alias(DIFF))

    def _files(self) -> list[LiveFile]:
        """The files of the log whose updates count."""
        files = self.log.files(self.state) if self.state is not None else []
        dim = self.log.dims[0]
        return [file for file in files if self.before is None or file.lower.get(dim, 0) < self.before]

    def _held_in(self, files: Sequence[LiveFile], keys: pl.LazyFrame | None = None) -> Frames:
        """The updates in files of the log, of these keys only if some are given."""
        if not files:
            return
        updates = self.log.scan_files(files)
        if self.before is not None:
            updates = updates.filter(pl.col(self.log.dims[0]) < self.before)
        if keys is not None:
            updates = updates.join(keys, on=list(self.events.key), how="semi", nulls_equal=True)
        none = [pl.lit(None, pl.Int64).alias(name) for name in (OP, PLACE)]
        names = self._schema().names
        yield self.log.collect(updates.with_columns(none).select(names))

    def _typed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A frame with the types of the log, where Spark has carried others in their place."""
        kinds = {name: kind for name, kind in self.log.columns.items() if frame.schema[name] != kind.polars}
        return frame.with_columns(
            from_base(frame[name], kind).alias(name) for name, kind in kinds.items() if kind.base != kind
        )

    # --- events without a key ---

    def _alone(self, frames: Frames) -> Frames:
        """Each event as an update."""
        for frame in map(self._typed, frames):
            updates = frame.with_columns(pl.col(OP).sign().alias(DIFF)).select(self.log.columns.keys())
            yield self._with_tallies(updates, {ROWS: len(frame)})

    def _with_tallies(self, updates: pl.DataFrame, tallies: dict[str, int]) -> pl.DataFrame:
        """Updates, and a row that changes nothing with the tallies."""
        nothing = {dim: 0 for dim in self.log.dims} | {DIFF: 0} | dict.fromkeys(TALLIES, 0) | tallies
        row = pl.DataFrame({name: [value] for name, value in nothing.items()}, dict.fromkeys(nothing, pl.Int64))
        zeros = [pl.lit(0, pl.Int64).alias(name) for name in TALLIES]
        return pl.concat([updates.with_columns(zeros), row], how="diagonal").select(*self.log.columns, *TALLIES)

    # --- events of keys ---

    def _merged(self, frames: Frames) -> Frames:
        """What the events of some keys change; the frames hold them, and all updates of these keys."""
        lines = [*map(self._typed, frames)]
        if not lines:
            return
        types = [pl.col(name).cast(kind.polars) for name, kind in self.log.columns.items()]
        events, held = (
            pl.concat([_those(frame, is_held=is_held) for frame in lines]).with_columns(types)
            for is_held in (False, True)
        )
        events = events.drop(DIFF)
        changed = self._without_held(events, held)
        many, events = len(events) - len(changed), changed
        keys = events.select(self.events.key).unique().with_row_index(_KEY)
        held, events = (
            frame.join(keys, on=list(self.events.key), how="inner", nulls_equal=True) for frame in (held, events)
        )
        at = pl.col(self.log.dims[0]) if self._is_one else pl.lit(0)
        held = held.select(_KEY, *self.log.schema, at.cast(pl.Int64).alias(_AT), DIFF)
        at = pl.col(self.log.dims[0]) if self._is_one else pl.lit(1)
        updates, tallies = self._changes(held, events.with_columns(at.cast(pl.Int64).alias(_AT)))
        tallies[ROWS] += many
        if self.events.order:
            tallies[REDELIVERED] += many
        yield self._with_tallies(updates, tallies)

    def _without_held(self, events: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
        """Events without those that give keys the rows that they have: of keys with one event, and with one update in
        the log, an insertion, before the time of all events. Not all are found. O(n).
        """
        if self.time is None or min(len(events), len(held)) < self.log.tuning.paired_events:
            return events
        if self._is_one and held.select(pl.col(self.log.dims[0]).max()).item() > self.time[0]:
            return events
        rows = list(self.log.schema)
        one = _only(held, self.events.key).filter(pl.col(DIFF) == 1).select(rows)
        other = _only(events.with_row_index(_ROW), self.events.key).filter(pl.col(OP) > 0).select(_ROW, *rows)
        left = without_pairs(one, other, rows, self.log.tuning.paired_rows)[1]
        if len(left) == len(other) and not any(kind.is_nested for kind in self.log.schema.values()):
            left = other.join(one, on=rows, how="anti", nulls_equal=True)  # neither is in order
        changed = np.ones(len(events), dtype=bool)
        changed[other[_ROW].to_numpy()] = False
        changed[left[_ROW].to_numpy()] = True
        return events.filter(pl.Series(changed))

    @property
    def _is_one(self) -> bool:
        """Whether the history of a key is by version; with several dimensions it is only what is there, and the new."""
        return len(self.log.dims) == 1

    def _changes(self, held: pl.DataFrame, events: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
        """The difference between the logs of the new history and of the old one; and what was counted."""
        tallies = {ROWS: len(events)}
        events = events.filter(~pl.col(OP).is_in([BEFORE, NOTHING]))
        tallies[SKIPPED] = tallies[ROWS] - len(events)
        events = self._in_order(events)
        firsts = events.group_by(_KEY).agg(pl.col(_AT).min().alias(_FIRST))
        held = consolidate(held.select(_KEY, *self.log.schema, _AT, DIFF), [_AT])
        events, tallies[REDELIVERED] = self._without_redelivered(events, held)
        events = events.unique([_KEY, _AT], keep="last", maintain_order=True)
        is_before = pl.col(_AT) < pl.col(_FIRST)
        held = held.join(firsts, on=_KEY).with_columns(pl.when(is_before).then(_BASE).otherwise(_AT).alias(_AT))
        held = consolidate(held.drop(_FIRST), [_AT])
        self._check_held(held)
        old = _points(held).join(events, on=[_KEY, _AT], how="anti")
        new = events.with_columns(pl.col(OP) != DELETE).rename({OP: _PRESENT}).select(old.columns)
        points = pl.concat([old, new.with_columns(pl.lit(1, pl.Int8).alias("_is_new"))], how="diagonal")
        points = points.sort(_KEY, _AT).with_columns(
            pl.col(_AT).shift(-1).over(_KEY).alias(_NEXT),
            pl.col(_PRESENT).shift().over(_KEY).fill_null(False).alias("_follows"),
        )
        tallies[ABSENT] = len(points.filter(pl.col("_is_new").is_not_null() & ~pl.col(_PRESENT) & ~pl.col("_follows")))
        points = points.filter(_PRESENT)
        columns = [*self.log.schema, _AT]
        parts = [
            points.filter(pl.col(_AT) > _BASE).select(*columns, pl.lit(1, pl.Int64).alias(DIFF)),
            points.drop(_AT).rename({_NEXT: _AT}).drop_nulls(_AT).select(*columns, pl.lit(-1, pl.Int64).alias(DIFF)),
            held.filter(pl.col(_AT) > _BASE).select(*columns, -pl.col(DIFF)),
        ]
        updates = consolidate(pl.concat(parts), [_AT])
        if self._is_one:
            times = [pl.col(_AT).alias(self.log.dims[0])]
        else:
            assert self.time is not None
            times = [pl.lit(c, pl.Int64).alias(dim) for dim, c in zip(self.log.dims, self.time, strict=True)]
        return updates.with_columns(times).select(self.log.columns.keys()), tallies

    def _in_order(self, events: pl.DataFrame) -> pl.DataFrame:
        """Events sorted by key, version and order. DataError for two different events at one place."""
        rest = [pl.when(pl.col(OP) != DELETE).then(pl.col(name)).alias(name) for name in self.events.values]
        order = list(self.events.order) or [PLACE]
        events = events.with_columns(pl.when(pl.col(OP) == DELETE).then(DELETE).otherwise(-DELETE).alias(OP), *rest)
        events = events.sort(_KEY, _AT, *order, OP, *self.events.values)
        order_by, what = [_KEY, _AT, *order], [OP, *self.events.values]
        same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in order_by)
        other = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in what)
        twice = events.select(same & other).to_series()
        if len(twice):
            twice[0] = False  # a first row of nulls equals the nulls that shift() puts before it
        number = twice.arg_max() if twice.any() else None
        if number is not None:
            one, two = (self._shown_event(events.row(order_by, named=True)) for order_by in (number - 1, number))
            by = f"--order-by {','.join(self.events.order)} does not" if self.events.order else "a table does not"
            more = "more columns of --order-by do" if self.events.order else "say: --order-by COLUMN"
            raise DataError(f"{self.name}: two events of one key and version, of which {by} say which is later: "
                            f"{one}; and {two}", more)  # fmt: skip
        return events

    def _shown_event(self, event: dict[str, object]) -> str:
        what = "delete " if event[OP] == DELETE else ""
        names = (*self.events.key, *self.events.order) if what else self.log.schema
        return what + ", ".join(f"{name}={shown_value(event[name])}" for name in names)

    def _without_redelivered(self, events: pl.DataFrame, held: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        """Events without those that are not later than what their keys hold, and how many these are.

        An event is compared with the row held at its version; with the last one at or before it, if the version says
        only when the event was taken in. Where a key was deleted, with the row that it had.
        """
        order = self.events.order
        if not order:
            return events, 0
        others = {name: f"_held_{name}" for name in order}
        rows = _points(held).select(_KEY, _AT, *order).rename(others).sort(_AT)
        if self.time is None:
            both = events.join(rows, on=[_KEY, _AT], how="left", maintain_order="left")
        else:
            last = rows.join(events.select(_KEY, pl.col(_AT).alias(_NEXT)).unique(), on=_KEY)
            last = last.filter(pl.col(_AT) <= pl.col(_NEXT)).unique(_KEY, keep="last", maintain_order=True)
            both = events.join(last.drop(_AT, _NEXT), on=_KEY, how="left", maintain_order="left")
        is_old = pl.lit(True)
        for name, held_name in reversed(others.items()):
            ours, other = pl.col(name), pl.col(held_name)
            is_old = (ours < other) | ((ours == other) & is_old)
        left = both.filter(~is_old.fill_null(False)).drop(others.values())
        return left, len(events) - len(left)

    def _check_held(self, held: pl.DataFrame) -> None:
        """Raise DataError for a key that the log holds more than once. ``held`` is consolidated."""
        counts = held.group_by(_KEY, _AT).agg(pl.col(DIFF).sum()).sort(_AT, _KEY)
        counts = counts.with_columns(pl.col(DIFF).cum_sum().over(_KEY, order_by=_AT))
        if (twice := counts.filter(pl.col(DIFF) > 1)).is_empty():
            return
        key, at, _ = twice.row(0)
        rows = held.filter(pl.col(_KEY) == key, pl.col(_AT) <= at).group_by(*self.log.schema).agg(pl.col(DIFF).sum())
        rows = rows.filter(pl.col(DIFF) > 0).sort(*self.log.schema).head(2)
        shown = "; and ".join(self._shown_event({**row, OP: 0}) for row in rows.iter_rows(named=True))
        when = "" if at == _BASE or not self._is_one else f" at {named((at,), self.log.dims)}"
        raise DataError(
            f"{self.log.folder.name} holds more than one row of the key {', '.join(self.events.key)}{when}: {shown}",
            "name more columns with --key; or correct the input first: ddcore ingest --undo N",
        )


def _those(frame: pl.DataFrame, *, is_held: bool) -> pl.DataFrame:
    """The events in a frame, which have an operation; or the updates of the log."""
    nulls = frame[OP].null_count()
    if nulls in (0, len(frame)):
        return frame if (nulls == len(frame)) == is_held else frame.clear()
    return frame.filter(pl.col(OP).is_null() == is_held)


def _only(frame: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """The rows of keys that no other row has."""
    if len(key) == 1 and frame.schema[key[0]].is_integer() and ascend([frame[key[0]]]):
        return frame
    twice = repeats(row_hashes(frame.select(key), (), bytes(16))[0])
    return frame if twice is None else frame.filter(~twice)


def _points(held: pl.DataFrame) -> pl.DataFrame:
    """The values of keys where they change: ``_PRESENT``, and the row; where there is none any more, the last one."""
    points = held.sort(_KEY, _AT, DIFF).unique([_KEY, _AT], keep="last", maintain_order=True)
    return points.with_columns((pl.col(DIFF) > 0).alias(_PRESENT)).drop(DIFF)
