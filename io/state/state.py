"""The state of a plan as tables: opens a worker over stored runs, and writes what it gained.

Maps arrangements, pending times and output logs to files; commits nothing. Used by the driver and by tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns

from ddcore.engine.pending import joined
from ddcore.engine.profile import Cost
from ddcore.engine.worker import Worker
from ddcore.io.delta.new_files import Unsynced
from ddcore.io.delta.table_files import AddedFile
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.logs.updates import accumulate_counts, merge_counts
from ddcore.io.project.times import Time
from ddcore.io.state import arrangements
from ddcore.io.state.arrangements import Part, Span
from ddcore.io.state.fold_result import FoldResult, Stored
from ddcore.io.state.hot import Hot
from ddcore.io.state.layout import Layout, held_table, layout_of, pending_table
from ddcore.operators.arrangement import Arrangement
from ddcore.planning.plan import Plan
from ddcore.planning.rebuilding import Rebuilding
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.budget import ALONE, Budget
from ddcore.traces.frames import output_frame
from ddcore.traces.sorted_batch import SortedBatch

Spans = Mapping[int, Span]
Heavy = tuple[int, int, int]
"""A code, of which a worker has a part of the rows: the number of the part, of how many."""
Parts = Mapping[int, Sequence[Heavy]]
"""By arrangement index, codes ascending."""
Gain = tuple[Arrangement, SortedBatch]
"""Updates of an arrangement that are to be stored."""


def open_worker(
    plan: Plan, stored: Stored, spans: Spans | None = None, budget: Budget = ALONE, *, hot: Hot | None = None,
    parts: Parts | None = None,
) -> Worker:  # fmt: skip
    """A worker over the live runs; with ``spans`` (by arrangement index), over the codes in them only, of those in
    ``parts`` over these, and over all intervals without keys. ``hot``: what is in memory of them, with all codes.

    Files are opened, and rows read, when they are needed: steps raise StorageError for files that are missing or
    damaged.
    """
    runs = {
        arrangement.index: partial(
            _open,
            stored,
            table,
            layout_of(arrangement),
            _span(None if arrangement.ends else spans, arrangement.index),
            budget,
            parts=(parts or {}).get(arrangement.index, ()),
        )
        for arrangement in plan.arrangements
        if not arrangement.transient and (table := f"state/{arrangement.fingerprint}") in stored.files
    }
    left = _waiting(plan, stored, spans, budget)
    worker = Worker(plan, runs, *left, budget=budget, groups=stored.groups.copy())
    if hot is not None:
        for index in runs:
            hot.recall(stored, f"state/{plan.arrangements[index].fingerprint}", worker.state.traces[index])
    return worker


def open_rebuild(plan: Plan, stored: Stored, part: Rebuilding, budget: Budget = ALONE) -> Worker:
    """A worker over nothing, for the fold of a part of a plan over whole history."""
    worker = Worker(plan, budget=budget, groups=stored.groups.copy())
    worker.rebuild(part)
    worker.begin()
    return worker


def replay(worker: Worker, stored: Stored, part: Rebuilding, spans: Spans | None = None) -> None:
    """Give a rebuild the whole history of the stored arrangements that it reads; with ``spans``, the codes in them."""
    for index in sorted(part.replayed):
        arrangement = worker.plan.arrangements[index]
        for run in _load_all(
            stored, f"state/{arrangement.fingerprint}", layout_of(arrangement), _span(spans, index), worker.budget
        ):
            worker.replay(arrangement, arrangement.batch_of(run))


def _waiting(
    plan: Plan, stored: Stored, spans: Spans | None, budget: Budget
) -> tuple[dict[int, SortedBatch], dict[int, Batch]]:
    """The pending times of earlier runs by block index, and their held updates by arrangement index.

    With ``spans``, those with codes in them only. Raises StorageError for files that are missing or damaged.
    """
    pending: dict[int, SortedBatch] = {}
    held: dict[int, Batch] = {}
    for arrangement in plan.arrangements:
        loaded = _load_all(stored, *held_table(arrangement), _span(spans, arrangement.index), budget)
        if loaded:
            held[arrangement.index] = concatenate([arrangement.keyed.batch_of(run) for run in loaded])
    for block in plan.blocks:
        if block.output is not None:
            times = _load_all(stored, *pending_table(plan, block), _span(spans, block.ports[0]), budget)
            if times:
                pending[block.index] = joined(times, budget)
    return pending, held


def _span(spans: Spans | None, arrangement: int) -> Span:
    return (spans or {}).get(arrangement, (None, None))


def _load_all(stored: Stored, table: str, layout: Layout, span: Span, budget: Budget) -> list[SortedBatch]:
    runs = _open(stored, table, layout, span, budget)
    for run in runs:
        run.decompress()
    return runs


def _open(
    stored: Stored, table: str, layout: Layout, span: Span, budget: Budget, *, parts: Sequence[Heavy] = ()
) -> list[SortedBatch]:
    folder, files = stored.warehouse.table(table), stored.files.get(table, ())
    return [
        run
        for some, part in (_pieces(span, parts) if files else ())
        for run in arrangements.open_runs(folder, files, layout, some, budget, part=part)
    ]


def _pieces(span: Span, parts: Sequence[Heavy]) -> Iterator[tuple[Span, Part]]:
    """The codes in a span but those of ``parts``, and the parts of these."""
    lo, hi = span
    for code, number, several in parts:
        yield (code, code + 1), (number, several)
        if (lo is None or lo <= code) and (hi is None or code < hi):
            yield (lo, code), arrangements.WHOLE
            lo = code + 1
    yield (lo, hi), arrangements.WHOLE


def write_result(
    plan: Plan, worker: Worker, stored: Stored, part: str, *, merges: bool = False, hot: Hot | None = None,
    gains: Iterable[Gain] | None = None,
) -> FoldResult:  # fmt: skip
    """Write what a finished fold added: one file per table that gained rows, named after the run and ``part``.

    No reader sees the files before they are committed. ``merges``: the worker has all codes and goes on from what is
    stored, so a table's small files are taken up into the new one where they have become several. ``hot`` keeps what is
    in memory of state. ``gains``: what it writes of the arrangements, if that is not what its worker has gained.
    """
    with Unsynced() as unsynced:
        gains = worker.new_updates() if gains is None else gains
        gained = _write_gains(plan, worker, stored, part, unsynced, gains=gains, merges=merges)
    if hot is not None:
        for arrangement in plan.arrangements:
            if not arrangement.transient:
                hot.keep(stored, f"state/{arrangement.fingerprint}", worker.state.traces[arrangement.index], gained)
        hot.evict(worker.budget)
    return gained


def _write_gains(
    plan: Plan, worker: Worker, stored: Stored, part: str, unsynced: Unsynced, *, gains: Iterable[Gain], merges: bool
) -> FoldResult:
    state = worker.state
    gained = FoldResult(rounds=state.rounds, groups=state.groups)
    owner = worker.meter.owner
    files, name_of = _Files(stored, unsynced, worker.budget), f"{arrangements.ADVANCED}-{part}"
    logs, part = part, name_of if worker.is_advanced else part
    for arrangement, run in gains:
        table = f"state/{arrangement.fingerprint}", layout_of(arrangement)
        merged = gained.merged if merges else None
        gained.files |= _measured(owner(arrangement), partial(files.of_run, table, run, part, merged))
    for index, run in state.pending.items():
        block = plan.blocks[index]
        table, cost = pending_table(plan, block), owner(plan.arrangements[block.ports[0]])
        gained.files |= _measured(cost, partial(files.of_run, table, run, part))
    for index, batch in state.held.items():
        arrangement = plan.arrangements[index]
        run = state.keyed(arrangement, batch)
        state.require_int64(arrangement.keyed, run)
        table = held_table(arrangement)
        gained.files |= _measured(owner(arrangement), partial(files.of_run, table, run, part))
    for name in plan.outputs:
        log = ChangeLog(stored.warehouse.output(name), plan.outputs[name], plan.dims, tuning=worker.budget.tuning)
        stem = f"run-{stored.run:06d}-{logs}"
        write = partial(files.of_output, log, state.outputs[name], stem, gained.outputs)
        gained.files |= _measured(worker.meter.profile.of(name), write)
        state.outputs[name] = []
    gained.profile = worker.meter.take(state.traces)
    return gained


def _measured(cost: Cost, write: Callable[[], dict[str, list[AddedFile]]]) -> dict[str, list[AddedFile]]:
    """The files that ``write`` writes; their rows, their bytes and the time are of this operator or output."""
    start = perf_counter_ns()
    files = write()
    cost.nanoseconds += perf_counter_ns() - start
    for file in (file for several in files.values() for file in several):
        cost.rows_written += file.rows
        cost.bytes_written += file.size
    return files


@dataclass(frozen=True)
class _Files:
    """Writes files of a fold, which are synced together."""

    stored: Stored
    unsynced: Unsynced
    budget: Budget

    def of_run(
        self,
        name_and_layout: tuple[str, Layout],
        run: SortedBatch,
        part: str,
        merged: dict[str, list[str]] | None = None,
    ) -> dict[str, list[AddedFile]]:
        """A run; with the small files that are taken up into it, which are noted in ``merged``."""
        stored, (table, layout), budget = self.stored, name_and_layout, self.budget
        folder, present = stored.warehouse.table(table), stored.files.get(table, ())
        small = [] if merged is None else arrangements.small_files(folder, present, run, budget.tuning)
        if merged is not None and small:
            merged[table] = [file.path for file in small]
            run = arrangements.merged_with(folder, small, run, layout, budget)
        file = arrangements.write_run(folder, stored.run, part, run, layout, unsynced=self.unsynced, budget=budget)
        return {table: [file]}

    def of_output(
        self, log: ChangeLog, updates: list[Batch], stem: str, counted: dict[str, dict[Time, tuple[int, int]]]
    ) -> dict[str, list[AddedFile]]:
        """The updates that an output gained; their counts are added to ``counted``."""
        if not any(map(len, updates)):
            counted[log.folder.name] = {}
            return {}
        counts, files, name = [], list[AddedFile](), log.folder.name
        for number, batches in enumerate(self._portions(updates)):
            frame = output_frame(batches, log.schema, log.dims, self.budget)
            counts.append(accumulate_counts(frame, log.dims))
            if len(frame):
                files.append(log.write(stem + (f"-{number}" if number else ""), frame, self.unsynced))
        counted[name] = counts[0] if len(counts) == 1 else merge_counts(counts)
        return {f"outputs/{name}": files} if files else {}

    def _portions(self, batches: list[Batch]) -> Iterator[list[Batch]]:
        """All updates of an output; where memory is limited in portions, of which each becomes a file."""
        rows = self.budget.memory.rows
        if sum(map(len, batches)) <= rows:
            yield batches
            return
        for batch in batches:
            for start in range(0, len(batch), rows):
                yield [batch.take(slice(start, start + rows))]


def spans_of(plan: Plan, boundaries: Mapping[int, Sequence[int]], partition: int) -> Spans:
    """The codes that worker ``partition`` owns of each arrangement: [lo, hi), None for no bound."""
    spans = {}
    for arrangement in plan.arrangements:
        bounds = [None, *boundaries[arrangement.index], None]
        spans[arrangement.index] = (bounds[partition], bounds[partition + 1])
    return spans
