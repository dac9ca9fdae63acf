"""Programs in the dialects of Spark and DuckDB mean what these engines give, or are refused by name.

``PYTHONPATH=tests/support python tests/test_sql_dialects.py spark`` (or ``duckdb``) asks the engine for all
expressions of its file again, or with ``new`` those without an answer,
and writes the answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from sql_functions import ROWS, answers, differing, file_of, frame, ours, written

import ddcore as dd
from ddcore.base.errors import DdError, ProgramError, UsageError
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load
from ddcore.sql import program

KINDS = {"id": "bigint", "a": "string", "b": "string", "n": "bigint", "m": "bigint", "x": "double",
         "p": "decimal(12,3)", "d": "date", "ts": "timestamp", "l": "array<string>", "k": "array<bigint>"}  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize("start", range(6))
@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_a_dialect_means_what_its_engine_gives(engine: str, start: int) -> None:
    """One in six expressions."""
    assert differing(engine, 6, start) == {}


def by_duckdb(expressions: Sequence[str]) -> list[list[Any]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    kinds = {"string": "varchar", "array<string>": "varchar[]", "array<bigint>": "bigint[]"}
    connection.execute(
        f"CREATE TABLE t ({', '.join(f'{name} {kinds.get(kind, kind)}' for name, kind in KINDS.items())})"
    )
    connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(KINDS))})", ROWS)
    return [
        [value for (value,) in connection.execute(f"SELECT {expression} FROM t ORDER BY id").fetchall()]
        for expression in expressions
    ]


def by_spark(session: Any) -> Callable[[Sequence[str]], list[list[Any]]]:
    def asked(expressions: Sequence[str]) -> list[list[Any]]:
        session.conf.set("spark.sql.session.timeZone", "UTC")
        schema = ", ".join(f"{name} {kind.replace('timestamp', 'timestamp_ntz')}" for name, kind in KINDS.items())
        rows = session.createDataFrame(ROWS, schema)
        rows.selectExpr(
            *(name for name in KINDS if name != "ts"), "CAST(ts AS timestamp) AS ts"
        ).createOrReplaceTempView("t")
        columns = ", ".join(f"{expression} AS `{number}`" for number, expression in enumerate(expressions))
        frame = session.sql(f"SELECT {columns} FROM t ORDER BY id")
        casts = [
            f"CAST(`{name}` AS timestamp_ntz) AS `{name}`" if kind == "timestamp" else f"`{name}`"
            for name, kind in frame.dtypes
        ]
        return [list(values) for values in zip(*frame.selectExpr(*casts).collect(), strict=True)]

    return asked


def test_the_answers_of_duckdb_are_those_that_are_kept() -> None:
    kept = dict(answers("duckdb"))
    for expression, values in zip(kept, by_duckdb(list(kept)), strict=True):
        assert [written(value) for value in values] == kept[expression], expression


@pytest.mark.long
def test_the_answers_of_spark_are_those_that_are_kept(spark: Any) -> None:
    kept = dict(answers("spark"))
    for expression, values in zip(kept, by_spark(spark)(list(kept)), strict=True):
        assert [written(value) for value in values] == kept[expression], expression


LONG_3, LONG_4 = "CAST(1 AS decimal(38,3))", "CAST(0.1875 AS decimal(38,4))"
ORDERED = "CREATE VIEW o AS SELECT id, row_number() OVER (ORDER BY n, id) AS v FROM t"
MEANINGS = [
    # the place of nulls in an order
    ("postgres", ORDERED, [5, 2, 8, 1, 7, 6, 3, 4]),
    ("duckdb", ORDERED, [5, 2, 8, 1, 7, 6, 3, 4]),
    ("spark", ORDERED, [6, 3, 1, 2, 8, 7, 4, 5]),
    ("duckdb", ORDERED.replace("n, id", "n DESC, id"), [3, 6, 8, 7, 1, 2, 5, 4]),
    ("spark", ORDERED.replace("n, id", "n DESC, id"), [3, 6, 8, 7, 1, 2, 5, 4]),
    ("postgres", ORDERED.replace("n, id", "n DESC, id"), [4, 7, 1, 8, 2, 3, 6, 5]),
    # capitals of names in quotes
    (
        "spark",
        "CREATE VIEW `V` AS SELECT `ID` AS `Id`, 1 AS v FROM `T` WHERE n = 1; CREATE VIEW o AS SELECT id, V FROM v",
        [1],
    ),
    ("duckdb", 'CREATE VIEW o AS SELECT "ID" AS id, N AS v FROM "T" WHERE n = 1', [1]),
    # texts: double quotes, backslashes, semicolons
    ("databricks", 'CREATE VIEW o AS SELECT id, "it\'s; \\"so\\"" AS v FROM t WHERE id = 1', ['it\'s; "so"']),
    ("spark", "CREATE VIEW o AS SELECT id, 'it\\'s;' AS v FROM t WHERE id = 1", ["it's;"]),
    # Spark has no row of all rows where there are none, unless nothing else is grouped by
    ("postgres", "CREATE VIEW o AS SELECT a AS id, count(*) AS v FROM t WHERE n = 99 GROUP BY CUBE (a)", [0]),
    ("spark", "CREATE VIEW o AS SELECT a AS id, count(*) AS v FROM t WHERE n = 99 GROUP BY CUBE (a)", []),
    ("spark", "CREATE VIEW o AS SELECT 1 AS id, count(*) AS v FROM t WHERE n = 99 GROUP BY GROUPING SETS ((), ())", []),
    ("spark", "CREATE VIEW o AS SELECT 1 AS id, count(*) AS v FROM t WHERE n = 99 GROUP BY GROUPING SETS (())", [0]),
    # a list that is null has no elements in DuckDB
    ("postgres", "CREATE VIEW o AS SELECT id, 1 = ANY(k) AS v FROM t WHERE id IN (1, 3)", [True, None]),
    ("duckdb", "CREATE VIEW o AS SELECT id, 1 = ANY(k) AS v FROM t WHERE id IN (1, 3)", [True, False]),
    ("duckdb", "CREATE VIEW o AS SELECT id, 1 <> ALL(k) AS v FROM t WHERE id IN (1, 3)", [False, True]),
    ("duckdb", "CREATE VIEW o AS SELECT id, 2 > ANY(k) AS v FROM t WHERE id IN (1, 3)", [True, False]),
    ("duckdb", "CREATE VIEW o AS SELECT id, n > ALL(k) AS v FROM t WHERE id IN (1, 3)", [True, True]),
    # decimals of different digits meet where 38 are enough, and in PostgreSQL always
    ("duckdb", f"CREATE VIEW o AS SELECT id, coalesce(1.5, {LONG_4}) AS v FROM t WHERE id = 1", [Decimal("1.5")]),
    ("spark", f"CREATE VIEW o AS SELECT id, coalesce({LONG_4}, p) AS v FROM t WHERE id = 1", [Decimal("0.1875")]),
    (
        "postgres",
        f"CREATE VIEW o AS SELECT id, coalesce({LONG_4}, {LONG_3}) AS v FROM t WHERE id = 1",
        [Decimal("0.1875")],
    ),
    # a branch that is not taken does not divide
    ("spark", "CREATE VIEW o AS SELECT id, CASE WHEN m <> 0 THEN n / m END AS v FROM t WHERE id > 6", [None, 2.0]),
]


@pytest.mark.parametrize(("dialect", "text", "values"), MEANINGS)
def test_queries_mean_what_the_dialect_says(dialect: str, text: str, values: list[Any]) -> None:
    rows = dd.replay(program(text, dialect=dialect), t=frame())["o"]
    assert rows.sort("id" if "id" in rows.columns else "Id")["v" if "v" in rows.columns else "V"].to_list() == values


REFUSED = [
    ("spark", "n / m", "division by zero"),
    ("spark", "n % m", "division by zero"),
    ("duckdb", "n // m", "division by zero"),
    ("spark", "(p + 1) / 2", "division of a decimal whose digits Spark may count otherwise"),
    (
        "spark",
        f"coalesce({LONG_3}, {LONG_4})",
        "cast all to one type: CAST(x AS decimal(38,4))",
    ),
    ("duckdb", f"CASE WHEN n = 1 THEN {LONG_3} ELSE {LONG_4} END", "and duckdb may round them"),
    ("duckdb", f"greatest({LONG_4}, {LONG_3})", "and duckdb may round them"),
    ("spark", "d - DATE '2000-01-01'", "datediff(a, b) is the days between dates"),
    ("spark", "a RLIKE '(?=a)'", "(?=a) in a regular expression"),
    ("spark", "a RLIKE '[a&&b]'", "& in a regular expression"),
    ("spark", "a RLIKE 'a$|b'", "$ before the end in a regular expression"),
    ("spark", "regexp_extract(a, 'x', 1)", "the pattern has no group 1"),
    ("spark", "split(a, '[,;]')", "split() at what is no literal text"),
    ("spark", "l[0]", "index"),
    ("spark", "levenshtein(a, b)", "the function levenshtein is not supported"),
    ("spark", "from_json(a, 'x int')", "get_json_object(x, '$.a')"),
    ("spark", "a IN ()", "FALSE is the condition that no row meets"),
    ("spark", "a RLIKE concat('x', b, '$')", "of a column has plain parts only: write it as a literal"),
    ("spark", r"a RLIKE concat(b, '(?<!x)')", "of a column has plain parts only"),
    ("duckdb", r"regexp_matches(a, b || '\pL')", "of a column has plain parts only"),
    ("postgres", r"a ~ (b || '\m')", "of a column has plain parts only"),
    ("duckdb", "list_sort([{'x': n, 'y': a}])", "the order of struct[x: int64, y: string] is not supported"),
    ("duckdb", "k[1:2:1]", "a slice of a list with a step"),
    ("spark", "date_trunk('month', ts)", "did you mean 'date_trunc'?"),
    ("duckdb", "date_dif('day', d, d)", "did you mean 'date_diff'?"),
    ("duckdb", "a -> 'x'", "JSON as a value is not supported"),
    ("duckdb", "a ->> 'x'", "this text is no JSON"),
    ("postgres", "a ->> 'x'", "this text is no JSON"),
    ("postgres", "split_part(a, ',', n)", "there is no field 0"),
    ("postgres", "a LIKE a || '\\'", "the pattern ends with its escape"),
    ("postgres", "overlay(a placing b from n)", "is no place of overlay()"),
    ("postgres", "width_bucket(n, m, m, 2)", "needs buckets with a width"),
    ("postgres", "lcm(n + 9223372036854775000, m + 9223372036854774000)", "in the row"),
    ("spark", "round(x, m)", "to a number of digits that is no literal"),
    ("spark", "aggregate(k, 0L, (acc, x) -> acc * x)", "aggregate() by anything but a sum"),
    ("spark", "element_at(k, n)", "is the number of no element"),
    ("spark", "map_from_arrays(array_compact(k), l)[1]", "are not equally long"),
    ("spark", "mask(a, b)", "mask() by what is no literal letter"),
    ("duckdb", "list_distance([x], [1.0::double, 2.0])", "lists are not equally long"),
]


@pytest.mark.parametrize(("dialect", "expression", "message"), REFUSED)
def test_what_differs_or_fails_is_refused_by_name(dialect: str, expression: str, message: str) -> None:
    with pytest.raises(DdError) as caught:
        ours(expression, dialect)
    assert message in f"{caught.value} {caught.value.hint}"
    assert str(caught.value).startswith("program.sql:1:")


@pytest.mark.parametrize(
    ("dialect", "text", "message"),
    [
        ("spark", "CREATE VIEW o AS SELECT count(*) FROM t", "program.sql:1:13: column 1 of the view o has no name"),
        ("spark", "CREATE VIEW o AS SELECT kurtosis(n) AS v FROM t", "the aggregate kurtosis in the dialect 'spark'"),
        ("spark", "CREATE VIEW o AS SELECT avg(p * 2) AS v FROM t", "whose digits Spark may count otherwise"),
        (
            "duckdb",
            "CREATE VIEW o AS SELECT sum(p) * 1.1 AS v FROM t UNION SELECT CAST(n AS decimal(38,3)) AS v FROM t",
            "UNION, column v: decimal(38,",
        ),
        ("spark", "CREATE VIEW o AS SELECT 'a FROM t", "program.sql:1:25: this text is not closed: 'a FROM t"),
        ("spark", "CREATE VIEW o AS SELECT `a FROM t", "program.sql:1:25: this name in back quotes is not closed"),
        ("spark", "CREATE VIEW o AS SELECT a FRM t", "program.sql:1:27: FRM is no word of SQL here"),
        ("sparc", "CREATE VIEW o AS SELECT a FROM t", "program.sql: unknown dialect 'sparc' did you mean 'spark'?"),
    ],
)
def test_mistakes_have_their_place_in_every_dialect(dialect: str, text: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        dd.replay(program(text, dialect=dialect), t=frame())
    assert message in f"{caught.value.message} {caught.value.hint}"


def test_a_project_names_the_dialect_of_its_program(tmp_path: Path) -> None:
    def project(dialect: str, program: str = "o.sql") -> Any:
        settings = f'[project]\nprogram = "{program}"\nwarehouse = "w"\ndialect = "{dialect}"\n'
        (tmp_path / "dd.toml").write_text(settings + '[inputs.t]\nschema = { a = "string" }\n')
        return find_project(tmp_path, {})

    (tmp_path / "o.sql").write_text("CREATE VIEW o AS SELECT `a` FROM t")
    assert project("databricks").dialect == "databricks"
    views = load(project("spark")).function
    assert dd.replay(views, t=pl.DataFrame({"a": ["x"], "version": [0], "diff": [1]}))["o"].rows() == [("x", 0, 1)]
    with pytest.raises(UsageError, match="unknown dialect 'sparc'"):
        project("sparc")
    with pytest.raises(UsageError, match="is that of a program of SQL"):
        project("spark", "program.py:views")
    with pytest.raises(UsageError, match="is that of a program of SQL"):
        project("spark", "dbt")


if __name__ == "__main__":
    engine = sys.argv[1]
    lines = file_of(engine).read_text("utf-8").splitlines()
    asked_anew = [number for number, line in enumerate(lines) if "new" not in sys.argv or "\t" not in line]
    if engine == "spark":
        from pyspark.sql import SparkSession

        session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        asked = by_spark(session)
    else:
        asked = by_duckdb
    for number in asked_anew:
        expression = lines[number].split("\t")[0]
        try:
            lines[number] = "\t".join([expression, *map(written, asked([expression])[0])])
        except Exception as error:  # an engine may refuse an expression: its line is to be taken out
            print(f"{expression}: {str(error).strip().splitlines()[0][:150]}", file=sys.stderr)
    file_of(engine).write_text("\n".join(lines) + "\n", "utf-8")
