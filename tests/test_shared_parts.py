"""Expressions are planned and evaluated in time linear in their text: long chains, and parts that are named often.

Polars evaluates the same expression as a whole, where it can; what a choice does not take is not computed.
"""

from __future__ import annotations

import cProfile
import functools
import operator
import pickle
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from polars import col
from seeds import nightly

import ddcore as dd
from ddcore.base.errors import ExpressionError
from ddcore.base.schema import parse_schema
from ddcore.expressions import polars_json, stages, syntax
from ddcore.expressions.canonical import canonical
from ddcore.expressions.projections import Predicate, Projection
from ddcore.sql import program

MANY = 1000
SCHEMA = parse_schema(
    {"a": "int64", "b": "int64", "f": "float64", "s": "string", "p": "decimal(10,2)", "d": "date", "ok": "bool"}
)
FRAME = pl.DataFrame(
    {
        "a": [7, 8, 999, -3, None], "b": [2, 0, -3, None, 1], "f": [0.1, -0.5, 1e10, None, 3.0],
        "s": ["x", "1", "", None, "22"], "p": [Decimal("1.25"), Decimal("-2.5"), None, Decimal("0.01"), Decimal(3)],
        "d": [date(2026, 1, 31), None, date(1999, 12, 1), date(2024, 2, 29), date(2026, 2, 1)],
        "ok": [True, False, None, True, False],
    },
    schema={name: kind.polars for name, kind in SCHEMA.items()},
)  # fmt: skip


def compute(expr: pl.Expr, frame: pl.DataFrame = FRAME) -> list[Any]:
    projection: Projection = pickle.loads(pickle.dumps(Projection({"x": expr}, SCHEMA)))
    return projection.evaluate(frame)["x"].to_list()


def calls(work: Callable[[], object]) -> int:
    """How many calls it makes, of functions of Python and of libraries: time that no other process changes."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


# -- long chains ------------------------------------------------------------------------------------------------------


def chain(combine: Callable[[Any, Any], Any], term: Callable[[int], pl.Expr], many: int = MANY) -> pl.Expr:
    return functools.reduce(combine, map(term, range(many)))


def choice(result: Callable[[int], pl.Expr], default: pl.Expr, many: int = MANY) -> pl.Expr:
    chosen = default
    for number in reversed(range(many)):
        chosen = pl.when(col("a") == number).then(result(number)).otherwise(chosen)
    return chosen


CHAINS: dict[str, Callable[[int], pl.Expr]] = {
    "or": lambda many: chain(operator.or_, lambda i: col("a") == 2 * i, many),
    "and": lambda many: chain(operator.and_, lambda i: col("a") != 2 * i, many),
    "plus": lambda many: chain(operator.add, lambda i: col("a") + i, many),
    "floats in order": lambda many: chain(operator.add, lambda i: col("f") * 1.1**i if i < 600 else col("f"), many),
    "decimals": lambda many: chain(operator.add, lambda i: col("p"), many),
    "minus": lambda many: chain(operator.sub, lambda i: col("a"), many),
    "text": lambda many: chain(operator.add, lambda i: col("s"), many),
    "choice": lambda many: choice(lambda i: col("b") + i, col("a"), many),
    "coalesce": lambda many: pl.coalesce([pl.when(col("a") == i).then(col("b")) for i in range(many)]),
    "literals": lambda many: chain(operator.add, lambda i: pl.lit(0.5), many) * col("f"),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", nightly([*CHAINS], 4))
def test_a_thousand_terms_are_what_polars_makes_of_them(name: str) -> None:
    expr = CHAINS[name](MANY)
    if name == "decimals":
        assert compute(expr) == [None if item is None else item * MANY for item in FRAME["p"]]
    else:
        assert compute(expr) == FRAME.select(x=expr)["x"].to_list()


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", nightly([*CHAINS], 5))
def test_the_cost_of_a_chain_is_linear(name: str) -> None:
    def plan(many: int) -> int:
        return calls(lambda: Projection({"x": CHAINS[name](many)}, SCHEMA).evaluate(FRAME))

    short, long = plan(100), plan(800)
    assert long < 10 * short, (short, long)  # 8 times as long; 64 times the work if it were quadratic


def test_a_thousand_conditions() -> None:
    met = Predicate([chain(operator.or_, lambda i: col("a") == i)], SCHEMA).evaluate(FRAME)
    assert met.tolist() == [True, True, True, False, False]


def test_a_thousand_terms_of_a_sum_that_leaves_int64_name_the_row() -> None:
    with pytest.raises(ExpressionError, match=r"in the row a=9223372036854775"):
        compute(CHAINS["plus"](MANY), FRAME.with_columns(a=pl.Series([1, 2, 2**63 // 1000, None, 0])))


def test_a_long_chain_within_int64_is_exact_where_parts_of_it_are_not() -> None:
    there_and_back = chain(operator.add, lambda i: col("a") if i % 2 else -col("a"))
    frame = FRAME.with_columns(a=pl.Series([2**62 + 1, -(2**62), 5, None, 2**63 - 1]))
    assert compute(there_and_back, frame) == [0, 0, 0, None, 0]


def test_branches_that_are_not_taken_are_not_computed() -> None:
    """Also where they are far inside: only the numbers among the texts are read."""
    numbers = choice(lambda i: col("s").str.len_chars().cast(pl.Int64), col("s").cast(pl.Int64), MANY)
    assert compute(numbers) == [1, 1, 0, None, 22]
    with pytest.raises(ExpressionError, match=r"in the row .*s='x'"):
        compute(numbers, FRAME.with_columns(a=pl.lit(-1)))


def test_dates_of_branches_that_are_not_taken_are_not_checked() -> None:
    far = choice(lambda i: col("d").dt.offset_by(f"{i}d"), col("d").dt.offset_by("99999y"), 200)
    frame = FRAME.with_columns(a=pl.Series([0, 1, 30, 199, 3]))
    expected = [date(2026, 1, 31), None, date(1999, 12, 31), date(2024, 9, 15), date(2026, 2, 4)]
    assert compute(far, frame) == expected
    with pytest.raises(ExpressionError, match="beyond 100,000 years"):
        compute(far, frame.with_columns(a=pl.lit(-1)))


# -- shared parts -----------------------------------------------------------------------------------------------------


def one_less(part: pl.Expr, level: int) -> pl.Expr:
    return pl.when(part > level).then(part - 1).otherwise(part)


def nested(levels: int) -> pl.Expr:
    expr = col("a")
    for level in range(levels):
        expr = polars_json.share([expr], functools.partial(one_less, level=level))
    return expr


def test_a_shared_part_is_one_part_of_the_tree() -> None:
    tree = polars_json.read(polars_json.share([col("a") + 1, col("b") * 2], lambda x, y: x * y + x * y + x))
    assert sum(syntax.operation(node) == "Plus" for node in syntax.walk(tree)) == 3
    assert canonical(polars_json.share([col("a") + 1], lambda x: x * x)) == "(* (+ a 1) (again 1))"
    assert canonical(polars_json.share([col("a")], lambda x: x * x)) == "(* a a)"


def test_a_shared_part_may_be_used_where_another_is_bound() -> None:
    both = polars_json.share([nested(3)], lambda x: polars_json.share([nested(3) + 1], lambda y: y * 2) + x)
    assert compute(both) == FRAME.select(x=both)["x"].to_list() == [14, 17, 2990, -7, None]


@pytest.mark.parametrize("levels", [1, 2, 5, 40])
def test_nested_shared_parts_are_what_polars_makes_of_them(levels: int) -> None:
    assert compute(nested(levels)) == FRAME.select(x=nested(levels))["x"].to_list()


def test_the_cost_of_nested_shared_parts_is_linear() -> None:
    short, long = (calls(functools.partial(lambda n: compute(nested(n)), many)) for many in (20, 160))
    assert long < 20 * short, (short, long)


def test_the_cost_of_many_trees_that_share_parts_is_linear() -> None:
    """Each has branches that could fail, as the conditions have under which ``gcd`` leaves int64."""

    def parts(levels: int) -> list[syntax.Tree]:
        expr = col("a")
        for _ in range(levels):
            expr = polars_json.share([expr], lambda part: pl.when(part > 1).then(part.fill_null(0).cast(pl.Int32)))
        return [part for part in syntax.walk(polars_json.read(expr)) if isinstance(part, syntax.Choice)]

    few, many = parts(10), parts(80)
    short, long = (calls(functools.partial(stages.staged, trees, "x")) for trees in (few, many))
    assert long < 14 * short, (short, long)  # 8 times as many; 64 times the work if it were quadratic


def test_the_stages_of_two_expressions_do_not_meet() -> None:
    exprs = {"x": nested(20), "y": nested(30), "z": chain(operator.add, lambda i: col("b"))}
    actual = Projection(exprs, SCHEMA).evaluate(FRAME)
    assert actual.to_dict(as_series=False) == FRAME.select(**exprs).to_dict(as_series=False)


def test_an_expression_of_ordinary_size_is_left_whole() -> None:
    tree = polars_json.read(polars_json.share([col("a") + 1], lambda x: x * x))
    assert stages.staged([tree], "x").stages == ()


# -- SQL --------------------------------------------------------------------------------------------------------------

TABLE = pl.DataFrame(
    {"a": [7, 8, 999], "b": [2, 1, -3], "f": [0.1, -0.5, 1e10], "s": ["x", "y", ""], "version": 0, "diff": 1}
)


def answers(query: str, inputs: pl.DataFrame = TABLE) -> list[Any]:
    rows = dd.replay(program(f"CREATE VIEW v AS {query}"), t=inputs)["v"].rows()
    return [row[0] for row in rows for _ in range(row[-1])]


def joined(with_: str, term: Callable[[int], str]) -> str:
    return with_.join(map(term, range(MANY)))


LONG: dict[str, tuple[str, list[Any]]] = {
    "WHERE OR": ("SELECT a FROM t WHERE " + joined(" OR ", lambda i: f"a = {i % 900}"), [7, 8]),
    "OR": ("SELECT DISTINCT " + joined(" OR ", lambda i: f"a = {i}") + " AS x FROM t", [True]),
    "WHERE AND": ("SELECT a FROM t WHERE " + joined(" AND ", lambda i: f"a <> {i + 100}"), [7, 8]),
    "AND": ("SELECT " + joined(" AND ", lambda i: f"a <> {i + 8}") + " AS x FROM t", [False, False, True]),
    "CASE": ("SELECT CASE " + joined(" ", lambda i: f"WHEN a = {i} THEN {i} + b") + " END AS x FROM t", [9, 9, 996]),
    "CASE x": ("SELECT CASE a + 1 " + joined(" ", lambda i: f"WHEN {i} THEN b") + " ELSE 5 END AS x FROM t", [1, 2, 5]),
    "COALESCE": (
        "SELECT COALESCE(" + joined(", ", lambda i: f"NULLIF(a + {i}, a + {i})") + ", b) AS x FROM t", [-3, 1, 2],
    ),
    "||": ("SELECT " + joined(" || ", lambda i: "s") + " AS x FROM t", ["", MANY * "x", MANY * "y"]),
    "+": ("SELECT " + joined(" + ", lambda i: f"{i} + a") + " AS x FROM t", [506500, 507500, 1498500]),
    "IN": ("SELECT a FROM t WHERE a IN (" + joined(", ", str) + ")", [7, 8, 999]),
    "IN columns": ("SELECT a FROM t WHERE a + 0 IN (" + joined(", ", lambda i: f"b + {i}") + ")", [7, 8]),
    "UNION ALL": (joined(" UNION ALL ", lambda i: f"SELECT a + {i} AS x FROM t WHERE a < 8"), [*range(7, 1007)]),
    "GREATEST": ("SELECT GREATEST(" + joined(", ", lambda i: f"b + {i}") + ") AS x FROM t", [996, 1000, 1001]),
    "sum of a chain": ("SELECT sum(" + joined(" + ", lambda i: "a") + ") AS x FROM t", [1014000]),
    "chain of sums": ("SELECT " + joined(" + ", lambda i: "sum(a)") + " AS x FROM t", [1014000]),
    "of groups": ("SELECT " + joined(" OR ", lambda i: f"b = {i}") + " AS x FROM t GROUP BY b", [False, True, True]),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", nightly([*LONG], 5))
def test_a_thousand_terms_in_sql(name: str) -> None:
    query, expected = LONG[name]
    assert answers(query) == expected


NESTED: dict[str, tuple[str, str]] = {
    "division": ("{}/2", "a"),
    "division by": ("1000/(1+{}/1000)", "a"),
    "BETWEEN": ("({} BETWEEN false AND true)", "(a < 8)"),
    "NULLIF": ("NULLIF({}, b)", "a"),
    "COALESCE": ("COALESCE({} + 1, b)", "a"),
    "simple CASE": ("CASE {} + 1 WHEN b THEN a WHEN 1 THEN b ELSE 2 END", "a"),
    "IN": ("({} IN (a = 7, b = 2))", "(a < 8)"),
    "IN rows": ("(({}, true) IN ((a = 7, b = 2), (a = 8, true)))", "a < 8"),
    "float division": ("1e0/{}", "f"),
    "substring": ("substring({} || 'abc' FROM length({}) FOR 5 + b)", "s"),
    "substring from": ("substring('abc' FROM length({}) FOR length('ab'))", "s"),
    "position": ("CAST(position('1' IN {}) + 7 AS text)", "s"),
    "concat": ("concat({}, 'a')", "s"),
    "remainder": ("({} % 1000 + 5)", "a"),
    "abs": ("abs(-{} - 1)", "a"),
    "IS DISTINCT FROM": ("({} IS DISTINCT FROM (a = 7))", "a < 8"),
    "GREATEST": ("GREATEST({}, b, 3)", "a"),
    "round": ("round({} / 3e0, 2)", "f"),
    "cast": ("CAST(CAST({} AS decimal(18,2)) AS double precision)", "a"),
}


def nest(pattern: str, inner: str, levels: int) -> str:
    for _ in range(levels):
        first, _, rest = pattern.partition("{}")
        inner = first + inner + rest.replace("{}", "a")
    return inner


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", NESTED)
def test_nested_operands_cost_as_much_as_their_text(name: str) -> None:
    pattern, inner = NESTED[name]
    pattern = pattern.replace("length({}) FOR 5", "1 FOR 5")

    def plan(levels: int) -> None:
        answers(f"SELECT {nest(pattern, inner, levels)} AS x FROM t")

    plan(1)
    short, long = calls(lambda: plan(4)), calls(lambda: plan(16))
    assert long < 12 * short, (short, long)  # 4 times the text; 2**12 times the work if each level doubled it


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/2/2/2/2/2", [0, 0, 31]),
        ("NULLIF(NULLIF(a + 1, 8), 9)", [None, None, 1000]),
        ("(a + 1) BETWEEN b AND 9", [True, True, False]),
        ("(a + 1) NOT BETWEEN 9 AND NULL", [True, None, None]),
        ("CASE a + 1 WHEN 8 THEN 1 WHEN NULL THEN 2 ELSE b END", [1, 1, -3]),
        ("CASE b + 1 WHEN 3 THEN 1 ELSE 10 / (b - 2) END", [1, -10, -2]),
        ("COALESCE(NULLIF(a + 1, 8), CAST('5' AS bigint))", [5, 9, 1000]),
        ("(a + 1, b + 0) IN ((8, 2), (9, 2))", [True, False, False]),
        ("-7 / 2", [-3, -3, -3]),
        ("(0 - a) / b", [-3, -8, 333]),
        ("a / (b - 2)", [None, -8, -199]),
        ("1e0 / (f - 1e-1)", [None, 1 / (-0.5 - 0.1), 1 / (1e10 - 0.1)]),
        ("substring('abcdef' FROM b + 0 FOR a - 5)", ["bc", "abc", "abcdef"]),
        ("substring('abcdef' FROM b + 0)", ["bcdef", "abcdef", "abcdef"]),
        ("position('y' IN s || 'y')", [2, 1, 1]),
    ],
)
def test_values_of_shared_operands(text: str, expected: list[Any]) -> None:
    by_a = dd.replay(program(f"CREATE VIEW v AS SELECT a, {text} AS x FROM t"), t=TABLE)["v"].rows()
    assert [row[1] for row in by_a] == expected
