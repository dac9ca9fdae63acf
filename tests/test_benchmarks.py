"""What ``make bench`` needs is in the repository; its engine's side gives what scipy computes from scratch."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import ddcore as dd

pytestmark = pytest.mark.sample(4, of="benchmarks")

TOP = Path(__file__).resolve().parent.parent
NODES = 60
UNTRACKED = {".git", ".venv", "build", "dist", "demo", "__pycache__"}
WORKLOADS = {
    "components": "cc",
    "components, prioritised": "cc",
    "triangles per node": "triangles",
    "degrees": "degrees",
}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of ``bench/``, which is not part of the package."""
    monkeypatch.syspath_prepend(TOP)
    return lambda name: importlib.import_module(f"bench.{name}")


@pytest.mark.parametrize("workload", [*WORKLOADS, "bfs"])
def test_the_engine_gives_what_is_computed_from_scratch_at_every_version(
    workload: str, bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = 20261122
    print(f"seed {seed}")
    sizes = {"nodes": NODES, "edges": 90, "versions": 12, "delta": 6, "seed": seed}
    generate, check = bench("peers.generate"), bench("peers.check")
    generate.write(tmp_path / "graph", **sizes)
    edges, changes = generate.history(**sizes)
    files = (tmp_path / "graph.edges.bin", tmp_path / "graph.changes.bin")
    assert [file.stat().st_size for file in files] == [edges.nbytes, changes.nbytes]
    if workload == "bfs":
        bench("bfs_engine").main(*files)
    else:
        bench("graph_engine").main(workload, *files, NODES)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    count, checksum = check.expected(WORKLOADS.get(workload, workload), edges, changes, NODES)
    assert (figures["changes"], figures["checksum"]) == (count, checksum)
    assert count > 0
    if workload == "bfs":
        bench("bfs_engine").main(*files, each=True)
        one_by_one = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (one_by_one["changes"], one_by_one["checksum"]) == (count, checksum)


def test_the_closure_in_plain_python_is_that_of_the_engine(
    bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closures = bench("peers.closures")
    history = [("a", "b", 0, 1), ("b", "c", 0, 1), ("c", "a", 1, 1), ("b", "c", 2, -1), ("a", "b", 2, 1)]
    found = sorted(closures.differences(history), key=lambda change: (change[2], *change))
    assert found == [
        ("a", "b", 0, 1), ("a", "c", 0, 1), ("b", "c", 0, 1),
        ("a", "a", 1, 1), ("b", "a", 1, 1), ("b", "b", 1, 1), ("c", "a", 1, 1), ("c", "b", 1, 1), ("c", "c", 1, 1),
        ("a", "a", 2, -1), ("a", "c", 2, -1), ("b", "a", 2, -1), ("b", "b", 2, -1), ("b", "c", 2, -1),
        ("c", "c", 2, -1),
    ]  # fmt: skip
    log = tmp_path / "log.parquet"
    pl.read_parquet(bench("project").package_set()).filter(pl.col("version") < 100).write_parquet(log)
    for side in (closures, bench("closure_engine")):
        side.main(str(log))
    plain, ours = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (plain["changes"], plain["checksum"]) == (ours["changes"], ours["checksum"])
    assert ours["changes"] > 1_000


def test_a_growing_chain_is_checked(
    bench: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = bench("chain_engine")
    engine.main(40, 4)
    assert json.loads(capsys.readouterr().out)["changes"] == 40
    monkeypatch.setattr(engine, "longest_paths", lambda nodes, edges: {"lengths": nodes.select("node", length=1)})
    with pytest.raises(bench("measure").Failed, match="a chain of 40 nodes"):
        engine.main(40, 4)


def test_the_outputs_of_a_long_history_are_checked(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    engine = bench("history_engine")
    engine.main(40)
    figures = json.loads(capsys.readouterr().out)
    assert figures["updates"] > figures["input"] > 700
    outages = engine.history(10)
    outputs = dd.replay(engine.program, outages=outages)
    engine.check(outages, outputs, 9)
    for name, log in outputs.items():
        with pytest.raises(bench("measure").Failed, match=f"{name} is wrong at version 9"):
            engine.check(outages, outputs | {name: log[1:]}, 9)


def test_results_of_a_large_group_are_checked(bench: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    engine, measure = bench("large_groups_engine"), bench("measure")
    for aggregate in engine.AGGREGATES:
        engine.main(aggregate, 100)
    assert len(capsys.readouterr().out.splitlines()) == len(engine.AGGREGATES)
    group = engine.Group(100)
    logs = [group.load(), group.change()]
    assert logs[1]["diff"].to_list() == [-1] * 5 + [1] * 5
    log = dd.replay(bench("large_groups_program").min, rows=pl.concat(logs))["result"]
    group.check(log, "min")
    with pytest.raises(measure.Failed, match="min is"):
        group.check(log.filter(pl.col("version") == 0), "min")
    stored = bench("large_groups").Stored(tmp_path / "stored", "min", 100)
    assert stored.change()["cpu_s"] > 0


def test_results_of_look_ups_are_checked(bench: Any, tmp_path: Path) -> None:
    lookups, measure = bench("lookups"), bench("measure")
    table = lookups.Table(tmp_path, 300, 40)
    assert table.change(10)["cpu_s"] > 0
    assert 0 < table.change(20)["read"] < 100_000
    table.check()
    table.logs[0] = table.logs[0].with_columns(value=pl.col("value") - 1)
    with pytest.raises(measure.Failed, match="not that of the rows"):
        table.check()


def test_readings_in_a_moving_window_are_checked(
    bench: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, programs = bench("moving_filter_engine"), bench("moving_filter_program")
    monkeypatch.setattr(engine, "A_DAY", 24)
    for plan in ("by_order", "by_pairs"):
        engine.main(plan, 24 * 10)
    assert len(capsys.readouterr().out.splitlines()) == 2
    readings = engine.Readings(24 * 10)
    logs = [readings.load(), readings.change()]
    log = dd.replay(programs.by_order, readings=pl.concat(logs))["recent"]
    readings.check(log)
    with pytest.raises(bench("measure").Failed, match="168 readings from 72 to 239"):
        readings.check(log.filter(pl.col("version") == 0))
    stored = bench("moving_filter").Stored(tmp_path / "stored", "by_order", 24 * 10)
    assert stored.change()["cpu_s"] > 0


def test_explanations_of_a_part_and_of_everything_name_as_many_rows(
    bench: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explain, engine = bench("explain"), bench("explain_engine")
    for name, value in {"ORDERS": 2_000, "EMPLOYEES": 300, "EDGES": 200}.items():
        monkeypatch.setattr(explain, name, value)
    named = []
    for number, case in enumerate(explain.cases()):
        folder = tmp_path / str(number)
        folder.mkdir()
        explain.make_project(folder, case)
        for options in ((), ("--whole",)):
            engine.main(str(folder), case.output, case.key, *options)
        part, whole = (json.loads(line) for line in capsys.readouterr().out.splitlines())
        assert part["rows"] == whole["rows"]
        named.append(part["rows"])
    assert len(named) == 3 and named[0] > 10 and named[1] == 3  # a boss above a boss above an employee


def test_sides_that_disagree_fail_and_units_are_in_lines_and_in_the_table(bench: Any) -> None:
    measure = bench("measure")
    measure.agree({"a": {"rows": 1, "s": 1}, "b": {"rows": 1, "s": 2}}, "rows")
    with pytest.raises(measure.Failed, match="rows"):
        measure.agree({"a": {"rows": 1}, "b": {"rows": 2}}, "rows")
    short = measure.Result("ten rows", 0.00123, "peer", 0.5, 3, 0.65, ours_cpu_s=0.001)
    peak = measure.Result("peak memory", 255.4, "150 MiB, as promised", 150.0, 3, 1.0, "MiB")
    bytes_ = measure.Result("memory", 600.0, "500 bytes, as promised", 500.0, 3, 1.0, "B per update")
    assert json.loads(bytes_.line())["ours_B_per_update"] == 600
    assert json.loads(short.line()) == {
        "name": "ten rows", "ours_s": 0.00123, "peer": "peer", "peer_s": 0.5, "ratio": 0.00246, "limit": 0.65,
        "ours_cpu_s": 0.001, "runs": 3,
    }  # fmt: skip
    assert json.loads(peak.line())["ours_MiB"] == 255.4 and json.loads(peak.line())["peer_MiB"] == 150
    lines = bench("table").rendered([short, peak]).splitlines()
    assert lines[2] == "| ten rows | 0.00123 s | peer | 0.500 s | 0.00 | 0.65 |  |"
    assert lines[3] == "| peak memory | 255 MiB | 150 MiB, as promised | 150 MiB | 1.70 | 1 |  |"


def test_the_comparison_has_the_figures_of_the_performance_page(bench: Any, tmp_path: Path) -> None:
    """All of those about other systems, and no others: ``make bench`` writes both tables."""
    table, tables = bench("table"), {}
    for page in (table.DOCUMENT, table.COMPARISON):
        text = page.read_text("utf-8").partition(table.BEGIN)[2].partition(table.END)[0]
        tables[page] = [row.strip("|").split("|")[:5] for row in re.findall(r"^\|.*\|$", text, flags=re.MULTILINE)[2:]]
    others = [
        row for row in tables[table.DOCUMENT]
        if row[1].endswith(" s ") and any(other in row[2] for other in table.OTHERS)
    ]  # fmt: skip
    assert len(others) >= 9
    assert tables[table.COMPARISON] == others
    result = bench("measure").Result("closure", 0.6, "Pathway", 1.2, 3, 0.2)
    own = bench("measure").Result("closure", 0.6, "ours, before", 1.2, 3, 0.2)
    pages = [tmp_path / "one.md", tmp_path / "other.md"]
    for page in pages:
        page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write([result, own], *pages)
    assert [page.read_text().count("\n| closure | 0.600 s") for page in pages] == [2, 1]
    assert all(page.read_text().startswith("before\n") and "old" not in page.read_text() for page in pages)


def test_a_model_of_several_machines_finds_what_its_figures_were_made_of(bench: Any) -> None:
    """The same model gives other numbers of workers; with one nothing is sent."""
    model = bench("scale_model")
    made = model.Model(
        start=0.5, fixed=0.25, edge=4e-7, byte=1e-8, bytes=12.0, supersteps=20, read=1e-7, around=9.0, meeting=0.75
    )

    def total(edges: int, workers: int) -> dict[str, float]:
        cpu = workers * made.work(edges, workers)
        return {"cpu_s": cpu, "bytes": made.sent(edges, workers), "supersteps": 20, "read_s": 1e-7 * edges}

    edges = 8_000_000
    found = model.model_of(0.5, total(edges // model.FEWER, 1), total(edges, 1), total(edges, 4), edges)
    assert found.seconds(edges, 1) == pytest.approx(0.25 + 3.2)
    idle = made.work(0, 2) + 20 * model.LATENCY + 0.75  # of executors that have no edges, and meet
    found = found.with_spark({"s": idle + 9.0, "fold_s": idle}, edges=0)
    for field in made.__dataclass_fields__:
        assert getattr(found, field) == pytest.approx(getattr(made, field))
    assert found.sent(edges, 1) == 0
    assert found.seconds(edges, 4) < found.seconds(edges, 2) < found.seconds(edges, 1)
    # Half of the edges are read in 0.4 s of the 0.75 in which workers meet; half of twice as many take longer.
    waits = [found.seconds(n, 2) - replace(found, meeting=0.0).seconds(n, 2) for n in (edges, 2 * edges)]
    assert waits == pytest.approx([0.35, 0.0])
    with pytest.raises(bench("measure").Failed, match="and not more than"):
        model.model_of(0.5, total(edges, 1), total(edges // 4, 1), total(edges, 4), edges)


@pytest.mark.parametrize(
    ("core", "wrong"), [(1.0, 1.1), (1.0, 1.3), (0.5, 1.3)],
    ids=["right", "wrong", "wrong on a machine that is not free"],
)  # fmt: skip
def test_what_is_computed_by_the_clock_is_judged_where_cores_are_free(
    core: float, wrong: float, bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Then the page gets the tables, whatever they say."""
    model, edges = bench("scale_model"), bench("scale_model").EDGES
    made = model.Model(0.5, 0.25, 4e-7, 1e-8, 12.0, 20, 1e-7, 9.0, 0.75)

    def figures(edges: int, workers: int) -> dict[str, float]:
        cpu = workers * made.work(edges, workers)
        sent = {"bytes": made.sent(edges, workers), "supersteps": 20.0, "read_s": 1e-7 * edges}
        return {"cpu_s": cpu, "s": cpu / workers / core, **sent}

    medians = {str(number): figures(edges, number) for number in (1, 2, 4)} | {"few": figures(edges // 4, 1)}
    for name, number in (("idle", model.IDLE), ("executors", edges)):
        seconds = made.seconds(number, 2) * (1 if name == "idle" else wrong)
        medians[name] = {"s": seconds + made.around, "fold_s": seconds}
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{model.BEGIN}\nold\n{model.END}\nafter\n")
    monkeypatch.setattr(model, "measured", lambda rounds: medians | {"start": {"cpu_s": 0.5}})
    monkeypatch.setattr(bench("table"), "DOCUMENT", page)
    results = model.run(1)
    with pytest.raises(bench("measure").Failed) if (core, wrong) == (1.0, 1.3) else nullcontext():
        assert [round(result.ratio, 2) for result in results][:2] == [1.0, round(1 / wrong, 2)]
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert ("| 50 million edges | 20 s |" in text) == (core == 1.0)


@pytest.mark.long
def test_workers_in_one_process_have_the_log_of_one_and_their_loads_are_compared(bench: Any, tmp_path: Path) -> None:
    balance = bench("balance")
    for folder in (tmp_path / "several", tmp_path / "one"):
        folder.mkdir()
        balance.graph(lambda: pl.DataFrame({"src": range(200), "dst": [*range(1, 200), 0]}), "components")(folder)
    command = [sys.executable, "-m", "bench.balance_engine", str(tmp_path / "several"), "3"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["supersteps"] > 100 and 1 <= figures["balance"] < 2 and figures["balance"] < figures["waits"] <= 3
    balance.dd(tmp_path / "one", "run", "--engine", "inline")
    one, several = (pl.read_delta(tmp_path / name / "warehouse" / "outputs" / "out") for name in ("one", "several"))
    assert one.sort(one.columns).equals(several.sort(one.columns)) and one["component"].unique().to_list() == [0]


def test_what_cutting_ranges_again_would_give_is_computed(bench: Any) -> None:
    """Two workers of four ranges each; the work is in the first four, then in others. State lies in all alike."""
    engine = bench("recutting_engine")
    state, moving = np.full(8, 3.0), np.zeros((8, 4))
    moving[[0, 1, 2, 3], [0, 0, 1, 1]] = moving[[4, 5, 6, 7], [2, 2, 3, 3]] = 1.0
    figures = engine.policies(np.column_stack([state, moving]), 2)
    mean = (24 + 8) / 2
    assert figures["kept"] == pytest.approx((12 + 4 * 2) / mean)
    assert figures["known"] == pytest.approx((12 + 4 * 1) / mean)
    assert figures["once"] == figures["kept"], "they are even, all in all"
    assert figures["before"] == pytest.approx((12 + 2 + 2 + 2 + 2) / mean)
    assert figures["paid"] == figures["kept"], "a range of state is three rows, and saves one"
    figures = engine.policies(np.column_stack([state / 100, moving]), 2)
    assert figures["known"] < figures["paid"] < figures["kept"]
    cut = engine.partitioning._cuts
    assert cut(np.arange(32), np.ones(32), 2) == [16]
    assert engine.finer(cut, 2)(np.arange(32), np.ones(32), 16) == [*range(2, 32, 2)]


def test_every_benchmark_can_run_and_is_listed_in_the_docs(bench: Any) -> None:
    main, page = bench("__main__"), (TOP / "docs" / "performance.md").read_text()
    for name in (*main.BENCHMARKS, *main.ON_REQUEST):
        assert f"`{name}`" in page, name
        assert callable(bench(name).run)


def test_an_ingest_takes_the_same_rows_in_as_its_peers(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark fails by itself where rows are lost, or other rows than those that differ are taken in."""
    monkeypatch.setenv("DDCORE_BENCH_ROWS", "4000")
    results = [*bench("ingest").run(1)]
    assert [result.peer for result in results] == ["DuckDB, COPY", "DuckDB, COPY", "--snapshot"]
    assert all(result.ours > 0 < result.other for result in results)


def test_peers_that_cannot_be_had_are_named(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tpch, measure = bench("tpch"), bench("measure")
    monkeypatch.setattr(tpch, "GENERATOR", tmp_path / "none")
    with pytest.raises(measure.Skipped, match=r"pip install 'ddcore\[bench\]'"):
        next(tpch.run(1))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "cache"))
    pathway = bench("pathway_peer")
    with pytest.raises(measure.Skipped, match=r"Pathway cannot be installed: .*pathway==") as skipped:
        pathway.python()
    assert "\n" not in str(skipped.value)
    assert not [*tmp_path.rglob("bin")], "nothing half-installed is left"


def test_the_closure_is_measured_without_the_peers_that_are_not_there(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer on dbsp is built only when asked for: a program of another state of the source is none."""
    closure, measure, rust = bench("package_closure"), bench("measure"), bench("rust_peer")
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path))
    built = tmp_path / "bench" / "dbsppeer"
    for file in ("target/release/dbsppeer", "Cargo.toml", "src/main.rs"):
        assert not rust.is_built("dbsppeer")
        (built / file).parent.mkdir(parents=True, exist_ok=True)
        (built / file).write_bytes((rust.PEERS / "dbsppeer" / file).read_bytes() if "target" not in file else b"")
    assert rust.is_built("dbsppeer")
    (built / "src" / "main.rs").write_text("fn main() {}")

    def without(*_: Any) -> None:
        raise measure.Skipped("no Pathway")

    monkeypatch.setattr(bench("pathway_peer"), "python", without)
    monkeypatch.setattr(
        closure, "engine", lambda *_, **__: {"s": 1, "cpu_s": 1, "peak_mib": 1, "changes": 1, "checksum": 1}
    )
    results = []
    with pytest.raises(
        measure.Skipped, match=r"^no Pathway; .*python -m bench\.dbsp_peer builds it, once: 12 min"
    ) as skipped:
        results.extend(closure.run(1))
    assert "\n" not in str(skipped.value)


def test_the_closure_of_dbsp_is_that_of_plain_python(
    bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the peer is built: also a version in which much comes, and one in which all of it goes."""
    peer, closures = bench("dbsp_peer"), bench("peers.closures")
    if not bench("rust_peer").is_built(peer.PEER):
        pytest.skip("the peer on dbsp is not built: python -m bench.dbsp_peer")
    chain = pl.DataFrame(
        {"package": [f"p{n:03}" for n in range(200)], "dependency": [f"p{n + 1:03}" for n in range(200)]}
    )
    moves = ((0, 1, chain), (1, 2, chain[:1]), (2, -1, chain[100:101]), (7, -1, chain[:100]))
    log = tmp_path / "log.parquet"
    pl.concat(
        rows.with_columns(version=pl.lit(version, pl.Int64), diff=pl.lit(diff, pl.Int64))
        for version, diff, rows in moves
    ).write_parquet(log)
    closures.main(str(log))
    plain, other = json.loads(capsys.readouterr().out), peer.closure(log)
    assert (other["changes"], other["checksum"]) == (plain["changes"], plain["checksum"])
    assert other["changes"] > 30_000 and other["cpu_s"] > 0 and other["peak_mib"] > 1


def test_a_benchmark_without_cargo_says_so_in_one_line(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "DDCORE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "bench", "bfs", "sessions", "graphs"],
        cwd=TOP,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["name"] for line in lines] == ["bfs", "sessions", "graphs"]
    assert all(line["skipped"] == "the Rust peer has to be built, and there is no cargo on PATH" for line in lines)
    assert done.stderr == ""


def test_nothing_is_read_from_beside_the_repository(bench: Any) -> None:
    pattern = re.compile(r"\.\./shared|parent\s*/\s*[\"']shared")
    for folder, folders, names in os.walk(TOP):
        folders[:] = [name for name in folders if name not in UNTRACKED and not name.endswith(("_cache", ".egg-info"))]
        for name in names:
            if name.endswith((".py", ".md", ".toml", ".sh", ".rs")) or folder.endswith(".ci"):
                text = Path(folder, name).read_text(encoding="utf-8")
                assert not pattern.search(text), Path(folder, name)
    project, peer = bench("project"), bench("rust_peer")
    assert project.package_set().is_relative_to(TOP) and project.package_set().exists()
    assert peer.PEERS.is_relative_to(TOP)
    assert all((peer.PEERS / name / "src" / "main.rs").exists() for name in ("ddpeer", "dbsppeer"))


def test_the_readme_of_the_sample_data_names_every_folder_with_its_licence() -> None:
    rows = [line.split(" | ") for line in (TOP / "sample_data" / "README.md").read_text().splitlines()]
    licences = {row[0].strip("| `/"): row[-1] for row in rows if len(row) == 5}
    folders = {folder.name for folder in (TOP / "sample_data").iterdir() if folder.is_dir()} - {"__pycache__"}
    assert folders and folders <= licences.keys()
    for folder in sorted(folders):
        assert re.search(r"BSD-3-Clause|Apache-2\.0|cited", licences[folder]), folder
    assert "Redistributions in binary form" in (TOP / "sample_data" / "package_sets" / "LICENSE").read_text()


def test_the_peak_of_a_process_is_not_that_of_the_one_that_started_it(bench: Any) -> None:
    ballast = bytearray(os.urandom(2**20)) * 200
    assert bench("measure").peak_mib() > 200
    command = [sys.executable, "-c", "from bench.measure import peak_mib; print(peak_mib())"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    assert 1 < float(done.stdout) < 100 < len(ballast) / 2**20


@pytest.mark.long
def test_the_row_of_limited_memory_compares_logs_and_memory(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory_limit = bench("memory_limit")
    for name, value in {"EDGES": 30_000, "NODES": 6_000, "FILES": 2, "MEMORY": "1GiB"}.items():
        monkeypatch.setattr(memory_limit, name, value)
    (row,) = memory_limit.run(1)
    assert row.ours > 0 and row.other > 0 and row.ours_peak_mib > 50
    monkeypatch.setattr(memory_limit, "MEMORY", "20MiB")
    with pytest.raises(bench("measure").Failed, match="with 20MiB of memory"):
        next(memory_limit.run(1))


@pytest.mark.long
def test_a_chain_is_the_same_by_two_workers(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    superstep = bench("superstep")
    monkeypatch.setattr(superstep, "NODES", 60)
    idle, chain = superstep.run(1)
    assert idle.ours > 0 and chain.ours > 0 and chain.other > 0 and chain.ours_cpu_s > 0


@pytest.mark.long
@pytest.mark.spark
def test_publications_by_tasks_and_by_the_command_are_compared(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks write, however few rows: else nothing would be compared."""
    cluster_published = bench("cluster_published")
    sides = {"command": "command", "1": "local[1]", "2": "local[2]"}
    for name, value in {"ROWS": 3_000, "SMALLER": (1,), "SIDES": sides}.items():
        monkeypatch.setattr(cluster_published, name, value)
    rows = list(cluster_published.run(1))
    assert len(rows) == 6 and all(row.ours > 0 and row.other > 0 and row.ours_cpu_s > 0 for row in rows)


def test_processor_time_is_that_of_a_whole_family(bench: Any) -> None:
    engine = bench("published_engine")
    before = engine.cpu(os.getpid())
    work = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    command = f"{sys.executable} -c '{work}'; {sys.executable} -c '{work}\nprint(1, flush=True)\ninput()'; true"
    with subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        assert engine.cpu(os.getpid()) - before >= 0.55, "of one that has ended, and of one that waits"
        process.stdin.write(b"\n")
        process.stdin.flush()


@pytest.mark.long
def test_workers_with_little_memory_have_the_log_of_one(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_memory = bench("worker_memory")
    for name, value in {"EDGES": 30_000, "WORKERS": 3, "MEMORY": "300MiB"}.items():
        monkeypatch.setattr(worker_memory, name, value)
    (row,) = worker_memory.run(1)
    assert row.ours > 0 and row.other > 0 and row.ours_peak_mib > 30
    monkeypatch.setattr(worker_memory, "MEMORY", "20MiB")
    with pytest.raises(bench("measure").Failed, match="with 20MiB of memory"):
        next(worker_memory.run(1))


@pytest.mark.long
def test_the_work_of_several_workers_is_compared_with_that_of_one(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker_work = bench("worker_work")
    values = {"EDGES": 3_000, "GRAPH": 1_000, "ORDERS": 200, "SCALE": 0.01, "WORKERS": (2,)}
    for name, value in values.items():
        monkeypatch.setattr(worker_work, name, value)
    rows = list(worker_work.run(1))
    assert len(rows) == len(worker_work.WORKLOADS) and all(row.ours > 0 and row.other > 0 for row in rows)
    assert capsys.readouterr().err.count("2 workers: ") == len(rows)
    logs = iter(range(9))
    monkeypatch.setattr(worker_work, "folded", lambda folder, workers: {"cpu_s": 1.0, "log": next(logs)})
    with pytest.raises(bench("measure").Failed, match="the sides disagree"):
        next(worker_work.run(1))


def killed(what: Any, rank: int, gather: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.long
def test_workers_of_a_benchmark_that_hang_or_die_end_it(bench: Any) -> None:
    engine = bench("superstep_engine")
    with pytest.raises(SystemExit, match="2 of 2 workers are not done in time"):
        engine.together(2, engine._idle, b"secret", 0.1)
    with pytest.raises(SystemExit, match=r"worker [01] has ended without a result"):
        engine.together(2, killed, b"", 60.0)


@pytest.mark.long
def test_a_banks_day_is_compared_with_duckdb(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bank = bench("bank")
    ours, ingests, sync = bank.run(1, rows=2_000)
    assert "60 of 6,000 rows: dd run" in ours.name and ours.ours > 0 and ours.other > 0 and ingests.ours > ours.ours / 2
    assert "dd sync" in sync.name and sync.ours < ours.ours + ingests.ours
    small = bank.Bank(tmp_path / "bank", 2_000)
    small.day()
    results = tmp_path / "results"
    results.mkdir()
    pl.DataFrame({"customer": [1], "fee": [1]}).write_parquet(results / "fees.parquet")
    with pytest.raises(bench("measure").Failed, match="fees has"):
        small.check(results)


@pytest.mark.long
def test_refreshes_of_tpch_are_compared_with_duckdb(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refreshes = bench("refreshes")
    monkeypatch.setenv("DDCORE_BENCH_SCALE", "0.02")
    rows = list(refreshes.run(1))
    assert [bench("promises").with_limit("refreshes", row).limit for row in rows] == [None, None, 1.0, 1.3, 0.1]
    assert all(row.ours > 0 and row.other > 0 for row in rows) and rows[0].ours_peak_mib > 50
    monkeypatch.setattr(refreshes, "difference", lambda ours, other: f"{len(ours)} rows, not {len(other)}")
    with pytest.raises(bench("measure").Failed, match="pricing_summary at version 0: 4 rows, not 4"):
        next(refreshes.run(1))
