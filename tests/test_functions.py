"""Functions as text: equal where they must be, different wherever they may do different things."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any

import polars as pl

import ddcore as dd
from ddcore.functions import text_of
from ddcore.planner import build

FACTOR = 2


def scaled(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select("row", y=pl.col("x") * FACTOR)


def adding(n: int) -> Any:
    def add(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select("row", y=pl.col("x") + n)

    return add


def through_helper(frame: pl.DataFrame) -> pl.DataFrame:
    return scaled(frame)


def test_what_is_captured_counts() -> None:
    assert text_of(adding(1)) == text_of(adding(1))
    assert text_of(adding(1)) != text_of(adding(2))
    assert text_of(functools.partial(adding, 1)) != text_of(functools.partial(adding, 2))


def test_constants_and_helpers_of_the_module_count(monkeypatch: Any) -> None:
    before = text_of(scaled), text_of(through_helper)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3)
    assert text_of(scaled) != before[0]
    assert text_of(through_helper) != before[1]


def test_two_lambdas_on_one_line_differ() -> None:
    a, b = (lambda frame: frame.select("row", y=1), lambda frame: frame.select("row", y=2))  # fmt: skip
    assert text_of(a) != text_of(b)


def test_functions_from_one_factory_stay_apart_in_a_program() -> None:
    def program(t: Any) -> Any:
        return {"a": t.flat_map(adding(1), schema={"y": "int64"}), "b": t.flat_map(adding(2), schema={"y": "int64"})}

    logs = dd.replay(program, t=pl.DataFrame({"x": [10], "version": [0], "diff": [1]}))
    assert (logs["a"]["y"].to_list(), logs["b"]["y"].to_list()) == ([11], [12])


def fingerprint(n: int) -> str:
    def program(t: Any) -> Any:
        return {"a": t.flat_map(adding(n), schema={"y": "int64"})}

    return build(program, {"t": {"x": "int64"}}).fingerprint


def test_a_captured_constant_is_part_of_the_programs_fingerprint() -> None:
    assert fingerprint(1) == fingerprint(1) != fingerprint(2)


def test_fingerprints_are_the_same_in_every_process() -> None:
    script = (
        f"import sys; sys.path.insert(0, {sys.path[0]!r}); import test_functions; print(test_functions.fingerprint(1))"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed},
            cwd=__file__.rpartition("/")[0],
        )  # fmt: skip
        assert done.stdout.strip() == fingerprint(1)
