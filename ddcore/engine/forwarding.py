"""The way of updates from one arrangement to the next: through linear operators and across the borders of loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ddcore.base.errors import ExpressionError
from ddcore.base.lattice import beyond
from ddcore.base.lazy import numpy as np
from ddcore.compiling.compilation import clock
from ddcore.engine.meter import Meter
from ddcore.engine.queues import waiting
from ddcore.engine.rounds import by_rounds
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.base import Linear
from ddcore.operators.borders import Variable
from ddcore.operators.delivery import Delivery
from ddcore.operators.priority import round_of
from ddcore.operators.tree import Spread
from ddcore.planning.plan import Loop, Plan, Target
from ddcore.traces.batch import Batch
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.consolidation import arrange


class Forwarding:
    """Says what arrives where. It changes nothing, so several threads may use one.

    ``upper`` (inputs, elements): updates at or beyond it are not completed. Nothing is sent to the arrangements in
    ``complete``. ``large``: the key codes of large groups, by the node that spreads their rows. What passes is
    counted by ``meter``.
    """

    def __init__(
        self,
        plan: Plan,
        upper: np.ndarray,
        complete: frozenset[int] = frozenset(),
        large: Mapping[int | None, np.ndarray] | None = None,
        meter: Meter | None = None,
        *,
        budget: Budget = ALONE,
    ) -> None:
        self._plan, self._upper, self._complete, self._meter = plan, upper, complete, meter or Meter(plan)
        self._budget = budget
        self.large: Mapping[int | None, np.ndarray] = large or {}

    def arrivals(self, node: int, batch: Batch) -> list[Delivery]:
        """What arrives at the arrangements. Not recursive: a program may have thousands of operators in a row."""
        waiting = [(node, batch)]
        arrived: list[Delivery] = []
        while waiting:
            node, batch = waiting.pop()
            if len(batch):
                targets = self._plan.targets[node]
                waiting += reversed([pair for target in targets for pair in self._pass(target, batch, arrived)])
        return arrived

    def _pass(self, target: Target, batch: Batch, arrived: list[Delivery]) -> Iterator[tuple[int, Batch]]:
        """The nodes that a target sends updates on to, with the updates there; what arrives is added to ``arrived``."""
        plan = self._plan
        if target.kind == "arrange":
            arrived += self.deliveries(plan.arrangements[target.index], batch)
        elif target.kind == "linear":
            user = plan.nodes[target.index]
            assert isinstance(user.operator, Linear)
            inner, start = self._enter(batch, plan.depths[target.index]), clock()
            result = self._apply(user.operator, inner, user.source_line)
            self._meter.linear(target.index, len(inner), len(result), max(0, clock() - start))
            yield target.index, result
        elif target.kind == "spread":
            if target.index in self.large:
                yield target.index, self.spread(target.index, batch, self.large[target.index])
        elif target.kind == "leave":
            yield target.index, self._leave(batch, plan.depths[target.index])
        else:
            loop = plan.loops[target.index]
            updates = self._enter(batch, loop.depth)
            if target.kind == "enter":
                updates = self._prioritize(loop, target.variable, updates)
                yield from self._feed_variable(loop, target.variable, updates, arrived)
                updates = updates.negated()
            yield from self._feed_variable(loop, target.variable, _next_round(updates), arrived)

    def _apply(self, operator: Linear, batch: Batch, source_line: str) -> Batch:
        """The updates of the result. A row on which the operator fails is no error where its updates cancel: then it
        is in the collection at no time.
        """
        try:
            return operator.apply(batch, source_line)
        except ExpressionError:
            codes = np.zeros(len(batch), np.int64)
            updates = arrange(codes, batch.words, batch.times, batch.diffs, batch.high, budget=self._budget)
            if len(updates) == len(batch):
                raise
            return operator.apply(
                Batch(list(updates.words), list(updates.times), updates.diffs, updates.high), source_line
            )

    def spread(self, node: int, batch: Batch, large: np.ndarray) -> Batch:
        """The updates of large groups, by key codes, int64[m] ascending, for the tree that begins at the node."""
        operator = self._plan.nodes[node].operator
        assert isinstance(operator, Spread)
        return operator.spread(self._enter(batch, self._plan.depths[node]), large)

    def _prioritize(self, loop: Loop, variable: int, batch: Batch) -> Batch:
        """Updates of a loop's source at the coordinates at which they enter."""
        node = self._plan.nodes[loop.variables[variable]]
        assert isinstance(node.operator, Variable)
        if node.operator.priority is None:
            return batch
        coordinates = node.operator.priority.coordinates(batch, node.source_line)
        return batch.at([*batch.times[:-1], coordinates])

    def _feed_variable(
        self, loop: Loop, variable: int, batch: Batch, arrived: list[Delivery]
    ) -> Iterator[tuple[int, Batch]]:
        """Updates of a loop's variable, for the body unless they are consolidated first.

        Updates past the last allowed round go to the border, which raises Diverged, before any operator of the body
        can drop them. A loop that returns at its limit drops them here.
        """
        border, past = self._plan.arrangements[loop.borders[variable]], _past(loop, batch)
        if loop.returns and past is not None:
            batch, past = batch.take(np.flatnonzero(~past)), None
        if loop.consolidates[variable]:
            self._meter.entered(loop.variables[variable], len(batch), 0)
            arrived += self.deliveries(border, batch)
            return
        if past is not None:
            arrived += self.deliveries(border, batch.take(np.flatnonzero(past)))
            batch = batch.take(np.flatnonzero(~past))
        self._meter.entered(loop.variables[variable], len(batch), len(batch))
        yield loop.variables[variable], batch

    def _enter(self, batch: Batch, depth: int) -> Batch:
        """Updates as seen inside of a loop: the added loop coordinates are 0."""
        missing = len(self._plan.dims) + depth - len(batch.times)
        if missing <= 0:
            return batch
        zeros = np.zeros(len(batch), dtype=np.int64)
        return batch.at(batch.times + [zeros] * missing)

    def _leave(self, batch: Batch, depth: int) -> Batch:
        """Updates as seen outside of a loop, without its coordinate: the differences of all rounds add up to the last
        round's collection.
        """
        inner = self._enter(batch, depth)
        return inner.at(inner.times[: len(self._plan.dims) + depth])

    def deliveries(self, arrangement: Arrangement, batch: Batch) -> Iterator[Delivery]:
        """Updates for an arrangement by round; those at or beyond the fold's upper apart."""
        if arrangement.index in self._complete or len(batch) == 0:
            return
        if self._upper.shape[1]:
            late = beyond(np.stack(batch.times[: len(self._plan.dims)]), self._upper)
            if late.any():
                yield Delivery(arrangement, None, arrangement.queued(batch.take(np.flatnonzero(late))))
                batch = batch.take(np.flatnonzero(~late))
        for rounds, part in by_rounds(batch, len(self._plan.dims)):
            yield Delivery(arrangement, rounds, waiting(arrangement, part, self._budget))


def _past(loop: Loop, batch: Batch) -> np.ndarray | None:
    """Which updates are past the last allowed round: bool[n]; None where none is."""
    coordinates = batch.times[-1]
    if len(batch) == 0 or coordinates.max() < loop.max_rounds:  # with a priority a coordinate is more than its round
        return None
    past: np.ndarray = round_of(coordinates) >= loop.max_rounds
    return past if past.any() else None


def _next_round(batch: Batch) -> Batch:
    return batch.at([*batch.times[:-1], batch.times[-1] + 1])
