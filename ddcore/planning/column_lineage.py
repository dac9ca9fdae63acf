"""Which columns of the inputs each column of an output comes from, and which decide what rows it has.

What an operator's columns come from is read from its settings. From the inputs on, and around loops until nothing is
added, this gives those of the outputs. What an operator hides (a function of Python) comes from all columns that it is
given. The words are those of OpenLineage's column lineage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch

from ddcore.base.schema import Schema
from ddcore.operators.aggregation import Aggregation
from ddcore.operators.base import Linear, Operator
from ddcore.operators.borders import Leave, Variable
from ddcore.operators.delta_join import DeltaJoin
from ddcore.operators.flat_map import Explode
from ddcore.operators.half_join import Stage
from ddcore.operators.join import Join
from ddcore.operators.join_between import JoinBetween
from ddcore.operators.over import Over
from ddcore.operators.reduction import Reduction
from ddcore.operators.select import Select
from ddcore.operators.top_k import TopK
from ddcore.operators.where import Where
from ddcore.operators.wide_sums import FromLimbs, Limbs
from ddcore.planning.plan import Plan

Source = tuple[str, str]
"""An input and a column of it."""

DIRECT = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")
"""The words for a value that is, or is computed from, another; in this order, the strongest of a chain is kept. The
others say what decides on rows or on their order: FILTER, JOIN, GROUP_BY, SORT, WINDOW.
"""

_Port = tuple[int, str]  # the number of an operator's input, and a column of it
_Words = dict[Source, set[str]]


@dataclass
class ColumnLineage:
    """Of one collection: for each column the input columns it comes from, and those that decide on its rows, each with
    the words that say how.
    """

    columns: dict[str, _Words] = field(default_factory=lambda: defaultdict(dict))
    rows: _Words = field(default_factory=dict)


@dataclass(frozen=True)
class _Dependence:
    """The same of one operator's result on its inputs."""

    columns: Mapping[str, Mapping[_Port, str]]
    rows: Mapping[_Port, str] = field(default_factory=dict)


def column_lineage(plan: Plan) -> dict[str, ColumnLineage]:
    """The lineage of each output. Cost: the columns of all collections, times the input columns they come from."""
    ends = plan.ends
    results = collection_lineage(plan, ends.values())
    return {name: results[ends[name]] for name in plan.outputs}


def collection_lineage(plan: Plan, ends: Iterable[int]) -> dict[int, ColumnLineage]:
    """The lineage of each collection that these depend on, themselves included, by node; that of others is empty."""
    results: dict[int, ColumnLineage] = {node.index: ColumnLineage() for node in plan.nodes}
    for name, node in plan.sources.items():
        results[node].columns |= {column: {(name, column): {"IDENTITY"}} for column in plan.inputs[name]}
    steps = [
        (node, inputs, _of(plan.nodes[node].operator, [plan.nodes[number].schema for number in inputs]))
        for node, inputs in plan.upstream(ends).items()
    ]
    changed = True
    while changed:  # once, and once more to see it; loops go round until nothing is added
        changed = False
        for node, inputs, dependence in steps:
            changed |= _add(results[node], [results[number] for number in inputs], dependence)
    return results


class Origins:
    """Where the columns of the collections on which some depend have their values from, as they are."""

    def __init__(self, plan: Plan, ends: Iterable[int]) -> None:
        self._nodes, self._inputs = plan.nodes, plan.upstream(ends)
        self._known: dict[int, _Dependence] = {}

    def of(self, node: int, column: str) -> set[tuple[int, str]]:
        """The columns, by the nodes that have them first: those of inputs, and those that an operator computes."""
        found, seen, waiting = set(), set(), [(node, column)]
        while waiting:
            node, column = at = waiting.pop()
            if at not in seen:
                seen.add(at)
                ports = self._dependence(node).columns.get(column, {})
                same = [(self._inputs[node][number], name) for (number, name), how in ports.items() if how == DIRECT[0]]
                waiting += same
                found |= set() if same else {at}
        return found

    def _dependence(self, node: int) -> _Dependence:
        if node not in self._known:
            schemas = [self._nodes[number].schema for number in self._inputs[node]]
            self._known[node] = _of(self._nodes[node].operator, schemas)
        return self._known[node]


def _add(result: ColumnLineage, inputs: Sequence[ColumnLineage], dependence: _Dependence) -> bool:
    """Add what a node's inputs have by now; whether there was anything new."""
    changed = False
    for name, ports in dependence.columns.items():
        for (number, column), how in ports.items():
            for source, words in inputs[number].columns.get(column, {}).items():
                changed |= _note(result.columns[name], source, {_joined(word, how) for word in words})
    for lineage in inputs:
        for source, words in lineage.rows.items():
            changed |= _note(result.rows, source, words)
    for (number, column), how in dependence.rows.items():
        for source in inputs[number].columns.get(column, {}):
            changed |= _note(result.rows, source, {how})
    return changed


def _note(words: _Words, source: Source, more: set[str]) -> bool:
    known = words.setdefault(source, set())
    new = more - known
    known |= new
    return bool(new)


def _joined(word: str, how: str) -> str:
    """The word for a chain of two steps."""
    if how not in DIRECT or word not in DIRECT:
        return how if how not in DIRECT else word
    return max(word, how, key=DIRECT.index)


# --- operators --------------------------------------------------------------------------------------------------------


@singledispatch
def _of(operator: Operator, inputs: Sequence[Schema]) -> _Dependence:
    """An operator that hides what it does: all columns of its result come from all of its inputs."""
    whole = {(number, column): "TRANSFORMATION" for number, schema in enumerate(inputs) for column in schema}
    return _Dependence(dict.fromkeys(operator.schema, whole))


def _same(operator: Operator, inputs: Sequence[Schema]) -> dict[str, dict[_Port, str]]:
    """Columns that have their names in all inputs that have them."""
    return {
        name: {(number, name): "IDENTITY" for number, schema in enumerate(inputs) if name in schema}
        for name in operator.schema
    }


@_of.register(Variable | Leave)
def _border(operator: Operator, inputs: Sequence[Schema]) -> _Dependence:
    return _Dependence(_same(operator, inputs))


@_of.register(Linear)
def _linear(operator: Linear, inputs: Sequence[Schema]) -> _Dependence:
    """What is carried is itself, in each input; the rest comes from all columns."""
    whole = {(number, column): "TRANSFORMATION" for number, schema in enumerate(inputs) for column in schema}
    carried = operator.carried
    return _Dependence(
        {
            name: {(number, carried[name]): "IDENTITY" for number in range(len(inputs))} if name in carried else whole
            for name in operator.schema
        }
    )


@_of.register(Select | Explode | Limbs)
def _computed(operator: Select | Explode | Limbs, inputs: Sequence[Schema]) -> _Dependence:
    """Operators that say what each of their columns needs."""
    columns = {}
    for name in operator.schema:
        needs, how = operator.needs(frozenset((name,))), "TRANSFORMATION"
        if name in operator.carried:
            needs, how = ("", [frozenset((operator.carried[name],))]), "IDENTITY"
        columns[name] = {(0, column): how for column in (needs[1][0] if needs else inputs[0])}
    return _Dependence(columns)


@_of.register
def _filtered(operator: Where, inputs: Sequence[Schema]) -> _Dependence:
    return _Dependence(_same(operator, inputs), {(0, column): "FILTER" for column in operator.predicate.columns})


@_of.register
def _summed(operator: FromLimbs, inputs: Sequence[Schema]) -> _Dependence:
    columns = {name: {(0, name): "IDENTITY"} for name in operator.schema}
    for total in operator.sums:
        columns[total.result] = {(0, column): "TRANSFORMATION" for column in (*total.limbs, total.number)}
    return _Dependence(columns)


@_of.register(Join | JoinBetween)
def _joined_columns(operator: Join | JoinBetween, inputs: Sequence[Schema]) -> _Dependence:
    from_right = {result: name for name, result in operator.right_names.items()}
    rows = {(0, column): "JOIN" for column in operator.left} | {(1, column): "JOIN" for column in operator.right}
    if isinstance(operator, JoinBetween):
        rows |= {(0, operator.column): "JOIN"} | {(1, column): "JOIN" for column in operator.ends.columns}
    columns = {
        name: {(1, from_right[name]) if name in from_right else (0, name): "IDENTITY"} for name in operator.schema
    }
    return _Dependence(columns, rows)


@_of.register
def _joined_by_attributes(operator: DeltaJoin, inputs: Sequence[Schema]) -> _Dependence:
    ports: dict[str, dict[_Port, str]] = {name: {} for name in operator.schema}
    for number, relation in enumerate(operator.relations):
        for column, attribute in relation.items():
            ports[attribute][number, column] = "IDENTITY"
    return _Dependence(ports, {port: "JOIN" for several in ports.values() if len(several) > 1 for port in several})


@_of.register
def _staged(operator: Stage, inputs: Sequence[Schema]) -> _Dependence:
    columns: dict[str, dict[_Port, str]] = {name: {} for name in operator.schema}
    return _Dependence(columns | {name: {port: "IDENTITY"} for name, port in operator.columns.items()})


@_of.register
def _reduced(operator: Reduction, inputs: Sequence[Schema]) -> _Dependence:
    """Groups by a function of Python, and whole rows where the key is all of them."""
    whole = {(number, column): "AGGREGATION" for number, schema in enumerate(inputs) for column in schema}
    keys = {name: {(number, name): "IDENTITY" for number in range(len(inputs))} for name in operator.group}
    columns = {name: keys.get(name, whole) for name in operator.schema}
    is_rows = all(operator.schema.keys() == schema.keys() for schema in inputs)
    return _Dependence(_same(operator, inputs) if is_rows else columns, _grouped(operator))


def _grouped(operator: Reduction) -> dict[_Port, str]:
    return {(0, name): "GROUP_BY" for name in operator.group}


@_of.register
def _aggregated(operator: Aggregation, inputs: Sequence[Schema]) -> _Dependence:
    arguments = {name: argument for name, _, argument in operator.aggregates}
    columns: dict[str, dict[_Port, str]] = {name: {(0, name): "IDENTITY"} for name in operator.group}
    for name in operator.result:
        argument = arguments[name]
        columns[name] = {} if argument is None else {(0, argument): "AGGREGATION"}
    return _Dependence(columns, _grouped(operator))


@_of.register
def _greatest(operator: TopK, inputs: Sequence[Schema]) -> _Dependence:
    """The columns that break ties, all others, are not named."""
    rows = _grouped(operator) | {(0, column): "SORT" for column in operator.by}
    return _Dependence(_same(operator, inputs), rows)


@_of.register
def _windowed(operator: Over, inputs: Sequence[Schema]) -> _Dependence:
    """Rows stay as they are; a new column comes from its argument, and depends on the partition and its order."""
    columns = _same(operator, inputs)
    around = dict.fromkeys(((0, name) for name in (*operator.group, *operator.order.by)), "WINDOW")
    for window in operator.windows:
        results = (window.name, *operator.states.get(window.name, ()))
        columns |= dict.fromkeys(results, around | {(0, name): "TRANSFORMATION" for name in window.columns})
    return _Dependence(columns)
