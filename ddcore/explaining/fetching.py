"""Fetching the rows of inputs that rows of an output need: by columns, and across joins by what the other side has.

Of a join of which one side is restricted, the other side matters only where it has keys of the first. Which these are
is found by folding: with no row of the other side, then with those that have the keys found, until a fold finds no new
key. Then every look-up of the join has found all that there is, so the fold is what it would be on everything. Such a
join may be in a loop or lead to another one; each fold goes one look-up further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from ddcore.batch import Batch
from ddcore.encoding import NULL
from ddcore.explaining.needs import More, Needs
from ddcore.explaining.restricting import NOTHING, Restriction, Values
from ddcore.explaining.watching import Layout, Watch
from ddcore.libraries import numpy as np
from ddcore.operators.agg import Distinct
from ddcore.operators.base import Linear
from ddcore.operators.borders import Input, Inspect, Leave, Variable
from ddcore.operators.concat import Negate
from ddcore.operators.delta_join import DeltaJoin
from ddcore.operators.join import Join

__all__ = ["Fetch", "Reader"]

Reader = Callable[[str, Restriction], Batch]
"""The rows of an input that a restriction leaves, with their counts."""

_MOST_FOLDS = 24  # until no join finds a new key
_MOST_KEYS = 1 << 16  # of one join
_ADDING = (Linear, Join, DeltaJoin, Distinct, Variable, Leave, Input)  # more rows never take rows of the result away


@dataclass(frozen=True)
class _LookUp:
    """A join of which one input, ``driver``, decides which keys of others matter.

    ``keys``: for each of these inputs the columns there, the columns of the driver, and the values found.
    """

    join: int
    driver: int
    keys: Mapping[int, tuple[tuple[str, str, Values], ...]]

    @property
    def more(self) -> More:
        """What it says about the other inputs."""
        return {
            (self.join, number): tuple((there, values) for there, _, values in columns)
            for number, columns in self.keys.items()
        }


class Fetch:
    """The rows of inputs that some rows of an output need.

    ``adding``: the inputs stand for all subsets of themselves. Then only joins are looked up whose driver has no rows
    on a subset that it does not have on all.
    """

    def __init__(self, layout: Layout, restriction: Restriction, *, adding: bool = False) -> None:
        self.layout, self.restriction, self.adding = layout, restriction, adding
        self.look_ups: list[_LookUp] = []
        self.folds = 0
        while found := self._next():
            self.look_ups.append(found)
        for each in self.look_ups[::-1]:  # those that restrict no input would only cost folds
            without = self._needs([other for other in self.look_ups if other is not each])
            if _wholes(without) == _wholes(self.needs):
                self.look_ups.remove(each)

    @property
    def needs(self) -> Needs:
        """What is needed, with the keys found by now."""
        return self._needs(self.look_ups)

    @property
    def restricts(self) -> bool:
        """Whether it leaves out anything of any input."""
        return len(_wholes(self.needs)) < len(self.layout.inputs)

    def watch(self, read: Reader) -> tuple[Watch, dict[str, Batch]]:
        """The collections on what is needed of the inputs, and that. Raises the FoldError family.

        Cost: as many folds of what is needed as look-ups follow each other. A join that finds more and more keys is not
        restricted any more.
        """
        batches: dict[str, tuple[Restriction, int, Batch]] = {}
        for turn in count(1):
            needs = self.needs
            self._read(needs, read, batches)
            held = {name: batch for name, (_, _, batch) in batches.items()}
            watch = Watch(self.layout, held)
            self.folds += 1
            grown = [each for each in self.look_ups if _grow(each, needs, watch)]
            if not grown:
                return watch, held
            for each in grown:
                if turn % _MOST_FOLDS == 0 or sum(len(values) for values in _values(each)) > _MOST_KEYS:
                    self.look_ups.remove(each)
        raise AssertionError

    def _read(self, needs: Needs, read: Reader, batches: dict[str, tuple[Restriction, int, Batch]]) -> None:
        """Read what is needed now, unless it is what was needed before."""
        for name, index in self.layout.inputs.items():
            rows = needs.rows.get(index, NOTHING)
            size = sum(len(values) for each in rows.alternatives for _, values in each)
            if name not in batches or batches[name][:2] != (rows, size):
                batches[name] = rows, size, read(name, rows)

    def _needs(self, look_ups: Iterable[_LookUp]) -> Needs:
        more = {edge: columns for each in look_ups for edge, columns in each.more.items()}
        return Needs(self.layout.graph, self.layout.output, self.restriction, more)

    def _next(self) -> _LookUp | None:
        """A join of which one side is restricted, another is not, and that is no look-up yet."""
        needs, known = self.needs, {each.join for each in self.look_ups}
        for index in sorted(needs.rows.keys() - known):
            node = self.layout.graph.nodes[index]
            if not isinstance(node.operator, Join | DeltaJoin):
                continue
            edges = [needs.edge(index, number) for number in range(len(node.inputs))]
            for driver, edge in enumerate(edges):
                if edge.is_everything or not (self.adding is False or self._only_adds(node.inputs[driver])):
                    continue
                keys = {
                    number: columns
                    for number, other in enumerate(edges)
                    if other.is_everything and (columns := self._columns(index, driver, number))
                }
                if keys:
                    return _LookUp(index, driver, keys)
        return None

    def _columns(self, index: int, driver: int, other: int) -> tuple[tuple[str, str, Values], ...]:
        """The columns of another input of a join that equal columns of the driver, with no values found yet."""
        node = self.layout.graph.nodes[index]
        operator, schema = node.operator, self.layout.graph.nodes[node.inputs[other]].schema
        if isinstance(operator, DeltaJoin):
            mine = {attribute: column for column, attribute in operator.relations[driver].items()}
            theirs = operator.relations[other]
            pairs = [(column, mine[attribute]) for column, attribute in theirs.items() if attribute in mine]
        else:
            assert isinstance(operator, Join)
            sides = (operator.left, operator.right)
            pairs = list(zip(sides[other], sides[driver], strict=True))
        usable = [pair for pair in pairs if not schema[pair[0]].is_nested and schema[pair[0]].name != "float64"]
        return tuple((there, here, Values()) for there, here in usable)

    def _only_adds(self, index: int) -> bool:
        graph = self.layout.graph
        operators = [graph.nodes[each].operator for each in graph.upstream([index])]
        return all(isinstance(each, _ADDING) and not isinstance(each, Negate | Inspect) for each in operators)


def _values(look_up: _LookUp) -> list[Values]:
    return [values for columns in look_up.keys.values() for _, _, values in columns]


def _grow(look_up: _LookUp, needs: Needs, watch: Watch) -> bool:
    """Add the keys that the driver has in any round; whether there are new ones."""
    source = watch.node(look_up.join).inputs[look_up.driver]
    table, schema = watch.table(source), watch.node(source).schema
    words = table.words(np.arange(len(table.rows)))
    rows = needs.edge(look_up.join, look_up.driver).mask(words, len(table.rows), schema)
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
