"""The routes of updates between workers: which of them never leave a worker, and how far one may go on alone.

A block works on keys that its worker owns. Where all its results reach an arrangement with the same key columns, as
they were and in the same order, their codes are the same, and with the same boundaries so is their owner. Such a route
is *local*; any other may cross to another worker.

Must not import the engine's kernels: the driver of a fold on Spark loads this module.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ddcore.jobs.engines.division import Shares
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.base import Keyed, Linear
from ddcore.operators.block import Block, Position, Rounds
from ddcore.operators.priority import round_of
from ddcore.planning.plan import Plan, Target

Columns = frozenset[tuple[str, int]]  # columns of a collection, each with the place in the sender's key that it holds
_State = tuple[int, Columns, "tuple[Move, ...]"]  # a node that updates reach, and how


@dataclass(frozen=True)
class Move:
    """What a border does to rounds: cut or extended with zeros to ``depth`` of them, the last one increased
    (``onward``), only those at or past ``limit`` let through.
    """

    depth: int
    onward: bool = False
    limit: int = 0

    def least(self, rounds: Rounds) -> Rounds:
        """The least rounds after the move, of all that are at or after ``rounds`` before it."""
        rounds = (*rounds, *(0 for _ in range(self.depth)))[: self.depth]
        if not rounds:
            return rounds
        last = rounds[-1] + self.onward
        if round_of(last) < self.limit:
            last += self.limit - round_of(last)
        return (*rounds[:-1], last)


@dataclass(frozen=True)
class Route:
    """A way of updates from a block to an arrangement, through linear operators and borders of loops.

    ``columns`` hold the sender's key, of ``width`` columns; None: the updates do not have all of it.
    """

    sender: int
    arrangement: int
    width: int | None
    columns: Columns
    moves: tuple[Move, ...]

    def keeps(self, key: Sequence[str]) -> bool:
        """Whether these columns of the arrangement are the sender's key."""
        return self.width == len(key) and all((name, number) in self.columns for number, name in enumerate(key))


@dataclass(frozen=True)
class Routing:
    """How the updates of a plan are divided.

    ``keys``: the columns by which the updates of an output are divided. ``groups``: arrangements, each once, whose
    equal keys have one owner. ``crossing``: routes that are not ``local``; ``home``: arrangements to which no route
    crosses.
    """

    plan: Plan
    keys: Mapping[int, tuple[str, ...]]
    groups: Sequence[Sequence[Arrangement]]
    crossing: Sequence[Route]
    local: Sequence[Route]

    @cached_property
    def home(self) -> frozenset[int]:
        """The arrangements to which no route crosses."""
        return frozenset(range(len(self.plan.arrangements))) - {route.arrangement for route in self.crossing}

    def divided(self, shares: Mapping[int, Shares]) -> Routing:
        """The routing where heavy keys are divided: routes from their joins cross, those to them, and those on which
        results are copied.
        """
        moved = self.moved(shares)
        copied = [
            Route(self.plan.arrangements[index].block, index, None, frozenset(), ())
            for index, share in shares.items()
            if share.result
        ]
        local = [route for route in self.local if route not in moved]
        return replace(self, crossing=[*self.crossing, *moved, *copied], local=local)

    def moved(self, divided: Collection[int]) -> list[Route]:
        """The local routes that cross where heavy keys of these arrangements are divided."""
        senders = {block.index for block in self.plan.blocks if {*block.ports} & {*divided}}
        return [route for route in self.local if route.sender in senders or route.arrangement in divided]

    def landing(self, arrangement: int, rounds: Rounds) -> tuple[Block, Rounds]:
        """The block at which updates of an arrangement arrive, and its rounds: the one that updates it, and for the
        copies of a result the first that reads it.
        """
        blocks, to = self.plan.blocks, self.plan.arrangements[arrangement]
        owner = blocks[to.block]
        if owner.output != arrangement:
            return owner, rounds
        readers = ((blocks[index], (*rounds, *(0,) * (blocks[index].depth - len(rounds)))) for index in to.listeners)
        return min(readers, key=lambda reader: reader[0].position(reader[1]))

    def horizon(self, position: Position) -> Position | None:
        """The least position at which work at or after ``position`` may have results for another worker; None: none.

        It is after ``position``. A worker may do all its work before the horizon without a message of others.
        """
        blocks = self.plan.blocks
        landings = []
        for route in self.crossing:
            rounds = _first(blocks[route.sender], position)
            if rounds is not None:
                for move in route.moves:
                    rounds = move.least(rounds)
                block, rounds = self.landing(route.arrangement, rounds)
                landings.append(block.position(rounds))
        return min(landings, default=None)


def _first(block: Block, position: Position) -> Rounds | None:
    """The least rounds with which a block is at or after a position; None if there are none."""
    rounds: Rounds = ()
    for level, rank in enumerate(block.path):
        at = position[2 * level]
        later = (0,) * (block.depth - level)
        if rank > at:
            return rounds + later
        if rank < at:
            return (*rounds[:-1], rounds[-1] + 1, *later) if rounds else None
        if level < block.depth:
            rounds += (position[2 * level + 1],)
    return rounds


def routing_of(plan: Plan, large: Container[str] = ()) -> Routing:
    """The routing of a plan. O(routes).

    ``large``: the fingerprints of the results of reductions with large groups; nothing reaches the trees of others.
    """
    routes = [*_all_routes(plan, large)]
    keys = {a.index: tuple(a.collection) if a.transient else a.key for a in plan.arrangements}
    for arrangement in plan.arrangements:
        if arrangement.output:  # nothing is sent on from there, so any columns may divide its updates
            shared = _shared_key([route for route in routes if route.arrangement == arrangement.index])
            keys[arrangement.index] = keys[arrangement.index] if shared is None else shared
    owners = _Owners(plan)
    crossing, local = list[Route](), list[Route]()
    for route in routes:
        is_local = plan.arrangements[route.arrangement].ends is None and route.keeps(keys[route.arrangement])
        (local if is_local else crossing).append(route)
        if is_local:
            owners.unite(route)
    outputs = {a.index: keys[a.index] for a in plan.arrangements if a.output}
    return Routing(plan, outputs, owners.groups(), crossing, local)


def _all_routes(plan: Plan, large: Container[str]) -> Iterator[Route]:
    """The routes of all blocks that may get updates."""
    spreading = {
        block.spread
        for block in plan.blocks
        if block.output is not None and plan.arrangements[block.output].fingerprint in large
    }
    targets = [target for node in spreading if node is not None for target in plan.targets[node]]
    in_trees = {target.index for target in targets if target.kind == "arrange"}
    for block in plan.blocks:  # a level of a tree comes before the next
        if not plan.operator(block).in_tree or in_trees.intersection(block.ports):
            for route in _routes(plan, block, spreading):
                in_trees.add(route.arrangement)
                yield route


def _shared_key(routes: Sequence[Route]) -> tuple[str, ...] | None:
    """Columns that hold the key of each sender, if there are any; then no update has to leave its worker."""
    if not routes or routes[0].width is None:
        return None
    positions = [
        min((name for name, column in routes[0].columns if column == number), default="")
        for number in range(routes[0].width)
    ]
    return tuple(positions) if all(route.keeps(positions) for route in routes) else None


def _routes(plan: Plan, block: Block, spreading: Container[int | None]) -> Iterator[Route]:
    """The routes of a block's results, each once; ``spreading``: nodes at which trees begin that are in use."""
    operator = plan.operator(block)
    if block.ports and isinstance(operator, Keyed):
        node, key = block.node, operator.result_key
    elif block.op == "variable" and _consolidates(plan, block):
        node, key = block.node, tuple(plan.nodes[block.node].schema)
    else:
        return
    width = None if key is None else len(key)
    start: _State = (node, frozenset((name, number) for number, name in enumerate(key or ())), ())
    waiting: list[_State] = [start]
    visited = {start}
    while waiting:
        node, columns, moves = waiting.pop()
        for target in plan.targets[node]:
            if target.kind == "arrange":
                yield Route(block.index, target.index, width, columns, moves)
            if target.kind == "arrange" or (target.kind == "spread" and target.index not in spreading):
                continue
            for arrangement, state in _passed(plan, target, columns, moves):
                if arrangement is not None:
                    yield Route(block.index, arrangement, width, columns, state[2])
                elif state not in visited:
                    visited.add(state)
                    waiting.append(state)


def _consolidates(plan: Plan, block: Block) -> bool:
    """Whether a variable's block sends updates on; any other only raises Diverged."""
    loop = plan.loops[block.loops[-1]]
    return loop.consolidates[loop.variables.index(block.node)]


def _passed(
    plan: Plan, target: Target, columns: Columns, moves: tuple[Move, ...]
) -> Iterator[tuple[int | None, _State]]:
    """What a target sends on, as the engine's forwarding does it: the next node, or an arrangement as the end."""
    if target.kind in ("linear", "spread", "leave"):
        operator = plan.nodes[target.index].operator
        carried = operator.carried if isinstance(operator, Linear) else {name: name for name in operator.schema}
        kept = frozenset(
            (name, column) for name, source in carried.items() for held, column in columns if held == source
        )
        yield None, (target.index, kept, _joined(moves, Move(plan.depths[target.index])))
        return
    loop = plan.loops[target.index]
    border, variable = loop.borders[target.variable], loop.variables[target.variable]
    for onward in (False, True) if target.kind == "enter" else (True,):
        if loop.consolidates[target.variable]:
            yield border, (variable, columns, _joined(moves, Move(loop.depth, onward)))
            continue
        if not loop.returns:
            yield border, (variable, columns, _joined(moves, Move(loop.depth, onward, loop.max_rounds)))
        yield None, (variable, columns, _joined(moves, Move(loop.depth, onward)))


def _joined(moves: tuple[Move, ...], move: Move) -> tuple[Move, ...]:
    """The moves with one more, unless it changes nothing."""
    same = bool(moves) and moves[-1].depth == move.depth and not move.onward and not move.limit
    return moves if same else (*moves, move)


class _Owners:
    """Groups of arrangements with equal boundaries, to be united: the sides of a join, input and output of a reduce."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._leader = {arrangement.index: arrangement.index for arrangement in plan.arrangements}
        for block in plan.blocks:
            operator = plan.operator(block)
            if isinstance(operator, Keyed) and not operator.has_one_key:
                continue
            together = [*block.ports, *([] if block.output is None else [block.output])]
            for other in together[1:]:
                self._merge(together[0], other)

    def groups(self) -> list[list[Arrangement]]:
        """All arrangements, in their groups."""
        groups: dict[int, list[Arrangement]] = {}
        for arrangement in self._plan.arrangements:
            groups.setdefault(self._leader[arrangement.index], []).append(arrangement)
        return list(groups.values())

    def unite(self, route: Route) -> None:
        """Give both ends of a route the same boundaries."""
        block = self._plan.blocks[route.sender]
        self._merge(block.ports[0] if block.ports else block.owned[0], route.arrangement)

    def _merge(self, one: int, other: int) -> None:
        old, new = self._leader[other], self._leader[one]
        self._leader = {index: new if leader == old else leader for index, leader in self._leader.items()}
