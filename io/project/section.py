"""A section of ``dd.toml``, read key by key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ddcore.base.errors import UsageError
from ddcore.text.wording import listed, meant, shown

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_SHOWN = 100


def quoted(value: Any) -> str:
    """A value of the file for a message, of bounded length. Python cannot print some deep or very long values."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a very large {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


class Section:
    """One table of the file, read key by key, so that every error names the file, the section and the key."""

    def __init__(self, file: Path, name: str, table: Any) -> None:
        self.file, self.name = file, name
        if not isinstance(table, dict):
            raise UsageError(f"{shown(file)}: {name} must be a section [{name}], not {quoted(table)}")
        self.table: dict[str, Any] = table

    def wrong(self, key: str, what: str, hint: str = "") -> UsageError:
        """The error for a key of the section."""
        return UsageError(f"{shown(self.file)}: [{self.name}] {key}: {what}", hint)

    def only(self, allowed: Iterable[str]) -> None:
        """Raise UsageError for any other key."""
        allowed = tuple(allowed)
        for key in self.table:
            if key not in allowed:
                raise self.wrong(key, "unknown key", meant(key, allowed) or f"[{self.name}] takes: {listed(allowed)}")

    def text(self, key: str) -> str | None:
        """The text under a key, which is not empty; None without it. UsageError for another value."""
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise self.wrong(key, f"must be text, not {quoted(value)}")
        if "\0" in value:
            raise self.wrong(key, f"{quoted(value)} has a NUL character", "check the program that wrote the file")
        return value

    def one_of(self, key: str, words: Sequence[str]) -> str:
        """The text under a key, which is one of these words; without it the first one. UsageError for another value."""
        text = self.text(key)
        if text is not None and text not in words:
            raise self.wrong(key, f"unknown {key} {quoted(text)}", meant(text, words) or f"one of: {listed(words)}")
        return text or words[0]

    def names(self, key: str) -> tuple[str, ...] | None:
        """The names under a key, none of them twice; None without it. UsageError for another value."""
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, f"must be a list of names, not {quoted(value)}")
        if len(set(value)) != len(value):
            raise self.wrong(key, f"names something twice: {quoted(value)}")
        return tuple(value)

    def named(self) -> Iterator[tuple[str, Section]]:
        """The sections in this one, by the names that users gave them."""
        for name, table in self.table.items():
            yield name, Section(self.file, f"{self.name}.{name}", table)

    def check_name(self, name: str) -> None:
        """Raise UsageError for the name of a section of one's own that cannot become a folder of the warehouse."""
        if not IDENTIFIER.fullmatch(name):
            raise self.wrong(repr(name), "a name has letters, digits and _ only, and does not begin with a digit",
                             f"for example: [{self.name}.links]")  # fmt: skip

    def check_case(self, names: Iterable[str]) -> None:
        """Raise UsageError for names that only case tells apart, which Spark and some file systems ignore."""
        first: dict[str, str] = {}
        for name in names:
            if name.lower() in first:
                raise self.wrong(name, f"differs from {first[name.lower()]!r} only by upper and lower case")
            first[name.lower()] = name
