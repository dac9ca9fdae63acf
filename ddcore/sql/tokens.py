"""Tokens of a program, one list for each statement."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from ddcore.base.errors import ProgramError
from ddcore.sql.quotes import quoted, unclosed
from ddcore.sql.source import File, Source, cut

CLAUSES = {
    "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "FETCH", "QUALIFY", "UNION", "INTERSECT",
    "EXCEPT",
}  # fmt: skip
INSIDE = {"JOIN", "INNER", "CROSS", "NATURAL", "ON", "USING", "AND", "OR", "AS"}
"""What stands inside of clauses, and begins nothing that could be a name or a value."""
_CLOSE = 0.75
"""How near a word is to the keyword that it may mean: FORM for FROM. Less would take names of columns for keywords."""
NOTHING = "0 days "
"""With a second unit in the text of an interval sqlglot leaves it as it is."""
_NO_WORDS = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER)


def statements(source: Source) -> list[list[Token]]:
    """The tokens of each statement, without semicolons. Raises ProgramError, with the place."""
    found: list[list[Token]] = []
    for file in source.files:  # whose end ends a statement, too
        found.append([])
        for token in _tokens(source, file):
            if token.token_type == TokenType.SEMICOLON:
                found.append([])
            else:
                found[-1].append(token)
    return [text for text in found if text]


def _tokens(source: Source, file: File) -> list[Token]:
    """The tokens of one file, placed in the text of all."""
    try:
        tokens = Dialect.get_or_raise(source.dialect).tokenize(source.text[file.start : file.end])
    except SqlglotError:
        raise unclosed(source, file.start, file.end) or _unreadable(source) from None
    at = file.start
    return [
        Token(token.token_type, token.text, token.line, token.col, token.start + at, token.end + at, token.comments)
        for token in tokens
    ]


def _unreadable(source: Source) -> ProgramError:
    """The error of a piece of the text that is closed and no token, for example ``x'no digits'``."""
    for piece in quoted(source.text, source.dialect):
        text = source.text[piece.start : piece.end]
        try:
            Dialect.get_or_raise(source.dialect).tokenize(text)
        except SqlglotError:
            return source.error_at(piece.start, f"this text cannot be read: {cut(text)}", "write it as 'text'")
    return source.error_at(0, "a text or a number of this file cannot be read", "take out half of the views to find it")


def word(tokens: Sequence[Token], number: int) -> str:
    """A token in capital letters; nothing for a text, a quoted name, a number, and beyond the end.

    ``GROUP BY`` is one token; with another word behind GROUP, there are two.
    """
    if not 0 <= number < len(tokens) or tokens[number].token_type in _NO_WORDS:
        return ""
    return " ".join(tokens[number].text.upper().split())


def changed(token: Token, kind: TokenType, text: str | None = None) -> Token:
    """A token of another kind, or with another text, in the place of one."""
    text = token.text if text is None else text
    return Token(kind, text, token.line, token.col, token.start, token.end, token.comments)


def with_whole_intervals(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with the texts of intervals such that sqlglot reads all of them: of ``'1 day 02:30:00'`` it keeps
    ``1 day``.
    """
    result = list(tokens)
    for number, token in enumerate(result[1:], 1):
        if token.token_type == TokenType.STRING and result[number - 1].token_type == TokenType.INTERVAL:
            parts = exp.INTERVAL_STRING_RE.findall(token.text)
            if len(parts) == 1 and exp.INTERVAL_STRING_RE.sub("", token.text, count=1).strip():
                result[number] = changed(token, TokenType.STRING, f"{NOTHING}{token.text}")
    return result


def written(source: Source, token: Token) -> str:
    """A token as it is in the text, cut where it is long."""
    return cut(source.text[token.start : token.end + 1])


def is_kind(tokens: Sequence[Token], number: int, kind: TokenType) -> bool:
    """Whether there is such a token."""
    return 0 <= number < len(tokens) and tokens[number].token_type == kind


def nearly(text: str, keywords: Iterable[str]) -> str:
    """The hint that a word is nearly a keyword, or nothing."""
    close = difflib.get_close_matches(text, list(keywords), n=1, cutoff=_CLOSE)
    return f"did you mean {close[0]!r}?" if close else ""
