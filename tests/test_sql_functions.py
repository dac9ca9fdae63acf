"""Functions of SQL give what PostgreSQL gives: ``sql_functions_postgres.tsv`` has its answers for a small table.

``PGHOST=... python tests/test_sql_functions.py`` asks a PostgreSQL for all of them again, and writes the file.
"""

from __future__ import annotations

import subprocess
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from sql_functions import (
    ENGINES,
    MISSING,
    NULL,
    PAGE,
    ROWS,
    answers,
    called,
    differing,
    file_of,
    frame,
    ours,
    page,
    view_of_all,
)
from sqlglot import exp, parse_one

import ddcore as dd
from ddcore import reference
from ddcore.base.errors import ExpressionError, ProgramError
from ddcore.sql import program
from ddcore.sql.functions import NAMED
from ddcore.sql.rules import BY_DIALECT


@pytest.mark.sample(4)
@pytest.mark.parametrize("start", range(6))
def test_functions_give_what_postgresql_gives(start: int) -> None:
    """One in six expressions."""
    assert differing("postgres", 6, start) == {}


def asked(expressions: list[str]) -> list[list[str]]:
    """What the PostgreSQL of PGHOST gives, one query for each expression."""
    kinds = {"id": "bigint", "a": "text", "b": "text", "n": "int", "m": "int", "x": "double precision",
             "p": "numeric(12,3)", "d": "date", "ts": "timestamp", "l": "text[]", "k": "bigint[]"}  # fmt: skip

    def spelled(value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, list):
            return "ARRAY[" + ",".join(map(spelled, value)) + "]"
        return str(value) if isinstance(value, int | float | Decimal) else "'" + str(value).replace("'", "''") + "'"

    rows = ", ".join(
        "(" + ", ".join(f"{spelled(value)}::{kind}" for value, kind in zip(row, kinds.values(), strict=True)) + ")"
        for row in ROWS
    )
    script = [f"CREATE TEMP TABLE t AS SELECT * FROM (VALUES {rows}) AS t ({', '.join(kinds)});"]
    script += [f"SELECT ({expression})::text FROM t ORDER BY id;" for expression in expressions]
    command = ["psql", "-U", "postgres", "-qAt", "-P", f"null={NULL}", "-v", "ON_ERROR_STOP=1"]
    done = subprocess.run(command, input="\n".join(script), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.replace("\t", "\\t").splitlines()
    return [lines[at : at + len(ROWS)] for at in range(0, len(lines), len(ROWS))]


REFUSED = {
    "ts AT TIME ZONE 'Europe/Paris'": "ts::timestamptz AT TIME ZONE 'Europe/Paris'",
    "ts::timestamptz AT TIME ZONE a": "a time zone that is no literal name",
    "to_char(interval '1 day', 'DD')": "is interval, not timestamp or date",
    "to_char(ts, 'SSSS')": "a pattern of",
    "ARRAY[[1, 2], [3, 4]]": "an ARRAY of lists",
    "to_jsonb(a) || to_jsonb(b)": "JSON || JSON",
    "a LIKE ANY (l)": "LIKE ANY of what is not written out",
    "isfinite(interval '1 day')": "is interval, not date or timestamp",
    "interval '1 day' AND n > 1": "is interval, not a condition",
    r"a ~ '(a)\1'": r"\1 in a regular expression",
    "regexp_replace(a, 'a|ab', 'x')": "whose match is taken",
    "regexp_replace(a, 'a+?', 'x')": "whose match is taken",
    "a ~ '('": "is no regular expression",
    "regexp_replace(a, b, 'x')": "a regular expression that is no literal",
    "regexp_like(a, b, 'x')": "flags of a regular expression",
    "to_char(ts, 'TZ')": "a pattern of",
    "split_part(a, ',', 0)": "split_part() of field 0",
    "round(x, n)": "round() of float64 to a number of digits that is no literal",
    "x % 2": "a remainder of doubles",
    "width_bucket(n, k)": "limits that are not written out",
    "scale(p * 2)": "what is no column of decimals",
    "trim_scale(p)": "rtrim(rtrim(p::text, '0'), '.')",
    "format('%I', a)": "format() with anything but %s, %L and %%",
    "format('%s %s', a)": "too few values",
    "trunc(x, 2)": "trunc() to this number of digits",
    "n >> m": ">> by what is no literal",
    "date_bin('1 month', ts, ts)": "date_bin() by what is no literal interval",
    "date_bin('0 days', ts, ts)": "the interval is not positive",
    "jsonb_build_array(a::json)": "JSON in JSONB",
    "a -> 'x'": "JSON as a value",
    "a #>> '{x{'": "this path of JSON",
    "octet_lenght(a)": "did you mean 'octet_length'?",
    "make_date(1, 2)": "make_date() takes 3 values",
    "a[1]": "not a list",
    "a IN ()": "FALSE is the condition that no row meets",
    "k < k": "lists, structs and maps are equal",
    "regexp_split_to_array(a, 'x*')": "a pattern that matches an empty text",
    "to_char(x, '999')": "cast it to a decimal",
    "to_char(n, '99.')": "a pattern of",
    "to_number(a, '9PR')": "patterns of numbers have",
    "levenshtein(a, b)": "flat_map()",
    "jsonb_set(a, '{x}', '1')": "build it anew of its parts",
    "hashtext(a)": "md5() and sha2()",
    "ts + interval '1 day ago'": "the interval '1 day ago' is not supported",
    "ts + interval '1 day 5'": "the interval '1 day 5' is not supported",
    "sha256(decode(a, 'hex'))": "sha256(convert_to(x, 'UTF8'))",
    "n::bigint << m": "<< by what is no literal",
    "a ~ '[[:punct:]]'": "[:punct:] in a regular expression",
    "k[1] + a": "is string, not int64",
}


@pytest.mark.parametrize("expression", [*REFUSED])
def test_what_cannot_be_as_in_postgresql_is_refused_by_name(expression: str) -> None:
    with pytest.raises(ProgramError) as caught:
        ours(expression)
    assert REFUSED[expression] in f"{caught.value} {caught.value.hint}"


CASTS = [
    ("postgres", "a::bigint", "CAST(a AS BIGINT): 'Hello, World' is no int64, in the row a='Hello, World'"),
    ("postgres", "a::date", "CAST(a AS DATE): 'Hello, World' is no date"),
    ("postgres", "a::timestamp", "CAST(a AS TIMESTAMP): 'Hello, World' is no timestamp"),
    ("postgres", "a::boolean", "CAST(a AS BOOLEAN): 'Hello, World' is no bool"),
    ("postgres", "a::numeric(10,2)", "CAST(a AS DECIMAL(10, 2)): 'Hello, World' is no decimal(10,2)"),
    ("postgres", "a::uuid", "CAST(a AS UUID): 'Hello, World' is no uuid"),
    ("postgres", "a::time", "CAST(a AS TIME): 'Hello, World' is no time"),
    ("postgres", "(x * 1e30)::bigint", "CAST((x * 1e30) AS BIGINT): 2.5e+30 is no int64, in the row x=2.5"),
    ("postgres", "p::numeric(4,3)", "CAST(p AS DECIMAL(4, 3)): Decimal('999999999.999') is no decimal(4,3)"),
    ("spark", "CAST(a AS int)", "CAST(a AS INT): 'Hello, World' is no int64"),
    ("duckdb", "a::double", "CAST(a AS DOUBLE): 'Hello, World' is no float64"),
    ("postgres", "CASE WHEN n > 5 THEN (b || a)::bigint WHEN n = 5 THEN (a || '!')::bigint END",
     "CAST((a || '!') AS BIGINT): 'Hello, World!' is no int64"),
    ("postgres", "((n || '.5')::bigint || a)::date", "CAST((n || '.5') AS BIGINT): '5.5' is no int64"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "expression", "message"), CASTS)
def test_a_row_that_a_cast_does_not_take_is_told_in_words_of_sql(dialect: str, expression: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=r"^program.sql:1:\d\d: ") as caught:
        ours(expression, dialect)
    assert message in caught.value.message
    assert "conversion from" not in caught.value.message


def test_a_reason_to_fail_is_told_as_it_is() -> None:
    with pytest.raises(ExpressionError, match=r": there is no such time of day, in the row"):
        ours("make_time(99 + n, 0, 0)")
    with pytest.raises(ExpressionError, match=r"'Hello, World' is no date, in the row a="):
        ours("to_date(a, 'YYYY-MM-DD')")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_function_of_a_dialect_is_compared_with_its_engine(engine: str) -> None:
    kinds = {kind for kind in BY_DIALECT[engine] if issubclass(kind, exp.Func) and not issubclass(kind, exp.Binary)}
    trees = [parse_one(f"SELECT {expression}", read=engine) for expression, _ in answers(engine)]
    compared = {type(node) for tree in trees for node in tree.walk()}
    assert not {kind.__name__ for kind in kinds - compared - NOT_COMPARED}
    assert not NAMED[engine].keys() - called(engine)


@pytest.mark.sample(1)
@pytest.mark.parametrize("every", [24, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("engine", ENGINES)
def test_functions_equal_the_reference_as_rows_come_and_go(engine: str, every: int, seed: int) -> None:
    views = program(view_of_all(engine, every, seed), dialect=engine)
    rows = frame()
    gone = rows.filter(pl.col("id") % 2 == 0).with_columns(version=1, diff=-1)
    log = pl.concat([rows, gone.cast(rows.schema)])
    by_engine = reference.log_of(dd.replay(views, t=log)["o"], ("version",))
    by_reference = reference.replay(views, t=log)["o"]
    assert repr(sorted(map(repr, by_engine.items()))) == repr(sorted(map(repr, by_reference.items())))


@pytest.mark.parametrize(
    "column",
    [
        "gcd(n, m) AS c, p",
        "gcd(CAST(p AS bigint), m) AS c",
        "CASE WHEN n < 6 THEN gcd(n, m) + p ELSE gcd(CAST(a AS bigint), m) END AS c",  # of texts that are no numbers
        " + ".join(["p"] * 200) + " AS c",
    ],
)
def test_the_reference_ends_beside_decimals_where_parts_are_shared_or_deep(column: str) -> None:
    """The greatest common divisor has many parts that share others."""
    views, rows = program(f"CREATE VIEW o AS SELECT id, {column} FROM t", dialect="postgres"), frame().head(2)
    by_engine = reference.log_of(dd.replay(views, t=rows)["o"], ("version",))
    assert repr(sorted(map(repr, by_engine.items()))) == repr(
        sorted(map(repr, reference.replay(views, t=rows)["o"].items()))
    )


def test_the_page_of_functions_is_that_of_the_comparisons() -> None:
    assert PAGE.read_text("utf-8") == page(), "PYTHONPATH=tests/support python -m sql_functions"


@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_page_calls_missing_is_refused(engine: str) -> None:
    names = {name for item in MISSING for name in item.split()}
    assert not names & (NAMED[engine].keys() | called(engine))
    for name in ("random", "levenshtein", "jsonb_set", "hashtext", "unistr"):
        with pytest.raises(ProgramError, match=r"program.sql:1:2\d: ") as caught:
            ours(f"{name}(a, b)", engine)
        assert caught.value.hint


NOT_COMPARED = {
    exp.Anonymous, exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.Localtime, exp.Localtimestamp, exp.Rand,
    exp.TryCast, exp.JSONExtract, exp.JSONBExtract, exp.Contains, exp.DateTrunc, exp.Day, exp.EndsWith, exp.LastDay,
    exp.Month, exp.Quarter, exp.SHA, exp.SHA2, exp.Year,
}  # fmt: skip
"""Those that are refused, those by name, and those of other engines that the default takes, too."""


if __name__ == "__main__":
    known = [expression for expression, _ in answers("postgres")]
    lines = ["\t".join([expression, *values]) for expression, values in zip(known, asked(known), strict=True)]
    file_of("postgres").write_text("\n".join(lines) + "\n", "utf-8")
