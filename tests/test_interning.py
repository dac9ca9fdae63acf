"""Ids of rows: the numbered cases, the specified hash, rows that collide, and rows taken apart and put together."""

from __future__ import annotations

import datetime
import random
import re
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import folding
import numpy as np
import polars as pl
import pytest
from by_workers import by_workers
from folding import Fold
from notation import frame, log
from places import local
from programs import Case
from seeds import nightly
from test_semantics import same
from warehouses import logs_of, project_of

import ddcore as dd
from ddcore import col
from ddcore.base.errors import Diverged, NegativeMultiplicity, ProgramError
from ddcore.data.encoding import encode_frame
from ddcore.engine.session import schema_of
from ddcore.engine.worker import Worker
from ddcore.io.project.program import load_program
from ddcore.io.project.times import time_of
from ddcore.jobs import replay
from ddcore.operators.row_hash import row_hashes
from ddcore.planning.planner import build
from ddcore.reference import NaiveCollection
from ddcore.reference.ids import hashes_of
from ddcore.traces.batch import Batch

FOLDS = [folding.by_reference, folding.whole, folding.one_time_each, folding.randomly_cut, folding.fed_early]
BY_NIGHT = pytest.param(by_workers, marks=pytest.mark.long)


@pytest.fixture(params=[*FOLDS, BY_NIGHT], ids=lambda fold: fold.__name__)
def fold(request: pytest.FixtureRequest) -> Any:
    return request.param


# -- the numbered cases -----------------------------------------------------------------------------------------------

COLLIDING = pl.when(col("round") == 0).then(7).when(col("x") == "a").then(8).otherwise(9)
TENS = "(round + x) // 10"


def naively(rows: Any, hash: Any) -> Any:
    """Ids by the first form (sources: McSherry 2018): all rows go round, and losers get the next round."""

    def winners_stay(groups: pl.DataFrame) -> pl.DataFrame:
        ordered = groups.sort("group", "round", "x")
        winner = pl.int_range(pl.len()).over("group") == 0
        return ordered.select("group", x="x", round=pl.when(winner).then("round").otherwise(col("round") + 1))

    kind = (
        str(rows.schema["x"]) if hasattr(rows, "schema") else {"Int64": "int64"}.get(str(rows.columns["x"]), "string")
    )

    def body(pairs: Any) -> Any:
        proposed = pairs.with_columns(id=hash)
        stayed = proposed.group_by("id").reduce(winners_stay, {"x": kind, "round": "int64"})
        return stayed.select("x", tries="round").inspect("tries").select("x", round="tries")

    return rows.distinct().with_columns(round=0).iterate(body).select("x", id=hash)


@pytest.mark.parametrize("form", [lambda words, hash: words.intern(hash=hash), naively], ids=["edits", "naive"])
def test_T41_forced_collision(fold: Fold, form: Any) -> None:
    words = frame("x", "a,b:+1@0 a:-1@1 a:+1@2")
    expected = "(a,7),(b,9):+1@0 (a,7):-1,(b,9):-1,(b,7):+1@1 (a,7):+1,(b,7):-1,(b,9):+1@2"
    same(fold(lambda words: {"out": form(words, COLLIDING)}, words=words)["out"], log(expected))


@pytest.mark.parametrize("form", [lambda words, hash: words.intern(hash=hash), naively], ids=["edits", "naive"])
def test_T42_a_chain_of_collisions(fold: Fold, form: Any) -> None:
    numbers = frame("x", "1,2,3:+1@0 1:-1@1 1:+1@2")
    expected = "(1,0),(2,2),(3,1):+1@0 (1,0):-1,(2,2):-1,(2,0):+1@1 (1,0):+1,(2,2):+1,(2,0):-1@2"
    same(fold(lambda numbers: {"out": form(numbers, TENS)}, numbers=numbers)["out"], log(expected))


def test_T41_inside_the_loop(fold: Fold) -> None:
    """(word, how often it lost) by (version, round): `b` loses to `a` once, at every version that has both."""
    words = frame("x", "a,b:+1@0 a:-1@1 a:+1@2")
    tries = fold(lambda words: {"out": naively(words, COLLIDING)}, words=words)["tries"]
    expected = "(a,0,0),(b,1,0):+1@0 (a,0,0),(b,1,0):-1,(b,0,0):+1@1 (a,0,0),(b,1,0):+1,(b,0,0):-1@2"
    same(tries, log(expected))


def test_T42_inside_the_loop(fold: Fold) -> None:
    """3 loses seven times until its hash is 1; from there on 2 loses against it until its own is 2."""
    numbers = frame("x", "1,2,3:+1@0 1:-1@1 1:+1@2")
    tries = fold(lambda numbers: {"out": naively(numbers, TENS)}, numbers=numbers)["tries"]
    expected = ["(1,0,0):+1@0"]
    for number, losses in ((2, 18), (3, 7)):
        expected += [f"({number},{lost + 1},{lost}):+1@0" for lost in range(losses)]
        expected += [f"({number},{lost},{lost}):-1@0" for lost in range(1, losses)]
    first = {update: diff for update, diff in tries.items() if update[1] == (0,)}
    same(first, log(" ".join(expected)))
    removed, added = ({row: diff for (row, time), diff in tries.items() if time == (version,)} for version in (1, 2))
    assert removed and added == {row: -diff for row, diff in removed.items()}


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", nightly(range(30), 15))
def test_T42_both_forms_over_random_histories(seed: int) -> None:
    """At one, two and three coordinates; no id is there twice at any time."""
    rng = random.Random(seed)
    dims = rng.choice([1, 1, 2, 3])
    present: set[int] = set()
    updates = []
    for step in range(24):
        x = rng.randrange(12)
        diff = -1 if x in present else 1
        present ^= {x}
        updates.append(
            f"{x}:{diff:+d}@{step}" if dims == 1 else f"{x}:+1@({','.join(str(rng.randrange(4)) for _ in range(dims))})"
        )
    hash = rng.choice([TENS, "(x * 7 + round * 3) % 31", "x // 4 + round * round"])
    numbers = frame("x", " ".join(updates))
    made = folding.whole(
        lambda numbers: {"edits": numbers.intern(hash=hash), "naive": naively(numbers, hash)}, numbers=numbers
    )
    assert made["edits"] == made["naive"], f"seed {seed}: {hash}"
    for time in folding.grid({"numbers": numbers}):
        ids = [number for _, number in at(made["edits"], time)]
        assert len(ids) == len(set(ids)), f"seed {seed}: {time}"


def at(log: dict[tuple[Any, Any], int], time: Any) -> list[Any]:
    """The rows of a collection at a time, which has each at most once."""
    counts: Counter[Any] = Counter()
    for (row, when), diff in log.items():
        counts[row] += diff if folding.reference.precedes(when, time) else 0
    assert set(counts.values()) <= {0, 1}
    return [row for row, count in counts.items() if count]


# -- the hash ---------------------------------------------------------------------------------------------------------

VALUES = {
    "b": pl.Series([True, None], dtype=pl.Boolean),
    "i": pl.Series([-1, 2**63 - 1]),
    "f": pl.Series([-0.0, float("nan")]),
    "s": pl.Series(["", "Zoë"]),
    "y": pl.Series([b"\x00\xff", None], dtype=pl.Binary),
    "d": pl.Series([datetime.date(1969, 12, 31), None]),
    "t": pl.Series([datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC), None], dtype=pl.Datetime("us", "UTC")),
    "m": pl.Series([Decimal("-1.50"), None], dtype=pl.Decimal(10, 2)),
}


PINNED: dict[str, tuple[list[int], list[int]]] = {  # by type: the ids of the two values at round 0, and at round 1
    "b": ([4420853700253916478, 1007808386145856871], [6915206964022700985, 3784225277324763993]),
    "i": ([2738166589483223794, 4140891258122921001], [5961565333936754605, 5139715528993969760]),
    "f": ([0, 3440304235167787345], [8147104208329303767, 1865988155142985410]),
    "s": ([2509610194051082968, 2555603930573481027], [5190855076424790096, 2766033810892396460]),
    "y": ([3778356060683215346, 8848475537494178657], [2564283515346808332, 8904357597563518767]),
    "d": ([2738166589483223794, 1007808386145856871], [5961565333936754605, 3784225277324763993]),
    "t": ([8603306418981301857, 1007808386145856871], [4468194517655908690, 3784225277324763993]),
    "m": ([3034538931951524635, 1007808386145856871], [5165299598361838535, 3784225277324763993]),
}
PINNED_ROWS = [4521081456837393928, 2893172846167480156]  # of (1, "x") and (2, null)
PINNED_WORDS = {"a": 6621623054436385368, "b": 6667678536241491630}


def hashes(rows: pl.DataFrame, number: int = 0, bits: int = 63) -> list[int]:
    """The ids that rows propose at a round."""
    schema = schema_of(rows.with_columns(version=0, diff=1), ("version",), "rows")
    ids = row_hashes(encode_frame(rows, schema), list(schema.values()), np.full(len(rows), number), bits)
    return [int(item) for item in ids]


def test_the_hash_of_every_type_is_the_one_that_is_specified() -> None:
    """If this fails, ids in stored state and in outputs have changed: the hash must not."""
    found = {name: (hashes(pl.DataFrame({name: v})), hashes(pl.DataFrame({name: v}), 1)) for name, v in VALUES.items()}
    assert found == PINNED


def test_the_hash_of_a_row_depends_on_the_order_of_columns_and_not_on_their_names() -> None:
    rows = pl.DataFrame({"a": [1, 2], "b": ["x", None]})
    assert hashes(rows) == PINNED_ROWS
    assert hashes(rows.rename({"a": "z"})) == PINNED_ROWS
    assert hashes(rows.select("b", "a")) != PINNED_ROWS


def test_fewer_bits_are_the_upper_ones() -> None:
    rows = pl.DataFrame({"a": range(100)})
    wide = hashes(rows)
    for bits in (1, 7, 40):
        assert hashes(rows, bits=bits) == [item >> (63 - bits) for item in wide]


def test_the_reference_computes_the_same_hash() -> None:
    for name, values in VALUES.items():
        naive = NaiveCollection({name: values.dtype}, (((value,), 1) for value in values))
        for number in (0, 1, 5):
            found = dict(zip(naive.rows, hashes_of(naive, list(naive.rows), number, 63, None), strict=True))
            engine = hashes(pl.DataFrame({name: list(row[0] for row in found)}, schema={name: values.dtype}), number)
            assert list(found.values()) == engine, f"{name} at round {number}"


def test_ids_are_the_same_in_every_process() -> None:
    """Also where the process has seen other strings before."""
    script = (
        "import polars as pl, ddcore as dd\n"
        "for warm in (['q', 'r', 's'], ['b', 'a']):\n"
        "    rows = pl.DataFrame({'x': warm, 'version': 0, 'diff': 1})\n"
        "    out = dd.replay(lambda rows: {'out': rows.intern()}, rows=rows)['out']\n"
        "print(dict(out.select('x', 'id').rows()))\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(PINNED_WORDS)


# -- intern and with_row_id -------------------------------------------------------------------------------------------


def test_intern_gives_one_of_each_and_with_row_id_all(fold: Fold) -> None:
    def program(words: Any) -> dict[str, Any]:
        return {"each": words.intern(hash=COLLIDING), "all": words.with_row_id(hash=COLLIDING)}

    logs = fold(program, words=frame("x", "a:+3,b:+2@0 a:-2@1 a:-1,b:+1@2"))
    same(logs["each"], log("(a,7):+1,(b,9):+1@0 (a,7):-1,(b,9):-1,(b,7):+1@2"))
    same(logs["all"], log("(a,7):+3,(b,9):+2@0 (a,7):-2@1 (a,7):-1,(b,9):-2,(b,7):+3@2"))


def test_joined_rows_follow_their_ids(fold: Fold) -> None:
    """T41: ids change when a row that they collided with goes, so what was joined with them is emitted again."""

    def program(words: Any, tags: Any) -> dict[str, Any]:
        return {"out": tags.join(words.intern(hash=COLLIDING), on="x").select("tag", "id")}

    logs = fold(program, words=frame("x", "a,b:+1@0 a:-1@1"), tags=frame("tag x", "(p,b),(q,b),(r,a):+1@0"))
    same(logs["out"], log("(p,9),(q,9),(r,7):+1@0 (p,9),(q,9),(r,7):-1,(p,7),(q,7):+1@1"))


def test_rows_of_several_columns_and_nulls(fold: Fold) -> None:
    """Of rows that collide the least wins: column by column, null first."""
    rows = frame("x y", "(a,2),(a,null),(null,9),(a,1):+1@0 (null,9):-1@1")
    logs = fold(lambda rows: {"out": rows.intern("n", hash="round")}, rows=rows)
    expected = "(null,9,0),(a,null,1),(a,1,2),(a,2,3):+1@0 (null,9,0),(a,null,1),(a,1,2),(a,2,3):-1@1"
    same(logs["out"], log(f"{expected} (a,null,0),(a,1,1),(a,2,2):+1@1"))


def test_a_row_that_two_versions_bring_and_take(fold: Fold) -> None:
    """Copies that come one by one, and one that goes at once: ids stay."""
    words = frame("x", "a:+1@0 a:+1@1 b:+1,a:-1@2 a:-1@3")
    logs = fold(lambda words: {"out": words.intern(hash="round")}, words=words)
    same(logs["out"], log("(a,0):+1@0 (b,1):+1@2 (a,0):-1,(b,1):-1,(b,0):+1@3"))


def test_negative_counts_are_refused(fold: Fold) -> None:
    words = frame("x", "a:+1@0 a:-2@1")
    with pytest.raises(NegativeMultiplicity):
        fold(lambda words: {"out": words.intern()}, words=words)
    with pytest.raises(NegativeMultiplicity):
        fold(lambda words: {"out": words.with_row_id()}, words=words)


def test_a_loop_may_intern_what_it_has_so_far(fold: Fold) -> None:
    def program(numbers: Any) -> dict[str, Any]:
        def body(seen: Any) -> Any:
            grown = seen.intern(hash="x % 3 + round").where("id < 3").select(x="id")
            return grown.concat(numbers).distinct()

        return {"out": numbers.iterate(body)}

    same(fold(program, numbers=frame("x", "4,7:+1@0 4:-1@1"))["out"], log("4,7,1,2:+1@0 4:-1@1"))


def test_only_rows_that_collide_go_round_the_loop() -> None:
    """The loop stores the proposals, once for each row, and what lost; not a second copy of the rows."""
    n, bits = 20_000, 22
    plan = build(lambda rows: {"out": rows.with_row_id(bits=bits).where("row_id < 0")}, {"rows": {"x": "int64"}})
    worker = Worker(plan)
    worker.begin()
    worker.feed("rows", Batch([np.arange(n)], [np.zeros(n, dtype=np.int64)], np.ones(n, dtype=np.int64)))
    worker.run()
    sizes = sorted(sum(len(batch) for batch in trace.batches) for trace in worker.state.traces)
    collisions = n - len(set(hashes(pl.DataFrame({"x": range(n)}), bits=bits)))
    assert 0 < collisions < 100
    assert sizes[-1] - n == sizes[-2] == collisions, sizes  # what lost, and proposals: of all rows and of what lost
    assert set(sizes[:-2]) == {0}


# -- what a program may get wrong -------------------------------------------------------------------------------------


def test_too_few_bits_end_with_the_operator_and_its_place(fold: Fold) -> None:
    with pytest.raises(
        Diverged, match=r"intern" if fold is folding.by_reference else r"loop intern with 1 bits \(test_"
    ):
        fold(lambda words: {"out": words.intern(bits=1, max_rounds=30)}, words=frame("x", "a,b,c:+1@0"))


def test_enough_rounds_for_ids_that_are_all_taken(fold: Fold) -> None:
    logs = fold(lambda words: {"out": words.intern(bits=3)}, words=frame("x", "1,2,3,4,5,6,7,8:+1@0"))
    assert sorted(number for (_, number), _ in logs["out"]) == [*range(8)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rows: rows.intern("x"), "intern: there is a column x already"),
        (lambda rows: rows.rename({"x": "row_id"}).with_row_id(), "with_row_id: there is a column row_id already"),
        (lambda rows: rows.rename({"x": "round"}).intern(hash="round"), "there is a column round already"),
        (lambda rows: rows.intern(""), "intern: id is ''"),
        (lambda rows: rows.intern(7), "intern: id is 7"),
        (lambda rows: rows.intern(bits=0), "intern: bits is 0"),
        (lambda rows: rows.intern(bits=64), "intern: bits is 64"),
        (lambda rows: rows.intern(bits=True), "intern: bits is True"),
        (lambda rows: rows.intern(hash="'a'"), "the hash of intern is string, not int64"),
        (lambda rows: rows.intern(hash=col("nothing")), "there is no column nothing"),
        (lambda rows: rows.intern(max_rounds=0), "max_rounds is 0"),
        (lambda rows: rows.attributes("nothing")["nothing"], "attributes: there is no column nothing"),
        (lambda rows: dd.rows(), "rows takes one attribute or more"),
        (lambda rows: dd.rows(rows, rows), "rows: attribute 1 has no column row_id"),
        (lambda rows: dd.rows(rows.with_row_id(), cast("Any", "x")), "rows: attribute 2 is str"),
        (lambda rows: dd.rows(rows.with_row_id(), rows.with_row_id()), "attributes 1 and 2 both have a column x"),
    ],
)
def test_programs_that_cannot_be_built(call: Any, message: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(message)) as caught:
        build(lambda rows: {"out": call(rows)}, {"rows": {"x": "int64"}})
    assert "test_interning.py:" in str(caught.value)


def test_a_column_called_round_needs_no_other_name() -> None:
    rows = frame("round", "1,2:+1@0")
    assert folding.whole(lambda rows: {"out": rows.intern(bits=20)}, rows=rows)["out"]


# -- rows taken apart and put together --------------------------------------------------------------------------------

WIDE = "(a,1,x,p):+1,(b,2,y,q):+2,(c,null,x,r):+1@0 (b,2,y,q):-2,(d,1,y,q):+1@1 (a,1,x,p):-1@2"


def test_any_subset_of_attributes_is_the_rows_again(fold: Fold) -> None:
    def program(wide: Any) -> dict[str, Any]:
        parts = wide.attributes()
        return {
            "one": dd.rows(parts["b"]).select("b"),
            "two": dd.rows(parts["d"], parts["a"]).select("d", "a"),
            "three": dd.rows(parts["a"], parts["b"], parts["d"]).select("a", "b", "d"),
            "all": dd.rows(*parts.values()).drop("row_id"),
            "same one": wide.distinct().select("b"),
            "same two": wide.distinct().select("d", "a"),
            "same three": wide.distinct().select("a", "b", "d"),
            "same all": wide.distinct(),
        }

    logs = fold(program, wide=frame("a b c d", WIDE))
    for name in ("one", "two", "three", "all"):
        same(logs[name], logs[f"same {name}"])
    assert logs["all"]


def test_attributes_may_be_filtered_before_they_are_joined(fold: Fold) -> None:
    def program(wide: Any) -> dict[str, Any]:
        parts = wide.attributes("a", "b", "c", id="id", bits=30)
        few = dd.rows(parts["a"], parts["b"].where("b = 1"), parts["c"], id="id")
        return {"out": few.select("a", "b", "c")}

    same(fold(program, wide=frame("a b c d", WIDE))["out"], log("(a,1,x):+1@0 (d,1,y):+1@1 (a,1,x):-1@2"))


def subsets(forced_apart: bool) -> str:
    """A program that puts six pairs of attributes together, from shared arrangements or each from its own."""
    apart = '.where(col("row_id") >= -number - 1)' if forced_apart else ""  # always true: another node for each pair
    return (
        "import ddcore as dd\nfrom ddcore import col\n"
        "def program(wide):\n"
        "    parts, joined = wide.attributes(), {}\n"
        '    for number, (a, b) in enumerate(["ab", "ac", "ad", "bc", "bd", "cd"]):\n'
        f"        pair = dd.rows(parts[a]{apart}, parts[b]{apart})\n"
        "        joined[a + b] = pair.group_by().agg(n=dd.count())\n"
        "    return joined\n"
    )


def test_an_arrangement_that_many_joins_use_is_stored_once(tmp_path: Path) -> None:
    """Rows of state on disk, of a warehouse, after two runs of the inline engine."""
    rng = random.Random(1)
    rows = pl.DataFrame(
        [(i, rng.randrange(2**40), f"{rng.randrange(2**60):x}", rng.random(), i // 2900, 1) for i in range(3000)],
        schema=["a", "b", "c", "d", "version", "diff"],
        orient="row",
    )
    stored, logs = [], []
    for number in (0, 1):
        project = project_of(tmp_path / str(number), Case(0, subsets(bool(number)), None, {"wide": rows}))  # type: ignore[arg-type]
        replay.run(project, last=time_of(0), engine="inline")
        replay.run(project, engine="inline")
        logs.append(logs_of(project, build(load_program(project), project.inputs, project.dims).outputs))
        files = (local(project.warehouse) / "state").rglob("*.parquet")
        stored.append(sum(pl.scan_parquet(file).select(pl.len()).collect().item() for file in files))
    assert logs[0] == logs[1]
    assert logs[0]["ab"] == log("2900:+1@0 2900:-1,3000:+1@1")
    shared, apart = stored
    assert apart > 2 * shared, stored  # 4 arrangements of attributes in place of 12, beside the ids themselves


RESUMED = """
import ddcore as dd


def program(wide):
    parts = wide.attributes(bits=4)
    return {
        "ids": wide.intern(bits=3),
        "all": wide.with_row_id(hash="round * 2"),
        "few": dd.rows(parts["a"], parts["c"], parts["d"]),
    }
"""


def collected(folder: Path, runs: list[dict[str, Any]]) -> Any:
    """The logs of the program after these runs, which must be those of the reference."""
    wide = frame("a b c d", f"{WIDE} (e,5,x,p),(f,6,x,p):+1@2 (a,1,x,p),(e,5,x,p):+1,(d,1,y,q):-1@3 (c,null,x,r):-1@4")
    scope: dict[str, Any] = {}
    exec(RESUMED, scope)
    project = project_of(folder / "project", Case(0, RESUMED, scope["program"], {"wide": wide}))
    for how in runs:
        replay.run(project, **how)
    logs = logs_of(project, build(load_program(project), project.inputs, project.dims).outputs)
    expected = folding.by_reference(scope["program"], wide=wide)
    assert logs.keys() == expected.keys()
    for name, actual in logs.items():
        same(actual, expected[name])
    return logs


def test_a_warehouse_that_is_folded_version_by_version(tmp_path: Path) -> None:
    """State on disk: rows collide with rows of earlier runs, and get their ids when those go."""
    ids = collected(tmp_path, [{"last": time_of(version), "engine": "inline"} for version in range(5)])["ids"]
    given = Counter(row[:-1] for (row, _), diff in ids.items() if diff > 0)
    assert max(given.values()) > 1  # some row got another id


@pytest.mark.spark
def test_two_workers_give_the_same_ids(tmp_path: Path, spark: Any) -> None:
    collected(
        tmp_path, [{"last": time_of(1), "engine": "spark", "parallelism": 2}, {"engine": "spark", "parallelism": 2}]
    )
