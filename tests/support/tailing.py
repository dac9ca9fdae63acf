"""Commands in processes of their own, which a failpoint may kill, and foreign readers that follow tables meanwhile."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import random
import sys
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable

from ddcore.io.delta.deltalog import LOG
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.storage.warehouse import Warehouse

__all__ = ["KILLED", "Readers", "Tailer", "command", "head", "in_order", "write_all"]

KILLED = -9

# Children are forked from a process that has imported everything and run nothing: they start in milliseconds.
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    ["ddcore.cli.main", "ddcore.cli.show", "ddcore.cli.diff", "ddcore.jobs.ingest", "ddcore.jobs.undo",
     "ddcore.jobs.replay", "ddcore.jobs.engines.inline", "ddcore.planning.planner", "ddcore.operators.reduction",
     "ddcore.kernels.sorting", "ddcore.kernels.joining", "ddcore.kernels.differences", "ddcore.kernels.means",
     "pyarrow.parquet", "pyarrow.csv", "pandas", "deltalake", "tailing"]
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


# -- readers while a writer works --------------------------------------------------------------------------------------

Rows = Counter[tuple[Any, ...]]


class Readers:
    """Processes that read a project again and again, by commands and as foreign readers, until :meth:`stop`.

    ``logs``: for each output, its whole log. Each version is folded by a run of its own.
    """

    def __init__(self, root: Path, logs: Mapping[str, pl.DataFrame], number: int) -> None:
        self.over, self.results = _forks.Event(), _forks.Queue()
        rows = {name: log.rows(named=True) for name, log in logs.items()}
        self.processes = [
            _forks.Process(target=_follow, args=(root, rows, seed, self.over, self.results)) for seed in range(number)
        ]
        for process in self.processes:
            process.start()

    def stop(self) -> Counter[str]:
        """How often they read what. Raises AssertionError with what was wrong."""
        self.over.set()
        total = Counter[str]()
        for _ in self.processes:
            counts, wrong = self.results.get(timeout=120)
            assert wrong is None, wrong
            total += counts
        for process in self.processes:
            process.join(60)
        return total


def _follow(root: Path, rows: Mapping[str, list[dict[str, Any]]], seed: int, over: Any, results: Any) -> None:
    counts = Counter[str]()
    try:
        reader = _Reader(root, rows, random.Random(seed))
        while not over.is_set() or not counts:
            counts[reader.read()] += 1
    except BaseException:
        results.put((counts, traceback.format_exc()))
    else:
        results.put((counts, None))


class _Reader:
    def __init__(self, root: Path, rows: Mapping[str, list[dict[str, Any]]], rng: random.Random) -> None:
        self.root, self.rows, self.rng, self.last = root, rows, rng, -1

    def read(self) -> str:
        """Read one thing, and compare it; what it was. Raises AssertionError."""
        if self.last < 0:
            return self._status()
        return self.rng.choice([self._status, self._show, self._show_at, self._diff, self._log, self._head])()

    def _status(self) -> str:
        last = self._said("status")[0]["folded"]
        assert last is None or last >= self.last, "the frontier went back"
        self.last = -1 if last is None else last
        return "status"

    def _show(self) -> str:
        name = self._name()
        _, at, *rows = self._said("show", name)
        assert at["at"] >= self.last
        return self._compare(name, at["at"], rows)

    def _show_at(self) -> str:
        name, at = self._name(), self.rng.randint(0, self.last)
        return self._compare(name, at, self._said("show", name, "--at", str(at))[2:])

    def _compare(self, name: str, at: int, rows: list[dict[str, Any]]) -> str:
        actual = Counter({tuple(row["row"].items()): row["count"] for row in rows})
        assert actual == self._between(name, -1, at), (name, at)
        return "show"

    def _diff(self) -> str:
        name = self._name()
        a, b = sorted(self.rng.randint(0, self.last) for _ in range(2))
        if a < b:
            rows = self._said("diff", name, str(a), str(b))[2:]
            assert {tuple(row["row"].items()): row["diff"] for row in rows} == self._between(name, a, b), (name, a, b)
        return "diff"

    def _log(self) -> str:
        """Every version that changed an output is in one run. Of versions without updates there may be no run."""
        runs = [range(item["first"], item["last"] + 1) for item in self._said("log") if item["kind"] == "run"]
        changed = {row["version"] for rows in self.rows.values() for row in rows if row["version"] <= self.last}
        folded = Counter(version for run in runs for version in run)
        assert folded[self.last] == 1 and all(folded[version] == 1 for version in changed), folded
        return "log"

    def _head(self) -> str:
        """What a foreign reader sees in one table: the log up to some run."""
        name = self._name()
        rows = pl.read_delta(str(self.root / "warehouse" / "outputs" / name)).rows(named=True)
        upto = max((row["version"] for row in rows), default=-1)
        wanted = [row for row in self.rows[name] if row["version"] <= upto]
        assert Counter(map(_hashable, rows)) == Counter(map(_hashable, wanted)), (name, upto)
        assert all(row["version"] <= upto for row in self.rows[name] if row["version"] <= self.last), "a run is missing"
        return "head"

    def _name(self) -> str:
        return self.rng.choice(sorted(self.rows))

    def _between(self, name: str, a: int, b: int) -> dict[Any, int]:
        """The sums of diffs at versions in (a, b], never 0."""
        sums = Counter[Any]()
        for row in self.rows[name]:
            if a < row["version"] <= b:
                sums[tuple((key, value) for key, value in row.items() if key not in ("version", "diff"))] += row["diff"]
        return {row: diff for row, diff in sums.items() if diff}

    def _said(self, *words: str) -> list[dict[str, Any]]:
        """The JSON lines of a command that has to succeed."""
        from ddcore.cli.main import run_command

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command([*words, "--json", "--project", str(self.root)])
        assert code == 0, (words, code, err.getvalue())
        return [json.loads(line) for line in out.getvalue().splitlines()]


def _hashable(row: dict[str, Any]) -> Any:
    return tuple(sorted(row.items()))


def write_all(root: Path, input: str, sources: Sequence[str], failpoint: str | None = None) -> int:
    """Ingest and fold these sources one by one, in a process that may be killed; its exit code.

    A source is named after its one version. Those that are folded are left out.
    """
    process = _forks.Process(target=_write, args=(root, input, sources, failpoint))
    process.start()
    process.join(300)
    assert process.exitcode is not None
    return process.exitcode


def _write(root: Path, input: str, sources: Sequence[str], failpoint: str | None) -> None:
    from ddcore.cli.main import run_command

    if failpoint is not None:
        os.environ["DDCORE_FAILPOINT"] = failpoint
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (until the process ends)
    folded = Ledger.load(Warehouse(root / "warehouse")).last_folded()
    for source in sources if folded is None else [item for item in sources if int(Path(item).stem) > folded.version]:
        for words in (["ingest", input, source], ["run"]):
            if code := run_command([*words, "-q", "--project", str(root)]):
                raise SystemExit(code)
