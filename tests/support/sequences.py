"""Commands on one small project in any order, and what must hold after each of them.

A model knows what every command means, and computes outputs with the reference evaluator. What was recorded of killed
commands it learns from the ledger; everything else it knows by itself.
"""

from __future__ import annotations

import functools
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
from forks import Ended, Forks
from tailing import Tailer
from warehouses import last_closed

from ddcore import reference
from ddcore.base.errors import DdError, UsageError
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import IngestRecord, RunRecord
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_plan, load_program
from ddcore.io.project.times import time_of
from ddcore.io.reading.published import Claims
from ddcore.io.storage.warehouse import Warehouse
from ddcore.io.upkeep.integrity import inspect
from ddcore.jobs import replay
from ddcore.jobs.compact import compact
from ddcore.jobs.ingest import IngestSettings, ingest
from ddcore.jobs.undo import undo
from ddcore.jobs.warm import Warm

__all__ = ["KINDS", "Life"]

KILLED = -9
COLUMNS = {"edges": ("src", "dst"), "marks": ("n",)}
_REACH = """
    def body(reached):
        return reached.join(edges, on={"node": "src"}).select(node="dst").concat(roots).distinct()

    roots = edges.select(node="src").where("node = 0").distinct()
    reach = roots.iterate(body)
"""
_OUTPUTS = {
    "reach": "reach",
    "far": 'reach.where("node > 1")',
    "count": 'edges.group_by("src").agg(n=dd.count())',
    "most": 'edges.group_by("src").agg(n=dd.max("dst"))',
    "ends": 'edges.select("src", n="dst").distinct()',
    "many": 'reach.group_by().agg(n=dd.sum("node"))',
    "join": 'edges.join(marks, on={"src": "n"}).select("src", "dst")',
    "twins": 'marks.select(src="n", dst="n").distinct()',
    "one": 'edges.select("dst").distinct()',
    "two": 'edges.select("src", "dst").distinct()',
}
_PROGRAMS = {  # outputs, by the names of their definitions
    "loop": {"reach": "reach", "degrees": "count"},
    "filtered": {"reach": "far", "many": "many"},
    "marked": {"reach": "reach", "marked": "join"},
    "unmarked": {"marked": "twins", "degrees": "ends"},
    "narrow": {"shape": "one", "degrees": "most"},
    "wide": {"shape": "two", "degrees": "count"},
}
INPUTS = {
    name: tuple(COLUMNS) if {"join", "twins"} & set(outputs.values()) else ("edges",)
    for name, outputs in _PROGRAMS.items()
}


def _source(name: str) -> str:
    outputs = ", ".join(f'"{output}": {_OUTPUTS[how]}' for output, how in _PROGRAMS[name].items())
    return f"import ddcore as dd\n\n\ndef program({', '.join(INPUTS[name])}):{_REACH}    return {{{outputs}}}\n"


PROGRAMS = {name: _source(name) for name in _PROGRAMS}
_SETTINGS = """[project]
program = "program.py:program"
warehouse = "warehouse"
[run]
engine = "inline"
[inputs.edges]
schema = {{ src = "int64", dst = "int64" }}
{marks}[compaction]
auto = {auto}
[retention]
versions = {versions}
days = {days}
"""
_MARKS = '[inputs.marks]\nschema = { n = "int64" }\n'
PLACES = [
    ("after-table", 9), ("after-file", 9), ("after-write", 3), ("after-intent", 2), ("after-run", 2),
    ("after-ingest", 1), ("after-undo", 1), ("after-compact", 1), ("after-create", 6), ("after-lock", 1),
    ("after-correction", 2), ("after-restore", 2), ("after-delete", 3), ("after-trim", 3), ("after-failure", 1),
    ("after-ledger-file", 3), ("after-drop", 2), ("after-stray", 1), ("after-properties", 1),
]  # fmt: skip

KINDS = (
    "ingest", "label", "late", "restate", "again", "undo", "run", "killed", "program", "retention", "compact",
)  # fmt: skip
"""What may happen to a warehouse."""

Row = tuple[int, ...]
Log = Counter[tuple[Row, int]]
Contents = dict[Row, int]


def contents(log: Log, version: int) -> Contents:
    total = Counter[Row]()
    for (row, at), diff in log.items():
        if at <= version:
            total[row] += diff
    return {row: count for row, count in total.items() if count}


@dataclass
class Attempt:
    """What an ingest of a source was to do. ``closed``: the last version that it could not take rows at."""

    input: str
    rows: Log
    how: str
    start: int = 0
    closed: int = -1
    label: str = ""


@dataclass(frozen=True)
class Labelled:
    """A label by the ingest that gave it; ``sure`` until a restatement replaces rows that may be its own."""

    input: str
    text: str
    version: int
    sure: bool = True


@dataclass
class Model:
    """What the inputs hold, by the records of the ledger; and what each folded version was folded from."""

    logs: dict[str, Log] = field(default_factory=lambda: {name: Log() for name in COLUMNS})
    landed: dict[int, tuple[str, Log]] = field(default_factory=dict)
    before: dict[int, Log] = field(default_factory=dict)
    labels: dict[int, Labelled] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)  # labels of ingests that were taken back
    seen: int = 0
    folded: dict[int, dict[str, Contents]] = field(default_factory=dict)  # the inputs at a version when it was folded
    published: dict[str, dict[int, Contents]] = field(default_factory=dict)  # what readers saw
    exempt: set[int] = field(default_factory=set)  # versions that corrections follow
    program: str = ""
    windows: set[int] = field(default_factory=set)

    def at(self, version: int, program: str) -> dict[str, Contents]:
        return {name: contents(self.logs[name], version) for name in INPUTS[program]}


class Life:
    """A project, and what happens to it. ``transcript``: the commands, for whoever reads a failure. ``did`` counts."""

    def __init__(self, folder: Path, processes: Forks, rng: random.Random) -> None:
        self.folder, self.processes, self.model = folder, processes, Model()
        self.auto, self.versions, self.days = rng.random() < 0.5, rng.choice([0, 2, 100]), rng.choice([0, 7, 7])
        self.transcript: list[str] = []
        self.attempts: dict[str, Attempt] = {}
        self.refusals, self.did = Counter[str](), Counter[str]()
        self.cache: dict[Any, dict[str, Contents]] = {}
        self.tailers: dict[str, Tailer] = {}
        self.nets: dict[str, Log] = {}
        self.may_rewrite = False
        self.plans, self.functions = programs_in(folder.parent / "programs")
        self.names = {plan.fingerprint: name for name, plan in self.plans.items()}
        self.project = folder / "p"
        self.program = rng.choice(sorted(PROGRAMS))
        self._write(self.project, self.program)
        self.count = 0
        self.loaded: Ledger | None = None
        self.warm = Warm()  # of runs in this process; all other commands know nothing of it

    def _write(self, point: Path, program: str, marks: bool | None = None) -> None:
        write(point, program, marks, auto=self.auto, versions=self.versions, days=self.days)

    # -- commands -----------------------------------------------------------------------------------------------------

    def do(self, kind: str, rng: random.Random) -> None:
        """One of KINDS; what else is to be decided, ``rng`` decides."""
        words, source = self._drawn("run" if kind == "killed" else kind, rng)
        if not words:
            return
        point, times = rng.choice(PLACES)
        action = rng.choice(["kill", "kill", "kill", "full", "term"])
        failpoint = f"{point}:{rng.randint(1, times)}={action}" if rng.random() < 0.2 else ""
        if kind == "killed":  # while it commits
            failpoint = f"{rng.choice(['after-table', 'after-create'])}:{rng.randint(1, 14)}=kill"
        ended = self.command(words, source, failpoint)
        self.did[kind if ended.code == 0 else f"{kind} refused" if ended.code in (1, 2) else f"{kind} ended"] += 1

    def command(self, words: Sequence[str], source: str = "", failpoint: str = "") -> Ended:
        """Run a command, and check everything afterwards."""
        ledger = self.ledger
        before = len(list(ledger.entries.onwards()))
        restated, tables = ledger.restated(), ledger.tables()
        if words[0] == "ingest":
            self._write(self.project, self.program, marks=True)
        words = [*words, "--project", str(self.project), "--json"]
        ended = self.processes.run(*words, DDCORE_FAILPOINT=failpoint) if failpoint else called(*words, warm=self.warm)
        self.loaded = None
        self._write(self.project, self.program)
        note = f"{failpoint}  dd {' '.join(words[:-3])}".strip()
        self.transcript.append(f"{note}  -> {ended.code} {' | '.join(ended.err)[:300]}")
        errors = [line for line in ended.err if line.startswith("error: ")]
        assert not any("Traceback" in line for line in ended.err), ended.err
        if ended.code in (1, 2):
            assert len(errors) == 1, ended.err
            self.refusals["".join("#" if c.isdigit() else c for c in errors[0])[:110]] += 1
            assert ended.code == 2 or words[0] == "ingest" or failpoint, ended
        elif failpoint:
            assert ended.code in (0, KILLED, 143), ended
        else:
            assert ended.code == 0, ended
        if source:
            ledger = self.ledger
            closed = last_closed(ledger, self.attempts[source].input)
            self.attempts[source].closed = -1 if closed is None else closed.version
        if words[0] == "run" and "append" not in words:
            rewriting = {"--full-refresh", "--from-version", "rewrite"} & set(words)
            # An ingest that was killed before its record is finished first, and may restate.
            finished = any(entry.kind in ("ingest", "undo") for entry in [*self.ledger.entries.onwards()][before:])
            self.may_rewrite |= bool(rewriting or restated or finished)
        self.check(ended, words, before, set(tables))
        if words[0] == "run" and ended.code == 0:
            self.may_rewrite = False
        return ended

    def _drawn(self, kind: str, rng: random.Random) -> tuple[list[str], str]:
        return getattr(self, f"_{kind}")(rng)  # type: ignore[no-any-return]

    def _source(self, rng: random.Random, input: str, versions: Sequence[int], log: Log) -> tuple[str, Log]:
        """A file with new rows, and retractions of rows that are there."""
        rows = Log()
        for _ in range(rng.randint(1, 4)):
            version = rng.choice(versions)
            present = sorted(row for row, count in contents(log + rows, version).items() if count > 0)
            if present and rng.random() < 0.35:
                rows[rng.choice(present), version] -= 1
            else:
                rows[tuple(rng.randrange(4) for _ in COLUMNS[input]), version] += 1
        rows = Log({key: diff for key, diff in rows.items() if diff})
        if not rows:
            rows[tuple(0 for _ in COLUMNS[input]), versions[0]] += 1
        self.count += 1
        name = f"s{self.count}.csv"
        lines = [",".join((*COLUMNS[input], "version", "diff"))]
        lines += [",".join(map(str, (*row, version, diff))) for (row, version), diff in sorted(rows.items())]
        (self.project / name).write_text("\n".join(lines) + "\n")
        self.transcript.append(
            f"    {name}: {input} " + " ".join(f"{row}@{v}:{d:+d}" for (row, v), d in sorted(rows.items()))
        )
        return name, rows

    @property
    def last(self) -> int:
        last = self.ledger.last_folded()
        return -1 if last is None else last.version

    def _input(self, rng: random.Random) -> str:
        return rng.choice(["edges", "edges", "marks"])

    def _ingest(self, rng: random.Random) -> tuple[list[str], str]:
        input, last = self._input(rng), self.last
        name, rows = self._source(rng, input, [last + 1 + n for n in range(3)], self.model.logs[input])
        self.attempts[name] = Attempt(input, rows, "plain")
        return ["ingest", input, str(self.project / name)], name

    def _label(self, rng: random.Random) -> tuple[list[str], str]:
        """Rows of one version, which gets a label."""
        input = self._input(rng)
        name, rows = self._source(rng, input, [self.last + 1 + rng.randrange(3)], self.model.logs[input])
        self.attempts[name] = Attempt(input, rows, "plain", label=f"label-{self.count}")
        return ["ingest", input, str(self.project / name), "--label", self.attempts[name].label], name

    def _late(self, rng: random.Random) -> tuple[list[str], str]:
        input, how = self._input(rng), rng.choice(["restate", "restate", "move", "refuse"])
        name, rows = self._source(rng, input, range(self.last + 3), self.model.logs[input])
        self.attempts[name] = Attempt(input, rows, "move" if how == "move" else "plain")
        return ["ingest", input, str(self.project / name), "--late", how], name

    def _restate(self, rng: random.Random) -> tuple[list[str], str]:
        input = self._input(rng)
        latest = max((version for _, version in self.model.logs[input]), default=0)
        start = rng.randint(0, latest + 1)
        kept = Log({key: diff for key, diff in self.model.logs[input].items() if key[1] < start})
        name, rows = self._source(rng, input, range(start, latest + 3), kept)
        if rng.random() < 0.5:  # mostly what it held before
            rows.update({key: diff for key, diff in self.model.logs[input].items() if key[1] >= start})
            rows = Log({key: diff for key, diff in rows.items() if diff})
            lines = [",".join((*COLUMNS[input], "version", "diff"))]
            lines += [",".join(map(str, (*row, version, diff))) for (row, version), diff in sorted(rows.items())]
            (self.project / name).write_text("\n".join(lines) + "\n")
            self.transcript.append("    and what it held from there on")
        text = str(start)
        if rng.random() < 0.2:
            start, text = min((version for _, version in rows), default=0), "first"
        self.attempts[name] = Attempt(input, rows, "restate", start)
        return ["ingest", input, str(self.project / name), "--restate", text], name

    def _again(self, rng: random.Random) -> tuple[list[str], str]:
        """A source that was named before."""
        if not self.attempts:
            return [], ""
        name = rng.choice(sorted(self.attempts))
        old = self.attempts[name]
        late = rng.choice(["refuse", "restate"])
        if any(item == name for item in self.pending):
            return [], ""
        self.attempts[name] = Attempt(old.input, old.rows, "plain")
        return ["ingest", old.input, str(self.project / name), "--late", late], name

    @property
    def pending(self) -> list[str]:
        """Sources whose last attempt may still be finished by the next command."""
        recorded = {
            source.name
            for entry in self.ledger.entries.onwards()
            if entry.kind == "ingest"
            for source in entry.record.sources
        }
        return [name for name in self.attempts if name not in recorded]

    def _undo(self, rng: random.Random) -> tuple[list[str], str]:
        numbers = [record.number for record in self.ledger.ingests()]
        if not numbers:
            return [], ""
        number = max(numbers) if rng.random() < 0.6 else rng.choice(numbers)
        return ["ingest", "--undo", str(number), *(["--late", "restate"] if rng.random() < 0.6 else [])], ""

    def _run(self, rng: random.Random) -> tuple[list[str], str]:
        if not self.ledger.inputs():
            return [], ""
        words, last, r = ["run"], self.last, rng.random()
        if r < 0.3:
            words += ["--to-version", str(rng.randint(0, last + 2))]
        if 0.2 < r < 0.45:
            words += ["--from-version", str(rng.randint(0, last + 1))]
        elif 0.45 < r < 0.6:
            words += ["--full-refresh"]
        if rng.random() < 0.45:
            words += ["--corrections", rng.choice(["append", "append", "rewrite"])]
        return words, ""

    def _program(self, rng: random.Random) -> tuple[list[str], str]:
        self.program = rng.choice([name for name in sorted(PROGRAMS) if name != self.program])
        self._write(self.project, self.program)
        self.transcript.append(f"    the program becomes: {self.program}")
        return (["run"], "") if self.ledger.inputs() and rng.random() < 0.5 else ([], "")

    def _retention(self, rng: random.Random) -> tuple[list[str], str]:
        """Other settings from now on. How many days feeds are kept stays: those who follow them rely on it."""
        self.auto, self.versions = rng.random() < 0.5, rng.choice([0, 2, 100])
        self._write(self.project, self.program)
        self.transcript.append(f"    auto is {self.auto}, versions are {self.versions}")
        self.did["retention"] += 1
        return [], ""

    def _compact(self, rng: random.Random) -> tuple[list[str], str]:
        if self.last < 0:
            return [], ""
        return ["compact", *(["--since", str(rng.randint(0, self.last))] if rng.random() < 0.5 else [])], ""

    # -- checks -------------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """The ledger as the last command left it."""
        if self.loaded is None:
            self.loaded = Ledger.load(Warehouse(self.project / "warehouse"))
        return self.loaded

    def check(self, ended: Ended, words: Sequence[str], before: int, tables: set[str]) -> None:
        ledger, model = self.ledger, self.model
        records = [entry.record for entry in ledger.entries.onwards()]
        for record in records[model.seen :]:
            self._learn(record)
        new = records[before:]
        model.seen = len(records)
        if words[0] == "ingest" and ended.code == 0 and "--undo" not in words:
            report = json.loads(ended.out[-1])
            name = Path(words[2]).name
            recorded = any(isinstance(item, IngestRecord) and item.sources[0].name == name for item in new)
            assert recorded != report["nothing_new"], report
        self._check_inputs(ledger)
        self._check_waiting(ledger)
        self._check_labels(ledger)
        self._check_outputs(ledger)
        assert not (damages := inspect(ledger, deep=len(records) % 8 == 0).damages), damages
        if ended.code == 0 and words[0] == "run":
            self._check_finished(ledger, words)
        if self.days:
            self._tail(ledger, ended, words, tables)

    def _learn(self, record: Any) -> None:
        model = self.model
        if isinstance(record, IngestRecord):
            self._learn_ingest(record)
        elif type(record).__name__ == "UndoRecord":
            how, rows = model.landed[record.number]
            if label := model.labels.pop(record.number, None):
                model.gone.add(label.text)
            if how == "restate":
                model.logs[record.input] = Log(model.before[record.number])
            else:
                for key, diff in rows.items():
                    model.logs[record.input][key] -= diff
        elif isinstance(record, RunRecord):
            self._learn_run(record)

    def _learn_ingest(self, record: IngestRecord) -> None:
        model = self.model
        attempt = self.attempts[record.sources[0].name]
        log = model.logs[attempt.input]
        model.before[record.number] = Log(log)
        rows = attempt.rows
        if attempt.how == "move":
            rows = Log()
            for (row, version), diff in attempt.rows.items():
                rows[row, max(version, attempt.closed + 1)] += diff
        if attempt.how == "restate":
            for key in [key for key in log if key[1] >= attempt.start]:
                del log[key]
        for key, diff in rows.items():
            log[key] += diff
        model.landed[record.number] = (attempt.how, Log(rows))
        if attempt.how == "restate":
            for number, of in model.labels.items():
                if of.input == attempt.input and of.version >= attempt.start:
                    model.labels[number] = replace(of, sure=False)
        if attempt.label:
            ((version,),) = {(version,) for _, version in rows}
            model.labels[record.number] = Labelled(attempt.input, attempt.label, version)

    def _learn_run(self, run: RunRecord) -> None:
        model, program = self.model, self.names[run.fingerprint]
        first, last = run.first if run.published_from is None else run.published_from, run.last.version
        window = range(first.version, last + 1)
        if run.published_from is None:
            model.exempt -= set(window)
            model.windows |= set(window)
        else:
            model.exempt |= set(window)
        model.exempt -= {version for version in model.exempt if version > last}
        for version in [*model.folded]:
            if version > last:
                del model.folded[version]
        for version in window:
            model.folded[version] = model.at(version, program)
        if run.base == 0 and run.published_from is None:
            model.published.clear()
        for name in [*model.published]:
            held = run.tables.get(f"outputs/{name}")
            if held is None or name == "shape":
                del model.published[name]
        model.program = program

    def _check_inputs(self, ledger: Ledger) -> None:
        since = ledger.since()[0][0] if ledger.since() else 0
        for name in ledger.inputs():
            log = self._log("inputs", name, COLUMNS[name], ledger.input_table(name))
            latest = max((version for _, version in [*log, *self.model.logs[name]]), default=0)
            for version in range(since, latest + 1):
                wanted, actual = contents(self.model.logs[name], version), contents(log, version)
                assert actual == wanted, f"input {name} at {version}: {actual}, not {wanted}"

    def _check_waiting(self, ledger: Ledger) -> None:
        """The ledger knows what is not folded, without reading a table."""
        known = {time.version for record in ledger.waiting() for time in record.counts}
        versions = {version for log in self.model.logs.values() for (_, version), diff in log.items() if diff}
        assert {version for version in versions if version > self.last} <= known, f"waiting: {versions}, known: {known}"
        latest = ledger.latest_ingested()
        assert not versions or (latest is not None and max(versions) <= latest.version), (latest, versions)

    def _check_labels(self, ledger: Ledger) -> None:
        """Each label names its version, until its ingest is taken back."""
        names = ledger.version_names(("version",))
        for label in self.model.labels.values():
            if label.sure:
                assert names.labelled(label.text, "here") == label.version, label
        for text in self.model.gone:
            try:
                version = names.labelled(text, "here")
            except UsageError:
                continue
            raise AssertionError(f"{text}, whose ingest was taken back, is the label of {version}")

    def _log(self, part: str, name: str, columns: Sequence[str], state: Any) -> Log:
        folder = Warehouse(self.project / "warehouse").table(f"{part}/{name}")
        from ddcore.base.schema import Type

        log = ChangeLog(folder, {column: Type("int64") for column in columns}, ("version",))
        frame = log.collect(log.scan(state))
        total = Log()
        for row in frame.select(*columns, "version", "diff").iter_rows():
            total[row[:-2], row[-2]] += row[-1]
        return Log({key: diff for key, diff in total.items() if diff})

    def expected(self, program: str, inputs: dict[str, Contents]) -> dict[str, Contents]:
        key = program, json.dumps({name: sorted(map(list, of.items())) for name, of in inputs.items()})
        if key not in self.cache:
            frames = {
                name: pl.DataFrame(
                    [(*row, count) for row, count in of.items()],
                    {c: pl.Int64 for c in (*COLUMNS[name], "diff")},
                    orient="row",
                )
                for name, of in inputs.items()
            }
            columns = {
                name: {column: kind.polars for column, kind in schema.items()}
                for name, schema in self.plans[program].outputs.items()
            }
            found = reference.outputs_of(self.functions[program], frames, columns)
            self.cache[key] = {name: {row[:-1]: row[-1] for row in frame.rows()} for name, frame in found.items()}
        return self.cache[key]

    def _check_outputs(self, ledger: Ledger) -> None:
        """Versions that no run folded anew are as they were; those for which the law is promised keep it."""
        model, run = self.model, ledger.current_run()
        if run is None:
            return
        since = ledger.since()[0][0] if ledger.since() else 0
        claims, program = Claims(ledger, ("version",)), model.program
        for name, schema in self.plans[program].outputs.items():
            log = self._log("outputs", name, list(schema), ledger.table(f"outputs/{name}"))
            seen = model.published.setdefault(name, {})
            for version in range(since, run.last.version + 1):
                actual = contents(log, version)
                if version in seen and version not in model.windows:
                    assert actual == seen[version], f"{name} at {version} is {actual}, and was {seen[version]}"
                if version not in model.exempt:
                    wanted = self.expected(program, model.folded[version])[name]
                    assert actual == wanted, f"{name} at {version} is {actual}, not {wanted}"
                if not claims.doubt(time_of(version), name)[0]:
                    wanted = self.expected(program, model.at(version, program))[name]
                    assert actual == wanted, f"{name} at {version} is {actual}, and verify expects {wanted}"
                seen[version] = actual
        model.windows.clear()

    def _check_finished(self, ledger: Ledger, words: Sequence[str]) -> None:
        """After a run nothing waits: it has folded all that it was to fold."""
        model, run = self.model, ledger.current_run()
        assert ledger.open_intent() is None
        latest = max((v for name in INPUTS[self.program] for (_, v), d in model.logs[name].items() if d), default=-1)
        if run is None:
            assert latest < 0 or "--to-version" in words
            return
        assert model.program == self.program, "the program's outputs are those of another"
        if "--to-version" not in words:
            assert run.last.version >= latest, f"folded through {run.last}, and there are rows at {latest}"
        since = ledger.since()[0][0] if ledger.since() else 0
        end = int(words[words.index("--to-version") + 1]) if "--to-version" in words else run.last.version
        stale = [v for v, inputs in model.folded.items() if since <= v <= end and inputs != model.at(v, self.program)]
        assert not stale, f"versions {stale} were folded from other inputs"
        claims = Claims(ledger, ("version",))
        for version in range(since, min(end, run.last.version) + 1):
            doubts = {name: claims.doubt(time_of(version), name)[0] for name in self.plans[self.program].outputs}
            first = ledger.first_ingested()
            if version not in model.exempt and first is not None and version >= first.version:
                assert not any(doubts.values()), f"version {version}: {doubts}"

    def _tail(self, ledger: Ledger, ended: Ended, words: Sequence[str], tables: set[str]) -> None:
        outputs = {name for plan in self.plans.values() for name in plan.outputs} - {"shape"}
        run = ledger.current_run()
        for name in sorted(outputs):
            tailer = self.tailers.setdefault(name, Tailer(self.project / "warehouse" / "outputs" / name))
            rows = tailer.read()
            net = self.nets.setdefault(name, Log())
            if rows is not None:
                columns = [c for c in rows.columns if not c.startswith("_") and c not in ("version", "diff")]
                gone = rows.filter(pl.col("_change_type") == "delete")
                may = self.may_rewrite or f"outputs/{name}" not in tables
                assert may or gone.is_empty(), f"{name}: rows were taken back: {gone.rows()}"
                for row in rows.select(*columns, "version", "diff", "_change_type").iter_rows():
                    net[row[:-3], row[-3]] += row[-2] if row[-1] == "insert" else -row[-2]
        if words[0] != "run" or ended.code != 0 or run is None or run.published_from is not None:
            return
        since = ledger.since()[0][0] if ledger.since() else 0
        for name, schema in self.plans[self.program].outputs.items():
            if name in outputs:
                log = self._log("outputs", name, list(schema), ledger.table(f"outputs/{name}"))
                followed = advanced(self.nets[name], since)
                assert followed == advanced(log, since), f"{name}: who follows it has {followed}, and the ledger {log}"

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Whatever happened: plain runs go on, and everything anew gives the law at every version."""
        if not self.ledger.inputs():
            return
        self.command(["run"])
        rng = random.Random(self.count)
        words, name = self._ingest(rng)
        ended = self.command(words, name)
        assert ended.code in (0, 1)
        self.command(["run"])
        assert self.command(["run"]).code == 0
        self.command(["run", "--full-refresh"])
        assert not self.model.exempt


def called(*words: str, warm: Warm | None = None) -> Ended:
    """A command in this process, which has its kernels loaded, without the command line."""
    values = {word: words[index + 1] for index, word in enumerate(words[:-1]) if word.startswith("--")}
    project = find_project(Path(values["--project"]), {})
    number = {word: int(value) for word, value in values.items() if value.isdecimal()}
    out: list[str] = []
    try:
        if "--undo" in words:
            undo(project, number["--undo"], restate="--late" in words)
        elif words[0] == "ingest":
            restate = values.get("--restate")
            report = ingest(
                project, words[1], [words[2]],
                IngestSettings(label=(values["--label"],) if "--label" in values else (),
                               late=values.get("--late", "refuse"),
                               restate=restate if restate in (None, "first") else time_of(number["--restate"])),
                engine="inline",
            )  # fmt: skip
            out = [json.dumps({"nothing_new": report.nothing_new})]
        elif words[0] == "compact":
            compact(project, since=time_of(number.get("--since")))
        else:
            replay.run(
                project, first=time_of(number.get("--from-version")), last=time_of(number.get("--to-version")),
                engine="inline", full_refresh="--full-refresh" in words, corrections=values.get("--corrections"),
                warm=warm,
            )  # fmt: skip
    except DdError as error:
        return Ended(error.exit_code, [], [f"error: {error.message}", error.hint])
    return Ended(0, out, [])


def advanced(log: Log, since: int) -> Log:
    total = Log()
    for (row, version), diff in log.items():
        total[row, max(version, since)] += diff
    return Log({key: diff for key, diff in total.items() if diff})


def write(point: Path, program: str, marks: bool | None, *, auto: bool, versions: int, days: int) -> None:
    """A project, with both inputs or with those that its program reads."""
    point.mkdir(parents=True, exist_ok=True)
    marks = "marks" in INPUTS[program] if marks is None else marks
    (point / "program.py").write_text(PROGRAMS[program])
    text = _SETTINGS.format(marks=_MARKS if marks else "", auto=str(auto).lower(), versions=versions, days=days)
    (point / "dd.toml").write_text(text)


@functools.cache
def programs_in(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plans and the functions of all programs, by their names."""
    plans, functions = {}, {}
    for name in PROGRAMS:
        write(folder / name, name, None, auto=False, versions=100, days=7)
        project = find_project(folder / name, {})
        plans[name], functions[name] = load_plan(project), load_program(project)
    return plans, functions
