"""A derivation: from rows of a collection backwards to rows of the inputs, through the operators and their rounds.

Every row that is there at some rounds comes from rows of the operator's inputs that are there at these rounds; a loop's
variable holds what its body returned in the round before. For each row one such set is chosen. Rows that another one
keeps away, as ``negate`` and ``except_`` do, are not followed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import polars as pl

from ddcore.explaining.watching import Rounds, Watch
from ddcore.libraries import numpy as np
from ddcore.operators.agg import Aggregation
from ddcore.operators.base import Linear
from ddcore.operators.borders import Input, Inspect, Leave, Variable
from ddcore.operators.concat import Concat
from ddcore.operators.delta_join import DeltaJoin
from ddcore.operators.join import Join
from ddcore.operators.multiset import Multiset
from ddcore.operators.reduction import Reduction
from ddcore.operators.top_k import TopK

__all__ = ["Derivation", "Fact"]

Fact = tuple[int, Rounds, int]
"""A row at some rounds: the node, the rounds, the number of the row in the node's table."""
_Support = tuple[int, int, Rounds, int]  # the number of the row that rests on it, then a fact

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
        waiting: defaultdict[tuple[Rounds, int], set[int]] = defaultdict(set)
        for node, rounds, row in self.roots:
            waiting[rounds, node].add(row)
        while waiting:
            rounds, node = max(waiting)  # inner loops, late rounds and late operators first: fewer, larger steps
            rows = sorted(row for row in waiting.pop((rounds, node)) if (node, rounds, row) not in self.supports)
            for row in rows:
                self.supports[node, rounds, row] = []
            for row, *fact in self._of(node, rounds, np.array(rows, dtype=np.int64)) if rows else ():
                source, at, number = fact
                supports = self.supports[node, rounds, row]
                if (source, at, number) not in supports:
                    supports.append((source, at, number))
                if (source, at, number) not in self.supports:
                    waiting[at, source].add(number)

    def _of(self, node: int, rounds: Rounds, rows: np.ndarray) -> Iterator[_Support]:
        """What rows of a node at ``rounds`` are made of."""
        operator = self.watch.node(node).operator
        if isinstance(operator, Inspect):
            return self._inspected(node, operator, rows)
        if isinstance(operator, Concat):
            return self._concat(node, rounds, rows)
        if isinstance(operator, Linear):
            return self._linear(node, rounds, rows)
        if isinstance(operator, Variable):
            return self._variable(node, operator, rounds, rows)
        if isinstance(operator, Leave):
            return self._leave(node, rounds, rows)
        if isinstance(operator, Join):
            return self._join(node, operator, rounds, rows)
        if isinstance(operator, DeltaJoin):
            return self._delta_join(node, operator, rounds, rows)
        if isinstance(operator, Reduction):
            return self._reduction(node, operator, rounds, rows)
        return iter(())  # an input

    def _same(self, source: int, node: int, rounds: Rounds, rows: np.ndarray) -> pl.DataFrame:
        """The same rows in another collection of the same columns: ``wanted``, ``id``, ``count``."""
        words = self.watch.table(node).words(rows)
        return self.watch.table(source).among(words, list(range(len(words))), rows, self._outside(source, rounds))

    def _outside(self, node: int, rounds: Rounds) -> Rounds:
        """The rounds of the loops around a node, for rounds of an inner one that reads it."""
        return rounds[: self.watch.depth(node)]

    def _facts(self, pairs: pl.DataFrame, source: int, rounds: Rounds) -> Iterator[_Support]:
        at = self._outside(source, rounds)
        for wanted, row in pairs.select("wanted", "id").iter_rows():
            yield wanted, source, at, row

    def _linear(self, node: int, rounds: Rounds, rows: np.ndarray) -> Iterator[_Support]:
        """One of the rows that the operator turns into each."""
        source = self.watch.node(node).inputs[0]
        counts = self.watch.table(source).counts(self._outside(source, rounds))
        pairs = self.watch.sources(node).filter(pl.col("id").is_in(rows.tolist()))
        pairs = pairs.select(wanted="id", id="source").with_columns(count=pl.Series(counts)[pairs["source"]])
        return self._facts(_one_each(pairs.filter(pl.col("count") != 0)), source, rounds)

    def _concat(self, node: int, rounds: Rounds, rows: np.ndarray) -> Iterator[_Support]:
        """The first of the inputs that has the row."""
        left = rows
        for source in self.watch.node(node).inputs:
            pairs = self._same(source, node, rounds, left)
            pairs = pairs.filter(pl.col("count").sign() == self._signs(node, rounds, pairs))
            yield from self._facts(pairs, source, rounds)
            left = np.setdiff1d(left, pairs["wanted"].to_numpy())

    def _signs(self, node: int, rounds: Rounds, pairs: pl.DataFrame) -> pl.Series:
        """Whether the counts of the wanted rows are positive or negative."""
        return pl.Series(self.watch.table(node).counts(rounds))[pairs["wanted"]].sign()

    def _variable(self, node: int, operator: Variable, rounds: Rounds, rows: np.ndarray) -> Iterator[_Support]:
        """The body's result of the round before the one since which the row is there, or the loop's source."""
        result = self.watch.graph.scopes[operator.loop].results[operator.number]
        source = self.watch.node(node).inputs[0]
        starts = self.watch.table(node).starts(rows, rounds)
        for (start,), part in starts.group_by("start"):
            numbers, outer = part["id"].to_numpy(), rounds[:-1]
            assert isinstance(start, int)
            before = self._result(result, node, (*outer, start - 1), numbers)
            yield from before
            left = np.setdiff1d(numbers, np.array([wanted for wanted, *_ in before], dtype=np.int64))
            yield from self._facts(self._same(source, node, outer, left), source, outer)

    def _result(self, result: int, node: int, rounds: Rounds, rows: np.ndarray) -> list[_Support]:
        """The rows of a loop's result, from the round on since which it has them."""
        if rounds[-1] < 0:
            return []
        pairs = self._same(result, node, rounds, rows)
        at = self._outside(result, rounds)
        if len(at) < len(rounds):  # the body returns a collection of an outer scope
            return list(self._facts(pairs, result, rounds))
        starts = pairs.join(self.watch.table(result).starts(pairs["id"].to_numpy(), at), on="id")
        return [(wanted, result, (*at[:-1], start), row) for wanted, row, _, start in starts.iter_rows()]

    def _leave(self, node: int, rounds: Rounds, rows: np.ndarray) -> Iterator[_Support]:
        """The result of the last round."""
        result = self.watch.node(node).inputs[0]
        return iter(self._result(result, node, (*rounds, 2**63 - 1), rows))

    def _inspected(self, node: int, operator: Inspect, rows: np.ndarray) -> Iterator[_Support]:
        """The row at the rounds that are columns of the log."""
        source = self.watch.node(node).inputs[0]
        width = len(self.watch.node(source).schema)
        words = self.watch.table(node).words(rows)
        for place, row in enumerate(rows.tolist()):
            rounds, more = list[int](), iter(words[width:])
            for prioritized in operator.prioritized:
                priority = int(next(more)[place]) if prioritized else -(2**63)
                above = 0 if priority == -(2**63) else priority + 2**29 + 1
                rounds.append((above << 32) + int(next(more)[place]))
            wanted = [column[place : place + 1] for column in words[:width]]
            at = tuple(rounds)
            pairs = self.watch.table(source).among(wanted, list(range(width)), rows[place : place + 1], at)
            yield from ((row, source, at, number) for number in pairs["id"].to_list())

    def _join(self, node: int, operator: Join, rounds: Rounds, rows: np.ndarray) -> Iterator[_Support]:
        """The row of the left side and the one of the right side."""
        left, right = self.watch.node(node).inputs
        words = dict(zip(operator.schema, self.watch.table(node).words(rows), strict=True))
        mine = {name: words[name] for name in self.watch.node(left).schema}
        theirs = {name: words[name_here] for name, name_here in operator.right_names.items()}
        theirs |= {name: words[key] for key, name in zip(operator.left, operator.right, strict=True)}
        for source, columns in ((left, mine), (right, theirs)):
            yield from self._with_columns(source, columns, rounds, rows)

    def _delta_join(self, node: int, operator: DeltaJoin, rounds: Rounds, rows: np.ndarray) -> Iterator[_Support]:
        """The row of each relation."""
        words = dict(zip(operator.schema, self.watch.table(node).words(rows), strict=True))
        for source, relation in zip(self.watch.node(node).inputs, operator.relations, strict=True):
            columns = {column: words[attribute] for column, attribute in relation.items()}
            yield from self._with_columns(source, columns, rounds, rows)

    def _with_columns(
        self, source: int, columns: dict[str, np.ndarray], rounds: Rounds, rows: np.ndarray
    ) -> Iterator[_Support]:
        """The rows of a node with these words in these columns."""
        places = {name: place for place, name in enumerate(self.watch.node(source).schema)}
        at = self._outside(source, rounds)
        pairs = self.watch.table(source).among([*columns.values()], [places[name] for name in columns], rows, at)
        return self._facts(pairs, source, rounds)

    def _reduction(self, node: int, operator: Reduction, rounds: Rounds, rows: np.ndarray) -> Iterator[_Support]:
        """The rows of the group: of ``top_k`` the row itself, of a minimum or maximum one that has it."""
        source, table = self.watch.node(node).inputs[0], self.watch.table(node)
        words = dict(zip(operator.schema, table.words(rows), strict=True))
        if isinstance(operator, TopK):
            return self._facts(self._same(source, node, rounds, rows), source, rounds)
        if isinstance(operator, Multiset) and operator.operation == "except_":
            pairs = self._with_side(source, words, rounds, rows)
            return self._facts(pairs, source, rounds)
        if isinstance(operator, Aggregation) and {kind for _, kind, _ in operator.aggregates} <= _EXTREMES:
            return self._extremes(source, operator, words, rounds, rows)
        return self._with_columns(source, {name: words[name] for name in operator.group}, rounds, rows)

    def _with_side(
        self, source: int, words: dict[str, np.ndarray], rounds: Rounds, rows: np.ndarray
    ) -> pl.DataFrame:
        """The rows of the left side: those of the right one keep rows away."""
        columns = words | {"_side": np.zeros(len(rows), dtype=np.int64)}
        places = {name: place for place, name in enumerate(self.watch.node(source).schema)}
        at = self._outside(source, rounds)
        return self.watch.table(source).among([*columns.values()], [places[name] for name in columns], rows, at)

    def _extremes(
        self, source: int, operator: Aggregation, words: dict[str, np.ndarray], rounds: Rounds, rows: np.ndarray
    ) -> Iterator[_Support]:
        schema = list(self.watch.node(source).schema)
        keys = {name: words[name] for name in operator.group}
        at = self._outside(source, rounds)
        for name, _, argument in operator.aggregates:
            columns = [*keys.values(), words[name]]
            places = [schema.index(key) for key in (*keys, argument)]
            pairs = self.watch.table(source).among(columns, places, rows, at)
            yield from self._facts(_one_each(pairs), source, rounds)
        if not operator.aggregates:
            pairs = self.watch.table(source).among([*keys.values()], [schema.index(key) for key in keys], rows, at)
            yield from self._facts(_one_each(pairs), source, rounds)


def _one_each(pairs: pl.DataFrame) -> pl.DataFrame:
    """One row for each that is wanted: the one that is there most often, of equal ones the first."""
    ordered = pairs.sort("wanted", "count", "id", descending=[False, True, False])
    return ordered.unique("wanted", keep="first", maintain_order=True)
