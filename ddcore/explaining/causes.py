"""What rows of an output rest on, and which changes of the inputs moved them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from ddcore.base.errors import FoldError, Mismatch
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.data.encoding import decode_frame, encode_frame
from ddcore.explaining.derivation import Derivation, Fact
from ddcore.explaining.fetching import Fetch, Reader
from ddcore.explaining.restricting import EVERYTHING, NOTHING, Restriction
from ddcore.explaining.trials import Counts, Elements, Goal, Trials, minimal
from ddcore.explaining.watching import TRIAL, Layout, Watch, narrowed_to
from ddcore.operators.concat import Negate
from ddcore.operators.multiset import Multiset
from ddcore.planning.planner import Program, build
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.frames import batch_of


@dataclass
class Causes:
    """Changes of the inputs that moved rows: per input the changed rows and ``diff``, how their counts changed.

    ``all_changes``: how many rows of inputs changed at all.
    """

    inputs: dict[str, pl.DataFrame]
    all_changes: int


@dataclass
class Explanation:
    """What one row rests on.

    ``inputs``: per input the rows, and ``diff``, their counts. ``derivation`` says how the program makes the row of
    these. ``keeps_away``: the places of operators that keep rows away; where there are some, rows that are not there
    may be a reason as well.
    """

    inputs: dict[str, pl.DataFrame]
    derivation: Derivation
    keeps_away: list[str]
    _frames: dict[int, pl.DataFrame] = field(default_factory=dict)

    def row(self, fact: Fact) -> dict[str, object]:
        """The values of a fact's row."""
        node, _, number = fact
        frame = self._frames.get(node)
        if frame is None:
            table, schema = self.derivation.watch.table(node), self.derivation.watch.node(node).schema
            frame = self._frames[node] = decode_frame(table.words(np.arange(len(table.rows))), schema)
        return frame.row(number, named=True) if frame.columns else {}


def _row_words(row: pl.DataFrame, schema: Schema) -> list[int]:
    return [int(words[0]) for words in encode_frame(row, schema)]


def _is_row(row: Sequence[int], words: list[np.ndarray]) -> np.ndarray:
    mask = np.ones(len(words[0]) if words else 1, dtype=bool)
    for value, column in zip(row, words, strict=True):
        mask &= column == value
    return mask


def rows_with(rows: pl.DataFrame, key: pl.DataFrame) -> pl.DataFrame:
    """Those of the rows that have the values of the one row of ``key``; nulls equal each other."""
    for name in key.columns:
        rows = rows.filter(pl.col(name).eq_missing(pl.lit(key[name].cast(rows.schema[name])).first()))
    return rows


Inputs = Callable[[str, pl.Expr | None], pl.DataFrame]
"""The rows of an input for which an expression is true, all without one: its columns and ``diff``, the count."""


def held(inputs: Mapping[str, pl.DataFrame]) -> Inputs:
    """Inputs that are in memory."""
    return lambda name, rows: inputs[name] if rows is None else inputs[name].filter(rows)


@dataclass(frozen=True)
class Question:
    """An output of a program, the schemas of the program's inputs, and that of the output.

    Of the inputs only those rows are asked for on which rows of the output can depend: see
    :mod:`ddcore.explaining.needs` and :mod:`ddcore.explaining.fetching`. With ``restricts`` False, all.
    ``tuning``: sizes that change no result.
    """

    program: Program
    output: str
    schemas: Mapping[str, Schema]
    schema: Schema
    restricts: bool = True
    tuning: Tuning = DEFAULT

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self.program, self.output, self.schemas, self.tuning)

    def explain(self, inputs: Inputs, row: pl.DataFrame) -> Explanation:
        """Input rows on which one row of the output rests: with them alone the program gives the row, and without any
        one of them it does not.

        ``row``: a frame with the one row, which must be there. A row that occurs several times counts as one. Raises
        Mismatch where it is not there, and the FoldError family.

        Cost: a fold of what is needed of the inputs, from nothing, that keeps every collection that the output rests
        on; then folds of the rows that a derivation of the row needs, one or a few for each input row of the result.
        """
        words = _row_words(row, self.schema)
        read = self._reader(inputs)
        found = self._boldly(read, row)
        trials = self._found(*found, words) if found else None
        trials = trials or self._found(*self._watch(read, row), words)
        if trials is None:
            raise self._missing(row)
        least = trials.elements.taken(minimal(trials).tolist())
        final = Watch(self._layout, least)
        derivation = _start(final, words)
        return Explanation(self._frames(least), derivation, _keeping_away(final))

    def _found(self, watch: Watch, everything: Mapping[str, Batch], words: Sequence[int]) -> Trials | None:
        """Trials of the input rows of a derivation of a row; None where the row is not there."""
        start = _start(watch, words)
        if not start.roots:
            return None
        candidates = {
            name: Batch(watch.table(node).words(rows), [], watch.table(node).counts(())[rows])
            for name, rows in start.leaves().items()
            for node in [watch.inputs[name]]
        }
        sign = 1 if int(watch.table(watch.output).counts(())[start.roots[0][2]]) > 0 else -1
        goal = _is_there(words, sign)
        trials = self._trials(candidates, goal)
        if trials.all_hold():
            return trials
        trials = self._trials(everything, goal)  # what keeps other rows away matters: begin with all there is
        return trials if trials.all_hold() else None

    def _boldly(self, read: Reader, row: pl.DataFrame) -> tuple[Watch, dict[str, Batch]] | None:
        """All collections on less than a row of the output can depend on, if it is there all the same: without the
        rows that only keep others away.
        """
        restriction = Restriction.to_row(row, self.schema)
        bold = Fetch(self._layout, restriction, bold=True)
        if not self.restricts or bold.columns == Fetch(self._layout, restriction).columns:
            return None
        with suppress(FoldError):
            watch, batches = bold.watch(read)
            counts = watch.table(watch.output).counts(())
            if any(counts[number] > 0 for _, _, number in _start(watch, _row_words(row, self.schema)).roots):
                return watch, batches
        return None

    def check(self, inputs: Inputs, row: pl.DataFrame, named: Mapping[str, pl.DataFrame]) -> tuple[bool, bool, bool]:
        """Whether a row is there with the ``named`` input rows alone, whether it is gone without any one of them, and
        whether it is there with all ``inputs`` but these. Each is folded from nothing. ``row`` has its count as
        ``diff``.
        """
        sign = 1 if row["diff"][0] > 0 else -1
        words = _row_words(row, self.schema)
        full = {name: named.get(name, _nothing(schema)) for name, schema in self.schemas.items()}
        alone = self._trials(self._batches(full), _is_there(words, sign))
        elements = np.arange(alone.elements.number)
        suffices = alone.all_hold()
        is_minimal = not any(alone.folded_apart([np.setdiff1d(elements, [element]) for element in elements]))
        try:
            watch, _ = self._watch(_without(self._reader(inputs), self._batches(full)), row)
        except FoldError:  # as in a trial: where the program fails, the row is not there
            return suffices, is_minimal, False
        rest = _start(watch, words)
        stays = any(int(watch.table(watch.output).counts(())[fact[2]]) * sign > 0 for fact in rest.roots)
        return suffices, is_minimal, stays

    def explain_change(self, before: Inputs, changes: Mapping[str, pl.DataFrame], key: pl.DataFrame) -> Causes:
        """The changes of inputs that moved the rows of a key: with them alone the rows become what they are after all
        changes, and without any one of them they do not.

        ``before``: the inputs; ``changes``: per input a frame of its columns and ``diff``, how counts changed. ``key``:
        one row of some columns of the output. No changes where the rows are the same before and after.

        Cost: a fold of what is needed of the inputs before the changes, which is kept; then folds of the changes, as in
        :meth:`explain`.
        """
        columns = list(self.schema)
        positions = [columns.index(name) for name in key.columns]
        wanted = _row_words(key, {name: self.schema[name] for name in key.columns})
        after: Counts = {}
        goal = Goal(
            lambda words: _is_row(wanted, [words[position] for position in positions]), lambda counts: counts == after
        )
        all_changes = self._batches(changes)
        for base, some in self._bases(before, all_changes, key):
            trials = self._trials(some, goal, base)
            trials.all_hold()
            if not trials.failed:
                break
        after.update(trials.counts)
        least = trials.elements.taken(minimal(trials).tolist())
        return Causes(self._frames(least), sum(map(len, all_changes.values())))

    def _watch(self, read: Reader, row: pl.DataFrame) -> tuple[Watch, dict[str, Batch]]:
        """All collections on what a row of the output needs of the inputs, and this. Where the program fails on that,
        as a function may that is given a part of its rows, on all of the inputs.
        """
        fetch = Fetch(self._layout, Restriction.to_row(row, self.schema))
        if self.restricts and fetch.restricts:
            with suppress(FoldError):
                return fetch.watch(read)
            fetch.give_up(fetch.look_ups)
            with suppress(FoldError):
                return fetch.watch(read)
        everything = {name: read(name, EVERYTHING) for name in self.schemas}
        return Watch(self._layout, everything), everything

    def _bases(
        self, before: Inputs, changes: Mapping[str, Batch], key: pl.DataFrame
    ) -> Iterator[tuple[dict[str, Batch], dict[str, Batch]]]:
        """What the rows of a key need of the inputs and of changes of these, with any of the changes; then all."""
        read = self._reader(before)
        fetch = Fetch(self._layout, Restriction.to_row(key, self.schema), adding=True)
        if self.restricts and fetch.restricts:

            def ever(name: str, rows: Restriction) -> Batch:
                """The rows that an input has with some of the changes."""
                return _support(concatenate([read(name, rows), _of(changes[name], rows, self.schemas[name])]))

            if fetch.look_ups:
                try:
                    fetch.watch(ever)
                except FoldError:
                    fetch.give_up(fetch.look_ups)
            needed = {name: fetch.needs.inputs.get(name, NOTHING) for name in self.schemas}
            yield (
                {name: read(name, rows) for name, rows in needed.items()},
                {name: _of(changes[name], rows, self.schemas[name]) for name, rows in needed.items()},
            )
        yield {name: read(name, EVERYTHING) for name in self.schemas}, dict(changes)

    def _reader(self, inputs: Inputs) -> Reader:
        def read(name: str, rows: Restriction) -> Batch:
            schema = self.schemas[name]
            frame = _nothing(schema) if rows.is_nothing else inputs(name, rows.condition(schema))
            return batch_of(frame, schema, (), name)

        return read

    def _missing(self, row: pl.DataFrame) -> Mismatch:
        values = row.select(list(self.schema)).row(0, named=True)
        return Mismatch(
            f"{self.output} has the row {values!r}, but the program does not give it for the inputs",
            "see whether the output is right: ddcore verify",
        )

    def _trials(self, elements: Mapping[str, Batch], goal: Goal, base: Mapping[str, Batch] | None = None) -> Trials:
        plan = build(narrowed_to(self.program, self.output), self.schemas, (TRIAL,))
        return Trials(plan, self.output, Elements(elements), goal, base)

    def _batches(self, inputs: Mapping[str, pl.DataFrame]) -> dict[str, Batch]:
        return {name: batch_of(inputs[name], schema, (), name) for name, schema in self.schemas.items()}

    def _frames(self, batches: Mapping[str, Batch]) -> dict[str, pl.DataFrame]:
        """Rows of inputs and ``diff``, in the order of the inputs; those without rows are left out."""
        return {
            name: decode_frame(batches[name].words, schema).with_columns(diff=pl.Series(batches[name].diffs))
            for name, schema in self.schemas.items()
            if name in batches and len(batches[name])
        }


def _nothing(schema: Schema) -> pl.DataFrame:
    return pl.DataFrame(schema={name: kind.polars for name, kind in schema.items()} | {"diff": pl.Int64()})


def _without(read: Reader, rows: Mapping[str, Batch]) -> Reader:
    """Inputs without some of their rows."""

    def left(name: str, restriction: Restriction) -> Batch:
        batch = read(name, restriction)
        given, removed = (pl.DataFrame(side.words, orient="col") for side in (batch, rows[name]))
        if not given.columns:
            return batch.take(slice(0, 0)) if len(rows[name]) else batch
        kept = given.with_row_index("row").join(removed, on=given.columns, how="anti")["row"]
        return batch.take(kept.to_numpy())

    return left


def _of(batch: Batch, rows: Restriction, schema: Schema) -> Batch:
    """Those of the updates that a restriction leaves."""
    return batch if rows.is_everything else batch.take(np.flatnonzero(rows.mask(batch.words, len(batch), schema)))


def _support(batch: Batch) -> Batch:
    """Each row once."""
    if not batch.words:
        return batch.take(slice(0, 1))
    _, first = np.unique(np.stack(batch.words), axis=1, return_index=True)
    rows = batch.take(first)
    return Batch(rows.words, [], np.ones(len(first), dtype=np.int64))


def _is_there(words: Sequence[int], sign: int) -> Goal:
    """That a row is there, with a count of this sign."""
    row = tuple(words)
    return Goal(lambda columns: _is_row(row, columns), lambda counts: counts.get(row, 0) * sign > 0)


def _start(watch: Watch, words: Sequence[int]) -> Derivation:
    table = watch.table(watch.output)
    pairs = table.among(
        [np.array([word], dtype=np.int64) for word in words], list(range(len(words))), np.zeros(1, dtype=np.int64), ()
    )
    return Derivation(watch, pairs["id"].to_list())


def _keeping_away(watch: Watch) -> list[str]:
    """The places of operators that keep rows away, among those that the output rests on."""
    nodes = [watch.node(index) for index in watch.graph.upstream([watch.output])]
    return sorted({node.source_line for node in nodes if _keeps_away(node.operator)})


def _keeps_away(operator: object) -> bool:
    return isinstance(operator, Negate) or (isinstance(operator, Multiset) and operator.operation == "except_")
