"""The profile of a run: from what its workers counted to the record in the ledger, and the warnings about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ddcore.drawing.diagram import diagram
from ddcore.engine.profile import Cost, Heat
from ddcore.io.ledger.profiles import HeatRecord, LoopRecord, OperatorRecord, ProfileRecord
from ddcore.text.cells import printable

if TYPE_CHECKING:
    from ddcore.drawing.diagram import Box, Diagram
    from ddcore.engine.profile import Profile
    from ddcore.planning.plan import Plan

# An operator dominates with so many seconds of its own, and so much of the time of all.
DOMINANT_SECONDS, DOMINANT_SHARE = 10.0, 0.8
# A key dominates with so many updates of its own, and so much of those that its operator takes in.
DOMINANT_UPDATES, DOMINANT_KEY = 100_000, 0.5


def profile_record(plan: Plan, profile: Profile) -> ProfileRecord:
    """The record of what the operators of a plan did. O(operators)."""
    drawing = diagram(plan)
    costs: dict[Box, Cost] = {}
    for box, names in _members(drawing).items():
        costs[box] = _joined([profile.costs.get(name, Cost()) for name in names])
    return ProfileRecord(
        tuple(_operator(drawing, box, costs.get(box, Cost())) for box in drawing.boxes),
        tuple(
            LoopRecord(frame.scope, frame.parent, frame.name, frame.max_rounds, frame.returns, frame.prioritized)
            for frame in drawing.frames
        ),
        _heat(profile.heat),
        round(profile.compiling / 1e9, 6),
    )


def _members(drawing: Diagram) -> dict[Box, list[int | str]]:
    """The nodes of each box in their order, or the name of its output."""
    members: dict[Box, list[int | str]] = {box: [name] for name, box in drawing.by_output.items()}
    for node, box in sorted(drawing.by_node.items()):
        members.setdefault(box, []).append(node)
    return members


def _joined(costs: list[Cost]) -> Cost:
    """The cost of operators in a row: what the first takes in, what the last sends, and the rest of all."""
    whole = Cost()
    for cost in costs:
        whole.add(cost)
    whole.taken, whole.sent = costs[0].taken, costs[-1].sent
    return whole


def _operator(drawing: Diagram, box: Box, cost: Cost) -> OperatorRecord:
    key = max(cost.keys, key=cost.keys.__getitem__, default="")
    reads = drawing.reads(box)
    return OperatorRecord(
        box.number,
        box.kind,
        box.title,
        box.source_line,
        box.loop,
        tuple(sorted({edge.source.number for edge in reads if not edge.feedback})),
        tuple(sorted({edge.source.number for edge in reads if edge.feedback})),
        cost.taken,
        cost.sent,
        round(cost.nanoseconds / 1e9, 6),
        cost.memory,
        cost.rows_read,
        cost.bytes_read,
        cost.rows_written,
        cost.bytes_written,
        printable(key),
        cost.keys.get(key, 0),
    )


def _heat(heat: Heat) -> HeatRecord:
    cells = (
        (version << heat.versions, current if current < 0 else current << heat.rounds, number)
        for (version, current), number in sorted(heat.cells.items())
    )
    return HeatRecord(1 << heat.versions, 1 << heat.rounds, tuple(cells))


def merged(heats: Iterable[HeatRecord]) -> HeatRecord:
    """The differences of several runs, in ranges so wide that there are few."""
    whole = Heat()
    for heat in heats:
        versions, rounds = heat.versions.bit_length() - 1, heat.rounds.bit_length() - 1
        whole.add(Heat(versions, rounds, {(v >> versions, r >> rounds): number for v, r, number in heat.cells}))
    return _heat(whole)


def warnings(profile: ProfileRecord) -> Iterator[str]:
    """A sentence on each key, and on an operator, that dominates a run. Small runs have none."""
    for operator in profile.operators:
        if operator.key_rows >= DOMINANT_UPDATES and operator.key_rows >= DOMINANT_KEY * operator.taken:
            share, counts = 100 * operator.key_rows // operator.taken, f"{operator.key_rows:,} of {operator.taken:,}"
            yield f"one key has {share}% of the updates of {operator.named}: {operator.key}, {counts}"
    total = sum(operator.seconds for operator in profile.operators)
    slowest = max(profile.operators, key=lambda operator: operator.seconds, default=None)
    if slowest is not None and slowest.seconds >= max(DOMINANT_SECONDS, DOMINANT_SHARE * total):
        yield f"{slowest.named} took {slowest.seconds:.0f}s of {total:.0f}s; all operators: ddcore log --operators"
