"""What each worker of a fold by several does: it owns a range of the key codes of every arrangement.

Each reads a part of the inputs and sends the updates to their owners. Then all go on in *supersteps*: a worker does
its work before the horizon (:mod:`~ddcore.jobs.engines.routes`), and exchanges one message with each other worker: the
updates that the other owns, and the least position at which it knows of work. So all know the least position anywhere,
and the next horizon. Nothing is written before the end, where each worker writes what its range has gained; few rows go
to one worker that writes those of all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import chain
from typing import Any

from ddcore.base.errors import DdError
from ddcore.base.lazy import numpy as np
from ddcore.base.memory import reused_memory
from ddcore.engine.worker import Worker
from ddcore.io.logs.inputs import input_log
from ddcore.io.state.state import Gain, open_rebuild, open_worker, replay, spans_of, write_result
from ddcore.jobs.engines.consolidating import Consolidating
from ddcore.jobs.engines.messages import FEW_JOINED, PART, Encoded, Message, decoded, divided, encoded, grouped
from ddcore.jobs.engines.peers import Header, Part, PeerLost, Peers
from ddcore.jobs.engines.protocol import Report, SharedFold
from ddcore.jobs.failures import fold_errors
from ddcore.operators.arrangement import Arrangement
from ddcore.operators.block import Position
from ddcore.operators.delivery import Delivery
from ddcore.traces.batch import Batch
from ddcore.traces.budget import Budget
from ddcore.traces.columns import Columns
from ddcore.traces.consolidation import arrange_all, union
from ddcore.traces.frames import batch_of
from ddcore.traces.sorted_batch import SortedBatch

_STARTING = 120.0  # seconds in which Spark must have started all workers: after so many it gives up an executor, too

_LEAST = 1 << 10  # updates in a part, however little memory is set and however many workers there are

_FEW_STORED = 1 << 10  # rows of a worker that another one stores with its own

_DECODED, _PART = 1 << 18, 1 << 10  # bytes of parts that are decoded together, and those that count for a header

_EVERYWHERE: Position = (-1,)  # before all positions


class Member:
    """A worker among others."""

    def __init__(self, shared: SharedFold, number: int, peers: Future[Peers], budget: Budget) -> None:
        self.shared, self.fold_, self.number, self.budget = shared, shared.fold, number, budget
        self._peers, self.plan = peers, shared.fold.plan
        self.supersteps = 0
        self.at: Position = ()  # of the step that is done
        self._consolidating = Consolidating(budget)
        self.worker: Worker

    @property
    def peers(self) -> Peers:
        """The connections, as soon as they are there. Raises Unreachable; PeerLost where a worker never came."""
        try:
            return self._peers.result(_STARTING)
        except TimeoutError:
            raise PeerLost(f"some workers have not started within {_STARTING:.0f} s") from None

    def fold(self) -> Report:
        """Read, work, write. An error of the fold is told to the others before it is reported."""
        with reused_memory() if self._is_large else nullcontext():
            return self._fold()

    @property
    def _is_large(self) -> bool:
        """Whether this worker's share of the window is large, and its memory is not limited."""
        rows = sum(split.rows for split in self.shared.splits[self.number])
        return not self.budget.memory.is_limited and rows >= self.budget.tuning.large_fold

    def _fold(self) -> Report:
        begun = time.perf_counter()
        try:
            with fold_errors():
                self._read()
            position = self._exchange()
            if position is not None:
                with self.worker.ready(self._least_versions()):
                    while position is not None:
                        with fold_errors():
                            self._superstep(position)
                        position = self._exchange()
            gains = self._gathered()
            with fold_errors():
                gained = write_result(self.plan, self.worker, self.fold_.stored, str(self.number), gains=gains)
            self._talk({}, {})  # nobody leaves before all have written: one that hangs is missed
            gained.took = time.perf_counter() - begun
            gained.worked = gained.took - self.peers.seconds
            return self._report(gained=gained)
        except DdError as error:
            self._fail()
            return self._report(error=error, position=self.at)
        except _OtherFailing:
            self._fail()
            return self._report()
        except _OtherFailed:
            self._leave()
            return self._report()

    def _fail(self) -> None:
        """Tell the others, and leave."""
        self.peers.exchange({"failed": True})
        self._leave()

    def _leave(self) -> None:
        """Not before all have read what this worker sent (see :meth:`Peers.close`), or some are gone."""
        with suppress(PeerLost):
            self.peers.exchange({})

    def _report(self, **what: Any) -> Report:
        handled = self.worker.handled if hasattr(self, "worker") else 0
        return Report(self.number, supersteps=self.supersteps, handled=handled, sent=self.peers.sent, **what)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """This worker's part of the stored state, and its share of the window."""
        fold, shared, all_of_them = self.fold_, self.shared, frozenset(a.index for a in self.plan.arrangements)
        spans = spans_of(self.plan, shared.division.boundaries, self.number)
        if fold.rebuilding is not None:
            self.worker = open_rebuild(self.plan, fold.stored, fold.rebuilding, self.budget)
            self.worker.state.divide(all_of_them, _EVERYWHERE)
            replay(self.worker, fold.stored, fold.rebuilding, spans)
        else:
            parts = shared.division.stored_parts(self.number)
            self.worker = open_worker(self.plan, fold.stored, spans, self.budget, parts=parts)
            self.worker.state.divide(all_of_them, _EVERYWHERE)
            self.worker.begin(fold.upper)
        self.worker.state.copied = shared.division.copied
        if self.number == 0:
            if fold.begin is not None:
                self.worker.feed_constants(fold.begin)
            self.worker.feed_instants(fold.instants)
        for name, batch in self.worker.meter.reading(self._updates()):
            if self._peers.done():
                self._peers.result()  # raises Unreachable now, not after hours of reading
            self.worker.feed(name, batch)

    def _updates(self) -> Iterator[tuple[str, Batch]]:
        """The updates in this worker's splits."""
        dims, window = self.plan.dims, self.fold_.window.condition(self.plan.dims)
        for split in self.shared.splits[self.number]:
            schema = self.plan.inputs[split.input]
            read = [column for column in schema if column in self.plan.read[split.input]]
            log = input_log(self.fold_.stored.warehouse, self.fold_.settings, split.input, schema)
            rows = log.scan_files([split.file], within=(split.start, split.start + split.rows))
            frame = log.collect(rows.filter(window).select(*read, *dims, "diff"))
            yield split.input, batch_of(frame, schema, dims, split.input, read)

    # -- supersteps ----------------------------------------------------------------------------------------------------

    def _superstep(self, position: Position) -> None:
        """All work before the horizon; what others own from there on is left in ``leaving``."""
        worker, routing = self.worker, self.shared.routing
        self.supersteps += 1
        horizon = routing.horizon(position)
        away = frozenset[int]() if horizon is None else frozenset(range(len(self.plan.arrangements))) - routing.home
        worker.state.divide(away, horizon or ())
        while (at := worker.agenda.next_position) is not None and (horizon is None or at < horizon):
            self.at = at
            worker.step()

    def _exchange(self) -> Position | None:
        """Send what others own and take what they send; return the least position with work anywhere, None: none.

        In several rounds where there is much to send, so that no more than a part of it is divided at a time.
        """
        least: list[Position] = []
        while True:
            with fold_errors():
                outgoing = self._divided()
                parts = _parts(outgoing, self._most)
            positions = [self._position(message) for messages in outgoing.values() for message in messages]
            if (first := self.worker.agenda.next_position) is not None:
                positions.append(first)
            note = {"position": min(positions, default=None), "more": bool(self.worker.state.leaving)}
            notes = self._talk(note, parts)
            least += [tuple(header["position"]) for header in notes if header["position"] is not None]
            if not any(header["more"] for header in notes):
                return min(least, default=None)

    @property
    def _most(self) -> int:
        """The updates in a part: one of each other worker may be on its way here at once."""
        return min(self.budget.tuning.message_rows, max(_LEAST, self.budget.memory.rows // self.shared.parallelism))

    def _divided(self) -> dict[int, list[Message]]:
        """Some of the updates that may belong to others, by owner. Those of this worker are queued."""
        outgoing: dict[int, list[Message]] = {}
        enough = self.shared.parallelism * min(PART, self.budget.tuning.message_rows)
        for message in map(self._consolidating.of, grouped(self._some(), enough)):
            for owner, part in divided(message, self.shared.division):
                if owner == self.number:
                    self._queue(part)
                else:
                    outgoing.setdefault(owner, []).append(part)
        return outgoing

    def _some(self) -> Iterator[Delivery]:
        leaving, room = self.worker.state.leaving, min(self.budget.tuning.divided_rows, self.budget.memory.rows)
        while leaving and room > 0:
            delivery = leaving.pop()
            updates, copies = delivery.updates, self._copies(delivery.arrangement)
            if len(updates) * copies > room:
                some = max(1, room // copies)
                leaving.append(replace(delivery, updates=updates.part(some, len(updates))))
                delivery = replace(delivery, updates=updates.part(0, some))
            room -= len(delivery.updates) * copies
            yield delivery

    def _copies(self, arrangement: Arrangement) -> int:
        """To how many workers an update may go; of heavy keys, which few updates have, where memory is limited."""
        is_heavy = self.budget.memory.is_limited and arrangement.index in self.shared.division.shares
        return self.shared.parallelism if is_heavy or arrangement.ends is not None else 1

    def _queue(self, message: Message) -> None:
        block, rounds = self.shared.routing.landing(message.arrangement.index, message.rounds)
        self.worker.agenda.queue(message.arrangement, rounds, message.updates, block)

    def _position(self, message: Message) -> Position:
        block, rounds = self.shared.routing.landing(message.arrangement.index, message.rounds)
        return block.position(rounds)

    def _talk(
        self, note: Header, parts: Mapping[int, Iterator[Part]], arrive: Callable[[Message], None] | None = None
    ) -> list[Header]:
        """One exchange with the others. What they send is queued, or given to ``arrive``.

        Raises what went wrong with what is sent or arrives, which ends no exchange halfway; _OtherFailed if another
        worker has told all of its error, _OtherFailing if it will with the next one.
        """
        errors, arrived, size = list[DdError](), list[Encoded](), 0

        def take() -> None:
            if not errors:
                try:
                    with fold_errors():
                        for message in decoded(self.plan, arrived):
                            (arrive or self._queue)(message)
                except DdError as error:
                    errors.append(error)
            arrived.clear()

        def accept(header: Header, body: bytearray) -> None:
            nonlocal size
            arrived.append((header, body))
            size += _PART + len(body)
            if size >= _DECODED:
                take()
                size = 0

        notes = self.peers.exchange(note, parts, accept)
        take()
        if any(header.get("failed") for header in notes):
            raise _OtherFailed
        if any(header.get("failing") for header in notes):
            raise _OtherFailing
        if errors:
            raise errors[0]
        return notes

    def _least_versions(self) -> np.ndarray:
        """The meet of the versions of the queued work of all workers."""
        own = self.worker.agenda.least_versions().tolist() if self.worker.agenda.next_position is not None else None
        notes = self._talk({"versions": own}, {})
        versions = [note["versions"] for note in notes if note["versions"] is not None]
        least: np.ndarray = np.array(versions, dtype=np.int64).min(axis=0)
        return least

    # -- writing -------------------------------------------------------------------------------------------------------

    def _gathered(self) -> list[Gain]:
        """What this worker stores. Of an arrangement of which several have few rows one stores those of all, because a
        file costs more to write, and to open later, than its rows do.
        """
        outgoing, left, arrived = dict[int, list[Message]](), dict[int, SortedBatch](), dict[int, list[Columns]]()
        with fold_errors():
            for arrangement, run in self._gains():
                writer = self.shared.division.writer(arrangement.index)
                if writer == self.number or len(run) > _FEW_STORED:
                    left[arrangement.index] = run
                else:
                    queued = arrangement.queued(arrangement.batch_of(run))
                    outgoing.setdefault(writer, []).append(Message(arrangement, (), queued))
            parts = _parts(outgoing, self._most)

        def arrive(message: Message) -> None:
            arrived.setdefault(message.arrangement.index, []).append(message.updates)

        self._talk({}, parts, arrive)
        with fold_errors():
            for index, pieces in arrived.items():
                arrangement = self.plan.arrangements[index]
                run = arrange_all(pieces, arrangement.width, arrangement.hashed, budget=self.budget)
                if index in left:
                    run = union([left[index].columns(), run.columns()], run.width, self.budget)
                left[index] = run
        return [(self.plan.arrangements[index], run) for index, run in sorted(left.items())]

    def _gains(self) -> Iterator[Gain]:
        """What the arrangements have gained here, without copies of what others store."""
        for arrangement, updates in self.worker.new_updates():
            run = self.shared.division.own(self.number, arrangement, updates)
            if len(run):
                yield arrangement, run


def _parts(outgoing: Mapping[int, Sequence[Message]], most: int) -> dict[int, Iterator[Part]]:
    """Messages by owner as parts of at most so many updates: those of few encoded together, now, and those of many one
    after the other, as they are sent.
    """
    few = min(most, FEW_JOINED)
    small = [(owner, message) for owner, messages in outgoing.items() for message in messages if len(message) <= few]
    ready: dict[int, list[Part]] = {owner: [] for owner in outgoing}
    for (owner, _), part in zip(small, encoded([message for _, message in small]), strict=True):
        ready[owner].append(part)
    large = {owner: [message for message in messages if len(message) > few] for owner, messages in outgoing.items()}
    return {owner: chain(ready[owner], _encoded(large[owner], most)) for owner in outgoing}


def _encoded(messages: Iterable[Message], most: int) -> Iterator[Part]:
    for message in messages:
        for start in range(0, len(message), most):
            with fold_errors():
                some = message.updates.part(start, min(start + most, len(message)))
                (part,) = encoded([Message(message.arrangement, message.rounds, some)])
            yield part


class _OtherFailed(Exception):
    """Another worker has told all of its error."""


class _OtherFailing(Exception):
    """Another worker had an error in the middle of an exchange, and not all know of it."""
