"""Queries that two engines get in different words: a piece of text has both, and they are told apart at the end."""

from __future__ import annotations

import re

__all__ = ["both", "texts"]

_BOTH = re.compile("«([^«»¦]*)¦([^«»¦]*)»")


def both(own: str, other: str) -> str:
    """A piece of a query for ddcore and for the other engine; either may hold pieces of this kind."""
    return f"«{own}¦{other}»" if own != other else own


def texts(text: str) -> tuple[str, str]:
    """The query for ddcore, and that for the other engine."""
    return _chosen(text, r"\1"), _chosen(text, r"\2")


def _chosen(text: str, choice: str) -> str:
    while "«" in text:  # from the inside outwards
        text = _BOTH.sub(choice, text)
    return text
