"""Functions as text: equal where they must be, different wherever they may do different things."""

from __future__ import annotations

import copy
import datetime
import functools
import importlib
import linecache
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ddcore as dd
from ddcore.base.errors import ProgramError
from ddcore.operators.function_fingerprint import text_of
from ddcore.planning.planner import build

FACTOR = 2


def scaled(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select("row", y=pl.col("x") * FACTOR)


def adding(n: Any) -> Any:
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
    script = "import sys; sys.path[:0] = sys.argv[1:]; import test_functions; print(test_functions.fingerprint(1))"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script, *sys.path[:3]], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed}, cwd=__file__.rpartition("/")[0],
        )  # fmt: skip
        assert done.stdout.strip() == fingerprint(1)


# -- what cannot be pickled, or not in the same way tomorrow ----------------------------------------------------------


def local_class(n: int) -> Any:
    class Adding:
        def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
            return frame.select("row", y=pl.col("x") + n)

    return Adding


def local_instance(n: int) -> Any:
    class Adding:
        def __init__(self) -> None:
            self.n = n

        def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
            return frame.select("row", y=pl.col("x") + self.n)

    return Adding()


def with_slots(n: int) -> Any:
    class Adding:
        __slots__ = ("n",)

        def __init__(self) -> None:
            self.n = n

        def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
            return frame.select("row", y=pl.col("x") + self.n)

    return Adding()


def of_a_dict(n: int) -> Any:
    class Adding(dict[str, int]):
        def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
            return frame.select("row", y=pl.col("x") + self["n"])

    return Adding(n=n)


class Adder:
    """A class of the module: pickle knows it by name."""

    def __init__(self, n: Any) -> None:
        self.n = n

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select("row", y=pl.col("x") + self.n)

    def called(self, frame: pl.DataFrame) -> pl.DataFrame:
        return self(frame)


def cached(n: int) -> Any:
    @functools.lru_cache
    def number() -> int:
        return n

    return lambda frame: frame.select("row", y=pl.col("x") + number())


def holding_a_lambda(n: int) -> Any:
    return functools.partial(
        lambda numbers, frame: frame.select("row", y=pl.col("x") + numbers["n"]()), {"n": lambda: n}
    )


def beside_a_lock(n: int) -> Any:
    lock = threading.Lock()

    def add(frame: pl.DataFrame) -> pl.DataFrame:
        with lock:
            return frame.select("row", y=pl.col("x") + n)

    return add


def decorated(n: int) -> Any:
    """Two wrappers with the source of what they wrap: functools.wraps says that they are the same function."""

    def plain(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select("row", y="x")

    if n == 1:

        @functools.wraps(plain)
        def wrapped(frame: pl.DataFrame) -> pl.DataFrame:
            return plain(frame).with_columns(y=pl.col("y") + 1)
    else:

        @functools.wraps(plain)
        def wrapped(frame: pl.DataFrame) -> pl.DataFrame:
            return plain(frame).with_columns(y=pl.col("y") + 2)

    return wrapped


def with_an_attribute(n: int) -> Any:
    def add(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select("row", y=pl.col("x") + add.n)  # type: ignore[attr-defined]

    add.n = n  # type: ignore[attr-defined]
    return add


MAKERS: list[Callable[[int], Any]] = [
    local_instance, with_slots, of_a_dict, cached, holding_a_lambda, beside_a_lock, decorated, with_an_attribute,
    lambda n: local_class(n)(), lambda n: Adder(n).called, lambda n: Adder(pl.lit(n)), lambda n: Adder(np.int64(n)),
    lambda n: adding(pl.Series([n])), lambda n: adding(datetime.timedelta(n).days),
    lambda n: functools.partial(Adder(n)),
]  # fmt: skip


@pytest.mark.parametrize("maker", MAKERS)
def test_two_of_a_kind_are_two_functions(maker: Callable[[int], Any]) -> None:
    def program(t: Any) -> Any:
        return {"a": t.flat_map(maker(1), schema={"y": "int64"}), "b": t.flat_map(maker(2), schema={"y": "int64"})}

    assert text_of(maker(1)) == text_of(maker(1)) != text_of(maker(2))
    logs = dd.replay(program, t=pl.DataFrame({"x": [10], "version": [0], "diff": [1]}))
    assert (logs["a"]["y"].to_list(), logs["b"]["y"].to_list()) == ([11], [12])


FRAME = {
    "i": [1, None, 3], "f": [0.5, float("nan"), None], "s": ["a,b", "é", None], "b": [True, None, False],
    "y": [b"\0", b"", None], "d": [datetime.date(2026, 1, 2), None, datetime.date(1, 1, 1)],
    "m": [Decimal("1.50"), None, Decimal("-2.00")], "l": [[1, None], [], None], "r": [{"q": 1}, {"q": None}, {"q": 2}],
}  # fmt: skip


def test_captured_frames_count_by_schema_and_values() -> None:
    frame = pl.DataFrame(FRAME)
    others = [
        frame.reverse(), frame.head(2), frame.clear(), frame.rename({"i": "j"}), frame.select(*sorted(frame.columns)),
        frame.cast({"i": pl.Int32}), *(frame.with_columns(pl.col(name).shift(1)) for name in frame.columns),
        frame.with_columns(s=pl.Series(["a", ",bé", None])), frame.with_columns(l=pl.Series([[1], [None], None])),
        frame.with_columns(l=pl.Series([[1, None], None, []], dtype=pl.List(pl.Int64))), frame.with_columns(pl.lit(1)),
        frame.with_columns(pl.col("s").cast(pl.Categorical)), frame.with_columns(b=pl.Series([True, False, False])),
    ]  # fmt: skip
    texts = [text_of(adding(other)) for other in (frame, *others)]
    assert len(set(texts)) == len(texts)
    chunked = pl.concat([frame.head(1), frame.tail(2)], rechunk=False)
    assert text_of(adding(chunked)) == text_of(adding(frame.clone())) == texts[0]


def test_a_captured_frame_is_no_pickle() -> None:
    """Whatever a library's upgrade does to its pickles: here, the text is computed without any."""

    def forbidden(*_: Any) -> Any:
        raise AssertionError("pickled")

    kinds = [pl.DataFrame, pl.Series, pl.Expr, pl.LazyFrame]
    before = [(kind, vars(kind).get("__getstate__")) for kind in kinds]
    frame, wanted = pl.DataFrame(FRAME), text_of(adding(pl.DataFrame(FRAME)))
    with pytest.MonkeyPatch.context() as patch:
        for kind, known in before:
            if known is not None:
                patch.setattr(kind, "__getstate__", forbidden)
        assert any(known is not None for _, known in before)
        assert text_of(adding(frame)) == wanted
        assert text_of(adding(pl.col("x") + 1)) != text_of(adding(pl.col("x") + 2))


def test_frames_of_other_libraries_count_by_their_values() -> None:
    for one, other in [
        (pa.table({"a": [1]}), pa.table({"a": [2]})),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]})),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]}, index=[7])),
        (np.array([1, 2]), np.array([[1, 2]])),
        (np.array([1, 2]), np.array([1, 2], dtype=np.int32)),
        (np.array(["a", None], dtype=object), np.array([None, "a"], dtype=object)),
    ]:
        assert text_of(adding(one)) == text_of(adding(copy.deepcopy(one))) != text_of(adding(other))


def test_parts_do_not_run_together() -> None:
    pairs = [
        (["a", "b"], ["a, b"]), (["a", ["b"]], [["a"], "b"]), ({"a": "b"}, ["a", "b"]), ((1,), [1]), (1, True),
        (1, 1.0), ("1", 1), (b"a", "a"), ({"k": None}, {"k": "None"}), ([[], []], [[[]]]),
        (pl.col("a"), pl.col("a").alias("b")),
        (pl.col("a"), "a"), (pl.lit(0.1), pl.lit(0.1, dtype=pl.Float64)),
        (vars(dict)["fromkeys"], vars(OrderedDict)["fromkeys"]), (vars(float)["fromhex"], vars(bytes)["fromhex"]),
    ]  # fmt: skip
    for one, other in pairs:
        assert text_of(adding(one)) != text_of(adding(other)), (one, other)


def test_what_holds_itself_has_a_text() -> None:
    def ring(n: int) -> Any:
        one: list[Any] = [n]
        one.append(one)
        adder = Adder(one)
        adder.me = adder  # type: ignore[attr-defined]
        return adder

    assert text_of(ring(1)) == text_of(ring(1)) != text_of(ring(2))


def test_an_edited_class_is_another_function(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a module beside the program's, which it names."""
    source = "class Rule:\n    def __call__(self, frame):\n        return frame.select('row', y=pl.col('x') + {n})\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    texts = []
    for n in (1, 1, 2):
        (tmp_path / "rules_beside.py").write_text("import polars as pl\n" + source.format(n=n))
        sys.modules.pop("rules_beside", None)
        linecache.checkcache()
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        module = importlib.import_module("rules_beside")
        scope = {"rules_beside": module, "__name__": "a_program"}
        exec("def apply(frame): return rules_beside.Rule()(frame)", scope)
        texts.append((text_of(module.Rule()), text_of(scope["apply"])))
    assert texts[0] == texts[1]
    assert texts[0][0] != texts[2][0] and texts[0][1] != texts[2][1]


def test_a_module_beside_the_program_called_like_one_of_python_s_own(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for n in (1, 2):
        file = tmp_path / f"{n}" / "this.py"
        file.parent.mkdir()
        file.write_text(f"def number():\n    return {n}\n")
        monkeypatch.syspath_prepend(str(file.parent))
        monkeypatch.delitem(sys.modules, "this", raising=False)
        texts.append(text_of(adding(importlib.import_module("this").number)))
    monkeypatch.delitem(sys.modules, "this", raising=False)
    assert texts[0] != texts[1]


def test_what_cannot_be_told_apart_is_refused_by_name(tmp_path: Any) -> None:
    class Unreadable:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise ValueError("not today")

    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with open(tmp_path / "file", "w") as file:
        for held, name in [
            (file, "n is of type TextIOWrapper"),
            (iter_nothing(), "n is of type generator"),
            (wait_for_nothing(), "n is of type async_generator"),
            ({"conn": [file]}, "n['conn'][0] is of type TextIOWrapper"),
            (Adder(file), "n.n is of type TextIOWrapper"),
            (pl.LazyFrame(), "n is of type LazyFrame"),
            (pl.col("x").map_elements(abs, return_dtype=pl.Int64), "n is of type Expr"),
            (Unreadable(), "n cannot be read: ValueError: not today"),
            (deep, "nested too deeply"),
        ]:
            with pytest.raises(ProgramError) as caught:
                build(functools.partial(mapped, held), {"t": {"x": "int64"}})
            assert caught.value.message.startswith("test_functions.py:") and caught.value.hint
            assert "function add" in caught.value.message and name in caught.value.message


def iter_nothing() -> Iterator[int]:
    yield from ()


async def wait_for_nothing() -> AsyncIterator[int]:
    yield 0


def mapped(held: Any, /, t: Any) -> Any:
    return {"a": t.flat_map(adding(held), schema={"y": "int64"})}
