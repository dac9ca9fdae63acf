"""The definition itself, against cases worked out by hand: the oracle has to be trusted before the engine is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from notation import frame, log, pair

import ddcore.operators.aggregates as dd
from ddcore.base.errors import DiffOverflow, Diverged, ExpressionError, NegativeMultiplicity
from ddcore.base.schema import parse_schema, parse_type
from ddcore.expressions.projections import Projection
from ddcore.reference import NaiveCollection, accumulate, differences, evaluate, grid, log_of, replay
from ddcore.reference.types import type_name

col = pl.col
INT, WORD = {"x": pl.Int64()}, {"w": pl.String()}


def ints(*rows: Any, **columns: Any) -> NaiveCollection:
    """A collection of int64 columns x, y, ...: each row once."""
    tuples = [row if isinstance(row, tuple) else (row,) for row in rows]
    names = "xyz"[: len(tuples[0])]
    return NaiveCollection({name: pl.Int64() for name in names}, [(row, 1) for row in tuples])


# Times


def test_accumulate_adds_what_precedes() -> None:
    updates = frame("w", "cat:+2@(0,3) cat:-1@(1,2) dog:+1@(0,2) dog:-1@(1,0)")
    assert accumulate(updates, (1, 2), ("day", "revision")) == Counter({("cat",): -1})
    assert accumulate(updates, (1, 3), ("day", "revision")) == Counter({("cat",): 1})
    assert accumulate(updates, (0, 1), ("day", "revision")) == Counter()


def test_grid_holds_all_joins_and_goes_forward() -> None:
    assert grid([(0, 3), (1, 2)]) == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert grid([]) == []


def test_differences_invert_accumulation() -> None:
    updates = log("k:+2@(0,0) k:+1@(1,0) k:-1@(0,1) j:+1@(1,1) j:-3@(2,0)")
    spelled = frame("w", "k:+2@(0,0) k:+1@(1,0) k:-1@(0,1) j:+1@(1,1) j:-3@(2,0)")
    times = grid([(0, 0), (1, 1), (2, 0)])
    assert differences(lambda time: accumulate(spelled, time, ("day", "revision")), times) == updates


def test_log_of_consolidates() -> None:
    assert log_of(pl.concat([frame("w", "a:+1@0 b:+2@1"), frame("w", "b:-2@1 a:+1@0")])) == log("a:+2@0")


def test_three_coordinates_need_the_join_of_all_three() -> None:
    words = frame("w", "k:+1@(1,0,0) k:+1@(0,1,0) k:+1@(0,0,1)")
    actual = replay(lambda words: {"out": words.distinct()}, ("region", "day", "revision"), words=words)["out"]
    assert actual == log("k:+1@(1,0,0) k:+1@(0,1,0) k:+1@(0,0,1) k:-1@(1,1,0) k:-1@(1,0,1) k:-1@(0,1,1) k:+1@(1,1,1)")


# Loops, round by round: the differences of R_i = body(W_i) at (version, i)


def rounds(body: Callable[[Any, Any], Any], source: str, last: int, **frames: pl.DataFrame) -> Any:
    """The differences inside a loop whose round ``i`` at version ``v`` is ``i + 1`` applications of the body."""

    def at(time: tuple[int, ...]) -> Counter[Any]:
        version, round_ = time
        inputs = {
            name: NaiveCollection(
                {c: dtype for c, dtype in item.schema.items() if c not in ("version", "diff")},
                accumulate(item, (version,), ("version",)).items(),
            )
            for name, item in frames.items()
        }
        result = inputs[source]
        for _ in range(round_ + 1):
            result = body(result, inputs)
        return result.rows

    return differences(at, grid([(v, i) for v in range(3) for i in range(last + 1)]))


def test_T25_reach_inside() -> None:
    def body(seen: Any, inputs: Any) -> Any:
        return seen.join(inputs["edges"], on={"x": "src"}).select(x="dst").concat(inputs["roots"]).distinct()

    edges = frame("src dst", "ab,bc,cd:+1@0 ab:-1,ac:+1@1 cd:-1@2", pair)
    assert rounds(body, "roots", 4, edges=edges, roots=frame("x", "a:+1@0")) == log(
        "a,b:+1@(0,0) c:+1@(0,1) d:+1@(0,2) b:-1,c:+1@(1,0) c:-1,d:+1@(1,1) d:-1@(1,2) d:-1@(2,1)"
    )


def test_T26_closure_inside() -> None:
    def body(pairs: Any, inputs: Any) -> Any:
        steps = pairs.join(inputs["edges"], on={"dst": "src"}).select("src", dst="dst_right")
        return steps.concat(inputs["edges"]).distinct()

    edges = frame("src dst", "ab,bc,bd,ca:+1@0 bc:-1@1", pair)
    actual = rounds(body, "nothing", 5, edges=edges, nothing=edges.clear())
    assert {update: diff for update, diff in actual.items() if update[1][0] == 1} == log(
        "bc:-1@(1,0) ac,ba:-1@(1,1) aa,bb,cc:-1@(1,2)", pair
    )


def test_T27_distances_inside() -> None:
    def body(dists: Any, inputs: Any) -> Any:
        hops = dists.join(inputs["edges"], on={"node": "src"}).select(node="dst", dist=col("dist") + 1)
        return hops.concat(inputs["seeds"]).group_by("node").agg(dist=dd.min("dist"))

    edges = frame("src dst", "ab,bc,cd:+1@0 ad:+1@1 bc:-1@2", pair)
    actual = rounds(body, "seeds", 5, edges=edges, seeds=frame("node dist", "(a,0):+1@0"))
    assert {update: diff for update, diff in actual.items() if update[1][0] > 0} == log(
        "(d,1):+1@(1,0) (d,3):-1@(1,2) (c,2):-1@(2,1)"
    )


def test_T29_bag_inside() -> None:
    def body(bag: Any, inputs: Any) -> Any:
        return bag.select(x="CASE WHEN x % 2 = 0 THEN x // 2 ELSE x END")

    assert rounds(body, "bag", 5, bag=frame("x", "1,2,3,4,5,6,7,8,9:+1@0 8:-1@1")) == log(
        "1:+2,2:+1,3:+2,4:+1,5,7,9:+1@(0,0) 1:+1,4:-1@(0,1) 1:+1,2:-1@(0,2) 4:-1@(1,0) 2:-1,4:+1@(1,1) 1:-1,2:+1@(1,2)"
    )


def test_loop_that_swings_diverges() -> None:
    with pytest.raises(Diverged) as caught:
        replay(lambda x: {"out": x.iterate(lambda w: w.select(x=1 - col("x")), max_rounds=9)}, x=frame("x", "0:+1@3"))
    assert (caught.value.time[0], caught.value.round, caught.value.moving) == (3, 9, 2)


def test_loop_that_just_ends_in_time() -> None:
    def down(w: NaiveCollection) -> NaiveCollection:
        return w.select(x="CASE WHEN x > 0 THEN x - 1 ELSE 0 END")

    assert ints(3).iterate(down, max_rounds=4).rows == {(0,): 1}
    with pytest.raises(Diverged):
        ints(3).iterate(down, max_rounds=3)


# Values


def test_null_nan_and_negative_zero_as_keys() -> None:
    floats = NaiveCollection(
        {"f": pl.Float64()}, [((math.nan,), 1), ((-math.nan,), 1), ((0.0,), 1), ((-0.0,), 1), ((None,), 2)]
    )
    counted = {repr(f): n for f, n in floats.group_by("f").agg(n=dd.count()).rows}
    assert counted == {"nan": 2, "0.0": 2, "None": 2}
    assert sum(floats.join(floats, on="f").rows.values()) == 8  # 2 x 2 NaN, 2 x 2 zero, null with nothing


def test_a_schema_has_the_names_of_our_types() -> None:
    kinds = ["int64", "float64", "bool", "string", "binary", "date", "timestamp", "decimal(9,2)", "list[list[bool]]"]
    kinds += ["struct[a: timestamp, b: list[decimal(4,1)]]"]
    schema = {f"c{number}": kind for number, kind in enumerate(kinds)}
    columns = {name: parse_type(kind).polars for name, kind in schema.items()}
    assert NaiveCollection(columns, []).schema == schema


def test_null_is_not_true() -> None:
    maybe = NaiveCollection(INT, [((1,), 1), ((None,), 1)])
    assert maybe.where(col("x") == 1).rows == {(1,): 1}
    assert maybe.where(col("x") != 1).rows == Counter()


def test_literals_on_no_rows_and_on_many() -> None:
    assert ints(1, 2).select(one=1).rows == {(1,): 2}
    assert ints(1).where("x > 5").select("x", one=1).rows == Counter()


def test_integers_do_not_wrap_around() -> None:
    big = ints(2**62)
    with pytest.raises(ExpressionError):
        big.select(x=col("x") * 2)
    assert big.select(x=(col("x") * 2) // 4).rows == {(2**61,): 1}
    assert ints(3).select(x=-col("x")).rows == {(-3,): 1}


def test_floats_are_divided_truly_in_every_row() -> None:
    values = [float(value) for value in range(-50, 50)]
    floats = NaiveCollection({"f": pl.Float64()}, [((value,), 1) for value in values])
    assert floats.select(x=col("f") / 7).rows == {(value / 7,): 1 for value in values}
    assert ints(*range(1, 50)).select(x=col("x") / 10).rows == {(value / 10,): 1 for value in range(1, 50)}
    assert floats.where(col("f") / 49 == 1).rows == {(49.0,): 1}


def test_counts_do_not_wrap_around() -> None:
    many = NaiveCollection(INT, [((1,), 2**62)])
    assert many.concat(many).rows == {(1,): 2**63}
    assert many.join(many.select("x", y="x"), on="x").rows == {(1, 1): 2**124}
    twice = many.concat(many)
    with pytest.raises(DiffOverflow):
        twice.group_by("x").agg(n=dd.count())
    with pytest.raises(DiffOverflow):
        twice.group_by("x").reduce(lambda groups: groups.select("group"), {})


# Aggregates


def test_sum_of_floats_is_rounded_once() -> None:
    floats = NaiveCollection({"f": pl.Float64()}, [((1e16,), 1), ((1.0,), 1), ((-1e16,), 1)])
    assert floats.group_by().agg(s=dd.sum("f")).rows == {(1.0,): 1}
    tenths = NaiveCollection({"f": pl.Float64()}, [((0.1,), 10)])
    assert tenths.group_by().agg(s=dd.sum("f")).rows == {(1.0,): 1}


@pytest.mark.parametrize(
    ("values", "expected"),
    [([math.inf, 1.0], math.inf), ([math.inf, -math.inf], None), ([math.nan, 1.0], None), ([1e308, 9e307], math.inf)],
)
def test_sum_of_unusual_floats(values: list[float], expected: float | None) -> None:
    floats = NaiveCollection({"f": pl.Float64()}, [((value,), 1) for value in values])
    (((actual,), _),) = floats.group_by().agg(s=dd.sum("f")).rows.items()
    assert math.isnan(actual) if expected is None else actual == expected


def test_sum_of_ints_overflows_loudly() -> None:
    with pytest.raises(DiffOverflow):
        NaiveCollection(INT, [((2**62,), 2)]).group_by().agg(s=dd.sum("x"))


BILL = NaiveCollection(
    {"p": pl.Decimal(12, 2), "q": pl.Decimal(12, 4), "r": pl.Decimal(12, 2), "n": pl.Int64()},
    [((Decimal("1537.99"), Decimal("0.0625"), Decimal("0.05"), 3), 1)],
)


@pytest.mark.parametrize(
    ("expr", "digits"),
    [
        (col("p") * (1 - col("r")), "1461.0905"),
        (col("p") * (1 - col("r")) * col("q"), "91.31815625"),
        (col("p") * col("r") * col("r"), "3.844975"),
        (col("p") * 1.055, "1622.57945"),
        (1.055 * col("p"), "1622.57945"),
        (pl.sql_expr("p * (1 - r)"), "1461.0905"),
        (pl.sql_expr("p + 0.005"), "1537.995"),
        (col("p") * Decimal("0.125"), "192.24875"),
        (col("p") * col("n"), "4613.97"),
        (col("p") + 0.005, "1537.995"),
        (col("p") - col("q"), "1537.9275"),
        (pl.sum_horizontal(col("p") * col("r"), "q"), "76.9620"),
        (pl.max_horizontal(col("p") * col("r"), "r"), "76.8995"),
        (pl.when(col("n") > 2).then(col("p") * col("r")).otherwise("r"), "76.8995"),
        (pl.when(col("p") < Decimal("1537.994")).then("r").otherwise("q"), "0.0500"),
        (pl.coalesce(col("p") * col("r"), "r"), "76.8995"),
        (col("r").fill_null(Decimal("0.005")), "0.050"),
        (col("r").clip(Decimal("0.055"), 1), "0.055"),
        (col("r").replace(Decimal("0.054"), Decimal("1.00")), "0.050"),
        (pl.concat_list("p", "q").list.sum(), "1538.0525"),
        ((col("p") * col("r")).round(2), "76.9000"),
        ((col("p") * col("r")).cast(pl.Decimal(12, 2)), "76.90"),
    ],
    ids=str,
)
def test_decimals_keep_all_digits(expr: pl.Expr, digits: str) -> None:
    scale = len(digits.partition(".")[2])
    result = BILL.select(x=expr)
    assert (result.rows, result.columns["x"].scale) == ({(Decimal(digits),): 1}, scale)  # type: ignore[attr-defined]
    projection = Projection(
        {"x": expr}, parse_schema({name: type_name(column) for name, column in BILL.columns.items()})
    )
    engine = projection.computed(pl.DataFrame([*BILL.rows], schema=BILL.columns, orient="row"))
    assert (engine["x"].to_list(), engine["x"].dtype) == ([Decimal(digits)], result.columns["x"])


@pytest.mark.parametrize(
    "expr",
    [
        col("r") == Decimal("0.054"), col("r") * col("r") == Decimal("0.00"), col("r").is_in([Decimal("0.054")]),
        col("r").is_between(Decimal("0.051"), 1), pl.sql_expr("r > 0.0501"), col("r") > 0.0501,
        pl.sql_expr("r IN (0.054, 1)"),
    ],
    ids=str,
)  # fmt: skip
def test_decimals_compare_by_all_digits(expr: pl.Expr) -> None:
    assert BILL.where(expr).rows == {}


def test_aggregates_of_products_of_decimals_keep_all_digits() -> None:
    part = col("p") * (1 - col("r"))
    by_group = BILL.group_by().agg(s=dd.sum(part), m=dd.min(part, where=part > Decimal("1461.0904")))
    assert by_group.rows == {(Decimal("1461.0905"), Decimal("1461.0905")): 1}
    assert by_group.columns == {"s": pl.Decimal(18, 4), "m": pl.Decimal(18, 4)}


def test_quotients_with_decimal_literals_are_floats() -> None:
    assert BILL.select(x=pl.sql_expr("n / 2.5")).rows == {(1.2,): 1}


def test_a_decimal_that_outgrows_18_digits_is_an_error() -> None:
    with pytest.raises(ExpressionError, match=r"1537|conversion"):
        BILL.select(x=col("p") * 10**15)


def test_sum_of_decimals_keeps_the_scale() -> None:
    money = NaiveCollection({"m": pl.Decimal(5, 2)}, [((Decimal("1.25"),), 3), ((Decimal("-0.05"),), 1)])
    total = money.group_by().agg(s=dd.sum("m"))
    assert total.rows == {(Decimal("3.70"),): 1}
    assert total.columns == {"s": pl.Decimal(18, 2)}


def test_aggregates_skip_nulls_and_count_does_not() -> None:
    maybe = NaiveCollection({"k": pl.Int64(), "x": pl.Int64()}, [((1, None), 2), ((1, 5), 1), ((2, None), 1)])
    actual = maybe.group_by("k").agg(n=dd.count(), s=dd.sum("x"), lo=dd.min("x"), hi=dd.max("x"))
    assert actual.rows == {(1, 3, 5, 5, 5): 1, (2, 1, 0, None, None): 1}


def test_nan_is_greater_than_every_number() -> None:
    floats = NaiveCollection({"f": pl.Float64()}, [((math.nan,), 1), ((math.inf,), 1)])
    (((lo, hi), _),) = floats.group_by().agg(lo=dd.min("f"), hi=dd.max("f")).rows.items()
    assert lo == math.inf
    assert math.isnan(hi)


def test_no_rows_no_group() -> None:
    nothing = ints(1).where("x > 1")
    assert nothing.group_by().agg(n=dd.count(), s=dd.sum("x")).rows == Counter()


# Negative counts


def test_negative_counts_are_refused_by_name() -> None:
    negative = NaiveCollection(WORD, [(("a",), -1), (("b",), 1)])
    refusing: list[Callable[[], Any]] = [
        negative.distinct,
        lambda: negative.group_by("w").agg(n=dd.count()),
        lambda: negative.group_by("w").reduce(lambda f: f.select("group", n="count"), {"n": "int64"}),
    ]
    for op, refuse in zip(["distinct", "agg", "reduce"], refusing, strict=True):
        with pytest.raises(NegativeMultiplicity) as caught:
            refuse()
        assert (caught.value.op, caught.value.key, caught.value.count) == (op, ("a",), -1)


def test_negative_counts_that_vanish_under_the_aggregate_are_none() -> None:
    pairs = NaiveCollection({"k": pl.Int64(), "x": pl.Int64()}, [((1, 7), -1), ((1, 8), 2)])
    assert pairs.group_by("k").agg(n=dd.count()).rows == {(1, 1): 1}
    with pytest.raises(NegativeMultiplicity):
        pairs.group_by("k").agg(lo=dd.min("x"))


def test_negative_counts_allowed() -> None:
    pairs = NaiveCollection({"k": pl.Int64(), "x": pl.Int64()}, [((1, 7), -1), ((1, 8), 1), ((2, 5), -2)])
    groups = pairs.group_by("k")
    assert groups.agg(n=dd.count(), s=dd.sum("x"), allow_negative=True).rows == {(2, -2, -10): 1}
    assert groups.agg(lo=dd.min("x"), allow_negative=True).rows == {(1, 8): 1}
    assert pairs.distinct(allow_negative=True).rows == {(1, 8): 1}


def test_the_time_of_an_error_is_named() -> None:
    with pytest.raises(NegativeMultiplicity) as caught:
        replay(lambda x: {"out": x.negate().distinct()}, x=frame("x", "1:+1@4"))
    assert caught.value.time == (4,)


# Functions of the user


def test_reduce_may_give_counts_and_is_shown_groups_by_number() -> None:
    def least(groups: pl.DataFrame) -> pl.DataFrame:
        assert groups.columns == ["group", "y", "count"]
        return groups.group_by("group").agg(y=col("y").min(), count=col("count").sum())

    actual = ints((1, 5), (1, 3), (2, 9)).group_by("x").reduce(least, {"y": "int64"})
    assert actual.rows == {(1, 3): 2, (2, 9): 1}


def test_flat_map_with_a_function() -> None:
    def twice(batch: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([batch.select("row", y="x"), batch.filter(col("x") > 1).select("row", y=col("x") * 10)])

    twos = NaiveCollection(INT, [((1,), 1), ((2,), 3)])
    assert twos.flat_map(twice, schema={"y": "int64"}).rows == {(1,): 1, (2,): 3, (20,): 3}


def test_flat_map_with_a_list() -> None:
    pairs = NaiveCollection({"x": pl.Int64(), "w": pl.String()}, [((1, "a b"), 2), ((2, "c"), 1), ((3, None), 1)])
    words = pairs.flat_map(word=col("w").str.split(" "))
    assert words.rows == {(1, "a b", "a"): 2, (1, "a b", "b"): 2, (2, "c", "c"): 1}
    assert ints((1, 2)).flat_map(x=pl.concat_list("x", "y")).rows == {(2, 1): 1, (2, 2): 1}
    assert ints(0, 2).flat_map(y=pl.int_ranges(0, "x")).rows == {(2, 0): 1, (2, 1): 1}


# Shapes


def test_join_names_its_columns() -> None:
    left = NaiveCollection({"k": pl.Int64(), "v": pl.Int64()}, [((1, 2), 2)])
    right = NaiveCollection({"v": pl.Int64(), "id": pl.Int64(), "k": pl.Int64()}, [((7, 1, 9), 3)])
    joined = left.join(right, on={"k": "id"})
    assert (list(joined.columns), joined.rows) == (["k", "v", "v_right", "k_right"], {(1, 2, 7, 9): 6})


def test_concat_matches_columns_by_name() -> None:
    assert ints((1, 2)).concat(ints((3, 4)).select("y", "x")).rows == {(1, 2): 1, (3, 4): 1}


def test_evaluate_names_outputs() -> None:
    rows = {"words": Counter({("a",): 2})}
    outputs = evaluate(lambda words: {"once": words.distinct(), "all": words}, rows, {"words": {"w": "string"}})
    assert outputs == {"once": {("a",): 1}, "all": {("a",): 2}}
