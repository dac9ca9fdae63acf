"""The plan of a fold by several workers: the stages of its delta joins are operators of their own.

One worker binds attribute after attribute in one step, which needs all arrangements of a delta join. Of several workers
each owns the keys of each arrangement that it has anyway, and prefixes go from owner to owner. So work and state are
divided, and nothing is copied. The arrangements that are stored are the same in both plans, and have the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ddcore.base.digests import digest
from ddcore.base.schema import Schema
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.base import Operator
from ddcore.operators.block import Block
from ddcore.operators.delta_join import Binding, DeltaJoin
from ddcore.operators.half_join import NUMBERS, Chosen, Column, Count, HalfJoin, Start, times_of
from ddcore.planning.plan import Plan, Target
from ddcore.program.graph import Node

_Choice = tuple[int, tuple[str, ...]]  # a relation and the attributes by which it is looked up


def staged(plan: Plan) -> Plan:
    """The plan with the stages of its delta joins. What is added comes after all that there is."""
    joins = [block for block in plan.blocks if block.ports and isinstance(plan.operator(block), DeltaJoin)]
    if not joins:
        return plan
    draft = _Draft.of(plan)
    for block in joins:
        _Stages(plan, draft, block).add()
    return draft.plan(plan)


@dataclass
class _Draft:
    """A plan that grows. ``levels``: of each stage its block, that of its delta join, and after how many stages."""

    nodes: list[Node]
    depths: list[int]
    targets: list[list[Target]]
    blocks: list[Block]
    arrangements: list[Arrangement]
    stages: dict[int, int]
    levels: list[tuple[int, int, int]]

    @classmethod
    def of(cls, plan: Plan) -> _Draft:
        targets = [list(some) for some in plan.targets]
        return cls([*plan.nodes], [*plan.depths], targets, [*plan.blocks], [*plan.arrangements], {}, [])

    def node(self, operator: Operator, inputs: Sequence[int], owner: Node, depth: int) -> int:
        """A node of a part of another."""
        index = len(self.nodes)
        name = digest(owner.digest, str(index))
        self.nodes.append(Node(index, operator, tuple(inputs), owner.scope, owner.source_line, name))
        self.depths.append(depth)
        self.targets.append([])
        self.stages[index] = owner.index
        return index

    def plan(self, plan: Plan) -> Plan:
        """The plan, in which the stages of a delta join come just after it: first those of all its rules that have
        none before them, then the next ones, so that they exchange together.
        """
        width, paths = len(self.levels) + 1, dict[int, tuple[int, ...]]()
        for rank, (_, owner, index) in enumerate(sorted((level, owner, index) for index, owner, level in self.levels)):
            *around, last = self.blocks[owner].path
            paths[index] = (*(width * number for number in around), width * last + 1 + rank)
        blocks = [
            replace(block, path=paths.get(block.index, tuple(width * number for number in block.path)))
            for block in self.blocks
        ]
        return replace(
            plan, nodes=tuple(self.nodes), depths=tuple(self.depths), targets=tuple(map(tuple, self.targets)),
            blocks=tuple(blocks), arrangements=tuple(self.arrangements), stages=self.stages,
        )  # fmt: skip


@dataclass(frozen=True)
class _Prefixes:
    """Where prefixes come from: ``nodes``, all with the same columns; or, as ``relation``, the new updates of one.

    ``columns``: of each bound attribute its column there. ``level``: after how many stages.
    """

    nodes: tuple[int, ...]
    columns: Mapping[str, str]
    times: int
    level: int
    relation: int | None = None


class _Stages:
    """Adds the stages of one delta join to a draft."""

    def __init__(self, plan: Plan, draft: _Draft, block: Block) -> None:
        operator = plan.operator(block)
        assert isinstance(operator, DeltaJoin)
        self.join, self.draft, self.block, self.node = operator, draft, block, plan.nodes[block.node]
        self.names = (*plan.dims, *(f"_round_{number + 1}" for number in range(block.depth)))
        self.ports = dict(zip(operator.ports, block.ports, strict=True))
        # In a loop a join of times may be at a later position: an earlier version has had updates of later rounds.
        self.times = len(self.names) if len(plan.dims) > 1 or block.depth else 0

    def add(self) -> None:
        """The stages of all rules; the results of the last ones go where those of the delta join go."""
        draft, node = self.draft, self.node.index
        draft.nodes[node] = replace(self.node, operator=replace(self.join, staged=True))
        for number, relation in enumerate(self.join.relations):
            prefixes = _Prefixes((), {name: column for column, name in relation.items()}, 0, 0, number)
            stages = self.join.rules[number]
            for stage_number, stage in enumerate(stages, 1):
                prefixes = self._bound(prefixes, stage, number, is_last=stage_number == len(stages))
            for last in prefixes.nodes:
                draft.targets[last] += draft.targets[node]

    def _bound(self, prefixes: _Prefixes, stage: Binding, rule: int, *, is_last: bool) -> _Prefixes:
        """The prefixes that a stage of a rule makes of others."""
        choices = sorted(stage.choices, key=lambda choice: (self._arranged(prefixes, choice) is None, choice[0] < rule))
        if len(choices) == 1:
            return self._half_join(prefixes, choices[0], rule, is_last=is_last)
        for number, choice in enumerate(choices[:-1]):
            prefixes = self._count(prefixes, choice, rule, number)
        prefixes, own = self._last_count(prefixes, choices, rule)
        nodes, level = list[int](), 0
        for number, choice in enumerate(choices):
            some = own
            if number < len(choices) - 1:
                some = self._half_join(self._chosen(prefixes, number), choice, rule, is_last=False)
            others = [(relation, tuple(self.join.relations[relation].values())) for relation, _ in choices]
            others.remove((choice[0], tuple(self.join.relations[choice[0]].values())))
            for stage_number, other in enumerate(others, 1):
                some = self._half_join(some, other, rule, is_last=is_last and stage_number == len(others))
            nodes, level = [*nodes, *some.nodes], max(level, some.level)
        return replace(some, nodes=tuple(nodes), level=level)

    def _last_count(self, prefixes: _Prefixes, choices: Sequence[_Choice], rule: int) -> tuple[_Prefixes, _Prefixes]:
        """The prefixes of the last count of several, and those of the half join that it does itself."""
        last = self._count(prefixes, choices[-1], rule, len(choices) - 1)
        draft, (node,) = self.draft, last.nodes
        ports = next(block for block in reversed(draft.blocks) if block.node == node).ports
        before, count = draft.arrangements[ports[0]], draft.nodes[node].operator
        assert isinstance(count, Count)
        operator = self._half_join_of(replace(prefixes, nodes=(before.node,)), ports, choices[-1], rule, is_last=False)
        own = self._stage(operator, replace(last, level=last.level - 1), *ports, is_idle=True)
        draft.nodes[node] = replace(draft.nodes[node], operator=replace(count, own=operator, sender=own.nodes[0]))
        return last, own

    def _half_join(self, prefixes: _Prefixes, choice: _Choice, rule: int, *, is_last: bool) -> _Prefixes:
        prefixes, port, relation = self._looked_up(prefixes, choice)
        ports = port, relation.index
        return self._stage(self._half_join_of(prefixes, ports, choice, rule, is_last=is_last), prefixes, *ports)

    def _half_join_of(
        self, prefixes: _Prefixes, ports: Sequence[int], choice: _Choice, rule: int, *, is_last: bool
    ) -> HalfJoin:
        left, relation = (self.draft.arrangements[port] for port in ports)
        found: dict[str, Column] = {
            name: (1, column) for column, name in self.join.relations[choice[0]].items() if name not in prefixes.columns
        }
        columns = self._ordered({name: (0, column) for name, column in prefixes.columns.items()} | found)
        times = 0 if is_last else self.times
        return HalfJoin(
            self._schema(columns, times), self.join.text, left.key, relation.key, self._key(relation, choice),
            columns, choice[0] < rule, (prefixes.times, times), is_last,
        )  # fmt: skip

    def _count(self, prefixes: _Prefixes, choice: _Choice, rule: int, number: int) -> _Prefixes:
        prefixes, port, relation = self._looked_up(prefixes, choice)
        columns = self._ordered({name: (0, column) for name, column in prefixes.columns.items()})
        operator = Count(
            self._schema(columns, self.times) | NUMBERS, self.join.text,
            self.draft.arrangements[port].key, relation.key, self._key(relation, choice), columns,
            choice[0] < rule, (prefixes.times, self.times), number,
        )  # fmt: skip
        return self._stage(operator, prefixes, port, relation.index)

    def _chosen(self, prefixes: _Prefixes, number: int) -> _Prefixes:
        (before,) = prefixes.nodes
        schema = {name: kind for name, kind in self.draft.nodes[before].schema.items() if name not in NUMBERS}
        node = self.draft.node(Chosen(schema, self.join.text, number), (before,), self.node, self.block.depth)
        self.draft.targets[before].append(Target("linear", node))
        return replace(prefixes, nodes=(node,))

    def _looked_up(self, prefixes: _Prefixes, choice: _Choice) -> tuple[_Prefixes, int, Arrangement]:
        """Prefixes, their arrangement by the key of a relation, and that of the relation."""
        relation = self.draft.arrangements[self.ports[choice[0], self.join.columns(*choice)]]
        port = self._arranged(prefixes, choice)
        if port is not None:
            return prefixes, port, relation
        if prefixes.relation is not None:
            prefixes = self._start(prefixes)
        return prefixes, self._passing(prefixes, self._key(relation, choice)), relation

    def _arranged(self, prefixes: _Prefixes, choice: _Choice) -> int | None:
        """The arrangement of a relation whose new updates are prefixes, by the key of another."""
        other = self.draft.arrangements[self.ports[choice[0], self.join.columns(*choice)]]
        wanted = self._key(other, choice)
        for (number, columns), index in self.ports.items():
            if number == prefixes.relation:
                relation = self.join.relations[number]
                if tuple(relation[column] for column in columns) == wanted:
                    return index
        return None

    def _start(self, prefixes: _Prefixes) -> _Prefixes:
        """The new updates of a relation, from any arrangement of it."""
        port = next(index for (number, _), index in self.ports.items() if number == prefixes.relation)
        columns = self._ordered({name: (0, column) for name, column in prefixes.columns.items()})
        arrangement = self.draft.arrangements[port]
        relation = {column: name for name, column in prefixes.columns.items()}
        key = tuple(relation[column] for column in arrangement.key)
        operator = Start(
            self._schema(columns, self.times), self.join.text, arrangement.key, (), key, columns, False, (0, self.times)
        )
        return self._stage(operator, prefixes, port)

    def _stage(
        self, operator: HalfJoin | Count | Start, prefixes: _Prefixes, *ports: int, is_idle: bool = False
    ) -> _Prefixes:
        """The node and the block of an operator. ``is_idle``: another block does its work."""
        draft, index = self.draft, len(self.draft.blocks)
        inputs = [draft.arrangements[port].node for port in ports]
        node = draft.node(operator, inputs, self.node, self.block.depth)
        port = draft.arrangements[ports[0]]
        owned = (port.index,) if port.passing and not is_idle else ()
        if is_idle:
            pass
        elif port.passing:
            draft.arrangements[port.index] = replace(port, block=index)
        else:
            draft.arrangements[port.index] = replace(port, listeners=(*port.listeners, index))
        block = Block(
            index, operator.name, node, self.node.source_line, self.block.path, self.block.loops, owned, (*ports,)
        )
        draft.blocks.append(block)
        draft.levels.append((index, self.block.index, prefixes.level))
        columns = {name: name for name in operator.columns}
        return _Prefixes((node,), columns, operator.times[1], prefixes.level + 1)

    def _passing(self, prefixes: _Prefixes, key: tuple[str, ...]) -> int:
        """The arrangement of prefixes by a key."""
        draft, index, node = self.draft, len(self.draft.arrangements), prefixes.nodes[0]
        name = digest(draft.nodes[node].digest, str(index))
        schema = draft.nodes[node].schema
        draft.arrangements.append(Arrangement(index, node, schema, key, self.names, name, -1, passing=True))
        for node in prefixes.nodes:
            draft.targets[node].append(Target("arrange", index))
        return index

    def _key(self, relation: Arrangement, choice: _Choice) -> tuple[str, ...]:
        """The attributes that are the key of a relation's arrangement."""
        return tuple(self.join.relations[choice[0]][column] for column in relation.key)

    def _ordered(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """In the order of the result, whatever relation bound them."""
        return {name: columns[name] for name in self.join.schema if name in columns}

    def _schema(self, columns: Mapping[str, Column], times: int) -> Schema:
        return {name: self.join.schema[name] for name in columns} | times_of(times)
