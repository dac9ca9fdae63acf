"""Arguments of the entries for ``spark-submit``: parsers for argparse that refuse empty values (of unset variables)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

__all__ = ["filled", "natural"]

Value = TypeVar("Value")


def filled(kind: Callable[[str], Value]) -> Callable[[str], Value]:
    """A parser for a name or a path, which is not empty."""

    def parse(text: str) -> Value:
        if not text.strip():
            raise argparse.ArgumentTypeError("the value is empty: is a variable not set?")
        return kind(text)

    return parse


def natural(least: int) -> Callable[[str], int]:
    """A parser for a whole number from ``least`` up."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} up")
        return int(text)

    return parse
