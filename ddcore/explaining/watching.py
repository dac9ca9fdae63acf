"""Every collection of a program on given inputs, round by round.

The program is planned once more, with a log for each of its nodes, as if it inspected them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from ddcore.base.errors import UsageError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema
from ddcore.base.threads import available
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.engine.worker import Worker
from ddcore.operators.base import Linear
from ddcore.operators.borders import Input
from ddcore.operators.select import Select
from ddcore.planning.planner import Program, build
from ddcore.program.collection import Collection
from ddcore.program.graph import Graph, Inspection, Node
from ddcore.text.wording import listed
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.budget import Budget

TRIAL = "_trial"  # the one time dimension: no column of an input has such a name
_LOG = "node {}"
_ROUND_BITS = 32
_HALF = 2**29  # as in operators.priority
_NULL = -(2**63)
_ID, _WANTED = "id", "wanted"

Rounds = tuple[int, ...]
"""The coordinates of the loops around a collection, outermost first; a priority is packed above its round."""


def narrowed_to(program: Program, output: str) -> Program:
    """The program with this output, which may be an inspected collection, alone. Building it raises UsageError where
    the program has no such output.
    """

    def narrow(**inputs: Collection) -> Mapping[str, Collection]:
        outputs = program(**inputs)
        graph = next(iter(outputs.values()))._graph
        end = _end(graph, outputs, output)
        graph.inspections.clear()
        return {output: Collection(graph, end if isinstance(end, int) else graph.inspected(end))}

    return _with_parameters(narrow, program)


def _end(graph: Graph, outputs: Mapping[str, Collection], output: str) -> int | Inspection:
    """The node of an output, or the inspection with this name. Raises UsageError."""
    if output in outputs:
        return outputs[output]._index
    inspections = {inspection.name: inspection for inspection in graph.inspections}
    if output not in inspections:
        raise UsageError(f"no output {output!r}; there are: {listed([*outputs, *inspections])}")
    return inspections[output]


def _with_parameters(function: Any, program: Program) -> Program:
    """``function`` with the parameters of ``program``, which the planner compares with the inputs."""
    import inspect

    function.__signature__ = inspect.signature(program)
    result: Program = function
    return result


def run(worker: Worker, batches: Mapping[str, Batch], *, is_first: bool = True) -> dict[str, Batch]:
    """Fold updates with one time coordinate; the updates of each output. Raises the FoldError family."""
    worker.begin(None)
    if is_first:
        worker.feed_constants((0,))
    for name, batch in batches.items():
        worker.feed(name, batch)
    worker.run()
    for _ in worker.new_updates():
        pass
    outputs = {name: concatenate(output) for name, output in worker.state.outputs.items() if output}
    for name in worker.state.outputs:
        worker.state.outputs[name] = []
    return outputs


def packed_rounds(columns: Sequence[np.ndarray], prioritized: Sequence[bool]) -> list[np.ndarray]:
    """The coordinates of loops, outermost first, from the columns of a log: a loop's round, before it its priority."""
    more, rounds = iter(columns), []
    for has_priority in prioritized:
        priority = next(more) if has_priority else np.int64(_NULL)
        rounds.append(next(more) + (np.where(priority == _NULL, 0, priority + _HALF + 1) << _ROUND_BITS))
    return rounds


@dataclass
class Table:
    """The distinct rows of one collection, numbered, and their updates by round.

    ``rows`` has the words of the rows, one Int64 column each called by its place, and their number ``id``. ``ids``,
    ``diffs``: int64[n]; ``rounds``: int64[loops, n].
    """

    rows: pl.DataFrame
    ids: np.ndarray
    rounds: np.ndarray
    diffs: np.ndarray
    _counts: dict[Rounds, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, words: list[np.ndarray], rounds: list[np.ndarray], diffs: np.ndarray) -> Table:
        """From updates, which need not be consolidated."""
        names = [str(position) for position in range(len(words))]
        shape = np.empty((len(rounds), len(diffs)), dtype=np.int64)
        coordinates = np.array(rounds, dtype=np.int64).reshape(shape.shape)
        if not names:
            rows = pl.DataFrame({_ID: pl.Series([0] if len(diffs) else [], dtype=pl.Int64)})
            return cls(rows, np.zeros(len(diffs), dtype=np.int64), coordinates, diffs)
        frame = pl.DataFrame(dict(zip(names, words, strict=True)), schema=dict.fromkeys(names, pl.Int64()))
        rows = frame.unique(maintain_order=True).with_row_index(_ID).cast({_ID: pl.Int64()}).select(*names, _ID)
        ids = frame.join(rows, on=names, how="left", maintain_order="left")[_ID].to_numpy()
        return cls(rows, ids, coordinates, diffs)

    @property
    def names(self) -> list[str]:
        """The names of the columns of words."""
        return self.rows.columns[:-1]

    def words(self, ids: Any) -> list[np.ndarray]:
        """The words of the rows with these numbers."""
        at = np.asarray(ids, dtype=np.int64)
        return [self.rows[name].to_numpy()[at] for name in self.names]

    def counts(self, rounds: Rounds) -> np.ndarray:
        """How often each row is there in these rounds: int64[rows]. O(updates), once for each setting of the rounds."""
        counts = self._counts.get(rounds)
        if counts is None:
            counts = np.zeros(len(self.rows), dtype=np.int64)
            at = np.array(rounds, dtype=np.int64).reshape(-1, 1)
            before = (self.rounds <= at).all(axis=0)
            np.add.at(counts, self.ids[before], self.diffs[before])
            self._counts[rounds] = counts
        return counts

    def present(self, rounds: Rounds) -> pl.DataFrame:
        """The rows that are there in these rounds, with their count."""
        counts = self.counts(rounds)
        return self.rows.with_columns(count=pl.Series(counts)).filter(pl.col("count") != 0)

    def among(
        self, wanted: list[np.ndarray], positions: list[int], numbers: np.ndarray, rounds: Rounds
    ) -> pl.DataFrame:
        """The rows that are there in these rounds and have the words ``wanted`` in the columns ``positions``.

        Columns ``wanted``, of ``numbers``, ``id`` and ``count``. O(rows).
        """
        names = [self.names[position] for position in positions]
        frame = pl.DataFrame({name: words for name, words in zip(names, wanted, strict=True)} | {_WANTED: numbers})
        present = self.present(rounds)
        pairs = frame.join(present, on=names) if names else frame.join(present, how="cross")
        return pairs.select(_WANTED, _ID, "count")

    def starts(self, ids: np.ndarray, rounds: Rounds, *, whole: bool = False) -> pl.DataFrame:
        """Since which round of the innermost loop rows are there without a gap, up to ``rounds``: ``id``, ``start``.
        With ``whole``: since when as often as then. Rows that are not there are left out.
        """
        at = np.array(rounds, dtype=np.int64).reshape(-1, 1)
        some = (self.rounds <= at).all(axis=0) & np.isin(self.ids, ids)
        updates = pl.DataFrame({_ID: self.ids[some], "start": self.rounds[-1][some], "diff": self.diffs[some]})
        steps = updates.group_by(_ID, "start").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0).sort(_ID, "start")
        is_there = pl.col("diff").cum_sum().over(_ID) != 0
        begins = pl.lit(True) if whole else ~pl.col("there").shift(1, fill_value=False).over(_ID)
        steps = steps.with_columns(there=is_there).with_columns(begins=pl.col("there") & begins)
        kept = steps.group_by(_ID, maintain_order=True).agg(
            pl.col("there").last(), pl.col("start").filter(pl.col("begins")).last()
        )
        return kept.filter("there").select(_ID, "start")


class Layout:
    """A program planned with a log for each of the nodes that one output rests on.

    ``graph``: the program's, without the logs; ``output``: the node of the output. Raises UsageError for an output that
    the program does not have, and ProgramError.
    """

    def __init__(self, program: Program, output: str, schemas: Mapping[str, Schema], tuning: Tuning = DEFAULT) -> None:
        self.tuning = tuning
        self.graph = Graph()
        self.output = -1
        self.logs: dict[int, str] = {}
        self.plan = build(self._watching(program, output), schemas, (TRIAL,))

    @cached_property
    def inputs(self) -> dict[str, int]:
        """The nodes of the inputs."""
        return {node.operator.text: node.index for node in self.graph.nodes if isinstance(node.operator, Input)}

    def _watching(self, program: Program, output: str) -> Program:
        def watching(**inputs: Collection) -> Mapping[str, Collection]:
            outputs = program(**inputs)
            self.graph = graph = next(iter(outputs.values()))._graph
            end = _end(graph, outputs, output)
            graph.inspections.clear()
            for index in sorted(graph.upstream([end if isinstance(end, int) else end.node])):
                self._watch(graph, index)
            self.output = end if isinstance(end, int) else graph.inspected(end)  # by now the graph has all nodes
            if self.output not in self.logs:
                self._watch(graph, self.output)
            return {"output": Collection(graph, self.output)}

        return _with_parameters(watching, program)

    def _watch(self, graph: Graph, index: int) -> None:
        node = graph.nodes[index]
        names = {name: f"w{number}" for number, name in enumerate(node.schema)}
        renamed = graph.append(Select.renamed(node.schema, names), (index,), node) if names else index
        self.logs[index] = _LOG.format(index)
        graph.inspections.append(Inspection(_LOG.format(index), renamed, node.source_line))


class Watch:
    """The collections of a program on inputs at one moment.

    ``inputs``: per input the words of distinct rows, and as diffs their counts; times are not read. Raises the
    FoldError family. Cost: a fold of the program from nothing, and the memory for the updates of the collections that
    the output rests on.
    """

    def __init__(self, layout: Layout, inputs: Mapping[str, Batch]) -> None:
        self.graph, self.output, self.inputs, self._logs = layout.graph, layout.output, layout.inputs, layout.logs
        worker = Worker(layout.plan, budget=Budget(threads=available(), tuning=layout.tuning))
        at_zero = {
            name: batch.at([np.zeros(len(batch), dtype=np.int64)]) for name, batch in inputs.items() if len(batch)
        }
        self._updates = run(worker, at_zero)
        self._tables: dict[int, Table] = {}
        self._maps: dict[int, pl.DataFrame] = {}

    def node(self, index: int) -> Node:
        """A node of the program."""
        return self.graph.nodes[index]

    def depth(self, index: int) -> int:
        """The number of loops around a node."""
        return self.graph.scopes[self.node(index).scope].depth

    def table(self, index: int) -> Table:
        """The collection of a node."""
        table = self._tables.get(index)
        if table is None:
            table = self._tables[index] = self._table(index)
        return table

    def _table(self, index: int) -> Table:
        width, prioritized = len(self.node(index).schema), self.graph._priorities(index)
        batch = self._updates.pop(self._logs[index], None)
        if batch is None:
            nothing = np.empty(0, dtype=np.int64)
            return Table.of([nothing] * width, [nothing] * len(prioritized), nothing)
        return Table.of(batch.words[:width], packed_rounds(batch.words[width:], prioritized), batch.diffs)

    def sources(self, index: int) -> pl.DataFrame:
        """For a node with a linear operator: the rows of its input, ``source``, that give each of its rows, ``id``.

        Applies the operator to all rows of its input, once.
        """
        pairs = self._maps.get(index)
        if pairs is None:
            node = self.node(index)
            assert isinstance(node.operator, Linear)
            before, after = self.table(node.inputs[0]), self.table(index)
            numbers = before.rows[_ID].to_numpy()
            batch = Batch(before.words(numbers), [numbers], np.ones(len(numbers), dtype=np.int64))
            result = node.operator.apply(batch, node.source_line)
            frame = pl.DataFrame(dict(zip(after.names, result.words, strict=True)) | {"source": result.times[0]})
            pairs = frame.join(after.rows, on=after.names) if after.names else frame.join(after.rows, how="cross")
            pairs = self._maps[index] = pairs.select(_ID, "source")
        return pairs
