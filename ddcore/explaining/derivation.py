"""A derivation: from rows of a collection backwards to rows of the inputs, through the operators and their rounds.

Every row that is there at some rounds comes from rows of the operator's inputs that are there at these rounds; a loop's
variable holds what its body returned in the round before. For each row one such set is chosen. Rows that another one
keeps away, as ``negate`` and ``except_`` do, are not followed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from ddcore.base.lazy import numpy as np
from ddcore.explaining.needs import origins
from ddcore.explaining.watching import Rounds, Watch, packed_rounds
from ddcore.operators.aggregation import Aggregation, Distinct
from ddcore.operators.base import Linear
from ddcore.operators.borders import Input, Inspect, Leave, Variable
from ddcore.operators.concat import Concat
from ddcore.operators.delta_join import DeltaJoin
from ddcore.operators.join import Join
from ddcore.operators.join_between import JoinBetween
from ddcore.operators.multiset import Multiset
from ddcore.operators.reduction import Reduction
from ddcore.operators.top_k import TopK

Fact = tuple[int, Rounds, int]
"""A row at some rounds: the node, the rounds, the number of the row in the node's table."""
_Support = tuple[int, int, Rounds, int, bool]  # the number of the row that rests on it, a fact, and see ``_Step.whole``

_EXTREMES = {"min", "max"}


class Derivation:
    """What some rows of an output rest on: ``supports`` gives for each fact those it is made of.

    Cost: for every (operator, round) on the way, linear in the rows of the operator's inputs.
    """

    def __init__(self, watch: Watch, rows: Iterable[int]) -> None:
        self.watch = watch
        self.roots: list[Fact] = [(watch.output, (), row) for row in rows]
        self.supports: dict[Fact, list[Fact]] = {}
        self._follow()

    def leaves(self) -> dict[str, np.ndarray]:
        """The rows of inputs that it ends in: per input, ascending numbers of rows in its table."""
        leaves: defaultdict[str, list[int]] = defaultdict(list)
        for node, _, row in self.supports:
            operator = self.watch.node(node).operator
            if isinstance(operator, Input):
                leaves[operator.text].append(row)
        return {name: np.array(sorted(rows), dtype=np.int64) for name, rows in leaves.items()}

    def _follow(self) -> None:
        waiting: defaultdict[tuple[Rounds, int], dict[int, bool]] = defaultdict(dict)
        for node, rounds, row in self.roots:
            waiting[rounds, node][row] = False
        known: dict[Fact, bool] = {}
        while waiting:
            rounds, node = max(waiting)  # inner loops, late rounds and late operators first: fewer, larger steps
            wanted = waiting.pop((rounds, node))
            for whole in (False, True):
                rows = sorted(row for row, mode in wanted.items() if mode == whole)
                for row in rows:
                    self.supports[node, rounds, row], known[node, rounds, row] = [], whole
                step = _Step(self.watch, node, rounds, whole)
                for row, source, at, number, counts in step.supports(np.array(rows, dtype=np.int64)) if rows else ():
                    fact = (source, at, number)
                    if fact not in self.supports[node, rounds, row]:
                        self.supports[node, rounds, row].append(fact)
                    if fact not in known or counts > known[fact]:
                        above = waiting[at, source]
                        above[number] = counts or above.get(number, False)


@dataclass(frozen=True)
class _Step:
    """The way back from rows of one node at ``rounds``.

    ``whole``: all that the counts of the rows are made of is wanted, because an aggregate or a function depends on
    them; otherwise one way in which each row comes about.
    """

    watch: Watch
    node: int
    rounds: Rounds
    whole: bool

    def supports(self, rows: np.ndarray) -> Iterator[_Support]:
        """What rows of the node are made of."""
        match self.watch.node(self.node).operator:
            case Inspect() as operator:
                supports = self._inspected(operator, rows)
            case Concat():
                supports = self._concat(rows)
            case Linear():
                supports = self._linear(rows)
            case Variable() as operator:
                supports = self._variable(operator, rows)
            case Leave():
                supports = iter(self._result(self._sources[0], (*self.rounds, 2**63 - 1), rows))
            case Join() | DeltaJoin() as operator:
                supports = self._joined(operator, rows)
            case JoinBetween() as operator:
                supports = self._joined_between(operator, rows)
            case Reduction() as operator:
                supports = self._reduction(operator, rows)
            case _:  # an input
                supports = iter(())
        return supports

    @property
    def _sources(self) -> tuple[int, ...]:
        return self.watch.node(self.node).inputs

    def _same(self, source: int, rows: np.ndarray, rounds: Rounds | None = None) -> pl.DataFrame:
        """Rows equal to these in another collection of the same columns: ``wanted``, ``id``, ``count``."""
        words = self.watch.table(self.node).words(rows)
        at = self._outside(source, self.rounds if rounds is None else rounds)
        return self.watch.table(source).among(words, list(range(len(words))), rows, at)

    def _outside(self, node: int, rounds: Rounds) -> Rounds:
        """The rounds of the loops around a node, for rounds of an inner one that reads it."""
        return rounds[: self.watch.depth(node)]

    def _facts(self, pairs: pl.DataFrame, source: int, *, whole: bool | None = None) -> Iterator[_Support]:
        at, counts = self._outside(source, self.rounds), self.whole if whole is None else whole
        for wanted, row in pairs.select("wanted", "id").iter_rows():
            yield wanted, source, at, row, counts

    def _linear(self, rows: np.ndarray) -> Iterator[_Support]:
        """One of the rows that the operator turns into each."""
        (source,) = self._sources
        counts = self.watch.table(source).counts(self._outside(source, self.rounds))
        pairs = self.watch.sources(self.node).filter(pl.col("id").is_in(rows.tolist()))
        pairs = pairs.select(wanted="id", id="source").with_columns(count=pl.Series(counts)[pairs["source"]])
        pairs = pairs.filter(pl.col("count") != 0)
        return self._facts(pairs if self.whole else _one_each(pairs), source)

    def _concat(self, rows: np.ndarray) -> Iterator[_Support]:
        """The first of the inputs that has the row; all of them where counts matter."""
        left = rows
        for source in self._sources:
            pairs = self._same(source, left)
            if not self.whole:
                signs = pl.Series(self.watch.table(self.node).counts(self.rounds))[pairs["wanted"]].sign()
                pairs = pairs.filter(pl.col("count").sign() == signs)
                left = np.setdiff1d(left, pairs["wanted"].to_numpy())
            yield from self._facts(pairs, source)

    def _variable(self, operator: Variable, rows: np.ndarray) -> Iterator[_Support]:
        """The body's result of the round before the one since which the row is there, or the loop's source."""
        result = self.watch.graph.scopes[operator.loop].results[operator.number]
        (source,), outer = self._sources, self.rounds[:-1]
        starts = self.watch.table(self.node).starts(rows, self.rounds, whole=self.whole)
        for (start,), part in starts.group_by("start"):
            numbers = part["id"].to_numpy()
            assert isinstance(start, int)
            before = self._result(result, (*outer, start - 1), numbers)
            yield from before
            left = np.setdiff1d(numbers, np.array([wanted for wanted, *_ in before], dtype=np.int64))
            both = self.whole and operator.priority is not None
            yield from self._facts(self._same(source, numbers if both else left), source)

    def _result(self, result: int, rounds: Rounds, rows: np.ndarray) -> list[_Support]:
        """The rows of a loop's result, from the round on since which it has them."""
        if rounds[-1] < 0:
            return []
        pairs, at = self._same(result, rows, rounds), self._outside(result, rounds)
        if len(at) < len(rounds):  # the body returns a collection of an outer scope
            return list(self._facts(pairs, result))
        starts = self.watch.table(result).starts(pairs["id"].to_numpy(), at, whole=self.whole)
        with_starts = pairs.join(starts, on="id").select("wanted", "id", "start")
        return [(wanted, result, (*at[:-1], start), row, self.whole) for wanted, row, start in with_starts.iter_rows()]

    def _inspected(self, operator: Inspect, rows: np.ndarray) -> Iterator[_Support]:
        """The row at the rounds that are columns of the log."""
        (source,) = self._sources
        width = len(self.watch.node(source).schema)
        words = self.watch.table(self.node).words(rows)
        rounds = packed_rounds(words[width:], operator.prioritized)
        for position, row in enumerate(rows.tolist()):
            at = tuple(int(column[position]) for column in rounds)
            wanted = [column[position : position + 1] for column in words[:width]]
            pairs = self.watch.table(source).among(wanted, list(range(width)), rows[position : position + 1], at)
            yield from ((row, source, at, number, self.whole) for number in pairs["id"].to_list())

    def _joined(self, operator: Join | DeltaJoin, rows: np.ndarray) -> Iterator[_Support]:
        """The row of each side or relation."""
        for number, source in enumerate(self._sources):
            yield from self._facts(self._side(operator, number, rows), source)

    def _joined_between(self, operator: JoinBetween, rows: np.ndarray) -> Iterator[_Support]:
        """The row, and one of the intervals that hold its value; all of them where counts matter."""
        left, right = self._sources
        yield from self._facts(self._side(operator, 0, rows), left)
        pairs = self._side(operator, 1, rows)
        intervals = dict(zip(self.watch.node(right).schema, self.watch.table(right).words(pairs["id"]), strict=True))
        after, to = operator.ends.bounds(intervals, len(pairs))
        values = self._words(rows)[operator.column][np.searchsorted(rows, pairs["wanted"].to_numpy())]
        pairs = pairs.filter(pl.Series((after < values) & (values <= to), dtype=pl.Boolean))
        yield from self._facts(pairs if self.whole else _one_each(pairs), right)

    def _side(self, operator: Join | JoinBetween | DeltaJoin, number: int, rows: np.ndarray) -> pl.DataFrame:
        """The rows of one input of a join that have the values of these rows: ``wanted``, ``id``, ``count``."""
        source, words = self._sources[number], self._words(rows)
        columns = {there: words[here] for here, there in origins(operator, number, self.watch.node(source).schema)}
        return self._having(source, columns, rows)

    def _words(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        node = self.watch.node(self.node)
        return dict(zip(node.schema, self.watch.table(self.node).words(rows), strict=True))

    def _having(self, source: int, columns: dict[str, np.ndarray], rows: np.ndarray) -> pl.DataFrame:
        """The rows of a node with these words in these columns: ``wanted``, ``id``, ``count``."""
        positions = {name: number for number, name in enumerate(self.watch.node(source).schema)}
        at = self._outside(source, self.rounds)
        return self.watch.table(source).among([*columns.values()], [positions[name] for name in columns], rows, at)

    def _reduction(self, operator: Reduction, rows: np.ndarray) -> Iterator[_Support]:
        """The rows of the group, as often as they are there; those that suffice where it can be told."""
        (source,), words = self._sources, self._words(rows)
        group = {name: words[name] for name in operator.group}
        match operator:
            case Distinct():
                supports = self._facts(self._same(source, rows), source, whole=False)
            case TopK():
                supports = self._facts(self._same(source, rows), source)
            case Multiset(operation="except_"):  # the rows of the right side keep rows away
                left = group | {"_side": np.zeros(len(rows), dtype=np.int64)}
                supports = self._facts(self._having(source, left, rows), source)
            case Aggregation() if {kind for _, kind, _ in operator.aggregates} <= _EXTREMES:
                supports = self._extremes(source, operator, rows)
            case _:
                supports = self._facts(self._having(source, group, rows), source, whole=True)
        return supports

    def _extremes(self, source: int, operator: Aggregation, rows: np.ndarray) -> Iterator[_Support]:
        """For each minimum and maximum a row that has it."""
        words = self._words(rows)
        group = {name: words[name] for name in operator.group}
        wanted = [{(argument or ""): words[name]} for name, _, argument in operator.aggregates] or [{}]
        for extreme in wanted:
            pairs = self._having(source, group | extreme, rows)
            yield from self._facts(_one_each(pairs), source, whole=False)


def _one_each(pairs: pl.DataFrame) -> pl.DataFrame:
    """One row for each that is wanted: the one that is there most often, of equal ones the first."""
    ordered = pairs.sort("wanted", "count", "id", descending=[False, True, False])
    return ordered.unique("wanted", keep="first", maintain_order=True)
