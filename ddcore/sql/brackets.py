"""Brackets: each that opens is closed by its like."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

from ddcore.sql.source import Source

_CLOSING = {TokenType.L_PAREN: TokenType.R_PAREN, TokenType.L_BRACKET: TokenType.R_BRACKET}
_NAMES = dict.fromkeys((TokenType.L_PAREN, TokenType.R_PAREN), "parenthesis")
_NAMES |= dict.fromkeys((TokenType.L_BRACKET, TokenType.R_BRACKET), "bracket")


def check_brackets(tokens: Sequence[Token], source: Source) -> None:
    """Raise ProgramError for one that nothing closes, and for one that closes nothing."""
    opened: list[Token] = []
    for token in tokens:
        kind = token.token_type
        if kind in _CLOSING:
            opened.append(token)
        elif kind in _CLOSING.values():
            if not opened:
                what = f"this {_NAMES[kind]} closes nothing"
                raise source.error_at(token.start, what, "take it out, or add the one that opens")
            if _CLOSING[opened[-1].token_type] != kind:
                break
            opened.pop()
    if opened:
        name = _NAMES[opened[-1].token_type]
        raise source.error_at(opened[-1].start, f"this {name} is never closed", "add the closing one")


def closing(tokens: Sequence[Token], start: int) -> int:
    """The number of the parenthesis that closes the one at ``start``, in tokens without such mistakes."""
    depth = 0
    for number in range(start, len(tokens)):
        kind = tokens[number].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
        if not depth:
            return number
    raise AssertionError("check_brackets has not been called")
