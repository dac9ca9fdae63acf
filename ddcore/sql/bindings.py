"""Bindings of WITH MUTUALLY RECURSIVE, with the types of their columns and the limit of the loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import Token, TokenType

from ddcore.sql.brackets import closing
from ddcore.sql.source import Declared, Loop, Source
from ddcore.sql.tokens import is_kind


def without_recursion(tokens: list[Token], source: Source) -> list[Token]:
    """The tokens with WITH RECURSIVE in place of WITH MUTUALLY RECURSIVE, which sqlglot does not know.

    What goes with it, the limit and the types of the columns, is kept in ``source``.
    """
    dropped: set[int] = set()
    for number, token in enumerate(tokens):
        behind = [following.text.upper() for following in tokens[number + 1 : number + 3]]
        if token.token_type == TokenType.WITH and behind == ["MUTUALLY", "RECURSIVE"]:
            dropped.add(number + 1)
            dropped.update(_bindings(tokens, number + 3, source))
    return [token for number, token in enumerate(tokens) if number not in dropped]


def _bindings(tokens: Sequence[Token], position: int, source: Source) -> Iterator[int]:
    """The numbers of the tokens to drop, from the one behind RECURSIVE on."""
    loop = Loop()
    if is_kind(tokens, position, TokenType.L_PAREN):
        end = closing(tokens, position)
        loop = _limit(tokens[position : end + 1], source)
        yield from range(position, end + 1)
        position = end + 1
    while position < len(tokens):
        name, position = position, position + 1
        if not is_kind(tokens, position, TokenType.L_PAREN):
            raise source.error_at(
                tokens[name].start,
                f"{tokens[name].text} has no columns",
                "WITH MUTUALLY RECURSIVE name (column type, ...) AS (SELECT ...)",
            )
        end = closing(tokens, position)
        columns = list(_columns(tokens, position, end, source))
        names = tuple(tokens[number].text for number, _ in columns)
        types = tuple(source.text[tokens[kind[0]].start : tokens[kind[-1]].end + 1] for _, kind in columns)
        source.declared[tokens[name].start] = Declared(names, types)
        source.loops[tokens[name].start] = loop
        yield from (number for _, kind in columns for number in kind)
        position = end + 1
        if not is_kind(tokens, position, TokenType.ALIAS) or not is_kind(tokens, position + 1, TokenType.L_PAREN):
            return
        position = closing(tokens, position + 1) + 1
        if not is_kind(tokens, position, TokenType.COMMA):
            return
        position += 1


def _columns(tokens: Sequence[Token], start: int, end: int, source: Source) -> Iterator[tuple[int, range]]:
    """The token of each column's name, and those of its type."""
    first, depth = start + 1, 0
    for number in range(start + 1, end + 1):
        kind = tokens[number].token_type
        depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN and number < end)
        if number == end or (kind == TokenType.COMMA and not depth):
            if number - first < 2:
                what = "there are no columns here" if first == end else f"the column {tokens[first].text} has no type"
                raise source.error_at(
                    tokens[first].start,
                    what,
                    "give each column of a recursive binding a type, for example (node bigint, name text)",
                )
            yield first, range(first + 1, number)
            first = number + 1


def _limit(tokens: Sequence[Token], source: Source) -> Loop:
    """The limit that stands in parentheses."""
    words = [token.text.upper() for token in tokens[1:-1]]
    match words:
        case ["RETURN", "AT", "RECURSION", "LIMIT", rounds] if rounds.isdigit() and int(rounds) > 0:
            return Loop(int(rounds), returns=True)
        case ["ERROR", "AT", "RECURSION", "LIMIT", rounds] | ["RECURSION", "LIMIT", rounds] if (
            rounds.isdigit() and int(rounds) > 0
        ):
            return Loop(int(rounds))
    option = f"the option {' '.join(words)}" if words else "an option of no words"
    raise source.error_at(
        tokens[1].start,
        f"{option} of WITH MUTUALLY RECURSIVE is unknown",
        "write (RETURN AT RECURSION LIMIT n) or (ERROR AT RECURSION LIMIT n)",
    )
