"""What rows of an output rest on, and which changes of the inputs moved them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from ddcore.batch import Batch
from ddcore.encoding import decode_frame, encode_frame
from ddcore.explaining.derivation import Derivation, Fact
from ddcore.explaining.trials import Counts, Elements, Trials, minimal
from ddcore.explaining.watching import Watch
from ddcore.frames import batch_of
from ddcore.libraries import numpy as np
from ddcore.operators.concat import Negate
from ddcore.operators.multiset import Multiset
from ddcore.planner import Program
from ddcore.schema import Schema

__all__ = ["Causes", "Explanation", "explain", "explain_change", "rows_with"]

Key = tuple[str, ...]


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
    these. ``replaced``: whether the program has operators that keep rows away, so that rows that are not there may be
    a reason as well. ``candidates``: how many input rows were looked at.
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


def _batches(inputs: Mapping[str, pl.DataFrame], schemas: Mapping[str, Schema]) -> dict[str, Batch]:
    return {name: batch_of(inputs[name], schema, (), name) for name, schema in schemas.items()}


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


def explain(
    program: Program,
    output: str,
    schemas: Mapping[str, Schema],
    inputs: Mapping[str, pl.DataFrame],
    row: pl.DataFrame,
    schema: Schema,
) -> Explanation:
    """Input rows on which one row of an output rests: with them alone the program gives the row, and without any one
    of them it does not.

    ``inputs``: the collections, per input a frame of its columns and ``diff``, the count. ``row``: a frame with the
    one row, of the columns ``schema``, which must be there. A row that occurs several times counts as one.

    Cost: a fold of all inputs from nothing that keeps every collection of the program; then folds of the rows that a
    derivation of the row needs, one or a few for each input row of the result.
    """
    everything = _batches(inputs, schemas)
    watch = Watch(program, output, schemas, everything)
    words = _row_words(row, schema)
    start = _start(watch, words)
    candidates = {
        name: Batch(watch.table(node).words(rows), [], watch.table(node).counts(())[rows])
        for name, rows in start.leaves().items()
        for node in [watch.inputs[name]]
    }
    sign = 1 if int(watch.table(watch.output).counts(())[start.roots[0][2]]) > 0 else -1

    def trials(elements: Mapping[str, Batch]) -> Trials:
        target = tuple(words)
        return Trials(
            program, output, schemas, Elements(elements),
            lambda columns: _is_row(words, columns), lambda counts: counts.get(target, 0) * sign > 0,
        )  # fmt: skip

    tried = trials(candidates)
    if not tried.all_hold():  # what keeps other rows away matters: begin with all there is
        tried = trials(everything)
        assert tried.all_hold(), "the program does not give the row"
    number = tried.elements.number
    least = tried.elements.taken(minimal(tried).tolist())
    final = Watch(program, output, schemas, least)
    frames = {
        name: decode_frame(batch.words, schemas[name]).with_columns(diff=pl.Series(batch.diffs))
        for name, batch in least.items()
        if len(batch)
    }
    return Explanation(frames, _start(final, words), _keeping_away(final), number, tried.tried, tried.runs)


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


def explain_change(
    program: Program,
    output: str,
    schemas: Mapping[str, Schema],
    before: Mapping[str, pl.DataFrame],
    changes: Mapping[str, pl.DataFrame],
    key: pl.DataFrame,
    schema: Schema,
) -> Causes:
    """The changes of inputs that moved the rows of a key: with them alone the rows become what they are after all
    changes, and without any one of them they do not.

    ``before``: the collections, per input a frame of its columns and ``diff``, the count; ``changes``: the same, how
    counts changed. ``key``: one row of some columns of the output, whose columns are ``schema``. No changes where the
    rows are the same before and after.

    Cost: a fold of the inputs before the changes, which is kept; then folds of the changes, as in :func:`explain`.
    """
    columns = list(schema)
    places = [columns.index(name) for name in key.columns]
    wanted = _row_words(key, {name: schema[name] for name in key.columns})
    elements = Elements(_batches(changes, schemas))
    goal: Counts = {}

    def watched(words: list[np.ndarray]) -> np.ndarray:
        return _is_row(wanted, [words[place] for place in places])

    trials = Trials(
        program, output, schemas, elements, watched, lambda counts: counts == goal, _batches(before, schemas)
    )
    trials.all_hold()
    goal.update(trials._counts)
    least = elements.taken(minimal(trials).tolist())
    frames = {
        name: decode_frame(batch.words, schemas[name]).with_columns(diff=pl.Series(batch.diffs))
        for name, batch in least.items()
        if len(batch)
    }
    return Causes(frames, elements.number, trials.tried, trials.runs)
