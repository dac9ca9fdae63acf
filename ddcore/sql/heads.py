"""The head of a statement, ``CREATE VIEW name (columns) AS`` or ``CREATE TABLE name (columns)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from ddcore.base.errors import ProgramError
from ddcore.sql.brackets import closing
from ddcore.sql.pivot_statements import with_select
from ddcore.sql.source import Source
from ddcore.sql.tokens import CLAUSES, INSIDE, is_kind, nearly, word, written

_FORM = "a program is a list of CREATE VIEW name AS SELECT ..., with semicolons between them"
_QUERIES = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "(", "PIVOT", "UNPIVOT")
_OPTIONS = ("OR", "REPLACE", "REFRESH", "LOCAL", "TEMP", "TEMPORARY", "MATERIALIZED", "LIVE", "STREAMING", "RECURSIVE")
_KINDS = ("VIEW", "TABLE")
_DROPPED = ("OR", "REPLACE", "REFRESH", "LOCAL", "LIVE", "STREAMING", "RECURSIVE", "IF", "NOT", "EXISTS")
_STORED = ("TBLPROPERTIES", "PARTITIONED BY", "CLUSTER BY")
"""How an engine keeps a table, in parentheses behind the word: here it changes nothing."""
_BEFORE_NAME = TokenType.L_PAREN, TokenType.COMMA
_BEHIND = (",", "NOT", "PRIMARY KEY", "PRIMARY", "DEFAULT", "COMMENT")
"""What ends the length of a LATENESS."""


@dataclass(frozen=True)
class Head:
    """What a statement makes: a view, with the number of its query's first token, or, without ``query``, a table that
    it declares. ``tokens``: those that sqlglot is to read.
    """

    tokens: list[Token]
    query: int | None
    recursive: bool
    local: bool


def head_of(tokens: Sequence[Token], source: Source) -> Head:
    """The head of a statement.

    Raises ProgramError for another statement, for a head that lacks a part or has one too many, and where a second
    CREATE follows without a semicolon.
    """
    name_at = _behind_kind(tokens, source)
    tokens = _without_lateness(tokens, name_at, source)
    position = _behind_name(tokens, name_at, source)
    options = [word(tokens, number) for number in range(name_at)]
    recursive, local = "RECURSIVE" in options, "LOCAL" in options
    end = _behind_options(tokens, position, source)
    dropped = {number for number in range(1, name_at) if options[number] in _DROPPED} | {*range(position, end)}
    position = end
    kept = [token for number, token in enumerate(tokens) if number not in dropped]
    if "TABLE" in options and position >= len(tokens):
        return Head(kept, None, recursive, local)
    name = written(source, tokens[name_at])
    if word(tokens, position) != "AS":
        raise _without_query(tokens, position, name, source, behind_as=False)
    if word(tokens, position + 1) not in _QUERIES:
        raise _without_query(tokens, position + 1, name, source, behind_as=True)
    for number in range(position + 1, len(tokens)):
        if word(tokens, number) == "CREATE" and word(tokens, number + 1) in (*_OPTIONS, *_KINDS):
            raise source.error_at(
                tokens[number].start, "a semicolon is missing before this CREATE", "end each statement with ;"
            )
    number = position + 1 - len(dropped)
    return Head(with_select(kept, number), number, recursive, local)


def _behind_name(tokens: Sequence[Token], position: int, source: Source) -> int:
    """The number of the token behind the name and the columns of a view or a table."""
    if position >= len(tokens) or word(tokens, position) in ("AS", *_QUERIES):
        raise source.error_at(
            tokens[position - 1].start, "this view has no name", "write CREATE VIEW name AS SELECT ..."
        )
    name = written(source, tokens[position])
    if tokens[position].token_type in (TokenType.STRING, TokenType.NUMBER):
        raise source.error_at(tokens[position].start, f"{name} is no name of a view", "a name has no single quotes")
    position += 1
    while is_kind(tokens, position, TokenType.DOT):
        position += 2
    if is_kind(tokens, position, TokenType.L_PAREN) and word(tokens, position + 1) not in _QUERIES:
        position = closing(tokens, position) + 1
    return position


def _without_lateness(tokens: Sequence[Token], name_at: int, source: Source) -> Sequence[Token]:
    """The tokens without ``LATENESS INTERVAL 1 HOUR`` behind columns, by which an engine forgets rows."""
    if "TABLE" not in [word(tokens, number) for number in range(name_at)] or not is_kind(
        tokens, name_at + 1, TokenType.L_PAREN
    ):
        return tokens
    dropped: set[int] = set()
    end = closing(tokens, name_at + 1)
    for number in range(name_at + 2, end):
        if word(tokens, number) == "LATENESS" and tokens[number - 1].token_type not in _BEFORE_NAME:
            behind = next(
                position for position in range(number, end + 1) if position == end or word(tokens, position) in _BEHIND
            )
            dropped |= {*range(number, behind)}
            source.note_at(tokens[number].start, "LATENESS is left out: late rows count")
    return [token for number, token in enumerate(tokens) if number not in dropped]


def _behind_options(tokens: Sequence[Token], position: int, source: Source) -> int:
    """The number of the token behind a comment and what says how an engine keeps the rows."""
    while position + 1 < len(tokens):
        is_comment = word(tokens, position) == "COMMENT" and is_kind(tokens, position + 1, TokenType.STRING)
        if is_comment or word(tokens, position) == "USING":
            position += 2
        elif word(tokens, position) == "WITH" and is_kind(tokens, position + 1, TokenType.L_PAREN):
            end = closing(tokens, position + 1) + 1
            if any(token.text == "emit_final" for token in tokens[position:end]):
                hint = "leave it out: each version has the rows that are right for it"
                raise source.error_at(tokens[position].start, "emit_final is not supported", hint)
            source.note_at(tokens[position].start, "WITH (...) is left out: sources and targets are in dd.toml")
            position = end
        elif word(tokens, position) in _STORED and is_kind(tokens, position + 1, TokenType.L_PAREN):
            position = closing(tokens, position + 1) + 1
        else:
            break
    return position


def _behind_kind(tokens: Sequence[Token], source: Source) -> int:
    """The number of the token behind CREATE [TEMPORARY] VIEW, or TABLE."""
    first = word(tokens, 0)
    if first in _QUERIES and first != "FROM":
        raise source.error_at(tokens[0].start, "a query without a view", "write CREATE VIEW name AS before it")
    if first != "CREATE":
        hint = nearly(first, ["CREATE"]) or _FORM
        if first == "SET":
            hint = "leave it out: settings of an engine are not read"
        if first in CLAUSES | INSIDE | {"LEFT", "RIGHT", "FULL"}:
            hint = "is the semicolon before it one too many?"
        text = written(source, tokens[0])
        raise source.error_at(tokens[0].start, f"a statement begins with CREATE VIEW, not with {text}", hint)
    position = 1
    while word(tokens, position) in _OPTIONS:
        position += 1
    if word(tokens, position) not in _KINDS:
        raise _no_view(tokens, position, source)
    position += 1
    if [word(tokens, position + number) for number in range(3)] == ["IF", "NOT", "EXISTS"]:
        position += 3
    return position


def _no_view(tokens: Sequence[Token], position: int, source: Source) -> ProgramError:
    if position >= len(tokens):
        return source.error_at(tokens[-1].start, "the statement ends before VIEW", "write CREATE VIEW name AS ...")
    text = written(source, tokens[position])
    hint = nearly(word(tokens, position), ["VIEW", "TABLE", "TEMPORARY", "MATERIALIZED"]) or _FORM
    return source.error_at(tokens[position].start, f"CREATE makes views and declares tables, not {text}", hint)


def _without_query(
    tokens: Sequence[Token], position: int, name: str, source: Source, *, behind_as: bool
) -> ProgramError:
    if position >= len(tokens):
        return source.error_at(tokens[-1].start, f"the view {name} has no query", f"write CREATE VIEW {name} AS ...")
    text, hint = written(source, tokens[position]), f"write CREATE VIEW {name} AS SELECT ..."
    if behind_as:
        hint = nearly(word(tokens, position), [start for start in _QUERIES if start != "("]) or hint
        what = f"a query begins with SELECT, WITH or VALUES, not with {text}"
    else:
        what = f"AS is missing before {text}" if word(tokens, position) in _QUERIES else f"{text} is not AS"
    return source.error_at(tokens[position].start, what, hint)
