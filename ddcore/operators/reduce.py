"""The reduce: any function of the rows of a key, re-evaluated at the times where its input may have changed (seed 000).

One step handles all versions of a run at one position. Interesting times are those of new updates and wake-ups,
closed under join with the times the key has seen; the debt at later rounds, or at times not yet complete, is returned
as wake-ups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ddcore import encoding
from ddcore.batch import Batch
from ddcore.casts import InexactCast, exact_cast
from ddcore.collection import Reduction
from ddcore.errors import DdError, DiffOverflow, ExpressionError, NegativeMultiplicity, is_interrupt
from ddcore.functions import name_of
from ddcore.kernels import aggregating, emitting, times
from ddcore.plan import Arrangement, Block
from ddcore.schema import Schema, Type
from ddcore.trace import Keys, Rows, Run, Trace, arrange, distinct_keys, gather
from ddcore.wording import described, line_of

_WHOLE = Type("int64")
_KINDS = {"count": aggregating.COUNT, "sum": aggregating.SUM, "min": aggregating.MIN, "max": aggregating.MAX}


@dataclass(slots=True)
class Wanted:
    """Rows that should hold: evaluation number (ascending), words (columns, n), count."""

    evals: np.ndarray
    words: np.ndarray
    counts: np.ndarray


@dataclass(slots=True)
class _Evaluations:
    """Where to evaluate: per key, versions (inputs, e); all at the rounds of the step."""

    keys: Keys
    offsets: np.ndarray
    versions: np.ndarray

    def key_of(self) -> np.ndarray:
        """The key number of each evaluation."""
        return np.repeat(np.arange(len(self.keys)), np.diff(self.offsets))


class ReduceStep:
    """One reduce block's work at one position."""

    def __init__(self, block: Block, inputs: int) -> None:
        assert block.output is not None
        self.block, self.inputs = block, inputs
        self.port, self.output = block.ports[0], block.output
        self.reduction: Reduction = block.node.settings
        self._kinds, self._columns = self._aggregates()

    def run(
        self,
        rounds: tuple[int, ...],
        new: Run | None,
        wakes: Run | None,
        traces: tuple[Trace, Trace],
        upper: np.ndarray,
    ) -> tuple[Batch, Run]:
        """The output updates at ``rounds``, and the wake-ups owed: key codes, key words, times (all coordinates).

        ``traces`` are those of the input and of the output. ``upper`` is the frontier (inputs, elements) at or beyond
        which times are not complete yet; (inputs, 0) if everything is. Raises NegativeMultiplicity, DiffOverflow,
        ExpressionError.
        """
        port, depth = self.port, self.inputs + len(rounds)
        loops = np.array(rounds, dtype=np.int64)
        keys, seed_offsets, seed_times = self._seeds(new, wakes)
        source, target = traces
        history = gather(source.runs, keys, len(port.values), depth)
        made = gather(target.runs, keys, len(self.output.values), depth)
        offsets, versions, late_keys, late_times = times.plan_times(
            self.inputs,
            loops,
            upper,
            seed_offsets,
            seed_times,
            history.offsets,
            history.times,
            made.offsets,
            made.times,
        )
        owed = arrange(
            keys.codes[late_keys],
            list(np.take(keys.words, late_keys, axis=1)),
            list(late_times),
            np.ones(len(late_keys), dtype=np.int64),
        )
        evaluations = _Evaluations(keys, offsets, versions)
        wanted = self._evaluate(evaluations, history, loops)
        evals, words, diffs, beyond = emitting.emit(
            self.inputs, loops, offsets, versions, wanted.evals, wanted.words, wanted.counts,
            made.offsets, made.words, made.times, made.diffs,
        )  # fmt: skip
        if len(beyond):
            raise DiffOverflow(
                f"{self._where(beyond, evaluations, loops)}: a row's count changes by more than int64 holds"
            )
        return self._updates(evaluations, rounds, evals, words, diffs), owed

    def _seeds(self, new: Run | None, wakes: Run | None) -> tuple[Keys, np.ndarray, np.ndarray]:
        """The keys to look at, and per key the times that call for it."""
        width = self.port.key_words
        if wakes is None and new is not None:
            keys, starts = distinct_keys(new, width)
            return keys, starts, new.times
        parts = [run for run in (new, wakes) if run is not None]
        calls = arrange(
            np.concatenate([run.codes for run in parts]),
            list(np.concatenate([run.words[:width] for run in parts], axis=1)),
            list(np.concatenate([run.times for run in parts], axis=1)),
            np.ones(sum(len(run) for run in parts), dtype=np.int64),
        )
        keys, starts = distinct_keys(calls, width)
        return keys, starts, calls.times

    def _evaluate(self, evaluations: _Evaluations, history: Rows, loops: np.ndarray) -> Wanted:
        if self.reduction.function is not None:
            return self._apply(evaluations, history, loops)
        words, back = self._ranked(history.words)
        results, present, wrong = aggregating.aggregate(
            self.inputs, loops, self._kinds, self._columns, history.offsets, words, history.times, history.diffs,
            evaluations.offsets, evaluations.versions, self.reduction.allow_negative,
        )  # fmt: skip
        self._raise_if(wrong, evaluations, loops)
        there = np.flatnonzero(present)
        results = np.take(results, there, axis=1)
        self._check_digits(results, evaluations, there)
        for place, table in back.items():
            found = results[place] != encoding.NULL
            results[place, found] = table[results[place, found]]
        return Wanted(there, results, np.ones(len(there), dtype=np.int64))

    def _check_digits(self, results: np.ndarray, at: _Evaluations, evals: np.ndarray) -> None:
        """A sum of decimals has the digits its type has, or is an error; the kernel only knows of int64."""
        for place, (name, kind, _) in enumerate(self.reduction.aggregates):
            made = self.reduction.result[name]
            if kind != "sum" or made.name != "decimal":
                continue
            beyond = np.flatnonzero(np.abs(results[place]) >= 10**made.precision)
            if len(beyond):
                key = decode_key(self.port, at.keys, int(at.key_of()[evals[beyond[0]]]))
                raise DiffOverflow(f"agg ({self.block.node.place}): key {key!r}: {name} has too many digits for {made}")

    def _ranked(self, words: np.ndarray) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Words in which string arguments of min and max are ordered as strings.

        And the tables that lead back, by aggregate.
        """
        back: dict[int, np.ndarray] = {}
        types = [self.port.schema[name] for name in self.port.values]
        done: dict[int, np.ndarray] = {}
        for place, (kind, column) in enumerate(zip(self._kinds, self._columns, strict=True)):
            if kind not in (aggregating.MIN, aggregating.MAX):
                continue
            if column not in done:
                ranks, table = encoding.rank_words(words[column], types[column])
                if table is None:
                    continue
                words = words.copy() if not done else words
                words[column], done[column] = ranks, table
            back[place] = done[column]
        return words, back

    def _apply(self, evaluations: _Evaluations, history: Rows, loops: np.ndarray) -> Wanted:
        """Call the user's function once on all groups of the step."""
        evals, rows, counts, wrong = aggregating.accumulate(
            self.inputs, loops, history.offsets, history.words, history.times, history.diffs,
            evaluations.offsets, evaluations.versions, self.reduction.allow_negative,
        )  # fmt: skip
        self._raise_if(wrong, evaluations, loops)
        result = self.reduction.result
        if len(evals) == 0:
            return Wanted(evals, np.empty((len(result), 0), np.int64), counts)
        values: Schema = {name: self.port.schema[name] for name in self.port.values}
        rows_shown = encoding.decode_frame(list(np.take(history.words, rows, axis=1)), values)
        frame = pl.DataFrame([pl.Series("group", evals), *rows_shown, pl.Series("count", counts)])
        made = call(self.reduction.function, frame.sort("group", *values), result, "group", self.block.node.place)
        made = made.sort("group", maintain_order=True)
        words = encoding.encode_frame(made, result)
        stacked = np.stack(words) if words else np.empty((0, len(made)), dtype=np.int64)
        counts = made["count"].to_numpy() if "count" in made.columns else np.ones(len(made), dtype=np.int64)
        return Wanted(made["group"].to_numpy(), stacked, counts)

    def _updates(
        self, at: _Evaluations, rounds: tuple[int, ...], evals: np.ndarray, words: np.ndarray, diffs: np.ndarray
    ) -> Batch:
        key = at.key_of()[evals]
        codes = at.keys.codes[key]
        key_words = [codes] if self.output.direct else [column[key] for column in at.keys.words]
        coordinates = [version[evals] for version in at.versions]
        coordinates += [np.full(len(evals), current, dtype=np.int64) for current in rounds]
        return Batch([*key_words, *words], coordinates, diffs)

    def _aggregates(self) -> tuple[np.ndarray, np.ndarray]:
        kinds, columns = [], []
        for _, kind, argument in self.reduction.aggregates:
            place = self.port.values.index(argument) if argument is not None else 0
            floats = argument is not None and self.port.schema[argument].name == "float64"
            kinds.append(aggregating.FLOAT_SUM if kind == "sum" and floats else _KINDS[kind])
            columns.append(place)
        return np.array(kinds, dtype=np.int64), np.array(columns, dtype=np.int64)

    def _raise_if(self, wrong: np.ndarray, at: _Evaluations, loops: np.ndarray) -> None:
        if wrong[0] == 0:
            return
        if wrong[0] == aggregating.OVERFLOW:
            what = "a count" if self.reduction.function is not None else "a sum or a count"
            raise DiffOverflow(f"{self._where(wrong[1:3], at, loops)}: {what} is more than int64 holds")
        key, time = self._key_and_time(wrong[1:3], at, loops)
        count = (int(wrong[4]) << 64) | (int(wrong[3]) & (2**64 - 1))
        raise NegativeMultiplicity(f"{self.reduction.op} ({self.block.node.place})", key, time, count)

    def _where(self, place: np.ndarray, at: _Evaluations, loops: np.ndarray) -> str:
        key, time = self._key_and_time(place, at, loops)
        return f"{self.reduction.op} ({self.block.node.place}): key {key!r} at time {time}"

    def _key_and_time(self, place: np.ndarray, at: _Evaluations, loops: np.ndarray) -> tuple[Any, tuple[int, ...]]:
        """The key and the time of (key number, evaluation number)."""
        time = (*(int(v) for v in at.versions[:, place[1]]), *(int(r) for r in loops))
        return decode_key(self.port, at.keys, int(place[0])), time


def decode_key(arrangement: Arrangement, keys: Keys, k: int) -> tuple[Any, ...]:
    """The values of one key."""
    words = [keys.codes[k : k + 1]] if arrangement.direct else [column[k : k + 1] for column in keys.words]
    schema = {name: arrangement.schema[name] for name in arrangement.key}
    return encoding.decode_frame(words, schema).row(0) if schema else ()


def call(function: Any, frame: pl.DataFrame, schema: Schema, handle: str, place: str) -> pl.DataFrame:
    """Call a user's function on a frame and check what it returns: ``handle``, the declared columns, perhaps ``count``.

    Returns handle, columns in order, and the count of a group's rows where there is one. Values become the declared
    types only where that loses nothing. Raises ExpressionError naming the place in the program, the function, the
    column and the value.
    """
    where = f"{place}: the function {name_of(function)}"
    try:
        returned = function(frame)
    except DdError:
        raise
    except BaseException as error:  # whatever a user's function raises is the user's to see, SystemExit included
        if is_interrupt(error):
            raise
        raise ExpressionError(
            f"{where} failed at {line_of(error)}: {described(error)}", "fix the function, then run again"
        ) from error
    if not isinstance(returned, pl.DataFrame):
        raise ExpressionError(f"{where} returned {type(returned).__name__}, not a polars DataFrame")
    missing = [name for name in (handle, *schema) if name not in returned.columns]
    if missing:
        raise ExpressionError(f"{where} returned no column {missing[0]}, only {', '.join(returned.columns)}")
    columns = [_exactly(returned[name], kind, where) for name, kind in {handle: _WHOLE, **schema}.items()]
    if handle == "group" and "count" in returned.columns:  # of a flat_map it is a column like any other
        columns.append(_exactly(returned["count"], _WHOLE, where, reserved=False))
        if columns[-1].null_count():
            raise ExpressionError(f"{where} returned a null count")
    handles = columns[0]
    if len(handles) and (handles.null_count() or not handles.is_in(frame[handle].unique().implode()).all()):
        raise ExpressionError(f"{where} returned a {handle} it was not given")
    return pl.DataFrame(columns)


def _exactly(column: pl.Series, kind: Type, where: str, *, reserved: bool = True) -> pl.Series:
    try:
        return exact_cast(column, kind, reserved=reserved)
    except InexactCast as error:
        raise ExpressionError(
            f"{where} returned a column that does not fit: {column.name} {error}",
            "round or cast it in the function, or declare another type in schema=",
        ) from None
