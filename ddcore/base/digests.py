"""Names for contents: a hash that differs for different parts, whatever characters they contain."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Union


class Digested(bytes):
    """A part that many digests have, as what it adds to them."""

    __slots__ = ()

    @classmethod
    def of(cls, *parts: Part) -> Digested:
        """It counts as a list of ``parts`` does."""
        return cls(_framed(b"p", digest(*parts).encode()))

    @classmethod
    def of_text(cls, text: str) -> Digested:
        """It counts as ``text`` does."""
        return cls(_added(text))


Part = Union[str, bytes, "Iterable[Part]"]
"""The input of a digest: a text, bytes, or parts in order."""


def digest(*parts: Part) -> str:
    """A hash of parts. Lengths, order and nesting count, so different lists of parts have different hashes.

    >>> digest("a,b") != digest("a", "b") != digest(["a", "b"])
    True

    64 hexadecimal digits, the same in every process and release. Cost: linear in the size of the parts.
    """
    return hashlib.sha256(b"".join(map(_added, parts))).hexdigest()


def _added(part: Part) -> bytes:
    """What a part adds to a digest. Planning takes tens of thousands for a large query: most are texts and digests."""
    if isinstance(part, Digested):
        return part
    if isinstance(part, str):
        return _framed(b"t", part.encode("utf-8", "surrogatepass"))
    return _framed(b"b", part) if isinstance(part, bytes) else _framed(b"p", digest(*part).encode())


def _framed(mark: bytes, raw: bytes) -> bytes:
    return mark + len(raw).to_bytes(8, "little") + raw
