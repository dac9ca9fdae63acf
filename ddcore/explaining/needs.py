"""What rows of an output need of every collection: on which of its rows they depend.

The operators are followed backwards from the output. If rows of an operator's result are named by the values of
columns, they depend on the rows of its inputs in which the columns that these come from have the same values: the
group's columns of a reduction, the key and the own columns of each side of a join, columns that linear operators
carry along. A loop's variable needs what the body's result needs: collections are gone through until nothing
is added. So an input may be replaced by what is needed of it, and the rows of the output, their counts, and all that
they rest on in every round stay what they are, for negation and functions too.

Of a join of which only one side has such columns, the other matters where it has keys of the first: see
:mod:`ddcore.explaining.fetching`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ddcore.base.schema import Schema
from ddcore.explaining.restricting import NOTHING, Alternative, Restriction, Values
from ddcore.operators.aggregation import Aggregation
from ddcore.operators.base import Linear, Operator
from ddcore.operators.borders import Input, Leave, Variable
from ddcore.operators.delta_join import DeltaJoin
from ddcore.operators.join import Join
from ddcore.operators.join_between import JoinBetween
from ddcore.operators.reduction import Reduction
from ddcore.operators.select import Select
from ddcore.operators.top_k import TopK
from ddcore.program.graph import Graph

Edge = tuple[int, int]
"""A node and the number of one of its inputs."""


@dataclass(frozen=True, eq=False)
class LookUp:
    """A join of which one input, ``driver``, decides which keys of others matter.

    ``keys``: for each of these inputs the columns there, the equal columns of the driver, and the values found.
    """

    join: int
    driver: int
    keys: Mapping[int, tuple[tuple[str, str, Values], ...]]

    @property
    def values(self) -> list[Values]:
        """The values found, of all inputs and columns."""
        return [values for columns in self.keys.values() for _, _, values in columns]

    @classmethod
    def of(cls, graph: Graph, join: int, driver: int) -> LookUp:
        """Without values. Columns with lists, structs or floats are not looked up by."""
        node = graph.nodes[join]
        keys = {}
        for number, source in enumerate(node.inputs):
            schema = graph.nodes[source].schema
            pairs = _equal(node.operator, driver, number) if number != driver else []
            flat = [
                pair for pair in pairs if not (schema[pair[0]].stored.is_nested or schema[pair[0]].name == "float64")
            ]
            if flat:
                keys[number] = tuple((there, here, Values(grows=True)) for there, here in flat)
        return cls(join, driver, keys)


def _equal(operator: Operator, driver: int, other: int) -> list[tuple[str, str]]:
    """The columns of one input of a join, and those of another that they equal."""
    if isinstance(operator, Join | JoinBetween):
        sides = operator.left, operator.right
        return list(zip(sides[other], sides[driver], strict=True))
    assert isinstance(operator, DeltaJoin)
    left = {attribute: column for column, attribute in operator.relations[driver].items()}
    right = operator.relations[other].items()
    return [(column, left[attribute]) for column, attribute in right if attribute in left]


def no_look_ups(edge: Edge) -> None:
    """For needs that hold whatever the inputs are."""


def origins(operator: Join | JoinBetween | DeltaJoin, number: int, source: Schema) -> list[tuple[str, str]]:
    """The columns of a join's result that have the values of columns of input ``number``, and these; ``source``: all
    columns of that input.
    """
    if isinstance(operator, DeltaJoin):
        return [(here, there) for there, here in operator.relations[number].items()]
    if number == 0:
        return [(name, name) for name in source]
    return [
        *((here, there) for there, here in operator.right_names.items()),
        *zip(operator.left, operator.right, strict=True),
    ]


def carried(operator: Operator, number: int, source: Schema, *, bold: bool = False) -> Mapping[str, str]:
    """The columns of the result by which a row depends only on rows of input ``number`` with the same value in a
    column: the name there by the name here. ``source``: the columns of that input.

    ``bold``: of ``top_k``, minimum and maximum, the columns by which a row is there if rows with the same values are,
    whatever others there are.
    """
    columns: Mapping[str, str]
    match operator:
        case TopK() if bold:
            columns = {name: name for name in source}
        case Aggregation(aggregates=((name, "min" | "max", str(argument)),)) if bold:
            columns = {column: column for column in operator.group} | {name: argument}
        case Linear():
            columns = operator.carried
        case Join() | JoinBetween() | DeltaJoin():
            columns = dict(origins(operator, number, source))
        case Reduction():
            columns = {name: name for name in operator.group}
        case Variable() | Leave():
            columns = {name: name for name in source}
        case _:
            columns = {}
    return {here: there for here, there in columns.items() if there in source}


class Needs:
    """What rows of the node ``end`` need of each node: ``rows``; nothing of those that are not in it.

    ``look_up`` gives for an input of a join the look-up that it drives, or None. ``bold``: see :func:`carried`; then
    only the rows themselves can be there, nothing is said about others or counts. Cost: nodes times columns.
    """

    def __init__(
        self,
        graph: Graph,
        end: int,
        restriction: Restriction,
        look_up: Callable[[Edge], LookUp | None] = no_look_ups,
        *,
        bold: bool = False,
    ) -> None:
        self.graph, self._driven_by, self._bold = graph, look_up, bold
        self._constant: dict[int, dict[str, int]] = {}
        self.rows: dict[int, Restriction] = {end: restriction}
        waiting = [end]
        while waiting:
            index = waiting.pop()
            for source, needed in self._sources(index):
                before = self.rows.get(source, NOTHING)
                total = before | needed
                if total != before:
                    self.rows[source] = total
                    waiting.append(source)

    @property
    def inputs(self) -> dict[str, Restriction]:
        """What is needed of each input of the program; those of which nothing is needed are left out."""
        operators = ((self.graph.nodes[index].operator, rows) for index, rows in self.rows.items())
        return {operator.text: rows for operator, rows in operators if isinstance(operator, Input)}

    def driving(self, look_up: LookUp) -> Restriction:
        """The rows of the driver whose keys matter."""
        total = NOTHING
        for alternative in self.rows.get(look_up.join, NOTHING).alternatives:
            if look_up in self._look_ups(look_up.join, alternative).values():
                total |= self._of(look_up.join, look_up.driver, alternative)
        return total

    def _sources(self, index: int) -> Iterator[tuple[int, Restriction]]:
        """The nodes that a node reads, and what it needs of each."""
        node = self.graph.nodes[index]
        for number, source in enumerate(node.inputs):
            for alternative in self.rows[index].alternatives:
                yield source, self._of(index, number, alternative)
        if isinstance(node.operator, Variable):
            yield self.graph.scopes[node.operator.loop].results[node.operator.number], self.rows[index]

    def _of(self, index: int, number: int, alternative: Alternative) -> Restriction:
        """What some rows of a node need of one of its inputs."""
        rows = self._through((index, number), alternative)
        look_up = self._look_ups(index, alternative).get(number) if rows.is_everything else None
        if look_up is None:
            return rows
        return rows.narrowed((there, values) for there, _, values in look_up.keys[number])

    def _through(self, edge: Edge, alternative: Alternative) -> Restriction:
        index, number = edge
        node = self.graph.nodes[index]
        constants = self._constants(index)
        if any(name in constants and not values.may_have(constants[name]) for name, values in alternative):
            return NOTHING  # such as the rows without a partner of an outer join, for a value of the partner
        source = self.graph.nodes[node.inputs[number]].schema
        return Restriction(frozenset({alternative})).through(carried(node.operator, number, source, bold=self._bold))

    def _constants(self, index: int) -> dict[str, int]:
        if index not in self._constant:
            operator = self.graph.nodes[index].operator
            self._constant[index] = operator.constants() if isinstance(operator, Select) else {}
        return self._constant[index]

    def _look_ups(self, index: int, alternative: Alternative) -> dict[int, LookUp]:
        """Of a join, for some of its rows: the look-ups of the inputs that these rows do not restrict.

        Inputs that they restrict drive them, then inputs that are looked up.
        """
        node, look_ups = self.graph.nodes[index], dict[int, LookUp]()
        if not isinstance(node.operator, Join | JoinBetween | DeltaJoin):
            return look_ups
        numbers = range(len(node.inputs))
        known = [number for number in numbers if not self._through((index, number), alternative).is_everything]
        for driver in known:  # which grows
            look_up = self._driven_by((index, driver)) if len(known) < len(numbers) else None
            more = {number: look_up for number in look_up.keys if number not in known} if look_up else {}
            look_ups |= more
            known += more
        return look_ups
