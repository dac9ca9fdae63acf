"""Some outputs alone: they go ahead of the others, and the law holds for each output at all versions it says it has."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pages
import pytest
from notation import dims_of
from programs import case
from seeds import seeds
from trams import Command
from warehouses import project_of

import ddcore as dd
from ddcore import reference
from ddcore.base.errors import DdError
from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.records import PartRecord
from ddcore.io.project.frontiers import is_open, nothing_closed
from ddcore.io.project.program import load_plan, load_program
from ddcore.io.project.project import Project, RetentionSettings
from ddcore.io.project.times import Time
from ddcore.io.reading.folded import ledger_of, output_log
from ddcore.jobs import replay
from ddcore.jobs.compact import compact
from ddcore.jobs.verify import Selection, Verification
from ddcore.planning.planner import build
from ddcore.planning.selecting import selected, sources_of

VIEWS = """
CREATE VIEW paid AS SELECT customer, price FROM orders WHERE status = 'paid';
CREATE VIEW totals AS SELECT customer, sum(price) AS total FROM paid GROUP BY customer;
CREATE VIEW cities AS SELECT city, sum(total) AS total FROM totals JOIN customers USING (customer) GROUP BY city;
CREATE VIEW people AS SELECT count(*) AS n FROM customers;
"""
PROJECT = """
[project]
program = "views.sql"
[run]
engine = "inline"
[inputs.orders]
schema = { id = "int64", customer = "int64", status = "string", price = "int64" }
[inputs.customers]
schema = { customer = "int64", city = "string" }
[outputs.cities]
table = true
tags = ["hourly"]
[tests.positive]
empty = "totals"
where = "total < 0"
"""


@pytest.fixture
def shop(tmp_path: Path, dd: Command) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "dd.toml").write_text(PROJECT)
    (folder / "views.sql").write_text(VIEWS)
    give(folder, dd, "orders", "id,customer,status,price,version,diff\n1,1,paid,5,0,1\n2,2,open,7,0,1\n")
    give(folder, dd, "customers", "customer,city,version,diff\n1,Rome,0,1\n2,Oslo,0,1\n")
    return folder


def give(folder: Path, dd: Command, name: str, rows: str) -> tuple[int, Any, Any]:
    file = folder / f"{name}-{len(list(folder.iterdir()))}.csv"
    file.write_text(rows)
    return dd("ingest", name, str(file), "--project", str(folder))


def totals(lines: list[str]) -> set[int]:
    """Of what ``show`` prints of rows the columns that are sums."""
    return {int(line.split()[1]) for line in lines[lines.index("") + 2 :]}


def test_one_output_goes_ahead(shop: Path, dd: Command) -> None:
    run = ("run", "--project", str(shop))
    assert dd(*run)[0] == 0
    give(shop, dd, "orders", "id,customer,status,price,version,diff\n2,2,open,7,1,-1\n2,2,paid,7,1,1\n")
    code, out, err = dd(*run, "--select", "tag:hourly")
    assert code == 0 and "cities went ahead of the other outputs" in "\n".join(err), err
    assert json.loads(out[-1])["selected"] == ["cities"]
    assert [table["output"] for table in json.loads(out[-1])["published"]] == ["cities"], "its table as well"
    show = ("show", "--project", str(shop))
    assert totals(dd(*show, "cities")[1]) == {5, 7} and totals(dd(*show, "totals")[1]) == {5}
    code, _, err = dd(*show, "totals", "--at", "1")
    assert code == 2 and "version 1 is not yet complete" in err[0]
    assert "run 2" in "\n".join(dd("log", "--project", str(shop))[1])
    code, _, err = give(shop, dd, "orders", "id,customer,status,price,version,diff\n3,1,paid,9,1,1\n")
    assert code != 0 and "late" in "\n".join(err), "version 1 is complete in an output"
    assert json.loads(dd(*run, "--select", "cities")[1][-1])["nothing_new"]
    assert "commits" not in "\n".join(dd("doctor", "--project", str(shop))[1]), "the ledger names them"
    assert dd("verify", "--project", str(shop), "--at", "1", "cities")[0] == 0
    assert json.loads(dd(*run)[1][-1])["nothing_new"] is False
    assert totals(dd(*show, "totals")[1]) == {5, 7}
    assert dd("verify", "--project", str(shop), "--at", "0..1")[0] == 0
    rows = [json.loads(line) for line in dd("diff", "cities", "0", "1", "--project", str(shop), "--json")[1]]
    assert sum("Oslo" in str(row) for row in rows) == 1, "what went ahead is in the log once"


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["totals"], {"totals", "tests.positive"}),
        (["+totals"], {"paid", "totals", "tests.positive"}),
        (["totals+"], {"totals", "cities", "tests.positive"}),
        (["+cities"], {"paid", "totals", "cities", "tests.positive"}),
        (["p*"], {"paid", "people"}),
        (["customers+"], {"cities", "people"}),
        (["tag:hourly", "people"], {"cities", "people"}),
        (["+tag:hourly"], {"paid", "totals", "cities", "tests.positive"}),
    ],
)
def test_what_texts_name(texts: list[str], names: set[str], shop: Path) -> None:
    from ddcore.io.project.finding import find_project

    project = find_project(shop, {})
    tags = {name: one.tags for name, one in project.outputs.items()}
    assert selected(load_plan(project), texts, tags) == names


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--select", "total"], "--select 'total' names no output\n  did you mean 'totals'?"),
        (["--select", "orders"], "the outputs that read it are: --select orders+"),
        (["--select", "tag:daily"], "'tag:daily' names no output"),
        (["--select", "++"], "--select '++' names nothing"),
        (["--select", "totals", "--full-refresh"], "--full-refresh: it concerns all outputs"),
        (["--select", "totals"], "nothing is folded yet, which concerns all outputs"),
    ],
)
def test_wrong_selections(options: list[str], says: str, shop: Path, dd: Command) -> None:
    code, _, err = dd("run", "--project", str(shop), *options)
    assert code == 2 and says in "\n".join(err), err


def test_a_changed_program_is_folded_whole_first(shop: Path, dd: Command) -> None:
    assert dd("run", "--project", str(shop))[0] == 0
    (shop / "views.sql").write_text(VIEWS.replace("'paid'", "'open'"))
    code, _, err = dd("run", "--project", str(shop), "--select", "cities")
    assert code == 2 and "the program has changed since run 1" in err[0], err


def test_a_data_test_that_warns_is_told(shop: Path, dd: Command) -> None:
    (shop / "dd.toml").write_text(PROJECT + 'severity = "warn"\n')
    assert dd("run", "--project", str(shop))[0] == 0
    give(shop, dd, "orders", "id,customer,status,price,version,diff\n3,1,paid,-9,1,1\n")
    code, out, err = dd("run", "--project", str(shop), "--select", "totals")
    assert code == 0 and [broken["test"] for broken in json.loads(out[-1])["broken_tests"]] == ["positive"], err


def test_folding_again_concerns_all_outputs(shop: Path, dd: Command) -> None:
    assert dd("run", "--project", str(shop))[0] == 0
    code, _, err = dd("run", "--project", str(shop), "--select", "totals", "--from-version", "0")
    assert code == 2 and "--from-version 0: it concerns all outputs" in err[0], err


def test_plan_and_verify_of_some_outputs(shop: Path, dd: Command) -> None:
    assert dd("run", "--project", str(shop))[0] == 0
    plan = json.loads(dd("plan", "--project", str(shop), "--select", "+totals", "--json")[1][0])
    assert {box["output"] for box in plan["operators"] if box.get("output")} <= {"paid", "totals", "tests.positive"}
    assert "people" not in json.dumps(plan) and "totals" in json.dumps(plan)
    code, out, _ = dd("verify", "--project", str(shop), "--select", "totals+")
    told = {line.split()[1] for line in out if line.startswith("holds") and " at " in line}
    assert code == 0 and told == {"totals", "cities", "tests.positive"}
    assert dd("verify", "totals", "--project", str(shop), "--select", "totals")[0] == 2


def test_the_page_is_what_happens(tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pages.follow("selecting.md", tmp_path, dd, monkeypatch, steps=13)


def test_outputs_of_python_that_are_one_collection() -> None:
    def program(words: Any) -> dict[str, Any]:
        once = words.distinct()
        return {"a": once, "b": once, "c": once.group_by("w").agg(n=dd.count())}

    plan = build(program, {"words": {"w": "string"}})
    assert sources_of(plan) == {"a": {"words"}, "b": {"words"}, "c": {"words", "a", "b"}}


class Killed(BaseException):
    """In the place of a signal, after the tables and before the record."""


@pytest.mark.sample(1)
@pytest.mark.parametrize("steps", [3, pytest.param(6, marks=pytest.mark.long)])
@pytest.mark.parametrize("seed", seeds(6))
def test_the_law_holds_however_outputs_go_ahead(
    seed: int, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, rng = usable(seed), random.Random(seed)
    project = project_of(tmp_path / "project", drawn)
    if seed % 2:  # what nothing needs is deleted at once
        project = replace(project, retention=RetentionSettings(versions=0, days=0))
    rows = (time for frame in drawn.frames.values() for time in frame.select(project.dims).rows())
    times = sorted(reference.grid(rows))
    names = list(load_plan(project).outputs)
    print(f"seed {seed}\n{drawn}")
    replay.run(project, last=Time(times[0]), engine="inline")
    for step in range(steps):
        way, last = rng.choice(["part", "part", "part", "killed", "whole", "compacted"]), Time(rng.choice(times))
        chosen = [name for name in names if rng.random() < 0.5] or names[:1]
        print(step, way, last, chosen)
        if way == "compacted" and ledger_of(project).open_intent() is None:
            compact(project)
            check(project, drawn, times)
            continue
        with monkeypatch.context() as patch:
            if way == "killed":
                patch.setattr(Ledger, "append", killing(Ledger.append))
            with suppress(Killed):
                replay.run(project, last=last, select=() if way == "whole" else chosen, engine="inline")
        check(project, drawn, times)
    replay.run(project, engine="inline")
    check(project, drawn, times)
    assert ledger_of(project).ahead() is None


def killing(append: Any) -> Any:
    def appended(self: Ledger, record: Any) -> None:
        if isinstance(record, PartRecord):
            raise Killed
        append(self, record)

    return appended


def check(project: Project, drawn: Any, times: list[Any]) -> None:
    """Each output at each time that it has, against the definitions; and what ``dd verify`` says."""
    logs, ledger = reference.replay(load_program(project), project.dims, None, **drawn.frames), ledger_of(project)
    for name, expected in logs.items():
        log, upper = output_log(project, name, ledger), ledger.upper_of(name) or nothing_closed(project.dims)
        for time in times:
            if is_open(time, upper):
                continue
            total: Counter[Any] = Counter()
            for (row, when), diff in expected.items():
                total[row] += diff if reference.precedes(when, time) else 0
            found: Counter[Any] = Counter()
            for (row, when), diff in reference.log_of(log.updates(None, None), project.dims).items():
                found[row] += diff if reference.precedes(when, time) else 0
            wanted, got = ({row: n for row, n in counts.items() if n} for counts in (total, found))
            assert got == wanted, f"{name} at {time}"
    verification = Verification(project, by="reference")
    outputs = verification.outputs()
    assert all(one.holds for one in verification.verdicts(verification.times(Selection(), outputs), outputs))


def usable(seed: int) -> Any:
    """A case whose program has no error, and needs no instants."""
    for number in range(500_000 + 100 * seed, 500_100 + 100 * seed):
        drawn = case(number, plain=True)
        if "dd.now()" in drawn.source:
            continue
        try:
            reference.replay(drawn.program, dims_of(drawn.frames), None, **drawn.frames)
        except DdError:
            continue
        return drawn
    raise AssertionError(f"no usable case for seed {seed}")
