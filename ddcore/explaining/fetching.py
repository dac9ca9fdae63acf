"""Fetching the rows of inputs that rows of an output need: by columns, and across joins by what the other side has.

Of a join of which one side is restricted, the other side matters only where it has keys of the first. Which these are
is found by folding: with no row of the other side, then with those that have the keys found, until a fold finds no new
key. Then every look-up of the join has found all that there is, so the fold is what it would be on everything. Such a
join may be in a loop or lead to another one; each fold goes one look-up further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from ddcore.base.lazy import numpy as np
from ddcore.data.encoding import NULL
from ddcore.explaining.needs import Edge, LookUp, Needs
from ddcore.explaining.restricting import NOTHING, Restriction
from ddcore.explaining.watching import Layout, Watch
from ddcore.operators.aggregation import Distinct
from ddcore.operators.base import Linear
from ddcore.operators.borders import Input, Inspect, Leave, Variable
from ddcore.operators.concat import Negate
from ddcore.operators.constant import Constant
from ddcore.operators.delta_join import DeltaJoin
from ddcore.operators.join import Join
from ddcore.operators.join_between import JoinBetween
from ddcore.traces.batch import Batch

Reader = Callable[[str, Restriction], Batch]
"""The rows of an input that a restriction leaves, with their counts."""

_FEW_FOLDS = 4  # whatever the number of rows
# More rows never take rows of the result away.
_ADDING = (Linear, Join, JoinBetween, DeltaJoin, Distinct, Variable, Leave, Input, Constant)


class Fetch:
    """The rows of inputs that some rows of an output need.

    ``adding``: the inputs stand for all subsets of themselves. Then only joins are looked up whose driver has no rows
    on a subset that it does not have on all. ``bold``: rows that only keep others away, as in ``top_k``, are left out,
    so that the rows may be there or not: see :func:`~ddcore.explaining.needs.carried`.
    """

    def __init__(self, layout: Layout, restriction: Restriction, *, adding: bool = False, bold: bool = False) -> None:
        self.layout, self.restriction, self.adding, self.bold = layout, restriction, adding, bold
        self._look_ups: dict[Edge, LookUp] = {}
        self._given_up: set[Edge] = set()
        self.needs = self._needs()
        for edge in [*self._look_ups][::-1]:  # those that restrict no input would only cost folds
            wholes = _wholes(self.needs)
            self._given_up.add(edge)
            if _wholes(self._needs()) != wholes:
                self._given_up.remove(edge)
            self.needs = self._needs()

    @property
    def look_ups(self) -> list[LookUp]:
        """The joins of which one side is restricted by what the other has."""
        return [look_up for edge, look_up in self._look_ups.items() if edge not in self._given_up]

    @property
    def columns(self) -> dict[str, set[frozenset[str]]]:
        """By which columns each input is restricted: one set for each alternative."""
        inputs = self.needs.inputs.items()
        return {
            name: {frozenset(column for column, _ in alternative) for alternative in rows.alternatives}
            for name, rows in inputs
        }

    @property
    def restricts(self) -> bool:
        """Whether it leaves out anything of any input."""
        return len(_wholes(self.needs)) < len(self.layout.inputs)

    def give_up(self, look_ups: Iterable[LookUp]) -> None:
        """Restrict nothing by these joins."""
        self._given_up |= {(look_up.join, look_up.driver) for look_up in look_ups}
        self.needs = self._needs()

    def watch(self, read: Reader) -> tuple[Watch, dict[str, Batch]]:
        """The collections on what is needed of the inputs, and that. Raises the FoldError family.

        Cost: as many folds of what is needed as look-ups follow each other. A join that finds more and more keys is not
        restricted any more.
        """
        batches: dict[str, tuple[Restriction, int, Batch]] = {}
        folded, most = 0, self.layout.tuning
        for turn in count(1):
            self._read(read, batches)
            held = {name: batch for name, (_, _, batch) in batches.items()}
            watch = Watch(self.layout, held)
            folded += sum(map(len, held.values()))
            grown = [look_up for look_up in self.look_ups if _grow(look_up, self.needs, watch)]
            if not grown:
                return watch, held
            too_many = turn >= most.explaining_folds or (turn >= _FEW_FOLDS and folded > most.explaining_rows)
            if ends := [
                look_up for look_up in grown if too_many or max(map(len, look_up.values)) > most.explaining_keys
            ]:
                self.give_up(ends)
        raise AssertionError

    def _read(self, read: Reader, batches: dict[str, tuple[Restriction, int, Batch]]) -> None:
        """Read what is needed now, unless it is what was needed before."""
        for name, index in self.layout.inputs.items():
            rows = self.needs.rows.get(index, NOTHING)
            size = sum(len(values) for alternative in rows.alternatives for _, values in alternative)
            if name not in batches or batches[name][:2] != (rows, size):
                batches[name] = rows, size, read(name, rows)

    def _needs(self) -> Needs:
        return Needs(self.layout.graph, self.layout.output, self.restriction, self._look_up, bold=self.bold)

    def _look_up(self, edge: Edge) -> LookUp | None:
        """The look-up that an input of a join drives, unless it may not."""
        index, number = edge
        if edge not in self._look_ups:
            self._look_ups[edge] = LookUp.of(self.layout.graph, index, number)
            if self.adding and not self._only_adds(self.layout.graph.nodes[index].inputs[number]):
                self._given_up.add(edge)
        return None if edge in self._given_up else self._look_ups[edge]

    def _only_adds(self, index: int) -> bool:
        graph = self.layout.graph
        operators = [graph.nodes[number].operator for number in graph.upstream([index])]
        return all(
            isinstance(operator, _ADDING) and not isinstance(operator, Negate | Inspect) for operator in operators
        )


def _grow(look_up: LookUp, needs: Needs, watch: Watch) -> bool:
    """Add the keys that the driver has in any round; whether there are new ones."""
    source = watch.node(look_up.join).inputs[look_up.driver]
    table, schema = watch.table(source), watch.node(source).schema
    words = table.words(np.arange(len(table.rows)))
    rows = needs.driving(look_up).mask(words, len(table.rows), schema)
    keys = {name: column[rows] for name, column in zip(schema, words, strict=True)}
    grown = [
        values.add(keys[here][keys[here] != NULL])  # a null key matches nothing
        for columns in look_up.keys.values()
        for _, here, values in columns
    ]
    return any(grown)


def _wholes(needs: Needs) -> set[str]:
    """The inputs that are needed whole."""
    return {name for name, rows in needs.inputs.items() if rows.is_everything}
