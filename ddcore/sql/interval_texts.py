"""Literal intervals whose text sqlglot would cut: of ``'1 day 02:30:00'`` it keeps ``1 day``."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType, exp

NOTHING = "0 days "
"""With a second unit in a text sqlglot leaves it as it is."""


def with_whole_intervals(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with the texts of intervals such that all of them is read."""
    result = list(tokens)
    for number, token in enumerate(result[1:], 1):
        if token.token_type == TokenType.STRING and result[number - 1].token_type == TokenType.INTERVAL:
            parts = exp.INTERVAL_STRING_RE.findall(token.text)
            if len(parts) == 1 and exp.INTERVAL_STRING_RE.sub("", token.text, count=1).strip():
                result[number] = _longer(token)
    return result


def _longer(token: Token) -> Token:
    text = f"{NOTHING}{token.text}"
    return Token(TokenType.STRING, text, token.line, token.col, token.start, token.end, token.comments)
