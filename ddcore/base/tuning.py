"""Tuning: the sizes and thresholds that choose between ways of doing the same, in one object.

No result depends on them, only time and memory: every value gives the same rows (tests run with the least of each).
Sizes that are part of a format are elsewhere, beside what reads and writes it. Must not import anything heavy: the
command line loads this at start-up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

__all__ = ["DEFAULT", "Setting", "Tuning"]


class Setting(NamedTuple):
    """A row of the table in docs/tuning.md: what ``Tuning`` has of one name."""

    name: str
    default: float
    least: float
    unit: str
    meaning: str


def _setting(default: float, unit: str, meaning: str, *, least: float = 1) -> Any:
    return field(default=default, metadata={"least": least, "unit": unit, "meaning": meaning})


@dataclass(frozen=True)
class Tuning:
    """The sizes and thresholds of a session or of a project's commands. :meth:`settings` says what each is for."""

    file_rows: int = _setting(2 << 20, "updates", "an ingest writes a file of its log when it has so many")
    restated_rows: int = _setting(4 << 20, "updates", "the same of a restatement, which rewrites what stays of files")
    snapshot_rows: int = _setting(2 << 20, "rows", "snapshots in a row that are compared at once")
    paired_rows: int = _setting(
        1 << 16, "rows", "from so many on, rows that two snapshots share are found by their order first",
        least=0,
    )  # fmt: skip
    paired_events: int = _setting(
        1 << 12, "events", "from so many on, an upsert leaves events that change nothing out, before it sorts", least=0
    )
    group_rows: int = _setting(
        1 << 18, "updates", "row group of a log's file that is sorted: a condition reads few of them"
    )
    piece_rows: int = _setting(1 << 20, "rows", "`show` and `diff` sort so many in memory, more in temporary files")
    sample_rows: int = _setting(1 << 16, "updates", "the first of a log, which tell where the first rows end")
    sample_margin: int = _setting(4, "times", "so many times the wanted rows are looked for, as some cancel")
    block_rows: int = _setting(4096, "rows", "of each temporary file, that are merged at once")
    merge_rows: int = _setting(4 << 20, "updates", "of state that a compaction merges at once, in ranges of keys")
    value_bytes: int = _setting(
        50, "bytes", "that a fold takes for each value of an update: by this a window is cut where memory is set"
    )
    ledger_files: int = _setting(16, "files", "of the ledger that one append merges into one", least=2)
    ledger_seconds: float = _setting(
        3600, "seconds", "a merged file of the ledger stays, for readers that opened it before", least=-1
    )

    @classmethod
    def settings(cls) -> list[Setting]:
        """All settings in order."""
        return [Setting(each.name, each.default, **each.metadata) for each in fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def least(cls) -> Tuning:
        """Every setting at its least: the ways for many rows are taken for a few."""
        least: dict[str, Any] = {each.name: each.least for each in cls.settings()}
        return cls(**least)


DEFAULT = Tuning()
