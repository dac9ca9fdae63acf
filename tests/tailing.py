"""Commands in processes of their own, which a failpoint may kill, and foreign readers that follow tables meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from deltalake import DeltaTable

from ddcore.io.deltalog import LOG

__all__ = ["KILLED", "Tailer", "command", "head"]

KILLED = -9

# Children are forked from a process that has imported everything and run nothing: they start in milliseconds.
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    ["ddcore.cli.main", "ddcore.jobs.ingest", "ddcore.jobs.undo", "ddcore.jobs.replay", "ddcore.jobs.engines.inline",
     "ddcore.planner", "ddcore.operators.reduction", "ddcore.kernels.sorting", "ddcore.kernels.joining",
     "ddcore.kernels.emitting", "ddcore.kernels.means", "pyarrow.parquet", "pyarrow.csv", "pandas", "deltalake",
     "tailing"]
)  # fmt: skip


def command(*words: str, failpoint: str | None = None) -> int:
    """Run a command of ``dd`` in a process of its own; its exit code, or :data:`KILLED`."""
    process = _forks.Process(target=_run, args=(words, failpoint))
    process.start()
    process.join(120)
    assert process.exitcode is not None, f"{words}: still runs after two minutes"
    return process.exitcode


def _run(words: Sequence[str], failpoint: str | None) -> None:
    from ddcore.cli.main import run_command

    os.environ.pop("DDCORE_FAILPOINT", None)
    if failpoint is not None:
        os.environ["DDCORE_FAILPOINT"] = failpoint
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (until the process ends)
    raise SystemExit(run_command(words))


class Tailer:
    """A program that reads what each commit of a table changed, by Delta's change feed, from the first commit on.

    ``rows``: all that it has read, with the feed's columns ``_change_type`` and ``_commit_version``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.next = folder, 0
        self._parts: list[pl.DataFrame] = []

    def read(self) -> pl.DataFrame | None:
        """Read the commits that came since the last call; None where the table does not exist yet."""
        if not any((self.folder / LOG).glob("*.json")):
            assert self.next == 0, f"{self.folder} is gone"
            return None
        table = DeltaTable(str(self.folder))
        assert table.version() >= self.next - 1, f"{self.folder}: commits were taken out of the log"
        if table.version() < self.next:
            return None
        feed = table.load_cdf(starting_version=self.next, ending_version=table.version())
        self.next = table.version() + 1
        self._parts.append(pl.DataFrame(feed.read_all()).drop("_commit_timestamp"))
        return self._parts[-1]

    @property
    def rows(self) -> pl.DataFrame:
        return pl.concat(self._parts)

    def log(self) -> pl.DataFrame:
        """The updates that it has read, sorted. Fails where one was taken back, or came in two commits."""
        rows = self.rows
        assert set(rows["_change_type"]) <= {"insert"}, rows.filter(pl.col("_change_type") != "insert")
        times = [name for name in rows.columns if name in ("version", "day", "revision")]
        commits = rows.group_by(times).agg(pl.col("_commit_version").n_unique())
        assert commits["_commit_version"].eq(1).all(), "the differences of a version came in two commits"
        return in_order(rows)


def head(folder: Path) -> pl.DataFrame:
    """All rows of a table's newest version, as any Delta reader sees them, sorted."""
    return in_order(pl.read_delta(str(folder)))


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows without the feed's columns, sorted; texts in Polars' type."""
    rows = rows.select(pl.exclude("^_.*$")).rechunk()
    return rows.select(sorted(rows.columns)).sort(pl.all())
