"""Commas of lists, of which sqlglot accepts too many."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

from ddcore.sql.source import Source
from ddcore.sql.tokens import CLAUSES, INSIDE, is_kind, word, written

_NO_ITEM = CLAUSES | INSIDE | {
    ")", "]", "PARTITION BY", "WINDOW", "SELECT", "THEN", "WHEN", "ELSE", "END", "ASC", "DESC", "INTO", "FULL",
}  # fmt: skip
"""What cannot be the begin of an item of a list. All of them are reserved in PostgreSQL, but QUALIFY."""
_BEFORE_LISTS = {"SELECT", "DISTINCT", "WITH", "FROM", "GROUP BY", "ORDER BY", "PARTITION BY", "(", "["}


def check_commas(tokens: Sequence[Token], source: Source) -> None:
    """Raise ProgramError for two commas in a row, for one before the first item of a list or behind the last, and where
    one is missing between items in parentheses.
    """
    for number, token in enumerate(tokens):
        between = token.token_type == TokenType.R_PAREN and is_kind(tokens, number + 1, TokenType.L_PAREN)
        if between and not _ends_binding(tokens, number):
            opening = tokens[number + 1].start
            raise source.error_at(
                opening, "( cannot follow ) here", "a comma, AS or an operator between them is missing"
            )
        if token.token_type != TokenType.COMMA:
            continue
        before, behind = word(tokens, number - 1), word(tokens, number + 1)
        if behind == ",":
            what, bad_token = "two commas in a row", tokens[number + 1]
        elif number + 1 == len(tokens):
            what, bad_token = "the statement ends with a comma", token
        elif (behind in _NO_ITEM and tokens[number + 1].token_type != TokenType.VAR) or (
            behind in ("LEFT", "RIGHT") and not is_kind(tokens, number + 2, TokenType.L_PAREN)
        ):
            what, bad_token = f"a comma before {written(source, tokens[number + 1])}", token
        elif before in _BEFORE_LISTS:
            what, bad_token = f"a comma behind {written(source, tokens[number - 1])}", token
        else:
            continue
        raise source.error_at(bad_token.start, what, "take the comma out, or add what is missing beside it")


def _ends_binding(tokens: Sequence[Token], end: int) -> bool:
    """Whether a parenthesis closes a query of WITH, which a query in parentheses may follow."""
    depth, number = 1, end
    while depth and number > 0:
        number -= 1
        depth += is_kind(tokens, number, TokenType.R_PAREN) - is_kind(tokens, number, TokenType.L_PAREN)
    return word(tokens, number - 1) in ("AS", "MATERIALIZED")
