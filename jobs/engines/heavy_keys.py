"""Finds the heavy keys of joins: those with too much work for one worker, and the grids over which they are divided.

Only an arrangement that joins alone read can be divided: any other reader needs all rows of a key. Where one side of a
join is the result of a reduction, its owner copies it to all. Rows that are looked up by their order have no other
side: of a value with too many each worker has a part, and all intervals that hold it.

Must not import the engine's kernels: the driver of a fold on Spark loads this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddcore.base.distinct import distinct
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import is_direct
from ddcore.jobs.engines.division import LAST, Shares
from ddcore.jobs.engines.routes import Routing
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.base import Keyed, Linear
from ddcore.operators.block import Block
from ddcore.operators.borders import Leave, Variable
from ddcore.planning.plan import Plan

if TYPE_CHECKING:
    from ddcore.jobs.engines.sampling import Samples, Spread

_HEAVY = 0.5  # the least share of a worker's mean load that a heavy key has
_REPEATED = 2.0  # and where to divide it costs one exchange more in every round of a loop
_PAYS = 0.8  # a key is divided where its largest part has less than this share of its load
_FEW = {"agg", "distinct", "top_k"}  # reductions that give few rows for each group


@dataclass(frozen=True)
class Joins:
    """Joins that share arrangements, and so divide keys alike: ``pairs`` are their arrangements.

    ``by_rows``: of each arrangement, whether the rows of a grid divide it; those of ``results`` the columns do.
    ``repeated``: updates of a loop that stay with their worker cross in every round, if a key is divided.
    """

    pairs: Sequence[tuple[int, int]]
    by_rows: Mapping[int, bool]
    results: frozenset[int]
    repeated: bool = False

    def least(self, workers: int) -> float:
        """The least share of a worker's mean load that a heavy key has; at most half of the load of all."""
        return min(_REPEATED, workers / 2) if self.repeated else _HEAVY


def divisible(routing: Routing) -> list[Joins]:
    """The joins of a plan whose keys can be divided."""
    plan, readers = routing.plan, dict[int, list[str]]()
    for block in plan.blocks:
        for port in block.ports:
            readers.setdefault(port, []).append(block.op)
    joins = [(block.ports[0], block.ports[1]) for block in plan.blocks if block.op == "join"]
    whole = {index for index, ops in readers.items() if {*ops} != {"join"} or not _is_copied(plan, index)}
    groups: list[list[tuple[int, int]]] = []
    for pair in joins:
        touching = [group for group in groups if any({*pair} & {*other} for other in group)]
        groups = [group for group in groups if group not in touching]
        groups.append([pair, *(other for group in touching for other in group)])
    found = [_sides(plan, pairs) for pairs in groups if not whole & {index for pair in pairs for index in pair}]
    found += [Joins((), {index: True}, frozenset()) for index in _ordered(plan)]
    return [replace(joins, repeated=_is_repeated(routing, joins)) for joins in found if joins is not None]


def _ordered(plan: Plan) -> list[int]:
    """The arrangements of rows that are looked up by their order alone, and are no result of an operator."""
    others = {port for block in plan.blocks if not looks_between(plan, block) for port in block.ports}
    rows = {block.ports[0] for block in plan.blocks if looks_between(plan, block)}
    return [index for index in sorted(rows - others) if not _is_result(plan, index)]


def looks_between(plan: Plan, block: Block) -> bool:
    """Whether a block looks rows up by their order, in intervals without a key."""
    operator = plan.operator(block)
    return bool(block.ports) and isinstance(operator, Keyed) and operator.spans is not None


def _is_repeated(routing: Routing, joins: Joins) -> bool:
    """Whether routes inside of a loop that are local would cross where keys of these joins are divided."""
    blocks, arrangements = routing.plan.blocks, routing.plan.arrangements
    return any(
        blocks[route.sender].depth > 0 and blocks[arrangements[route.arrangement].block].depth > 0
        for route in routing.moved(joins.by_rows)
    )


def _is_result(plan: Plan, index: int) -> bool:
    """Whether an arrangement is the output that an operator keeps."""
    return plan.blocks[plan.arrangements[index].block].output == index


def _is_copied(plan: Plan, index: int) -> bool:
    """Whether an arrangement can be copied. In loops each round would have one exchange more for that of a result."""
    block = plan.blocks[plan.arrangements[index].block]
    return block.output != index or (block.depth == 0 and block.spread is None)


def _sides(plan: Plan, pairs: Sequence[tuple[int, int]]) -> Joins | None:
    """Which sides the rows of a grid divide; None where some arrangement would have to be on both."""
    by_rows = {pairs[0][0]: True}
    waiting = [*pairs]
    while waiting:
        pair = next(pair for pair in waiting if {*pair} & {*by_rows})
        waiting.remove(pair)
        for one, other in (pair, pair[::-1]):
            if one in by_rows and by_rows.setdefault(other, not by_rows[one]) == by_rows[one]:
                return None
    results = frozenset(index for index in by_rows if _is_result(plan, index))
    if len({by_rows[index] for index in results}) > 1:
        return None
    turned = any(by_rows[index] for index in results)
    return Joins(pairs, {index: side != turned for index, side in by_rows.items()}, results)


def hashed(plan: Plan, joins: Sequence[Joins]) -> list[Arrangement]:
    """The arrangements of joins whose key is not its own code."""
    arrangements = (plan.arrangements[index] for group in joins for index in group.by_rows)
    return [arrangement for arrangement in arrangements if not is_direct(arrangement.key_types)]


def shares_of(
    routing: Routing, joins: Sequence[Joins], samples: Samples, workers: int, *, rows: int, least: int
) -> dict[int, Shares]:
    """How the arrangements with heavy keys are divided, by index; and outputs that would get all pairs of such keys.

    ``rows`` of the window; a heavy key has at least the load ``least``.
    """
    plan, found = routing.plan, dict[int, Shares]()
    outputs: dict[int, set[int]] = {}
    for group in joins:
        codes, parts = _heavy(plan, group, samples, workers, max(rows / workers * group.least(workers), least))
        if not len(codes):
            continue
        for index, by_rows in group.by_rows.items():
            some = parts if by_rows else workers // parts
            found[index] = Shares(workers, (*codes.tolist(),), (*some.tolist(),), by_rows, index in group.results)
        blocks = {block.index for block in plan.blocks if block.ports and block.ports[0] in group.by_rows}
        for route in routing.local:
            if route.sender in blocks and plan.arrangements[route.arrangement].output:
                outputs.setdefault(route.arrangement, set()).update(codes.tolist())
    for index, several in outputs.items():
        found[index] = Shares(workers, (*sorted(several),), (workers,) * len(several), by_rows=True)
    return found


def _heavy(plan: Plan, joins: Joins, samples: Samples, workers: int, least: float) -> tuple[np.ndarray, np.ndarray]:
    """The codes of heavy keys, and in how many parts the rows of a grid divide each: int64[n] both.

    The load of a key is its new updates, and the pairs of these with all of the other side.
    """
    arrangements = [plan.arrangements[index] for index in joins.by_rows]
    new = {arrangement.index: samples.new(arrangement) for arrangement in arrangements}
    stored = {arrangement.index: samples.stored(arrangement) for arrangement in arrangements}
    codes = distinct(np.concatenate([codes for spreads in (new, stored) for codes, _ in spreads.values()]))
    codes = codes[codes < LAST]
    single = {arrangement.index for arrangement in arrangements if _is_unique(plan, arrangement.node, arrangement.key)}
    fresh, known = (
        {index: _counted(codes, spread, single=index in single) for index, spread in spreads.items()}
        for spreads in (new, stored)
    )
    loads = sum(fresh.values(), np.zeros(len(codes)))
    for left, right in joins.pairs:
        loads = loads + fresh[left] * (fresh[right] + known[right]) + fresh[right] * known[left]
    heavy = np.flatnonzero(loads > max(least, loads.sum() / workers * joins.least(workers)))
    new_rows, old_rows = (
        [sum((counts[index][heavy] for index in _side(joins, side)), np.zeros(len(heavy))) for side in (True, False)]
        for counts in (fresh, known)
    )
    choices = np.array([n for n in range(1, workers + 1) if workers % n == 0 and (n == workers or not joins.results)])
    costs = _costs(choices[:, None], workers, new_rows, old_rows)
    pays = costs.min(axis=0) < _PAYS * workers * loads[heavy]
    return codes[heavy][pays], choices[costs.argmin(axis=0)][pays]


def _side(joins: Joins, by_rows: bool) -> list[int]:
    return [index for index, side in joins.by_rows.items() if side == by_rows]


def _counted(codes: np.ndarray, spread: Spread, *, single: bool) -> np.ndarray:
    """The rows of each code: float64[n]. ``single``: no key has more than one."""
    positions = np.searchsorted(codes, spread[0])
    inside = positions < len(codes)  # without the last code
    rows: np.ndarray = np.bincount(positions[inside], spread[1][inside], minlength=len(codes))
    return np.minimum(rows, 1) if single else rows


def _costs(parts: np.ndarray, workers: int, new: list[np.ndarray], old: list[np.ndarray]) -> np.ndarray:
    """The work of all workers if keys are divided in so many rows of a grid, ``parts`` (choices, 1): updates with their
    copies, and as many pairs everywhere as in the largest cell. float64 (choices, n).
    """
    copies = workers // parts
    cell = [[_part(new[0], parts), _part(new[1], copies)], [_part(old[0], parts), _part(old[1], copies)]]
    pairs = cell[0][0] * (cell[0][1] + cell[1][1]) + cell[1][0] * cell[0][1]
    costs: np.ndarray = new[0] * copies + new[1] * parts + workers * pairs
    return costs


def _part(rows: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """The rows of the largest of some parts."""
    largest: np.ndarray = np.maximum(rows / parts, np.minimum(rows, 1))
    return largest


def _is_unique(plan: Plan, node: int, key: Sequence[str]) -> bool:
    """Whether a collection has about one row for each key, because a reduction by some of its columns made it, perhaps
    in the round of a loop before.
    """
    names, seen = {*key}, set[int]()
    while node not in seen:
        seen.add(node)
        operator, inputs = plan.nodes[node].operator, plan.nodes[node].inputs
        if isinstance(operator, Keyed):
            return operator.name in _FEW and names >= {*(operator.output_key or ())}
        if isinstance(operator, Variable):
            node = plan.loops[operator.loop].results[operator.number]
        elif isinstance(operator, Linear | Leave) and len(inputs) == 1:
            carried = operator.carried if isinstance(operator, Linear) else {name: name for name in names}
            names = {carried[name] for name in names if name in carried}
            (node,) = inputs
    return False
