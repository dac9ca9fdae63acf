"""Mistakes that end the reading of a query, in words of our own and at their place."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError

from ddcore.base.errors import ProgramError
from ddcore.sql.source import Source
from ddcore.sql.tokens import CLAUSES, INSIDE, is_kind, nearly, word, written

_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "QUALIFY", "UNION", "INTERSECT", "EXCEPT",
    "JOIN", "LEFT", "RIGHT", "INNER", "CROSS", "NATURAL", "OUTER", "USING", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE",
    "DISTINCT", "LATERAL", "PARTITION", "OVER", "FILTER", "VALUES", "RECURSIVE", "MUTUALLY", "LIKE", "EXISTS", "CAST",
)  # fmt: skip
_CLAUSES = CLAUSES | INSIDE | {"THEN", "WHEN", "ELSE", "END", ")", ","}
_ENDS_OF_FROM = CLAUSES - {"FROM"} | {",", ")", "WINDOW", "SELECT"}
_NOT_ALONE = ("SELECT", "FROM", "WHERE", "ON", "HAVING", "QUALIFY", "AND", "OR", "GROUP BY", "ORDER BY", "PARTITION BY")
_BEFORE_NAMES = ("FROM", "JOIN", "AS", "VIEW", ".", ",")
_WANTED = {
    "SELECT": "a column", "GROUP BY": "a column", "ORDER BY": "a column", "PARTITION BY": "a column",
    "FROM": "a table", "JOIN": "a table", "WHERE": "a condition", "ON": "a condition", "HAVING": "a condition",
    "QUALIFY": "a condition", "WHEN": "a condition", "AND": "a condition", "OR": "a condition", "NOT": "a condition",
    "LIMIT": "a number", "OFFSET": "a number", "UNION": "a query", "ALL": "a query", "INTERSECT": "a query",
    "EXCEPT": "a query", "AS": "a name or a type", "USING": "(column, ...)", "THEN": "a value", "ELSE": "a value",
    "IN": "(value, ...)", "LIKE": "a value", "BETWEEN": "a value", "CASE": "WHEN", "IS": "NULL or NOT NULL",
    "LEFT": "JOIN", "RIGHT": "JOIN", "INNER": "JOIN", "CROSS": "JOIN", "NATURAL": "JOIN", "OUTER": "JOIN",
}  # fmt: skip
_COMPLETE = "complete it; docs/sql.md has examples"
_OPERATORS = ("=", "<", ">", "<=", ">=", "<>", "!=", "+", "-", "*", "/", "%", "||", "::")
_JOINS = ("LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL")
_NO_SQL = (
    TokenType.PARAMETER, TokenType.HASH, TokenType.BACKSLASH, TokenType.PLACEHOLDER, TokenType.L_BRACE,
    TokenType.R_BRACE, TokenType.UNKNOWN, TokenType.BLOCK_START, TokenType.BLOCK_END, TokenType.CARET, TokenType.AMP,
)  # fmt: skip
_OF_JOINS = ("JOIN", "ON", "USING")
_LOOK_BACK = 2
"""A misspelt keyword is often read as a name, and the reading ends a word or two later."""


def check_ends(query: Sequence[Token], source: Source) -> None:
    """Raise ProgramError for a clause of which there is only the keyword: sqlglot drops some of them in silence."""
    for number, token in enumerate(query):
        keyword, behind = word(query, number), word(query, number + 1)
        is_clause = keyword in _NOT_ALONE and word(query, number - 1) not in (".", "AS")
        if is_clause and (number + 1 == len(query) or behind in _CLAUSES):
            text = written(source, token)
            raise source.error_at(token.start, f"{_WANTED[keyword]} is missing behind {text}", _COMPLETE)


def check_joins(query: Sequence[Token], source: Source) -> None:
    """Raise ProgramError for a JOIN that lacks ON or USING, which sqlglot takes for a comma, and for one too many."""
    if not any(token.text.upper() in _OF_JOINS for token in query):
        return
    open_joins: list[list[Token]] = [[]]
    in_pivots = [False]
    for number, token in enumerate(query):
        is_name = word(query, number - 1) in (".", "AS")
        keyword = "" if is_name and not is_kind(query, number, TokenType.L_PAREN) else word(query, number)
        if keyword == "(":
            open_joins.append([])
            in_pivots.append(word(query, number + 1) in ("PIVOT", "UNPIVOT"))
        elif keyword == "JOIN" and not _is_without_condition(query, number):
            open_joins[-1].append(token)
        elif keyword in ("ON", "USING") and word(query, number - 1) != "DISTINCT" and not in_pivots[-1]:
            if not open_joins[-1]:
                hint = "CROSS JOIN and NATURAL JOIN take none; other conditions belong into WHERE"
                raise source.error_at(token.start, f"there is no JOIN for this {keyword}", hint)
            open_joins[-1].pop()
        elif keyword in _ENDS_OF_FROM and open_joins[-1]:
            raise _unconditional(open_joins[-1][-1], source)
        if keyword == ")":
            open_joins.pop()
            in_pivots.pop()
    if open_joins[-1]:
        raise _unconditional(open_joins[-1][-1], source)


def _unconditional(join: Token, source: Source) -> ProgramError:
    hint = "add ON condition or USING (column), or write CROSS JOIN for each row with each"
    return source.error_at(join.start, "this JOIN has neither ON nor USING", hint)


def _is_without_condition(query: Sequence[Token], number: int) -> bool:
    """Whether this is a CROSS or a NATURAL JOIN."""
    before = number - 1
    while word(query, before) in ("INNER", "LEFT", "RIGHT", "FULL", "OUTER"):
        before -= 1
    return word(query, before) in ("CROSS", "NATURAL")


def mistake(query: Sequence[Token], source: Source) -> ProgramError:
    """The error of a query that cannot be read."""
    number = _stop(query, source)
    for token in query[max(number - _LOOK_BACK, 0) : number + 1]:
        if token.token_type in _NO_SQL:
            return source.error_at(token.start, f"{written(source, token)} means nothing here", "take it out")
    misspelt = _misspelt(query, number)
    if misspelt is not None:
        position, hint = misspelt
        return source.error_at(
            query[position].start, f"{written(source, query[position])} is no word of SQL here", hint
        )
    for position in range(max(number - 1, 0), min(number + 1, len(query))):
        if word(query, position) in ("GROUP", "ORDER", "PARTITION"):
            text = written(source, query[position])
            return source.error_at(query[position].start, f"BY is missing behind {text}", _COMPLETE)
    last = query[number - 1]
    before = word(query, number - 1)
    text = written(source, last)
    wanted = "a value" if before in _OPERATORS else _WANTED.get(before)
    ends = number == len(query)
    if wanted and (ends or word(query, number) in _CLAUSES):
        return source.error_at(last.start, f"{wanted} is missing behind {text}", _COMPLETE)
    if ends:
        return source.error_at(last.start, f"the statement ends too early, behind {text}", _COMPLETE)
    return source.error_at(
        query[number].start, f"{written(source, query[number])} cannot follow {text} here",
        "a comma, an operator or a keyword before it may be missing or misspelt; docs/sql.md has examples",
    )  # fmt: skip


def _stop(query: Sequence[Token], source: Source) -> int:
    """The number of the token at which reading ends, at least 1; the number of tokens where it ends behind the last.

    A last token that nothing can read tells the end of the query from its last token.
    """
    last = query[-1]
    end = Token(TokenType.BLOCK_END, "", last.line, last.col + 1, last.end + 1, last.end + 1)
    try:
        Dialect.get_or_raise(source.dialect).parser(error_level=ErrorLevel.IMMEDIATE).parse([*query, end], source.text)
    except ParseError as error:
        found = (error.errors or [{}])[0]
        where = (found.get("line"), found.get("col"))
        numbers = [number for number, token in enumerate([*query, end]) if (token.line, token.col) == where]
        return max(numbers[0], 1) if numbers else 1
    return len(query)


def _misspelt(query: Sequence[Token], stop: int) -> tuple[int, str] | None:
    """A word shortly before the end of reading that is nearly a keyword, and the hint that says which."""
    behind = stop + 2 if word(query, stop) in _JOINS else stop + 1
    for number in range(max(stop - _LOOK_BACK, 0), min(behind, len(query))):
        text, before = word(query, number), word(query, number - 1)
        is_name = before in _BEFORE_NAMES or word(query, number + 1) in (".", ",", ")")
        if is_kind(query, number, TokenType.VAR) and not is_name and text not in _KEYWORDS:
            hint = nearly(text, _KEYWORDS)
            if hint:
                return number, hint
    return None
