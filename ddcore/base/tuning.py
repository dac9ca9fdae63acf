"""Tuning: the sizes and thresholds that choose between ways of doing the same, and how long is waited, in one object.

No result depends on them, only time and memory: every value gives the same rows (tests run with the least of each).
Sizes that are part of a format are elsewhere, beside what reads and writes it. Must not import anything heavy: the
command line loads this at start-up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple


class Setting(NamedTuple):
    """A row of the table in docs/tuning.md: what ``Tuning`` has of one name."""

    name: str
    default: float
    least: float
    unit: str
    meaning: str


def _setting(default: float, unit: str, meaning: str, *, least: float = 1) -> Any:
    return field(default=default, metadata={"least": least, "unit": unit, "meaning": meaning})


@dataclass(frozen=True, repr=False)
class Tuning:
    """The sizes and thresholds of a session or of a project's commands. :meth:`settings` says what each is for."""

    few_rows: int = _setting(
        1 << 12, "updates", "fewer are consolidated, and batches of fewer merged, by kernels made for few", least=0
    )
    packed_rows: int = _setting(
        1 << 12,
        "updates",
        "a sorted batch of so many is kept packed, one integer for each; look-ups in it cost a start",
    )
    packing_rows: int = _setting(1 << 16, "updates", "that one thread packs, sorts or unpacks")
    column_rows: int = _setting(
        1 << 15, "values", "from so many on, columns that wait are compressed by several threads"
    )
    waiting_rows: int = _setting(
        1 << 14, "updates", "from so many on, those that wait before an arrangement are compressed"
    )
    waiting_rows_limited: int = _setting(1 << 10, "updates", "the same where memory is set")
    indexed_rows: int = _setting(1 << 18, "rows", "of a batch, of which one thread makes the index")
    unindexed_rows: int = _setting(1 << 8, "rows", "a batch of at most so many is searched without an index", least=0)
    merged_rows: int = _setting(
        1 << 9, "rows", "of two batches of a trace, which are merged whatever their sizes", least=0
    )
    original_rows: int = _setting(1 << 12, "rows", "from so many on, a trace keeps a batch of a fold by itself")
    recent_rows: int = _setting(1 << 14, "rows", "of a trace's other batches, which then become one")
    long_history: int = _setting(16, "rows", "of a key, from which on its history is added up as it is read")
    short_history: int = _setting(
        64,
        "rows",
        "of a key, at most, whose aggregates one pass computes, or its output alone where it suffices",
        least=0,
    )
    part_rows: int = _setting(1 << 12, "rows", "or keys, of which a step gives at least so many to one thread")
    forwarded_rows: int = _setting(1 << 17, "updates", "that one thread carries through linear operators")
    large_fold: int = _setting(1 << 16, "updates", "from so many on, a fold keeps memory that it freed", least=0)
    reduced_keys: int = _setting(
        1 << 16, "keys", "of a reduction that one thread evaluates: their columns fit into a cache"
    )
    large_group: int = _setting(
        1 << 14, "rows", "distinct ones of a group, from which on it gets a tree of partial results"
    )
    joined_keys: int = _setting(1 << 14, "keys", "that one thread joins")
    joined_rows: int = _setting(1 << 16, "rows", "of a packed batch that one thread joins")
    joined_pairs: int = _setting(1 << 19, "pairs", "of rows that a join makes at once")
    partner_ratio: int = _setting(
        8, "times", "as many new rows as others of a join, from which on only those with partners are unpacked", least=0
    )
    swept_updates: int = _setting(
        16, "updates", "of a key on both sides of a join, from which on sweeping its versions is considered", least=0
    )
    looked_up_segments: int = _setting(1 << 14, "segments", "of intervals that one thread of a join between looks up")
    near_ratio: int = _setting(
        4, "times", "as many intervals as new rows, from which on those that hold no row are left out", least=0
    )
    searched_rows: int = _setting(
        512, "rows", "of a key or group, from which on its rows near a change are found by a search in their order"
    )
    near_rows: int = _setting(64, "rows", "of a group on either side of its changes that are read first")
    cut_ratio: int = _setting(
        4, "times", "rows of a part of `ntile` as are read beside its end, from which on that is searched",
        least=0,
    )  # fmt: skip
    near_intervals: int = _setting(8, "intervals", "before a value that are read first, where they never overlap")
    later_rows: int = _setting(
        256, "rows", "behind the changes of a group that are read to find where its results stay"
    )
    later_ratio: int = _setting(64, "times", "as many are read where they go on there, before all are")
    rule_rows: int = _setting(1 << 17, "updates", "of one input of a delta join that are matched at once")
    explaining_folds: int = _setting(
        24, "folds", "of `explain`, at most, until no join finds a new key: then it reads all"
    )
    explaining_keys: int = _setting(1 << 16, "keys", "of one join, more than which `explain` does not look up")
    explaining_rows: int = _setting(
        1 << 18, "rows", "of inputs in such folds, beyond which a fold of everything may cost less"
    )
    resting_share: float = _setting(
        0.5, "of the memory", "that is set: beyond, arrays that come to rest go to files", least=0
    )
    hot_share: float = _setting(
        0.25,
        "of the memory",
        "that is set: so much of stored state a follower keeps from one fold to the next",
        least=0,
    )
    hot_bytes: int = _setting(1 << 30, "bytes", "of stored state that it keeps where no memory is set", least=0)
    row_bytes: int = _setting(1024, "bytes", "of the memory that is set, for each row that is worked on at once")
    least_rows: int = _setting(1 << 14, "rows", "that are worked on at once, however little memory is set")
    spilled_bytes: int = _setting(1 << 15, "bytes", "of arrays from which on they are worth a place in a file")
    table_bytes: int = _setting(1 << 24, "bytes", "of a table from which on it is filled in a file")
    copied_bytes: int = _setting(1 << 22, "bytes", "that are moved at once inside of such a file", least=8)
    run_group_rows: int = _setting(1 << 20, "updates", "of state, at most, in a row group of a file")
    small_file_rows: int = _setting(1024, "updates", "a file of state with at most so many is read whole", least=0)
    small_files: int = _setting(4, "files", "of state that are small, from which on a small run takes them up", least=2)
    whole_share: float = _setting(
        0.5, "of the rows", "of a file of state that were looked up in a fold: then all are read", least=0
    )
    read_rows: int = _setting(1 << 18, "updates", "of a file of state that are read at once where memory is set")
    file_rows: int = _setting(2 << 20, "updates", "an ingest writes a file of its log when it has so many")
    restated_rows: int = _setting(4 << 20, "updates", "the same of a restatement, which rewrites what stays of files")
    snapshot_rows: int = _setting(2 << 20, "rows", "snapshots in a row that are compared at once")
    repeating_rows: int = _setting(
        4 << 20, "updates", "of a log, up to which an ingest looks there for rows that repeat", least=0
    )
    repeating_ratio: int = _setting(
        16, "times", "as many updates as a source has rows: it looks into a log of so many, too", least=0
    )
    repeating_sample: int = _setting(1 << 16, "rows", "of a source, of more it looks for a sample")
    paired_rows: int = _setting(
        1 << 16, "rows", "from so many on, rows that two snapshots share are found by their order first",
        least=0,
    )  # fmt: skip
    paired_events: int = _setting(
        1 << 12, "events", "from so many on, an upsert leaves events that change nothing out, before it sorts", least=0
    )
    parallel_rows: int = _setting(
        20_000_000, "rows", "of a window like none before, from which on Spark folds it in several workers"
    )
    worker_rows: int = _setting(
        1_500_000, "rows", "of the window that are worth one of several workers, where their number is set", least=0
    )
    owner_rows: int = _setting(
        1 << 20, "rows", "that reach an arrangement, for each of several workers that owns some of it"
    )
    worker_seconds: float = _setting(
        1.0, "seconds", "of work that are worth one, where an earlier run was like this one", least=0.001
    )
    worker_start_seconds: float = _setting(
        4.0, "seconds", "until further workers are there, beside the first, as long as none was measured", least=0
    )
    heavy_load: int = _setting(
        1 << 16,
        "updates",
        "and pairs of a key of a join, at least, where several workers divide it",
        least=0,
    )
    fed_rows: int = _setting(1 << 19, "updates", "of an input that are read at once, also by a task of Spark")
    divided_rows: int = _setting(1 << 22, "updates", "that one of several workers divides among the others at once")
    sent_rows: int = _setting(
        1 << 12, "updates", "of a message, from which on it is considered to consolidate them before they go", least=0
    )
    sent_share: float = _setting(
        0.25, "of the updates", "of a message that must go for its consolidation to pay", least=0
    )
    sampled_rows: int = _setting(100_000, "rows", "of an input, by which workers divide its keys", least=61)
    message_rows: int = _setting(1 << 18, "updates", "in one part of a message between workers")
    sent_again_rows: int = _setting(
        1 << 18, "updates", "of an arrangement, after which a few are looked at again for what would go", least=0
    )
    beat_seconds: float = _setting(1.0, "seconds", "between the signs of life of a worker that computes", least=0.05)
    silent_seconds: float = _setting(
        20.0, "seconds", "without a byte of a worker that is waited for, after which the fold begins again", least=10
    )
    meeting_seconds: float = _setting(
        60.0, "seconds", "in which all workers must have found each other, once all have started", least=30
    )
    reaching_seconds: float = _setting(
        10.0, "seconds", "until a machine takes a connection: its system does, however busy the worker there", least=5
    )
    greeting_seconds: float = _setting(
        10.0, "seconds", "that one connection to a worker may take to prove who it is", least=1
    )
    strangers: int = _setting(
        32, "connections", "to a worker at once that have not proved it, beside those of the others"
    )
    hook_seconds: float = _setting(60.0, "seconds", "that the hook of a project may take", least=30)
    report_seconds: float = _setting(0.5, "seconds", "between two reports of how far a fold is", least=0)
    published_rows: int = _setting(
        1 << 17, "rows", "of a file of a published table, all of which are written again where one changes"
    )
    shared_rows: int = _setting(
        1 << 24, "rows", "that a publication reads or writes, from which on tasks of Spark do it"
    )
    task_rows: int = _setting(1 << 21, "rows", "of a published table, and changes to it, for one of these tasks")
    group_rows: int = _setting(
        1 << 17, "updates", "row group of a log's file that is sorted: a condition reads few of them"
    )
    piece_rows: int = _setting(1 << 20, "rows", "`show` and `diff` sort so many in memory, more in temporary files")
    sample_rows: int = _setting(1 << 16, "updates", "the first of a log, which tell where the first rows end")
    sample_margin: int = _setting(4, "times", "so many times the wanted rows are looked for, as some cancel")
    block_rows: int = _setting(4096, "rows", "of each temporary file, that are merged at once")
    merge_rows: int = _setting(4 << 20, "updates", "of state that a compaction merges at once, in ranges of keys")
    value_bytes: int = _setting(
        50, "bytes", "that a fold takes for each value of an update: by this a window is cut where memory is set"
    )
    checkpoint_commits: int = _setting(
        25, "commits", "of a table between checkpoints: opening it reads those since the last, 0.3 ms each", least=2
    )
    ledger_commits: int = _setting(32, "commits", "of the ledger between checkpoints", least=2)
    ledger_files: int = _setting(16, "files", "of the ledger that one append merges into one", least=2)
    ledger_seconds: float = _setting(
        3600, "seconds", "a merged file of the ledger stays, for readers that opened it before", least=-1
    )

    def __repr__(self) -> str:
        """Only what is not as by default."""
        values = {setting.name: getattr(self, setting.name) for setting in self.settings()}
        others = [
            f"{setting.name}={values[setting.name]!r}"
            for setting in self.settings()
            if values[setting.name] != setting.default
        ]
        return f"Tuning({', '.join(others)})"

    @classmethod
    def settings(cls) -> list[Setting]:
        """All settings in order."""
        return [Setting(entry.name, entry.default, **entry.metadata) for entry in fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def least(cls) -> Tuning:
        """Every setting at its least: the ways for many rows are taken for a few."""
        least: dict[str, Any] = {setting.name: setting.least for setting in cls.settings()}
        return cls(**least)


DEFAULT = Tuning()
