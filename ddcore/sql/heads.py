"""The head of a statement, ``CREATE VIEW name (columns) AS``, and where its query begins."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

from ddcore.errors import ProgramError
from ddcore.sql.source import Source
from ddcore.sql.tokens import is_kind, nearly, word, written

__all__ = ["query_of"]

_FORM = "a program is a list of CREATE VIEW name AS SELECT ..., with semicolons between them"
_QUERIES = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "(")
_OF_VIEWS = ("OR", "REPLACE", "TEMP", "TEMPORARY", "MATERIALIZED", "RECURSIVE", "VIEW")
_CLAUSES = (
    "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "FETCH", "QUALIFY", "UNION", "INTERSECT",
    "EXCEPT", "JOIN", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "INNER", "ON", "USING", "AND", "OR", "AS",
)  # fmt: skip


def query_of(tokens: Sequence[Token], source: Source) -> int:
    """The number of the first token of a statement's query.

    Raises ProgramError for another statement, for a head that lacks a part or has one too many, and where a second
    CREATE VIEW follows without a semicolon.
    """
    place = _behind_view(tokens, source)
    if place >= len(tokens) or word(tokens, place) in ("AS", *_QUERIES):
        raise source.error_at(tokens[place - 1].start, "this view has no name", "write CREATE VIEW name AS SELECT ...")
    name = written(source, tokens[place])
    if tokens[place].token_type in (TokenType.STRING, TokenType.NUMBER):
        raise source.error_at(tokens[place].start, f"{name} is no name of a view", "a name has no single quotes")
    place += 1
    while is_kind(tokens, place, TokenType.DOT):
        place += 2
    if is_kind(tokens, place, TokenType.L_PAREN) and word(tokens, place + 1) not in _QUERIES:
        while place < len(tokens) and not is_kind(tokens, place, TokenType.R_PAREN):
            place += 1
        place += 1
    if word(tokens, place) != "AS":
        raise _without_as(tokens, place, name, source)
    if word(tokens, place + 1) not in _QUERIES:
        raise _without_query(tokens, place + 1, name, source)
    for number in range(place + 1, len(tokens)):
        if word(tokens, number) == "CREATE" and word(tokens, number + 1) in _OF_VIEWS:
            raise source.error_at(
                tokens[number].start, "a semicolon is missing before this CREATE", "end each statement with ;"
            )
    return place + 1


def _behind_view(tokens: Sequence[Token], source: Source) -> int:
    """The number of the token behind CREATE [TEMPORARY] [MATERIALIZED] VIEW."""
    first = word(tokens, 0)
    if first in _QUERIES and first != "FROM":
        raise source.error_at(tokens[0].start, "a query without a view", "write CREATE VIEW name AS before it")
    if first != "CREATE":
        hint = nearly(first, ["CREATE"]) or _FORM
        if first in _CLAUSES:
            hint = "is the semicolon before it one too many?"
        text = written(source, tokens[0])
        raise source.error_at(tokens[0].start, f"a statement begins with CREATE VIEW, not with {text}", hint)
    place = 1
    while word(tokens, place) in _OF_VIEWS and word(tokens, place - 1) != "VIEW":
        place += 1
    if word(tokens, place - 1) != "VIEW":
        raise _no_view(tokens, place, source)
    others = [each for each in ("OR", "REPLACE", "RECURSIVE") if each in [word(tokens, n) for n in range(place)]]
    if others or [word(tokens, place), word(tokens, place + 1)] == ["IF", "NOT"]:
        option = "OR REPLACE" if "REPLACE" in others else others[0] if others else "IF NOT EXISTS"
        raise source.error_at(
            tokens[0].start, f"CREATE VIEW takes a name, columns and a query only, not {option}",
            "write WITH RECURSIVE behind AS" if option == "RECURSIVE" else "write CREATE VIEW name AS ...",
        )  # fmt: skip
    return place


def _no_view(tokens: Sequence[Token], place: int, source: Source) -> ProgramError:
    if place >= len(tokens):
        return source.error_at(tokens[-1].start, "the statement ends before VIEW", "write CREATE VIEW name AS ...")
    text = written(source, tokens[place])
    hint = nearly(word(tokens, place), ["VIEW", "TEMPORARY", "MATERIALIZED"]) or _FORM
    return source.error_at(tokens[place].start, f"CREATE makes views only, not {text}", hint)


def _without_as(tokens: Sequence[Token], place: int, name: str, source: Source) -> ProgramError:
    if place >= len(tokens):
        return source.error_at(tokens[-1].start, f"the view {name} has no query", f"write CREATE VIEW {name} AS ...")
    text = written(source, tokens[place])
    return source.error_at(
        tokens[place].start,
        f"AS is missing before {text}" if word(tokens, place) in _QUERIES else f"{text} is not AS",
        f"write CREATE VIEW {name} AS SELECT ...",
    )


def _without_query(tokens: Sequence[Token], place: int, name: str, source: Source) -> ProgramError:
    if place >= len(tokens):
        return source.error_at(tokens[-1].start, f"the view {name} has no query", f"write CREATE VIEW {name} AS ...")
    text = written(source, tokens[place])
    hint = nearly(word(tokens, place), [each for each in _QUERIES if each != "("])
    return source.error_at(
        tokens[place].start, f"a query begins with SELECT, WITH or VALUES, not with {text}",
        hint or f"write CREATE VIEW {name} AS SELECT ...",
    )  # fmt: skip
