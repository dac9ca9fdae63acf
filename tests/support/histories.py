"""Long random sequences of all commands, in one or two time dimensions, and a model in plain Python of what they mean.

The commands run in this process, through the command line. After each of them ``status`` works and all reads agree with
the model. Only what a command decides by itself is learnt from its report: where ``--late move`` puts a row.
"""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from ddcore.base.lattice import le
from ddcore.base.schema import Type
from ddcore.cli.main import run_command
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.finding import find_project
from ddcore.io.project.frontiers import is_open
from ddcore.io.project.program import load_plan
from ddcore.io.project.times import time_of
from ddcore.io.reading.published import Claims
from ddcore.io.storage.warehouse import Warehouse

__all__ = ["DIMS", "History"]

DIMS = {1: ("version",), 2: ("day", "rev")}
COLUMNS = {"one": ("k", "v"), "two": ("k", "w")}
PROGRAMS = {
    "join": '{"p": one.join(two, on="k"), "q": one.select("k").distinct()}',
    "count": '{"p": one.join(two, on="k"), "q": one.group_by("k").agg(n=dd.count())}',
}
_OUTPUTS = {
    "join": {"p": ("k", "v", "w"), "q": ("k",)},
    "count": {"p": ("k", "v", "w"), "q": ("k", "n")},
}
_SETTINGS = """[project]
program = "program.py:program"
warehouse = "warehouse"
[time]
dims = [{dims}]
[run]
engine = "inline"
[retention]
versions = {versions}
days = {days}
[inputs.one]
schema = {{ k = "int64", v = "int64" }}
[inputs.two]
schema = {{ k = "int64", w = "int64" }}
"""
_WEIGHTS = {
    "ingest": 6, "form": 4, "late": 4, "restate": 4, "again": 1, "undo": 5, "run": 9, "program": 2, "compact": 2,
    "read": 1,
}  # fmt: skip
_NEVER = ("damaged", "this is a bug", "should not happen", "missing or occur twice", "was lost")

Time = tuple[int, ...]
Row = tuple[int, ...]
Log = Counter[tuple[Row, Time]]


@dataclass
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> dict[str, Any]:
        """The JSON object at the end of stdout."""
        result: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return result


@dataclass
class Landed:
    """An ingest: what its input held before it, the source's rows, and whether it replaced a history."""

    input: str
    rows: Log
    before: Log
    source: str
    replaces: bool
    undone: bool = False


def accumulate(log: Log, time: Time) -> Counter[Row]:
    """The collection at a time, without rows that occur 0 times."""
    total: Counter[Row] = Counter()
    for (row, at), diff in log.items():
        if le(at, time):
            total[row] += diff
    return Counter({row: n for row, n in total.items() if n})


def outputs_of(program: str, one: Counter[Row], two: Counter[Row]) -> dict[str, Counter[Row]]:
    """What a program says about its inputs at one time."""
    joined: Counter[Row] = Counter()
    for ((k, v), n), ((other, w), m) in product(one.items(), two.items()):
        if k == other:
            joined[k, v, w] += n * m
    counts: Counter[Row] = Counter()
    for (k, _), n in one.items():
        counts[k,] += n
    second: Counter[Row] = Counter({row: 1 for row in counts} if program == "join" else {})
    if program == "count":
        second = Counter({(k, n): 1 for (k,), n in counts.items()})
    return {"p": joined, "q": second}


@dataclass
class History:
    """A project, what its inputs hold by the model, and the commands so far, for whoever reads a failure."""

    folder: Path
    seed: int
    dimensions: int
    held: dict[str, Log] = field(default_factory=lambda: {"one": Counter(), "two": Counter()})
    landed: dict[int, Landed] = field(default_factory=dict)
    did: Counter[str] = field(default_factory=Counter)
    transcript: list[str] = field(default_factory=list)
    fingerprints: dict[str, str] = field(default_factory=dict)
    program: str = "join"
    loaded: Ledger | None = None
    steps: int = 0
    rows: int = 0
    checks: int = 0

    def __post_init__(self) -> None:
        self.rng, self.dims = random.Random(self.seed), DIMS[self.dimensions]
        self.folder.mkdir(parents=True)
        versions, days = self.rng.choice([2, 100]), self.rng.choice([0, 7])
        names = ", ".join(f'"{name}"' for name in self.dims)
        (self.folder / "dd.toml").write_text(_SETTINGS.format(dims=names, versions=versions, days=days))
        self._write_program("join")
        for kind in ("ingest", "ingest", "run"):
            self._do(kind)

    def _write_program(self, name: str) -> None:
        self.program = name
        text = f"import ddcore as dd\n\n\ndef program(one, two):\n    return {PROGRAMS[name]}\n"
        (self.folder / "program.py").write_text(text)
        self.fingerprints[load_plan(find_project(self.folder, {})).fingerprint] = name

    # -- commands -----------------------------------------------------------------------------------------------------

    def dd(self, *words: str) -> Said:
        """A command. An error is one clear line, and never blames the ledger."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run_command([*words, "--project", str(self.folder)])
        if words[0] in ("ingest", "run", "compact"):
            self.loaded = None
        said = Said(code, out.getvalue(), err.getvalue())
        self.transcript.append(f"dd {' '.join(words)}  -> {code} {' | '.join(said.err.splitlines())[:300]}")
        errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
        assert code in (0, 1, 2), said
        assert len(errors) == (code != 0), said
        assert not any(text in said.err for text in _NEVER), said
        return said

    @property
    def ledger(self) -> Ledger:
        """The ledger as the last command left it."""
        if self.loaded is None:
            self.loaded = Ledger.load(Warehouse(self.folder / "warehouse"))
        return self.loaded

    @property
    def entries(self) -> int:
        """How many entries the ledger has."""
        last = self.ledger.entries.last
        return 0 if last is None else last + 1

    def shown(self, time: Time) -> str:
        """A time as an option takes it."""
        if len(time) == 1:
            return str(time[0])
        return ",".join(f"{name}={c}" for name, c in zip(self.dims, time, strict=True))

    def step(self) -> None:
        """One command, and what must hold after it."""
        self._do(self.rng.choice([kind for kind, weight in _WEIGHTS.items() for _ in range(weight)]))

    def _do(self, kind: str) -> None:
        self.steps += 1
        before = self.entries
        getattr(self, f"_{kind}")()
        if self.entries > before:
            self.check()

    @property
    def base(self) -> int:
        """Times move on slowly, so that many commands concern the same ones."""
        return self.steps // 16

    def _time(self, start: Time | None = None) -> Time:
        least = start or (max(0, self.base - 3), 0)[: self.dimensions]
        most = (self.base + 3, 3)
        return tuple(self.rng.randint(low, max(low, high)) for low, high in zip(least, most, strict=False))

    def _drawn(self, input: str, log: Log, start: Time | None = None) -> Log:
        """New rows, one of which nobody had, and retractions; from a time on."""
        rows: Log = Counter()
        for _ in range(self.rng.randint(1, 4)):
            self.rows += 1
            rows[(self.rng.randrange(3), self.rows), self._time(start)] += 1
        present = sorted(row for (row, _), diff in log.items() if diff > 0)
        if present and self.rng.random() < 0.5:
            rows[self.rng.choice(present), self._time(start)] -= 1
        return rows

    def _source(self, input: str, rows: Log) -> str:
        name = f"s{self.steps}.csv"
        header = ",".join((*COLUMNS[input], *self.dims, "diff"))
        lines = [",".join(map(str, (*row, *time, diff))) for (row, time), diff in sorted(rows.items())]
        (self.folder / name).write_text("\n".join([header, *lines]) + "\n")
        self.transcript.append(f"    {name}: {input} " + " ".join(lines))
        return name

    def is_valid(self, log: Log) -> bool:
        """Whether no row occurs a negative number of times at any time."""
        rows: dict[Row, list[tuple[Time, int]]] = {}
        for (row, time), diff in log.items():
            rows.setdefault(row, []).append((time, diff))
        return all(
            sum(diff for at, diff in updates if le(at, time)) >= 0
            for updates in rows.values() if any(diff < 0 for _, diff in updates)
            for time in product(*({at[location] for at, _ in updates} for location in range(self.dimensions)))
        )  # fmt: skip

    def _closed(self, input: str, times: Iterable[Time]) -> bool:
        upper = self.ledger.open_from(input)
        return upper is not None and not all(is_open(time_of(time), upper) for time in times)

    def _open(self, input: str) -> Time | None:
        """A time from which on rows are not late; None for any."""
        upper = self.ledger.open_from(input)
        return None if upper is None else self.rng.choice(upper)

    def _ingest(self, late: str = "") -> None:
        input = self.rng.choice(["one", "two"])
        rows = self._drawn(input, self.held[input], None if late or self.rng.random() < 0.1 else self._open(input))
        after = _sum(self.held[input], rows)
        closed = self._closed(input, (time for _, time in rows))
        name = self._source(input, rows)
        said = self.dd("ingest", input, str(self.folder / name), "--json", *(["--late", late] if late else []))
        if late == "move":
            if said.code == 0:
                upper = self.ledger.open_from(input)
                open_from = upper[0][0] if upper else 0
                rows_ = Counter[tuple[Row, Time]]()
                for (row, (version,)), diff in rows.items():
                    rows_[row, (max(version, open_from),)] += diff
                self._land(said, input, _sum(rows_, Counter()), name)
            return
        since = self.ledger.since()
        lost = bool(since) and not all(le(since[0], time) for _, time in rows)
        refused = not self.is_valid(after) or (closed and (late != "restate" or lost))
        assert (said.code != 0) == refused, (said, rows)
        if not refused:
            self._land(said, input, rows, name)

    def _land(self, said: Said, input: str, rows: Log, source: str, start: Time | None = None) -> None:
        before = self.held[input]
        kept = before if start is None else _sum(Counter({k: n for k, n in before.items() if not le(start, k[1])}), {})
        self.held[input] = _sum(kept, rows)
        self.landed[said.last["ingest"]] = Landed(input, rows, before, source, start is not None)
        self.did["restate" if start is not None else "ingest"] += 1

    def _late(self) -> None:
        self._ingest(self.rng.choice(["restate", "restate", "refuse", *(["move"] if self.dimensions == 1 else [])]))

    def _restate(self) -> None:
        input = self.rng.choice(["one", "two"])
        start = self._time()
        kept = _sum(Counter({key: n for key, n in self.held[input].items() if not le(start, key[1])}), Counter())
        rows = self._drawn(input, kept, start)
        if self.rng.random() < 0.5:
            rows = _sum(rows, Counter({key: n for key, n in self.held[input].items() if le(start, key[1])}))
        name = self._source(input, rows)
        said = self.dd("ingest", input, str(self.folder / name), "--json", "--restate", self.shown(start))
        if said.code == 0:
            assert self.is_valid(_sum(kept, rows)), said
            self._land(said, input, rows, name, start)

    def _form(self) -> None:
        """Rows without times and diffs: to insert, or the whole content, or the newest values of keys."""
        input = self.rng.choice(["one", "two"])
        held: Counter[Row] = Counter()
        for (row, _), diff in self.held[input].items():
            held[row] += diff
        self.rows += 2
        rows: set[Row] = {(self.rng.randrange(3), self.rows), (self.rng.randrange(3), self.rows + 1)}
        form, version = "append", self.shown(self._time(self._open(input)))
        if self.dimensions == 1 and min(held.values(), default=0) >= 0:
            form, version = self.rng.choice(["append", "snapshot", "upsert"]), "next"
        changes = Counter(rows)
        if form == "snapshot":
            rows |= {row for row in held.elements() if self.rng.random() < 0.7}
            changes = Counter(rows)
            changes.subtract(held)
        elif form == "upsert":  # the second column is the key
            if max(Counter(key for _, key in held.elements()).values(), default=0) > 1:
                return
            rows |= {(self.rng.randrange(3), key) for _, key in sorted(held.elements()) if self.rng.random() < 0.3}
            changes = Counter(rows)
            keys = {key for _, key in rows}
            changes.subtract(row for row in held.elements() if row[1] in keys)
        name, options = f"s{self.steps}.csv", ["--key", COLUMNS[input][1]] if form == "upsert" else []
        lines = [",".join(map(str, row)) for row in sorted(rows)]
        (self.folder / name).write_text("\n".join([",".join(COLUMNS[input]), *lines]) + "\n")
        self.transcript.append(f"    {name}: {input} " + " ".join(lines))
        said = self.dd(
            "ingest", input, str(self.folder / name), f"--{form}", "--version", version, *options, "--json"
        )  # fmt: skip
        assert said.code == 0 and not said.last["nothing_new"], said
        first = said.last["first"]
        time = tuple(first[name] for name in self.dims) if isinstance(first, dict) else (first,)
        self._land(said, input, _sum(Counter({(row, time): n for row, n in changes.items()}), {}), "")
        self.did[form] += 1

    def _again(self) -> None:
        """A source that was taken in before: its rows come again only if its ingest was taken back."""
        sources = [item for item in self.landed.values() if item.source]
        if not sources:
            return
        item = self.rng.choice(sources)
        said = self.dd("ingest", item.input, str(self.folder / item.source), "--json", "--late", "restate")
        if said.code == 0 and not said.last["nothing_new"]:
            assert item.undone, said
            lines = (self.folder / item.source).read_text().splitlines()[1:]
            parts = [tuple(map(int, line.split(","))) for line in lines]
            self._land(said, item.input, Counter({(part[:2], part[2:-1]): part[-1] for part in parts}), item.source)

    def _undo(self) -> None:
        live = [number for number, item in self.landed.items() if not item.undone]
        if not live:
            return
        number = max(live) if self.rng.random() < 0.7 else self.rng.choice(live[-6:])
        said = self.dd("ingest", "--undo", str(number), *(["--late", "restate"] if self.rng.random() < 0.8 else []))
        if said.code == 0:
            item = self.landed[number]
            item.undone = True
            self.did["undo"] += 1
            if item.replaces:
                self.held[item.input] = item.before
                self.did["undo of a restatement"] += 1
            else:
                self.held[item.input] = _sum(self.held[item.input], Counter({key: -n for key, n in item.rows.items()}))

    def _run(self) -> None:
        words, r = ["run", "--json"], self.rng.random()
        to = "--to" if self.dimensions > 1 else "--to-version"
        if r < 0.35:
            words += [to, self.shown(self._time())]
        if 0.25 < r < 0.5:
            words += ["--from-version", self.shown(self._time())]
        elif 0.5 < r < 0.6 or (r < 0.1):
            words += ["--full-refresh"]
        if self.dimensions == 1 and self.rng.random() < 0.3:
            words += ["--corrections", self.rng.choice(["append", "rewrite"])]
        said = self.dd(*words)
        if len(words) == 2 and not self._is_other_program():
            assert said.code == 0, said
        self.did["run" if said.code == 0 else "refused run"] += 1
        self.did["full refresh"] += said.code == 0 and "--full-refresh" in words

    def _is_other_program(self) -> bool:
        """With several dimensions a changed program needs a full refresh."""
        return self.dimensions > 1 and self.ledger.current_run() is not None and self._published() != self.program

    def _program(self) -> None:
        """Another program, a run, and mostly back."""
        self._write_program("count" if self.program == "join" else "join")
        self.transcript.append(f"    the program becomes {self.program}")
        refresh = ["--full-refresh"] if self.dimensions > 1 or self.rng.random() < 0.3 else []
        said = self.dd("run", "--json", *refresh)
        assert said.code == 0, said
        self.did["program"] += 1

    def _compact(self) -> None:
        words = ["compact", "--json"]
        upper = self.ledger.upper()
        if self.dimensions == 1 and upper is not None and self.rng.random() < 0.4:
            words += ["--since", str(max(0, upper[0][0] - 5))]
        if self.dd(*words).code == 0:
            self.did["compact"] += 1

    def _read(self) -> None:
        """The commands that only read: those that must work, do, and show what the model says."""
        for words in (["log", "--json"], ["log", "--versions", "--json"], ["doctor"]):
            said = self.dd(*words)
            assert said.code == 0, said
        self.dd("verify")  # where the program has changed, it is refused
        for words in (["run", "--dry-run", "--json"], ["plan"], ["status", "--state"]):
            said = self.dd(*words)
            assert said.code == 0 or self._is_other_program(), said
        for output, columns in _OUTPUTS[self._published()].items() if self.ledger.current_run() else ():
            times = self._claimed(output, self.ledger)
            if not times:
                continue
            a, b = self.rng.choice(times), self.rng.choice(times)
            collections = [self._expected(self._published(), time)[output] for time in (a, b)]
            said = self.dd("show", output, "--at", self.shown(a), "--json")
            assert said.code == 0, said
            assert _rows(said.out, columns, "count") == collections[0]
            if row := next(iter(sorted(collections[0])), None):
                values = [f"{column}={value}" for column, value in zip(columns, row, strict=True)]
                said = self.dd("explain", output, *values, "--at", self.shown(a), "--json")
                assert said.code == 0 or self._published() != self.program, said
            said = self.dd("diff", output, self.shown(a), self.shown(b), "--json")
            assert said.code == 0, said
            delta = Counter(collections[1])
            delta.subtract(collections[0])
            assert _rows(said.out, columns, "diff") == {row: n for row, n in delta.items() if n}
            self.did["read"] += 1

    # -- checks -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """``status`` works, the inputs hold what the model says, and so do the outputs wherever the law is claimed."""
        if not self.landed:
            return
        self.checks += 1
        if self.checks % 4 == 0:  # it takes as long as a run; what else follows is what it may fail at
            said = self.dd("status", "--json")
            assert said.code == 0, said
        ledger = self.ledger
        since = ledger.since()
        for name in ledger.inputs():
            log = self._log(f"inputs/{name}", COLUMNS[name], ledger.input_table(name))
            expected = self.held[name]
            if since:
                log, expected = (_advanced(item, since[0]) for item in (log, expected))
            assert log == expected, f"input {name} holds {log}, not {expected}"
        upper = ledger.upper() or ((0,) * self.dimensions,)
        open_now = {time for log in self.held.values() for _, time in log if is_open(time_of(time), upper)}
        waiting = list(ledger.waiting())
        numbers = [record.number for record in waiting]
        assert len(set(numbers)) == len(numbers), f"ingests {numbers} wait"
        assert open_now <= {_tuple(time) for record in waiting for time in record.counts}
        if ledger.current_run() is None:
            return
        program = self._published()
        for output, columns in _OUTPUTS[program].items():
            log = self._log(f"outputs/{output}", columns, ledger.table(f"outputs/{output}"))
            for time in self._claimed(output, ledger):
                actual, expected_rows = accumulate(log, time), self._expected(program, time)[output]
                assert actual == expected_rows, f"{output} at {time} is {actual}, not {expected_rows}"

    def _published(self) -> str:
        """The program of the last run."""
        run = self.ledger.current_run()
        assert run is not None
        return self.fingerprints[run.fingerprint]

    def _times(self) -> Iterator[Time]:
        """All times up to a little more than any input has."""
        known = [time for log in self.held.values() for _, time in log] or [(0,) * self.dimensions]
        return product(*(range(max(column, default=0) + 2) for column in zip(*known, strict=True)))

    def _claimed(self, output: str, ledger: Ledger) -> list[Time]:
        """The times at which an output is promised to be what the program says."""
        if ledger.upper() is None:
            return []
        claims = Claims(ledger, self.dims)
        return [time for time in self._times() if not claims.doubt(_plain(time), output)[0]]

    def _expected(self, program: str, time: Time) -> dict[str, Counter[Row]]:
        return outputs_of(program, accumulate(self.held["one"], time), accumulate(self.held["two"], time))

    def _log(self, name: str, columns: Iterable[str], state: Any) -> Log:
        table = ChangeLog(
            Warehouse(self.folder / "warehouse").table(name), {column: Type("int64") for column in columns}, self.dims
        )
        frame: pl.DataFrame = table.collect(table.scan(state))
        total: Log = Counter()
        for values in frame.select(*columns, *self.dims, "diff").iter_rows():
            split = len(values) - 1 - self.dimensions
            key = values[:split], values[split:-1]
            assert key not in total or name.startswith("inputs/"), f"{name} has two updates of {key}"
            total[key] += values[-1]
        return _sum(total, Counter())


def _sum(left: Log, right: Any) -> Log:
    total: Log = Counter(left)
    for key, diff in right.items():
        total[key] += diff
    return Counter({key: diff for key, diff in total.items() if diff})


def _advanced(log: Log, since: Time) -> Log:
    total: Log = Counter()
    for (row, time), diff in log.items():
        total[row, tuple(map(max, time, since))] += diff
    return _sum(total, Counter())


def _plain(time: Time) -> Any:
    return time[0] if len(time) == 1 else time


def _tuple(time: Any) -> Time:
    return time if isinstance(time, tuple) else (time,)


def _rows(text: str, columns: Iterable[str], number: str) -> dict[Row, int]:
    """The rows that ``show`` or ``diff`` printed as JSON lines."""
    records = [record for line in text.splitlines() if "row" in (record := json.loads(line))]
    return {tuple(record["row"][column] for column in columns): record[number] for record in records}
