"""What the benchmarks promise: each promise is about a row that its benchmark has, and the command turns red."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parent.parent


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of ``bench/``, which is not part of the package."""
    monkeypatch.syspath_prepend(TOP)
    return lambda name: importlib.import_module(f"bench.{name}")


def pattern(node: ast.expr, names: dict[str, ast.expr], depth: int = 4) -> str:
    """The texts that an expression may have: ``*`` for what is known only when it runs."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(pattern(part, names, depth) for part in node.values)
    if isinstance(node, ast.FormattedValue) and node.format_spec is None:
        return pattern(node.value, names, depth)
    if isinstance(node, ast.Name) and depth and node.id in names:
        return pattern(names[node.id], names, depth - 1)
    return "*"


def rows(file: Path) -> list[tuple[str, str]]:
    """Name and peer of each result that a benchmark yields, as patterns."""
    tree, found = ast.parse(file.read_text("utf-8")), []
    shared = {name: value for statement in tree.body for name, value in assigned(statement)}
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        own = [pair for node in ast.walk(function) for pair in assigned(node)]
        stored = [
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        names = {name: value for name, value in [*shared.items(), *own] if stored.count(name) <= 1}
        for call in [node for node in ast.walk(function) if isinstance(node, ast.Call)]:
            if getattr(call.func, "id", "") not in ("Result", "_result"):
                continue
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            name = given.get("name") or call.args[0]
            peer = given.get("peer") or call.args[2]
            found.append((pattern(name, names), pattern(peer, names)))
    return found


def assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement gives a value to, and the values, where one is a text."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=True))
    else:
        pairs = [(target, value)]
    for left, right in pairs:
        if isinstance(left, ast.Name) and isinstance(right, ast.Constant | ast.JoinedStr):
            yield left.id, right


def test_each_promise_is_about_a_row_of_its_benchmark(bench: Any) -> None:
    main, promises = bench("__main__"), bench("promises").promises()
    assert len({promise.name for promise in promises}) == len(promises) > 60
    for promise in promises:
        assert {*promise.benchmarks} <= {*main.BENCHMARKS, *main.ON_REQUEST}, promise.name
        patterns = rows(TOP / "bench" / f"{promise.benchmarks[0]}.py")
        assert any(
            fnmatchcase(promise.what, name) and (fnmatchcase(promise.peer, peer) or fnmatchcase(peer, promise.peer))
            for name, peer in patterns
        ), (promise.name, patterns)
        assert promise.figure in ("ratio", "peak MiB")
        assert promise.asked is None or (promise.asked < promise.limit and promise.note), promise.name
        assert (promise.amount is not None) == promise.peer.endswith("as promised"), promise.name


def test_no_limit_is_left_in_the_benchmarks(bench: Any) -> None:
    """All amounts and limits are in the file, and each amount is read by its benchmark."""
    asked_for = set[str]()
    for file in (TOP / "bench").glob("*.py"):
        text = file.read_text("utf-8")
        assert re.search(r"^_?[A-Z_]*LIMITS?\b.* = ", text, flags=re.MULTILINE) is None, file
        asked_for |= {*re.findall(r'promises\.amount\("([^"]+)"\)', text)}
    assert asked_for == {promise.name for promise in bench("promises").promises() if promise.amount is not None}


def test_verdicts(bench: Any) -> None:
    promises, measure = bench("promises"), bench("measure")
    short = promises.Promise("a", ("bfs",), "load of * edges", "the crate", 0.65, asked=0.45, note="why")
    plain = promises.Promise("b", ("bfs",), "load of * edges", "the crate", 0.4)
    peak = promises.Promise("c", ("bfs",), "load of * edges", "*", 1536.0, figure="peak MiB")
    assert [short.verdict(figure) for figure in (0.45, 0.46, 0.65, 0.66, None)] == [
        "kept", "short", "short", "BROKEN", "not measured",
    ]  # fmt: skip
    assert [plain.verdict(figure) for figure in (0.4, 0.41)] == ["kept", "BROKEN"]
    result = measure.Result("load of 5 edges", 3.0, "the crate", 6.0, 1, ours_peak_mib=1537.0)
    assert [promise.measured(result) for promise in (short, plain, peak)] == [0.5, 0.5, 1537.0]
    assert peak.verdict(1537.0) == "BROKEN"
    other = measure.Result("load of 5 edges, 2 threads", 3.0, "the crate", 6.0, 1)
    assert [promise.measured(other) for promise in (short, plain, peak)] == [None, None, None]


def test_the_greatest_figure_counts_and_a_row_that_is_missing_is_broken(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    promises, measure = bench("promises"), bench("measure")
    promise = promises.Promise("a", ("bfs",), "load of * edges", "the crate", 0.4)
    monkeypatch.setattr(promises, "promises", lambda: (promise,))
    results = [measure.Result(f"load of {n} edges", n / 10, "the crate", 1.0, 1) for n in (3, 5, 2)]
    (line,) = promises.compared("bfs", results)
    assert (line.figure, line.is_broken) == (0.5, True)
    (line,) = promises.compared("bfs", [])
    assert (line.figure, line.is_broken) == (None, True)
    (line,) = promises.compared("bfs", [], "no cargo")
    assert not line.is_broken
    assert promises.table([line]).splitlines() == [
        "promise  measured  limit  asked  verdict",
        "a                   0.40         skipped: no cargo",
    ]
    assert promises.compared("where", results) == []


@pytest.mark.parametrize(("ten", "code"), [(0.35, 0), (0.2, 1)])
def test_the_command_turns_red(
    ten: float, code: int, bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1,000 rows take 0.4 s: 1.14 x or 2 x as long as ten."""
    main, measure = bench("__main__"), bench("measure")

    def run(rounds: int) -> Iterator[Any]:
        name = "dd run, 1,000 changed rows of 4,000,000, processor time"
        yield measure.Result(name, 0.4, "ours, 10 changed rows", ten, rounds)
        name = "state read for 10 changed rows of 4,000,000, per arrangement"
        yield measure.Result(name, 61.0, "200 KiB, as promised", 200.0, rounds, unit="KiB")

    monkeypatch.setattr(bench("lookups"), "run", run)
    monkeypatch.setattr(bench("table"), "machine", lambda: "a machine")
    monkeypatch.setattr(sys, "argv", ["bench", "--promises", "lookups"])
    assert main.main() == code
    printed = capsys.readouterr()
    assert [line.split()[-1] for line in printed.out.splitlines()] == ["verdict", ("kept", "BROKEN")[code], "kept"]
    first = json.loads(printed.err.splitlines()[0])
    assert first["limit"] == 1.3
