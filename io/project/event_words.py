"""The kinds of events, and the words for them in a column of operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddcore.base.errors import UsageError
from ddcore.text.wording import listed

INSERT, UPDATE, AFTER, DELETE, BEFORE, TRUNCATE, NOTHING = 1, 2, 3, -1, -2, -3, 0
KINDS: Mapping[str, int] = {
    "insert": INSERT, "update": UPDATE, "after": AFTER, "delete": DELETE, "before": BEFORE,
}  # fmt: skip


def words_of(texts: Sequence[str]) -> dict[str, int]:
    """The operations of words, from ``insert=A,update=B,delete=C``; kinds may be repeated. UsageError."""
    words: dict[str, int] = {}
    for part in (part for text in texts for part in text.split(",")):
        kind, equals, word = part.partition("=")
        if kind.strip() not in KINDS or not (equals and word):
            raise UsageError(
                f"--op-values: {part!r} is not KIND=VALUE", f"kinds are {listed(KINDS)}, for example: insert=I,delete=D"
            )
        if words.setdefault(word, KINDS[kind.strip()]) != KINDS[kind.strip()]:
            raise UsageError(f"--op-values: {word!r} has two kinds", "give each value one kind")
    return words
