"""Mistakes in the text of a program: whole messages, and programs broken at one random place."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from real_data import REPOSITORY
from seeds import seeds
from sqlglot import parse as parse_sql
from sqlglot.dialects.dialect import Dialect

import ddcore
from ddcore.base.errors import DdError, ProgramError
from ddcore.sql import load, program

SLOW = "CREATE VIEW slow AS\nSELECT src, dst, minutes\nFROM links\nWHERE minutes > 3;\n\n"
COUNTS = "CREATE VIEW counts AS\n"
COMMA = "take the comma out, or add what is missing beside it"
COMPLETE = "complete it; docs/sql.md has examples"
BESIDE = "a comma, an operator or a keyword before it may be missing or misspelt; docs/sql.md has examples"
TWICE = "add ' where it ends; a quote inside of a text is written twice: 'it''s'"
BETWEEN = "a comma, AS or an operator between them is missing"
FORM = "write CREATE VIEW name AS SELECT ..."
LIST = "a program is a list of CREATE VIEW name AS SELECT ..., with semicolons between them"

MESSAGES = [
    # quotes, comments and parentheses that are not closed
    (
        SLOW.replace("> 3", "= 'three") + COUNTS + "SELECT src FROM slow;",
        "program.sql:4:17: this text is not closed: 'three;",
        TWICE,
    ),
    (
        SLOW.replace("> 3", "= 'three") + COUNTS + "SELECT src FROM slow WHERE src = 'a' OR src = 'b';",
        "program.sql:4:17: this text is not closed: 'three;",
        TWICE,
    ),
    (
        COUNTS + "SELECT src FROM slow\nWHERE src IN ('a', 'b,\n  'c')",
        "program.sql:3:20: this text is not closed: 'b,",
        TWICE,
    ),
    (
        COUNTS + "SELECT src FROM slow WHERE src = 'don't';",
        "program.sql:2:40: this text is not closed: ';",
        TWICE,
    ),
    (
        COUNTS + 'SELECT src AS "place FROM slow;\n' + SLOW,
        'program.sql:2:15: this name in double quotes is not closed: "place FROM slow;',
        'add " where it ends',
    ),
    (SLOW + "/* later\n" + COUNTS, "program.sql:6:1: this comment is not closed: /* later", "add */ where it ends"),
    (
        "/* a /* b */\n" + SLOW,
        "program.sql:1:1: this comment is not closed: /* a /* b */",
        "add */ where it ends",
    ),
    (SLOW + "$tag$ later", "program.sql:6:1: this text is not closed: $tag$ later", "add $tag$ where it ends"),
    (
        SLOW + COUNTS + "SELECT coalesce(src, dst AS place\nFROM slow;",
        "program.sql:7:16: this parenthesis is never closed",
        "add the closing one",
    ),
    (
        SLOW + COUNTS + "SELECT src\nFROM slow);\n",
        "program.sql:8:10: this parenthesis closes nothing",
        "take it out, or add the one that opens",
    ),
    (
        COUNTS + "SELECT src FROM slow WHERE src = ANY(ARRAY['a');",
        "program.sql:2:43: this bracket is never closed",
        "add the closing one",
    ),
    (
        COUNTS + "SELECT x'zz' AS bytes FROM slow",
        "program.sql:2:8: this text cannot be read: x'zz'",
        "write it as 'text'",
    ),
    # misspelt keywords
    (
        SLOW + COUNTS + "SELECT src, count(*) AS n\nFORM slow\nGROUP BY src;",
        "program.sql:8:1: FORM is no word of SQL here",
        "did you mean 'FROM'?",
    ),
    (
        SLOW + COUNTS + "SELEC src\nFROM slow;",
        "program.sql:7:1: a query begins with SELECT, WITH or VALUES, not with SELEC",
        "did you mean 'SELECT'?",
    ),
    (
        SLOW + COUNTS + "SELECT src FROM (SELEC src FROM slow) AS t",
        "program.sql:7:18: SELEC is no word of SQL here",
        "did you mean 'SELECT'?",
    ),
    (
        SLOW + COUNTS + "SELECT src FROM slow\nWHER src = 'a'",
        "program.sql:8:1: WHER is no word of SQL here",
        "did you mean 'WHERE'?",
    ),
    (
        COUNTS + "SELECT src FROM slow LEFT JION links ON a = b",
        "program.sql:2:27: JION is no word of SQL here",
        "did you mean 'JOIN'?",
    ),
    (COUNTS + "SELECT src FROM slow\nGROUP src", "program.sql:3:1: BY is missing behind GROUP", COMPLETE),
    (COUNTS + "SELECT src FROM slow\nORDER src", "program.sql:3:1: BY is missing behind ORDER", COMPLETE),
    (COUNTS + "SELECT src, GROUP BY src", "program.sql:2:11: a comma before GROUP BY", COMMA),
    (COUNTS + "SELECT src FROM slow\nGROUP BU src", "program.sql:3:1: BY is missing behind GROUP", COMPLETE),
    (
        SLOW + "CREAT VIEW counts AS SELECT 1 AS one",
        "program.sql:6:1: a statement begins with CREATE VIEW, not with CREAT",
        "did you mean 'CREATE'?",
    ),
    (
        SLOW + "CREATE VEIW counts",
        "program.sql:6:8: CREATE makes views and declares tables, not VEIW",
        "did you mean 'VIEW'?",
    ),
    # what is missing or does not belong
    (COUNTS + "SELECT src FROM slow WHERE", "program.sql:2:22: a condition is missing behind WHERE", COMPLETE),
    (COUNTS + "SELECT src FROM slow WHERE src =", "program.sql:2:32: a value is missing behind =", COMPLETE),
    (COUNTS + "SELECT CASE WHEN src THEN FROM a", "program.sql:2:22: a value is missing behind THEN", COMPLETE),
    (COUNTS + "SELECT src FROM slow AND src = 1", "program.sql:2:22: AND cannot follow slow here", BESIDE),
    (COUNTS + "SELECT src dst minutes FROM slow", "program.sql:2:16: minutes cannot follow dst here", BESIDE),
    (COUNTS + "SELECT src # FROM slow", "program.sql:2:12: # means nothing here", "take it out"),
    # commas
    (COUNTS + "SELECT src,, dst FROM slow", "program.sql:2:12: two commas in a row", COMMA),
    (COUNTS + "SELECT src,\n  FROM slow", "program.sql:2:11: a comma before FROM", COMMA),
    (COUNTS + "SELECT , src FROM slow", "program.sql:2:8: a comma behind SELECT", COMMA),
    (COUNTS + "SELECT src FROM slow,", "program.sql:2:21: the statement ends with a comma", COMMA),
    (COUNTS + "SELECT src FROM slow, LEFT JOIN links ON a = b", "program.sql:2:21: a comma before LEFT", COMMA),
    (COUNTS + "SELECT src FROM slow GROUP BY src,", "program.sql:2:34: the statement ends with a comma", COMMA),
    (COUNTS + "SELECT src FROM slow GROUP BY src,, dst", "program.sql:2:35: two commas in a row", COMMA),
    (COUNTS + "SELECT src FROM slow GROUP BY , src", "program.sql:2:31: a comma behind GROUP BY", COMMA),
    (COUNTS + "SELECT src FROM slow ORDER BY src, LIMIT 3", "program.sql:2:34: a comma before LIMIT", COMMA),
    (COUNTS + "VALUES (1),, (2)", "program.sql:2:12: two commas in a row", COMMA),
    (COUNTS + "VALUES (1) (2)", "program.sql:2:12: ( cannot follow ) here", BETWEEN),
    (
        COUNTS + "SELECT a.src FROM slow a JOIN slow b ON",
        "program.sql:2:38: a condition is missing behind ON",
        COMPLETE,
    ),
    (COUNTS + "SELECT FROM slow", "program.sql:2:1: a column is missing behind SELECT", COMPLETE),
    (
        COUNTS + "DELETE FROM slow",
        "program.sql:2:1: a query begins with SELECT, WITH or VALUES, not with DELETE",
        "write CREATE VIEW counts AS SELECT ...",
    ),
    ("CREATE VIEW 'a' AS SELECT 1 AS b", "program.sql:1:13: 'a' is no name of a view", "a name has no single quotes"),
    ("CREATE VIEW a (b AS SELECT 1", "program.sql:1:15: this parenthesis is never closed", "add the closing one"),
    (COUNTS + "VALUES (1), (2),", "program.sql:2:16: the statement ends with a comma", COMMA),
    (COUNTS + "VALUES (1, 2,)", "program.sql:2:13: a comma before )", COMMA),
    (COUNTS + "WITH a AS (SELECT 1 AS b), SELECT b FROM a", "program.sql:2:26: a comma before SELECT", COMMA),
    (COUNTS + "SELECT coalesce(src,) AS a FROM slow", "program.sql:2:20: a comma before )", COMMA),
    (COUNTS + "SELECT coalesce(, src) AS a FROM slow", "program.sql:2:17: a comma behind (", COMMA),
    (COUNTS + "SELECT coalesce(src,,dst) AS a FROM slow", "program.sql:2:21: two commas in a row", COMMA),
    (COUNTS + "SELECT src IN ('a',) AS a FROM slow", "program.sql:2:19: a comma before )", COMMA),
    ("CREATE VIEW slow (a,) AS SELECT 1", "program.sql:1:20: a comma before )", COMMA),
    # statements
    (
        SLOW.replace(";", "") + COUNTS + "SELECT src FROM slow",
        "program.sql:6:1: a semicolon is missing before this CREATE",
        "end each statement with ;",
    ),
    (
        SLOW.replace("links", "links;") + COUNTS,
        "program.sql:4:1: a statement begins with CREATE VIEW, not with WHERE",
        "is the semicolon before it one too many?",
    ),
    (
        SLOW + "CREATE VIEW counts\nSELECT src FROM slow",
        "program.sql:7:1: AS is missing before SELECT",
        "write CREATE VIEW counts AS SELECT ...",
    ),
    (
        SLOW + "CREATE VIEW counts (place)\nSELECT src FROM slow",
        "program.sql:7:1: AS is missing before SELECT",
        "write CREATE VIEW counts AS SELECT ...",
    ),
    ("CREATE VIEW a b AS SELECT 1 AS c", "program.sql:1:15: b is not AS", "write CREATE VIEW a AS SELECT ..."),
    (SLOW + "CREATE VIEW AS SELECT 1 AS c", "program.sql:6:8: this view has no name", FORM),
    (SLOW + "CREATE VIEW a AS;", "program.sql:6:15: the view a has no query", "write CREATE VIEW a AS ..."),
    (SLOW + "CREATE VIEW a;", "program.sql:6:13: the view a has no query", "write CREATE VIEW a AS ..."),
    (SLOW + "CREATE", "program.sql:6:1: the statement ends before VIEW", "write CREATE VIEW name AS ..."),
    (SLOW + "SELECT src FROM slow", "program.sql:6:1: a query without a view", "write CREATE VIEW name AS before it"),
    (SLOW + "DROP VIEW slow", "program.sql:6:1: a statement begins with CREATE VIEW, not with DROP", LIST),
    ("", "program.sql:1:1: the file is empty", FORM),
    (" \n", "program.sql:1:1: the file is empty", FORM),
    (";;", "program.sql:1:1: there is no view, only comments or semicolons", FORM),
    ("-- to do\n/* and this */\n", "program.sql:1:1: there is no view, only comments or semicolons", FORM),
    (
        COUNTS + "SELECT " + "(" * 400 + "1" + ")" * 400 + " AS a",
        "program.sql:1:1: this statement is nested too deeply",
        "use several views",
    ),
    # WITH MUTUALLY RECURSIVE
    (
        COUNTS + "WITH MUTUALLY RECURSIVE () a (b int) AS (SELECT 1) SELECT b FROM a",
        "program.sql:2:26: an option of no words of WITH MUTUALLY RECURSIVE is unknown",
        "write (RETURN AT RECURSION LIMIT n) or (ERROR AT RECURSION LIMIT n)",
    ),
    (
        COUNTS + "WITH MUTUALLY RECURSIVE a () AS (SELECT 1) SELECT b FROM a",
        "program.sql:2:28: there are no columns here",
        "give each column of a recursive binding a type, for example (node bigint, name text)",
    ),
    (
        COUNTS + "WITH MUTUALLY RECURSIVE a (b) AS (SELECT 1) SELECT b FROM a",
        "program.sql:2:28: the column b has no type",
        "give each column of a recursive binding a type, for example (node bigint, name text)",
    ),
]


@pytest.mark.parametrize(("text", "message", "hint"), MESSAGES, ids=[message[12:60] for _, message, _ in MESSAGES])
def test_a_mistake_in_the_text_is_named_with_its_place(text: str, message: str, hint: str) -> None:
    with pytest.raises(ProgramError) as caught:
        program(text)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT src, left(dst, 2) AS a, right(dst, 2) AS b FROM slow",
        "SELECT by, x.by AS from_ FROM slow x WHERE by > 1",
        "SELECT 'a,, b; CREATE VIEW (' AS \"c,,\" -- it's, ,\nFROM slow /* don't, /* , */ */",
        "SELECT 'two\nlines' AS a FROM slow",
        "SELECT 'two\nFROM lines' AS a FROM slow",
        "SELECT $q$it's$q$ AS a, 'it''s' AS b, '' AS c FROM slow",
        "(SELECT src FROM slow) UNION (SELECT dst FROM slow)",
        "VALUES (1, 2), (3, 4)",
    ],
)
def test_what_only_looks_like_a_mistake_is_read(query: str) -> None:
    assert callable(program(f"{SLOW}{COUNTS}{query};;\n;"))


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "views.sql"
    file.write_text(SLOW, encoding="utf-8-sig")
    assert callable(load(file))


def test_bytes_that_are_no_text_have_a_place(tmp_path: Path) -> None:
    file = tmp_path / "views.sql"
    file.write_bytes(SLOW.encode() + "-- Köln\n".encode() + "-- K\xf6ln".encode("latin-1"))
    with pytest.raises(ProgramError) as caught:
        load(file)
    assert caught.value.message == "views.sql:7:5: this is no text in UTF-8"
    assert caught.value.hint == "save the file as text in UTF-8"


# -- programs broken at one place -------------------------------------------------------------------------------------

STATEMENTS = [
    """\
-- It's what trams take.
CREATE TEMPORARY VIEW slow AS
SELECT src, dst, minutes, 'slow' AS kind
FROM links
WHERE minutes > 3 AND src NOT IN ('Zoo', 'Quay')""",
    """\
CREATE VIEW counts (place, n, kinds) AS
SELECT
    src,
    count(*) AS n,
    count(DISTINCT kind) FILTER (WHERE minutes BETWEEN 3 AND 9)
FROM slow
GROUP BY src
HAVING count(*) > 1""",
    """\
/* Where one
   can go. */
CREATE VIEW reached AS
WITH RECURSIVE ways AS (
    SELECT src, dst FROM links
    UNION
    SELECT ways.src, links.dst
    FROM ways JOIN links ON links.src = ways.dst
)
SELECT DISTINCT upper(src) AS "From", CASE WHEN dst = 'Zoo' THEN 'the zoo' ELSE dst END AS dst
FROM ways
LEFT JOIN (VALUES ('Zoo', 1), ('Quay', 2)) AS zones (name, zone) ON name = dst""",
    """\
CREATE VIEW quickest AS
SELECT src, dst, CAST(minutes AS double precision) / 60 AS hours
FROM links AS ways
WHERE EXISTS (SELECT 1 FROM slow WHERE slow.src = ways.src)
ORDER BY minutes DESC, dst
LIMIT 3""",
]
INSERTED = [
    ",", ";", "(", ")", "'", '"', "/*", "--", "$$", "[", "]", ".", "=", "+", "::", "#", "SELECT", "FROM", "FORM",
    "WHERE", "GROUP", "BY",
    "AS", "AND", "NOT", "JOIN", "ON", "CASE", "END", "WITH", "CREATE", "VIEW", "UNION", "other", "7", "'x'",
]  # fmt: skip
THEIRS = re.compile(
    r"Expect|Required keyword|Invalid expression|Unexpected|tokeniz|Missing|<Token|<class|sqlglot|Error\b"
)


LINKS = pl.DataFrame(
    [("Zoo", "Quay", 4, 0, 1), ("Quay", "Dam", 7, 0, 1)],
    schema=["src", "dst", "minutes", "version", "diff"], orient="row",
)  # fmt: skip


@dataclass(frozen=True)
class Broken:
    """A program with one change, and the first and last line that an error may name."""

    change: str
    text: str
    first: int
    last: int


def broken(rng: random.Random, statements: Sequence[str] = STATEMENTS) -> Broken:
    """The statements with one token or quote dropped, doubled or inserted."""
    number = rng.randrange(len(statements))
    tokens = Dialect.get_or_raise("postgres").tokenize(statements[number] + ";")
    token = rng.choice(tokens)
    statement, start, end = statements[number] + ";", token.start, token.end + 1
    word = statement[start:end]
    inserted = rng.choice(INSERTED)
    change, new = rng.choice(
        [
            (f"without {word}", ""),
            (f"without the last character of {word}", word[:-1]),
            (f"without the first character of {word}", word[1:]),
            (f"{word} twice", f"{word} {word}"),
            (f"{inserted} before {word}", f"{inserted} {word}"),
        ]
    )
    parts = [f"{item};" for item in statements]
    parts[number] = statement[:start] + new + statement[end:]
    first = 1 + sum(part.count("\n") + 2 for part in parts[:number])
    last = first + parts[number].count("\n")
    if number + 1 < len(parts):  # for a semicolon that is missing, CREATE of the next one
        last += 2 + next(n for n, line in enumerate(parts[number + 1].splitlines()) if line.startswith("CREATE"))
    return Broken(f"statement {number + 1}, {change}, character {start}", "\n\n".join(parts), first, last)


def is_sql(text: str) -> bool:
    """Whether sqlglot can read a text, every statement of it as a tree."""
    try:
        return all(tree is None or tree.key != "command" for tree in parse_sql(text, read="postgres"))
    except Exception:
        return False


def require_places(seeds: range, statements: Sequence[str] = STATEMENTS) -> int:
    """How many of the broken programs were refused; each at a place in the broken statement."""
    refused = 0
    for seed in seeds:
        case = broken(random.Random(f"broken {seed}"), statements)
        print(f"seed {seed}: {case.change}")
        try:
            views = program(case.text)
        except ProgramError as error:
            refused += 1
            location = re.match(r"program\.sql:(\d+):(\d+): \S", error.message)
            assert location, f"seed {seed}: {case.change}: {error.message}"
            assert case.first <= int(location.group(1)) <= case.last, f"seed {seed}: {case.change}: {error.message}"
            assert not THEIRS.search(f"{error.message} {error.hint}"), f"seed {seed}: {case.change}: {error.message}"
            assert error.hint and "\n" not in error.message + error.hint, f"seed {seed}: {case.change}: {error.message}"
        else:
            assert is_sql(case.text), f"seed {seed}: {case.change}: this is no SQL and was accepted"
            if statements is STATEMENTS:
                require_planned(views, f"seed {seed}: {case.change}")
    return refused


def require_planned(views: Any, what: str) -> None:
    """That a program which could be read is planned, or refused with a place in the file."""
    try:
        ddcore.replay(views, links=LINKS)
    except DdError as error:
        assert re.match(r"program\.sql:\d+:\d+: \S", error.message), f"{what}: {error.message}"
        assert error.hint and "cannot be planned" not in error.message, f"{what}: {error.message}"


def test_the_program_that_is_broken_is_whole() -> None:
    assert callable(program("\n\n".join(f"{statement};" for statement in STATEMENTS)))


def test_an_error_of_a_broken_program_names_a_line_of_its_statement() -> None:
    assert require_places(range(300)) > 150


@pytest.mark.long
def test_errors_of_many_broken_programs_name_a_line_of_their_statement() -> None:
    chosen = seeds(1000, start=300)
    assert require_places(chosen) > len(chosen) // 2 or len(chosen) < 60


@pytest.mark.long
def test_errors_of_the_broken_queries_of_tpc_h_name_a_line_of_their_statement() -> None:
    text = (REPOSITORY / "examples" / "tpch_sql" / "queries.sql").read_text(encoding="utf-8")
    statements = re.findall(r"^CREATE.*?(?=;$)", text, re.DOTALL | re.MULTILINE)
    assert len(statements) >= 22
    chosen = seeds(100)
    assert require_places(chosen, statements) > len(chosen) // 2 or len(chosen) < 60
