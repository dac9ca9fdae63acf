"""Columns of inputs that are renamed, widened or dropped by a line in dd.toml: nothing is rewritten, and the law holds.

A random history is taken in and folded in steps; between them columns change. A model of the history in plain Python
changes alike, and the reference evaluates the program over it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pages
import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from seeds import nightly, seeds
from warehouses import log_of

import ddcore
from ddcore import reference
from ddcore.base.errors import DataError, ProgramError, StorageError, UsageError
from ddcore.base.schema import parse_schema, parse_type
from ddcore.base.tuning import Tuning
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_plan, load_program
from ddcore.io.project.project import Project
from ddcore.io.project.stored_columns import common, widens
from ddcore.io.storage.warehouse import Warehouse
from ddcore.jobs import replay
from ddcore.jobs.compact import compact
from ddcore.jobs.ingest import IngestSettings, ingest
from ddcore.jobs.undo import undo
from ddcore.jobs.verify import Selection, Verification

VERSION = ("version",)
WIDER = {"int64": ["decimal(38,2)", "float64", "decimal(25,0)"], "decimal(25,0)": ["decimal(38,4)"],
         "decimal(10,2)": ["decimal(38,2)", "decimal(20,5)"], "date": ["timestamp"]}  # fmt: skip

FIRST = {
    "id": "int64", "grp": "string", "total": "int64", "price": "decimal(10,2)", "day": "date", "note": "string"
}  # fmt: skip


@dataclass
class Life:
    """A project with the input ``orders``, and a model of it: its columns, and its updates by their present names."""

    folder: Path
    rng: random.Random
    schema: dict[str, str] = field(default_factory=lambda: dict(FIRST))
    first: dict[str, str] = field(default_factory=dict)  # the first names of renamed columns
    older: dict[str, list[str]] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=lambda: {name: name for name in ("id", "grp", "total", "day")})
    updates: list[tuple[dict[str, Any], int, int]] = field(default_factory=list)
    steps: int = 0

    def write(self) -> Project:
        """Write dd.toml and the program."""
        self.folder.mkdir(exist_ok=True)
        tables: dict[str, Mapping[str, Any]] = {
            "schema": self.schema,
            "renamed": self.first,
            "widened": self.older,
            "dropped": self.dropped,
        }
        lines = ["[project]", 'program = "program.py:program"', "[run]", 'engine = "inline"', "[inputs.orders]"]
        lines += [
            f"{key} = {{ {', '.join(f'{name} = {json.dumps(value)}' for name, value in table.items())} }}"
            for key, table in tables.items()
            if table
        ]
        (self.folder / "dd.toml").write_text("\n".join(lines) + "\n")
        role = self.roles
        (self.folder / "program.py").write_text(
            "import ddcore as dd\n\n\ndef program(orders):\n"
            f"    sums = orders.group_by('{role['grp']}').agg(n=dd.count(), top=dd.max('{role['total']}'))\n"
            f"    pairs = orders.select('{role['id']}', a='{role['grp']}').join(\n"
            f"        orders.select('{role['id']}', b='{role['day']}'), on='{role['id']}')\n"
            "    return {'sums': sums, 'pairs': pairs.distinct(), 'whole': orders,\n"
            f"            'days': orders.select('{role['day']}', '{role['total']}').distinct()}}\n"
        )
        return find_project(self.folder, {})

    def value(self, kind: str) -> Any:
        """A value of a type; narrow ones come often."""
        rng = self.rng
        if rng.random() < 0.15:
            return None
        number = rng.randrange(-3, 4)
        day = date(2026, 1, 1) + timedelta(number)
        drawn = {
            "int64": number, "float64": rng.choice([float(number), number + 0.5]), "string": rng.choice("ab"),
            "date": day, "timestamp": datetime(day.year, day.month, day.day, rng.choice([0, 7]), tzinfo=UTC),
        }  # fmt: skip
        return drawn[kind] if kind in drawn else Decimal(number) / (1 if kind.endswith(",0)") else 4)

    def ingest(self, project: Project) -> None:
        """Take in some updates, as Parquet or CSV, sometimes with columns of their former names and types."""
        rng, version = self.rng, self.steps
        self.steps += 1
        rows: list[tuple[dict[str, Any], int]] = []
        for _ in range(rng.randrange(1, 5)):
            rows.append(({name: self.value(kind) for name, kind in self.schema.items()}, 1))
        held = Counter[Any]()
        for row, _, diff in self.updates:
            held[tuple(row.items())] += diff
        for row in rng.sample([row for row, count in held.items() if count > 0], k=min(2, len(+held))):
            rows.append((dict(row), -1))
        kinds = {name: kind.polars for name, kind in parse_schema(self.schema).items()}
        frame = pl.DataFrame(
            [[*row.values(), version, diff] for row, diff in rows],
            {**kinds, "version": pl.Int64, "diff": pl.Int64}, orient="row",
        )  # fmt: skip
        self.updates += [(row, version, diff) for row, diff in rows]
        if rng.random() < 0.4:
            frame = frame.rename(self.first)
        if self.dropped and rng.random() < 0.5:
            frame = frame.with_columns(pl.lit("x").alias(name) for name in self.dropped)
        path = self.folder / f"orders-{version}.{rng.choice(['csv', 'parquet'])}"
        for name, kinds_before in self.older.items() if path.suffix == ".parquet" else ():
            narrow = parse_type(kinds_before[0]).polars
            source = self.first.get(name, name) if self.first.get(name, name) in frame.columns else name
            try:
                lower = frame[source].cast(narrow)
            except pl.exceptions.PolarsError:
                continue
            if self.schema[name] != "timestamp" and lower.cast(frame[source].dtype).equals(frame[source]):
                frame = frame.with_columns(lower)
        if path.suffix == ".csv":
            frame.write_csv(path, datetime_format="%Y-%m-%dT%H:%M:%S%z", quote_style="necessary")
        else:
            frame.write_parquet(path)
        report = ingest(project, "orders", [str(path)], IngestSettings(), engine="inline")
        assert report.rows == len(frame)

    def evolve(self) -> str:
        """One change of a column, in the model and in what dd.toml says."""
        rng = self.rng
        ways = [("rename", name) for name in self.schema]
        ways += [("widen", name) for name, kind in self.schema.items() if kind in WIDER] * 3
        ways += [("drop", name) for name in self.schema if name not in self.roles.values()] * 2
        ways += [("add", f"more_{self.steps}_{len(self.schema)}")]
        way, name = rng.choice(ways)
        if way == "rename":
            new = f"c{rng.randrange(10**6)}"
            self.schema = {new if column == name else column: kind for column, kind in self.schema.items()}
            self.first[new] = self.first.pop(name, name)
            self.older = {new if column == name else column: kinds for column, kinds in self.older.items()}
            self.roles = {role: new if column == name else column for role, column in self.roles.items()}
            self.updates = [
                ({new if c == name else c: v for c, v in row.items()}, at, n) for row, at, n in self.updates
            ]
        elif way == "widen":
            kind = rng.choice(WIDER[self.schema[name]])
            self.older.setdefault(name, []).append(self.schema[name])
            self.schema[name] = kind
            self.updates = [({**row, name: wide(row[name], kind)}, at, n) for row, at, n in self.updates]
        elif way == "drop":
            self.dropped[self.first.pop(name, name)] = self.older.get(name, [self.schema[name]])[0]
            for extra, before in self.suffixed(name):
                self.dropped[extra] = before
            del self.schema[name]
            self.older.pop(name, None)
            self.updates = [({c: v for c, v in row.items() if c != name}, at, n) for row, at, n in self.updates]
        else:
            self.schema[name] = "string"
            self.updates = [({**row, name: None}, at, n) for row, at, n in self.updates]
        return f"{way} {name}"

    def suffixed(self, name: str) -> list[tuple[str, str]]:
        """The further columns of the table that a widened column has."""
        project = find_project(self.folder, {})
        parts = project.stored["orders"].parts[name][1:] if "orders" in project.stored else ()
        return [(column, str(kind)) for column, kind in parts]

    def frame(self) -> pl.DataFrame:
        """The model's updates, each (row, version) once."""
        kinds = {name: kind.polars for name, kind in parse_schema(self.schema).items()}
        rows = [[*row.values(), version, diff] for row, version, diff in self.updates]
        return pl.DataFrame(rows, {**kinds, "version": pl.Int64, "diff": pl.Int64}, orient="row")


def wide(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "timestamp":
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return float(value) if kind == "float64" else Decimal(value)


def contents(log: Mapping[Any, int], version: int) -> dict[Any, int]:
    """The collection that a log adds up to at a version."""
    total: Counter[Any] = Counter()
    for (row, time), diff in log.items():
        if time[0] <= version:
            total[row] += diff
    return {row: count for row, count in total.items() if count}


def check_law(life: Life, project: Project, *, everywhere: bool = False) -> None:
    """Outputs at the last version, or at all, are what the program gives for the model's history."""
    plan = load_plan(project)
    expected = reference.replay(load_program(project), VERSION, orders=life.frame())
    last = life.steps - 1
    for name, schema in plan.outputs.items():
        log = reference.log_of(log_of(project, name, schema), VERSION)
        for version in range(last + 1) if everywhere else [last]:
            assert contents(log, version) == contents(expected[name], version), (name, version)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", nightly(seeds(60, share=5), 5))
def test_the_law_holds_across_random_evolutions(seed: int, tmp_path: Path) -> None:
    life = Life(tmp_path / "project", random.Random(seed))
    project = life.write()
    for _ in range(5):
        for _ in range(life.rng.randrange(1, 3)):
            life.ingest(project)
        replay.run(project, engine="inline")
        if life.rng.random() < 0.2:
            compact(project)
        if Ledger.load(Warehouse(project.warehouse)).current_run().corrections:  # type: ignore[union-attr]
            life.ingest(project)
            replay.run(project, engine="inline")
        check_law(life, project)
        print(f"seed {seed}, version {life.steps - 1}: {life.evolve()}")
        project = life.write()
    replay.run(project, engine="inline", full_refresh=True)
    check_law(life, project, everywhere=True)
    verdicts = [*Verification(project, by="scratch").verdicts(Verification(project).times(Selection(), ["whole"]),
                                                              ["whole", "sums"])]  # fmt: skip
    assert verdicts and all(verdict.holds for verdict in verdicts)


# --- single cases -----------------------------------------------------------------------------------------------------

SCHEMA = '{ id = "int64", total = "int64", note = "string" }'
EVOLVED = '{ id = "int64", amount = "decimal(38,2)" }'
PAST = 'renamed = { amount = "total" }\nwidened = { amount = "int64" }\ndropped = { note = "string" }\n'


def shop(folder: Path, schema: str = SCHEMA, past: str = "", column: str = "total") -> Project:
    """A project whose program adds up a column."""
    folder.mkdir(exist_ok=True)
    (folder / "dd.toml").write_text(
        '[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n'
        f"[inputs.orders]\nschema = {schema}\n{past}"
    )
    (folder / "program.py").write_text(
        "import ddcore as dd\n\n\ndef program(orders):\n"
        f"    return {{'sums': orders.group_by('id').agg(sum=dd.sum('{column}')),\n"
        "            'ids': orders.select('id').distinct()}\n"
    )
    return find_project(folder, {})


def taken(project: Project, name: str, text: str, **settings: Any) -> Any:
    """Ingest a CSV file of this text."""
    (project.root / name).write_text(text)
    return ingest(project, "orders", [str(project.root / name)], IngestSettings(**settings), engine="inline")


def rows(project: Project, output: str) -> list[Any]:
    frame = log_of(project, output, load_plan(project).outputs[output])
    names = [name for name in frame.columns if name not in ("version", "diff")]
    sums = frame.group_by(names).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    return sums.select(names).sort(names).rows()


@pytest.fixture
def before(tmp_path: Path) -> Project:
    """Two rows were taken in and folded."""
    project = shop(tmp_path / "project")
    taken(project, "a.csv", "id,total,note\n1,5,x\n2,7,y\n", form="append")
    replay.run(project, engine="inline")
    return project


def test_nothing_is_rewritten_and_other_arrangements_stay(before: Project) -> None:
    files = set(DeltaTable(str(before.warehouse / "inputs" / "orders")).file_uris())
    run = Ledger.load(Warehouse(before.warehouse)).current_run()
    project = shop(before.root, EVOLVED, PAST, "amount")
    report = replay.run(project, engine="inline")
    assert report.notes[0] == "the program has changed: kept 2 of 4 arrangements, built 2"
    now = Ledger.load(Warehouse(project.warehouse)).current_run()
    assert run is not None and now is not None and len({*run.arrangements} & {*now.arrangements}) == 2
    assert rows(project, "sums") == [(1, Decimal("5.00")), (2, Decimal("7.00"))]
    taken(project, "b.csv", "id,amount\n1,0.25\n", form="append")
    replay.run(project, engine="inline")
    assert rows(project, "sums") == [(1, Decimal("5.25")), (2, Decimal("7.00"))]
    table = DeltaTable(str(before.warehouse / "inputs" / "orders"))
    assert files < set(table.file_uris()) and table.protocol().min_reader_version == 1
    assert [field.name for field in table.schema().fields] == [
        "id", "total", "note", "version", "diff", "total_decimal_38_2"
    ]  # fmt: skip


def test_sources_of_before_stay_known(before: Project) -> None:
    """By their rows, under any name; one that has grown goes on after what it had."""
    project = shop(before.root, EVOLVED, PAST, "amount")
    assert taken(project, "copy.csv", "id,total,note\n1,5,x\n2,7,y\n", form="append").nothing_new
    grown = taken(project, "a.csv", "id,total,note\n1,5,x\n2,7,y\n3,9,z\n", form="append")
    assert grown.plus == 1 and any("taken in after row 3" in note for note in grown.notes), grown.notes
    undo(project, grown.ingest)
    assert taken(project, "wide.csv", "id,amount\n1,5.5\n", form="append").plus == 1
    replay.run(project, engine="inline")
    assert rows(project, "sums") == [(1, Decimal("10.50")), (2, Decimal("7.00"))]


def test_a_snapshot_with_new_columns_has_no_differences(before: Project, tmp_path: Path) -> None:
    project = shop(before.root, EVOLVED, PAST, "amount")
    report = taken(project, "snap.csv", "id,amount\n1,5.00\n2,7\n3,1.5\n", form="snapshot")
    assert (report.plus, report.minus) == (1, 0)
    report = taken(project, "snap2.csv", "id,amount\n2,7\n3,1.5\n", form="snapshot")
    assert (report.plus, report.minus) == (0, 1), "it retracts a row that was stored under the former name and type"
    replay.run(project, engine="inline")
    assert rows(project, "sums") == [(2, Decimal("7.00")), (3, Decimal("1.50"))]


def test_a_dropped_column_does_not_come_back_over_rows_without_it(before: Project) -> None:
    shop(before.root, '{ id = "int64", total = "int64" }', 'dropped = { note = "string" }\n')
    back = shop(before.root)
    replay.run(back, engine="inline")  # no row came without it
    without = shop(before.root, '{ id = "int64", total = "int64" }', 'dropped = { note = "string" }\n')
    taken(without, "b.csv", "id,total\n3,1\n", form="append")
    back = shop(before.root)
    for refused in (
        lambda: taken(back, "c.csv", "id,total,note\n4,1,x\n", form="append"),
        lambda: replay.run(back, engine="inline"),
    ):
        with pytest.raises(StorageError, match="note was dropped, and rows were taken in without it since") as caught:
            refused()
        assert "keep dropped = { note = TYPE }" in caught.value.hint
    undo(without, 2)
    replay.run(shop(before.root), engine="inline")


def test_a_name_that_comes_to_mean_another_column_is_another_column(before: Project) -> None:
    """The fingerprint says where the values are: no arrangement of before is taken for the new one."""
    project = shop(before.root, '{ id = "int64", amount = "int64" }', 'renamed = { amount = "total" }\n'
                   'dropped = { note = "string" }\n', "amount")  # fmt: skip
    replay.run(project, engine="inline")
    assert rows(project, "sums") == [(1, 5), (2, 7)]
    # Renamed back, and a new column gets the name.
    again = shop(before.root, '{ id = "int64", total = "int64", amount = "int64" }',
                 'dropped = { note = "string" }\n', "amount")  # fmt: skip
    replay.run(again, engine="inline")
    taken(again, "b.csv", "id,total,amount\n1,1,100\n", form="append")
    replay.run(again, engine="inline")
    assert rows(again, "sums") == [(1, 100), (2, 0)]


def test_whole_numbers_that_float64_does_not_hold_are_refused(tmp_path: Path) -> None:
    project = shop(tmp_path / "project")
    taken(project, "a.csv", f"id,total,note\n1,{2**53 + 1},x\n", form="append")
    wider = shop(
        project.root, SCHEMA.replace('total = "int64"', 'total = "float64"'), 'widened = { total = "int64" }\n'
    )
    with pytest.raises(
        StorageError, match=r"total has 9007199254740993, which float64 does not hold exactly"
    ) as caught:
        replay.run(wider, engine="inline")
    assert 'total = "decimal(38,2)"' in caught.value.hint


@pytest.mark.parametrize(
    ("schema", "past", "words"),
    [
        ('{ id = "int64", amount = "decimal(38,2)" }', "",
         ['renamed = { amount = "total" }', 'widened = { amount = "int64" }', 'dropped = { note = "string" }']),
        ('{ id = "int64", total = "float64", note = "string" }', "", ['widened = { total = "int64" }']),
        ('{ id = "int64", total = "int64" }', "", ['dropped = { note = "string" }']),
        ('{ id = "int64", total = "string", note = "string" }', "", ["restore the schema of total"]),
    ],
    ids=["all", "widened", "dropped", "narrowed"],
)  # fmt: skip
def test_a_schema_without_its_line_is_refused_with_the_line(
    before: Project, schema: str, past: str, words: list[str], dd: Any
) -> None:
    shop(before.root, schema, past)
    code, _, told = dd("ingest", "orders", "--append", str(before.root / "a.csv"), "--project", str(before.root))
    assert code == 1 and told[0].startswith("error: inputs/orders has the columns"), told
    assert all(word in told[1] for word in words) and len(told) == 2, told


@pytest.mark.parametrize(
    ("past", "message"),
    [
        ('renamed = { sum = "total" }', "renamed.sum: the schema has no column 'sum'"),
        ('renamed = { note = "total" }', "the log's column 'total' would be that of total and of note"),
        ("renamed = { note = 1 }", "renamed.note: must be the name that the column had, not 1"),
        ('renamed = ["note"]', "renamed: must be a table"),
        ('widened = { total = "string" }', "widened.total: string does not widen to int64"),
        ('widened = { total = "nothing" }', "widened.total: must be the name of a type, not 'nothing'"),
        ('widened = { amount = "int64" }', "widened.amount: the schema has no column 'amount'"),
        ('dropped = { total = "int64" }', "dropped.total: the schema still has this column"),
        ('dropped = { TOTAL = "int64" }', "the log's column 'TOTAL' would be that of total and of dropped.TOTAL"),
        ('dropped = ["x"]', "dropped: must be a table"),
        ('dropped = { x = "int" }', "dropped.x: must be the name of a type"),
        ('renamed = { note = "version" }', "the log's column 'version' would be that of the log and of note"),
    ],
)  # fmt: skip
def test_lines_that_cannot_be_are_refused(past: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        shop(tmp_path / "project", past=f"{past}\n")
    assert f"[inputs.orders] {message}" in caught.value.message or message in caught.value.message
    assert "\n" not in caught.value.message


def test_a_program_that_reads_a_dropped_or_renamed_column_is_told(before: Project) -> None:
    project = shop(before.root, EVOLVED, PAST, "total")
    with pytest.raises(ProgramError) as caught:
        load_plan(project)
    assert "total" in caught.value.message and "total is amount now" in caught.value.hint
    project = shop(before.root, EVOLVED, PAST, "note")
    with pytest.raises(ProgramError) as caught:
        load_plan(project)
    assert "note was dropped from the input orders" in caught.value.hint


def test_a_source_that_changes_alone_says_what_to_write(before: Project) -> None:
    with pytest.raises(DataError) as caught:
        taken(before, "b.csv", "id,amount,note\n3,1,z\n", form="append")
    assert 'renamed = { NEW = "total" }' in caught.value.hint
    pl.DataFrame({"id": [3], "total": [1.5], "note": ["z"]}).write_parquet(before.root / "c.parquet")
    with pytest.raises(DataError) as caught:
        ingest(before, "orders", [str(before.root / "c.parquet")], IngestSettings(form="append"), engine="inline")
    assert (
        'total = "float64" into the schema' in caught.value.hint
        and 'widened = { total = "int64" }' in caught.value.hint
    )


def test_readers_see_the_present_columns(before: Project, dd: Any) -> None:
    project = shop(before.root, EVOLVED, PAST, "amount")
    taken(project, "b.csv", "id,amount\n1,0.25\n", form="append")
    replay.run(project, engine="inline")
    frame = ddcore.open(project.root).inputs["orders"].at(1).polars().sort("amount")
    assert frame.columns[:2] == ["id", "amount"] and frame["amount"].to_list() == [Decimal("0.25"), 5, 7]
    code, out, _ = dd("explain", "sums", "id=1", "--project", str(project.root))
    assert code == 0 and any("0.25" in line for line in out) and any("5.00" in line for line in out), out
    code, out, _ = dd("status", "--project", str(project.root))
    assert code == 0 and any(line.startswith("input") and line.endswith("id, amount") for line in out), out
    code, out, _ = dd("doctor", "--deep", "--project", str(project.root))
    assert code == 0, out


@pytest.mark.parametrize(
    ("narrow", "wider", "is_wider"),
    [
        ("int64", "float64", True), ("int64", "decimal(21,2)", True), ("int64", "decimal(20,2)", False),
        ("decimal(10,2)", "decimal(11,3)", True), ("decimal(10,2)", "decimal(10,3)", False),
        ("date", "timestamp", True), ("timestamp", "date", False), ("float64", "int64", False),
        ("int64", "string", False),
        ("decimal(10,2)", "decimal(10,2)", False), ("int64", "int64", False), ("list[int64]", "list[float64]", False),
    ],
)  # fmt: skip
def test_what_widens(narrow: str, wider: str, is_wider: bool) -> None:
    assert widens(parse_type(narrow), parse_type(wider)) is is_wider


def test_a_common_wider_type() -> None:
    def of(one: str, other: str) -> str | None:
        kind = common(parse_type(one), parse_type(other))
        return None if kind is None else str(kind)

    assert of("int64", "decimal(10,2)") == "decimal(38,2)" and of("int64", "float64") == "float64"
    assert of("decimal(10,2)", "decimal(12,4)") == "decimal(38,4)" and of("date", "timestamp") == "timestamp"
    assert of("string", "int64") is None and of("float64", "decimal(10,2)") is None


def test_the_page_is_what_happens(tmp_path: Path, dd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("columns.md", tmp_path, dd, monkeypatch, steps=18)


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "delta"])
@pytest.mark.parametrize("is_former", [True, False])
def test_sources_have_columns_of_now_or_of_before(form: str, is_former: bool, before: Project) -> None:
    project = shop(before.root, EVOLVED, PAST, "amount")
    values = [5] if is_former else [Decimal("2.50")]
    frame = pl.DataFrame({"id": [9], "total" if is_former else "amount": values})
    path = before.root / f"source.{form}"
    if form == "csv":
        frame.write_csv(path)
    elif form == "jsonl":
        path.write_text(f'{{"id": 9, "{frame.columns[1]}": {values[0]}}}\n')
    elif form == "parquet":
        frame.write_parquet(path)
    else:
        write_deltalake(str(path), frame.to_arrow())
    report = ingest(project, "orders", [str(path)], IngestSettings(form="append"), engine="inline")
    assert report.plus == 1 and not report.left_out
    replay.run(project, engine="inline")
    assert rows(project, "sums")[-1] == (9, Decimal(values[0]))


def test_events_by_a_key_that_was_renamed_and_widened(tmp_path: Path) -> None:
    project = shop(tmp_path / "project")
    taken(project, "a.csv", "op,id,total,note\nc,1,5,x\nc,2,7,y\n", form="op", op="op", key=("id",))
    (project.root / "dd.toml").write_text(
        '[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n[inputs.orders]\n'
        'schema = { number = "decimal(20,0)", total = "int64", note = "string" }\n'
        'renamed = { number = "id" }\nwidened = { number = "int64" }\n'
    )
    (project.root / "program.py").write_text("def program(orders):\n    return {'all': orders}\n")
    project = find_project(project.root, {})
    report = taken(project, "b.csv", "op,number,total,note\nu,1,6,z\nd,2,,\n", form="op", op="op", key=("number",))
    assert (report.plus, report.minus) == (1, 2)
    replay.run(project, engine="inline")
    assert rows(project, "all") == [(Decimal(1), 6, "z")]


def test_bounds_of_files_are_those_of_the_present_columns(tmp_path: Path) -> None:
    """Two columns change their names with each other: a condition on one skips nothing by the bounds of the other."""
    project = replace(shop(tmp_path / "project"), tuning=Tuning(group_rows=1))
    taken(project, "a.csv", "id,total,note\n1,500,x\n2,700,y\n", form="append")
    (project.root / "dd.toml").write_text(
        '[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n[inputs.orders]\n'
        'schema = { total = "int64", id = "int64", note = "string" }\nrenamed = { total = "id", id = "total" }\n'
    )
    project = find_project(project.root, {})
    replay.run(project, engine="inline")
    assert rows(project, "sums") == [(500, 1), (700, 2)]
    opened = ddcore.open(project.root).inputs["orders"]
    assert opened.at(0, where="total = 2").polars()["id"].to_list() == [700]
    assert opened.at(0, where="id < 600").polars()["total"].to_list() == [1]
