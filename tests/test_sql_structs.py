"""Structs, lists and maps as values of SQL: fields, equality, joins and groups by them; and types that must be kept."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from folding import by_reference, randomly_cut, whole

import ddcore
from ddcore.base.errors import DdError
from ddcore.base.schema import uuid_mark
from ddcore.sql import program

IDS = ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000001", None]
ROWS = pl.DataFrame(
    {
        "a": [1, 2, 3],
        "id": pl.Series(IDS, dtype=pl.String).ext.to(uuid_mark()),
        "z": [{"x": 1, "y": "q", "in": {"deep": 7}}, {"x": None, "y": None, "in": None}, None],
        "k": [["a", None], [], None],
        "m": pl.Series([{"a": 1}, {}, None], dtype=pl.Map(pl.String, pl.Int64)),
        "w": pl.Series([2**64 - 1, 0, None], dtype=pl.UInt64),
        "version": [0, 0, 0],
        "diff": [1, 1, 1],
    }
)


def found(query: str, dialect: str = "postgres") -> list[Any]:
    """The first columns of the rows of a query, in the order of ``a``."""
    views = program(f"CREATE VIEW o AS {query}", dialect=dialect)
    rows = ddcore.replay(views, t=ROWS)["o"]
    return [row[0] if len(row) == 3 else row[:-2] for row in rows.drop("a", strict=False).rows()]


@pytest.mark.parametrize(
    ("dialect", "text", "expected"),
    [
        ("postgres", "(z).x", [1, None, None]),
        ("postgres", "(t.z).y", ["q", None, None]),
        ("postgres", "((z).in).deep", [7, None, None]),
        ("spark", "z.x", [1, None, None]),
        ("spark", "t.z.in.deep", [7, None, None]),
        ("spark", "struct(a, z.y AS b)", [{"a": 1, "b": "q"}, {"a": 2, "b": None}, {"a": 3, "b": None}]),
        ("spark", "named_struct('n', z.x)", [{"n": 1}, {"n": None}, {"n": None}]),
        ("duckdb", "z['x']", [1, None, None]),
        ("duckdb", "{'n': a}.n", [1, 2, 3]),
        ("duckdb", "struct_extract(z, 'y')", ["q", None, None]),
        ("duckdb", "struct_pack(n := a)", [{"n": 1}, {"n": 2}, {"n": 3}]),
        ("postgres", "z = z", [True, True, None]),
        ("postgres", "k = ARRAY['a', NULL]", [True, False, None]),
        ("postgres", "(k IS DISTINCT FROM ARRAY['a', NULL])", [False, True, True]),
        ("duckdb", "m <> map {'a': 1}", [False, True, None]),
        ("duckdb", "z = {'x': 1, 'y': 'q', 'in': {'deep': 7}}", [True, False, None]),
    ],
)
def test_fields_and_equality(dialect: str, text: str, expected: list[Any]) -> None:
    assert found(f"SELECT a, {text} AS v FROM t", dialect) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(z).q", "z has no field q; there are: x, y, in"),
        ("a.x", "a is int64, not a struct"),
        ("tz.x", "there is no table tz for tz.x; there are: t"),
        ("k < k", "comparing list[string] by LT is not supported"),
        ("z.in.flat", "z.in has no field flat; there are: deep"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(DdError) as error:
        found(f"SELECT a, {text} AS v FROM t")
    assert message in str(error.value)


VIEWS = """
CREATE VIEW pairs AS SELECT a.a, b.a AS b FROM t AS a JOIN t AS b ON a.z = b.z AND a.k = b.k;
CREATE VIEW all_of AS SELECT a.a, b.a AS b FROM t AS a FULL JOIN t AS b ON a.m = b.m AND a.id = b.id;
CREATE VIEW deep AS SELECT t.z.in.deep, count(*) AS n, max(w) AS w FROM t GROUP BY t.z.in.deep;
CREATE VIEW spread AS SELECT id, stddev(a) AS s FROM t GROUP BY CUBE (id);
CREATE VIEW known AS
WITH MUTUALLY RECURSIVE x (i uuid, w decimal(20, 0)) AS (SELECT id, w FROM t UNION SELECT i, w FROM x)
SELECT i, w FROM x;
"""


@pytest.mark.parametrize("fold", [whole, randomly_cut])
def test_joins_groups_and_loops_of_them_are_what_the_reference_gives(fold: Any) -> None:
    """A group by UUIDs with a statistic, and a loop of UUIDs, lost that these were UUIDs."""
    later = ROWS.with_columns(version=pl.col("a") * 0 + 1, diff=pl.col("a") * 0 - 1).head(2)
    rows = pl.concat([ROWS, later, ROWS.with_columns(a=pl.col("a") + 1, version=pl.col("a") * 0 + 2)])
    views = program(VIEWS)
    assert fold(views, t=rows) == by_reference(views, t=rows)
    plan = ddcore.Session(views, {"t": TYPES}).plan
    assert str(plan.outputs["known"]["i"]) == str(plan.outputs["spread"]["id"]) == "uuid"


TYPES = {
    "a": "int64", "id": "uuid", "z": "struct[x: int64, y: string, in: struct[deep: int64]]", "k": "list[string]",
    "m": "map[string, int64]", "w": "uint64",
}  # fmt: skip


def test_an_element_of_a_list_of_the_other_side_of_a_join() -> None:
    rows = pl.DataFrame({"a": [1, 2], "l": [[1, 2], [3]], "version": 0, "diff": 1})
    views = program("CREATE VIEW o AS SELECT p.a FROM t AS p JOIN t AS q ON p.a = q.a WHERE p.a = ANY(q.l)")
    assert ddcore.replay(views, t=rows)["o"].rows() == [(1, 0, 1)]
