"""Cryptographic hashes of text in expressions, which polars-hash computes."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

SYMBOLS = ("md5", "sha1", "sha2_224", "sha2_256", "sha2_384", "sha2_512")


def of(symbol: str) -> Callable[[pl.Expr], pl.Expr]:
    """The function of text whose result is one of ``SYMBOLS`` in hexadecimal digits."""

    def hashed(text: pl.Expr) -> pl.Expr:
        import polars_hash  # noqa: F401  (registers the names on expressions)

        return getattr(text.chash if symbol.startswith("sha2") else text.nchash, symbol)()  # type: ignore[attr-defined, no-any-return]

    return hashed
