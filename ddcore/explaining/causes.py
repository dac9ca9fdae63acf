"""What rows of an output rest on, and which changes of the inputs moved them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from ddcore.batch import Batch
from ddcore.encoding import decode_frame, encode_frame
from ddcore.errors import Mismatch
from ddcore.explaining.derivation import Derivation, Fact
from ddcore.explaining.trials import Counts, Elements, Goal, Trials, minimal
from ddcore.explaining.watching import TRIAL, Watch, narrowed_to
from ddcore.frames import batch_of
from ddcore.libraries import numpy as np
from ddcore.operators.concat import Negate
from ddcore.operators.multiset import Multiset
from ddcore.planner import Program, build
from ddcore.schema import Schema

__all__ = ["Causes", "Explanation", "Question", "rows_with"]


@dataclass
class Causes:
    """Changes of the inputs that moved rows: per input the changed rows and ``diff``, how their counts changed.

    ``all_changes``: how many rows of inputs changed at all. ``trials``: how often the program was tried, in ``folds``
    folds.
    """

    inputs: dict[str, pl.DataFrame]
    all_changes: int
    trials: int
    folds: int


@dataclass
class Explanation:
    """What one row rests on.

    ``inputs``: per input the rows, and ``diff``, their counts. ``derivation`` says how the program makes the row of
    these. ``keeps_away``: the places of operators that keep rows away; where there are some, rows that are not there
    may be a reason as well. ``candidates``: how many input rows were looked at.
    """

    inputs: dict[str, pl.DataFrame]
    derivation: Derivation
    keeps_away: list[str]
    candidates: int
    trials: int
    folds: int
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
        rows = rows.filter(pl.col(name).eq_missing(pl.lit(key[name], dtype=rows.schema[name]).first()))
    return rows


@dataclass(frozen=True)
class Question:
    """An output of a program, the schemas of the program's inputs, and that of the output."""

    program: Program
    output: str
    schemas: Mapping[str, Schema]
    schema: Schema

    def explain(self, inputs: Mapping[str, pl.DataFrame], row: pl.DataFrame) -> Explanation:
        """Input rows on which one row of the output rests: with them alone the program gives the row, and without any
        one of them it does not.

        ``inputs``: the collections, per input a frame of its columns and ``diff``, the count. ``row``: a frame with
        the one row, which must be there. A row that occurs several times counts as one. Raises Mismatch
        where it is not, and the FoldError family.

        Cost: a fold of all inputs from nothing that keeps every collection of the program; then folds of the rows that
        a derivation of the row needs, one or a few for each input row of the result.
        """
        everything = self._batches(inputs)
        watch = Watch(self.program, self.output, self.schemas, everything)
        words = _row_words(row, self.schema)
        start = _start(watch, words)
        if not start.roots:
            raise self._missing(row)
        candidates = {
            name: Batch(watch.table(node).words(rows), [], watch.table(node).counts(())[rows])
            for name, rows in start.leaves().items()
            for node in [watch.inputs[name]]
        }
        sign = 1 if int(watch.table(watch.output).counts(())[start.roots[0][2]]) > 0 else -1
        goal = _is_there(words, sign)
        trials = self._trials(candidates, goal)
        if not trials.all_hold():  # what keeps other rows away matters: begin with all there is
            trials = self._trials(everything, goal)
            if not trials.all_hold():
                raise self._missing(row)
        number = trials.elements.number
        least = trials.elements.taken(minimal(trials).tolist())
        final = Watch(self.program, self.output, self.schemas, least)
        derivation = _start(final, words)
        return Explanation(self._frames(least), derivation, _keeping_away(final), number, trials.tried, trials.runs)

    def check(
        self, inputs: Mapping[str, pl.DataFrame], row: pl.DataFrame, named: Mapping[str, pl.DataFrame]
    ) -> tuple[bool, bool, bool]:
        """Whether a row is there with the ``named`` input rows alone, whether it is gone without any one of them, and
        whether it is there with all ``inputs`` but these. Each is folded from nothing. ``row`` has its count as
        ``diff``.
        """
        goal = _is_there(_row_words(row, self.schema), 1 if row["diff"][0] > 0 else -1)
        full = {name: named.get(name, inputs[name].clear()) for name in self.schemas}
        alone = self._trials(self._batches(full), goal)
        each = np.arange(alone.elements.number)
        suffices = alone.all_hold()
        is_minimal = not any(alone.folded_apart([np.setdiff1d(each, [one]) for one in each]))
        negated = {name: frame.with_columns(-pl.col("diff")) for name, frame in full.items()}
        rest = self._trials(self._batches(negated), goal, self._batches(inputs))
        return suffices, is_minimal, rest.all_hold()

    def explain_change(
        self, before: Mapping[str, pl.DataFrame], changes: Mapping[str, pl.DataFrame], key: pl.DataFrame
    ) -> Causes:
        """The changes of inputs that moved the rows of a key: with them alone the rows become what they are after all
        changes, and without any one of them they do not.

        ``before``: the collections, per input a frame of its columns and ``diff``, the count; ``changes``: the same,
        how counts changed. ``key``: one row of some columns of the output. No changes where the rows are the same
        before and after.

        Cost: a fold of the inputs before the changes, which is kept; then folds of the changes, as in :meth:`explain`.
        """
        columns = list(self.schema)
        places = [columns.index(name) for name in key.columns]
        wanted = _row_words(key, {name: self.schema[name] for name in key.columns})
        after: Counts = {}
        goal = Goal(lambda words: _is_row(wanted, [words[place] for place in places]), lambda counts: counts == after)
        trials = self._trials(self._batches(changes), goal, self._batches(before))
        trials.all_hold()
        after.update(trials.counts)
        least = trials.elements.taken(minimal(trials).tolist())
        return Causes(self._frames(least), trials.elements.number, trials.tried, trials.runs)

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
    waiting, seen, places = [watch.output], set[int](), list[str]()
    while waiting:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        node = watch.node(index)
        operator = node.operator
        if isinstance(operator, Negate) or (isinstance(operator, Multiset) and operator.operation == "except_"):
            places.append(node.place)
        waiting += node.inputs
        scope = watch.graph.scopes[node.scope]
        waiting += [*scope.variables, *scope.results] if node.scope else []
    return sorted(set(places))
