"""The harness of ``make test-slt``, on text in the suite's format: what it reads, and that it finds wrong answers."""

from __future__ import annotations

import hashlib
import random

import pytest
from slt import Found, _Check
from sqlite_types import casts_fractions, divides_by_dynamic_type
from sqllogictest import Query, Statement, formatted, matches, records

SUITE = """\
# a comment

hash-threshold 8

statement ok
CREATE TABLE t(a INTEGER, b TEXT, c FLOAT)

statement ok
INSERT INTO t VALUES(1,'x',0.5)

onlyif mysql # DIV
query I rowsort
SELECT a DIV 1 FROM t
----
1

skipif postgresql
statement ok
INSERT INTO t VALUES(9,'never',9.5)

query ITR nosort
SELECT a, b, c
FROM t ORDER BY a
----
1
x
0.500

skipif mysql # not compatible
onlyif postgresql
query I valuesort label-1
SELECT count(*) FROM t
----
1

statement ok
INSERT INTO t VALUES(2,'',NULL)

query TR rowsort
SELECT b, c FROM t
----
(empty)
NULL
x
0.500

statement error
INSERT INTO nothing VALUES(1)

query I rowsort
SELECT a / 0 FROM t
----
NULL
NULL

onlyif mssql
halt

query I rowsort
SELECT a FROM t WHERE a > (SELECT min(a) FROM t)
----
2

halt

query I rowsort
SELECT 'never read'
----
1
"""


def check(text: str, steps: int = 0) -> Found:
    found = Found()
    _Check("a.test", random.Random(5), found).run(text, 100, steps)
    return found


def test_records_of_a_database() -> None:
    read = list(records(SUITE))
    assert [item.line for item in read] == [6, 9, 22, 32, 37, 40, 48, 51, 60]
    assert [item.fails for item in read if isinstance(item, Statement)] == [False, False, False, True]
    queries = [item for item in read if isinstance(item, Query)]
    assert queries[0] == Query(22, "SELECT a, b, c\nFROM t ORDER BY a", "ITR", "nosort", ("1", "x", "0.500"))
    assert [(query.order, query.result) for query in queries[1:3]] == [
        ("valuesort", ("1",)), ("rowsort", ("(empty)", "NULL", "x", "0.500")),
    ]  # fmt: skip
    assert "SELECT a DIV 1 FROM t" in [record.sql for record in records(SUITE, "mysql")]
    with pytest.raises(ValueError, match="line 2: 'qeury I' begins no record"):
        list(records("\nqeury I\nSELECT 1\n"))


def test_how_values_are_written() -> None:
    rows = [(None, 1.9, "12x"), (-1.9, True, "abc")]
    assert formatted(rows, "III") == [("NULL", "1", "12"), ("-1", "1", "0")]
    assert formatted([(1, None, 2.0006)], "RRR") == [("1.000", "NULL", "2.001")]
    assert formatted([("", "a\tb", 7)], "TTT") == [("(empty)", "a@b", "7")]


def test_orders_and_hashes() -> None:
    rows = [("2", "b"), ("1", "c")]
    for order, values in (("nosort", "2 b 1 c"), ("rowsort", "1 c 2 b"), ("valuesort", "1 2 b c")):
        assert matches(Query(1, "", "II", order, tuple(values.split())), rows)
        assert not matches(Query(1, "", "II", order, tuple(values.split()[::-1])), rows)
    nine = [(str(number),) for number in range(9)]
    right = hashlib.md5(b"0\n1\n2\n3\n4\n5\n6\n7\n8\n").hexdigest()
    assert not matches(Query(1, "", "I", "nosort", (f"9 values hashing to {right[::-1]}",)), nine)
    assert matches(Query(1, "", "I", "nosort", (f"9 values hashing to {right}",)), nine)
    assert not matches(Query(1, "", "I", "nosort", (f"8 values hashing to {right}",)), nine)


def test_answers_at_their_moments_and_after_statements() -> None:
    found = check(SUITE, steps=8)
    assert (found.compared, found.left_out, found.wrong) == (5, 0, [])
    assert not found.refused and found.versions >= 30


def test_a_wrong_answer_is_told_with_its_line() -> None:
    (wrong,) = check(SUITE.replace("count(*) FROM t\n----\n1", "count(*) FROM t\n----\n2")).wrong
    assert wrong == "a.test:32: SELECT count(*) FROM t\n    has [('1',)], not ['2']"


def test_refusals_are_counted_by_message() -> None:
    more = (
        "\nquery I rowsort\nSELECT kurtosis(a) FROM t\n----\n1\n"
        "\nquery I rowsort\nSELECT kurtosis(c) FROM t\n----\n1\n\n"
    )
    found = check(SUITE.replace("onlyif mssql\nhalt", f"onlyif mssql\nhalt\n{more}"))
    assert sum(found.refused.values()) == 2 and not found.wrong and found.compared == 5
    assert all("kurtosis" in message for message in found.refused)


def test_a_table_that_is_made_anew_begins_another_history() -> None:
    text = SUITE.partition("onlyif mssql")[0]
    for record in ("statement ok\nDROP TABLE t", "statement ok\nCREATE TABLE t(a TEXT)"):
        text += f"{record}\n\n"
    text += "query I nosort\nSELECT count(*) FROM t\n----\n0\n"
    found = check(text)
    assert (found.compared, found.wrong) == (5, [])


@pytest.mark.parametrize(
    ("value", "dynamic"),
    [
        ("a / coalesce(a, avg(a))", True),
        ("- coalesce ( a, c ) / + 2", True),
        ("3 * CASE a WHEN 1 THEN 2 ELSE cast(b AS REAL) END / (SELECT max(a) FROM t)", True),
        ("a / nullif(coalesce(a, 0.5), 1) + 1", True),
        ("a / coalesce(a, count(*))", False),
        ("avg(a) / coalesce(a, c)", False),
        ("coalesce(a, avg(a)) / 2.0", False),
        ("coalesce(a, avg(a)) * 2", False),
        ("CASE WHEN a / 2 > c THEN 1 ELSE 2 END / 3", False),
        ("CASE c WHEN 0.5 THEN a END / 3", False),
    ],
)
def test_quotients_by_the_types_of_single_values(value: str, dynamic: bool) -> None:
    schema = {"t": {"a": "int64", "b": "string", "c": "float64"}}
    assert divides_by_dynamic_type(f"SELECT {value} AS x FROM t", schema) is dynamic


def test_a_quotient_by_the_types_of_single_values_is_left_out() -> None:
    """SQLite has 3 / 2 = 1 there, a typed engine 1.5."""
    text = "\nquery R rowsort\nSELECT 3 / coalesce(2, avg(a)) FROM t\n----\n1.000\n\n"
    found = check(SUITE.replace("onlyif mssql\nhalt", f"onlyif mssql\nhalt\n{text}"))
    assert (found.compared, found.dynamic, found.wrong) == (5, 1, [])


@pytest.mark.parametrize(
    ("value", "cuts"),
    [
        ("cast(- avg(a) AS INTEGER)", True),
        ("CAST ( c AS SIGNED )", True),
        ("cast(sum(a) AS INTEGER)", False),
        ("cast(a AS REAL)", False),
        ("cast(b AS INTEGER)", False),
    ],
)
def test_casts_that_leave_a_fraction_out_in_sqlite(value: str, cuts: bool) -> None:
    schema = {"t": {"a": "int64", "b": "string", "c": "float64"}}
    assert casts_fractions(f"SELECT {value} AS x FROM t", schema) is cuts
