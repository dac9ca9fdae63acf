"""Arguments of jobs: parsers for argparse that refuse empty values (of unset variables), and times by their names."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from ddcore.io.ledger.ledger import Ledger
from ddcore.io.ledger.version_names import VersionNames
from ddcore.io.project.project import Project
from ddcore.io.project.times import Time
from ddcore.io.storage.warehouse import Warehouse

__all__ = ["filled", "natural", "time_named"]

Value = TypeVar("Value")


def filled(kind: Callable[[str], Value]) -> Callable[[str], Value]:
    """A parser for a name or a path, which is not empty."""

    def parse(text: str) -> Value:
        if not text.strip():
            raise argparse.ArgumentTypeError("the value is empty: is a variable not set?")
        return kind(text)

    return parse


def time_named(project: Project, text: str, origin: str, *, begins: bool = False, nearest: bool = False) -> Time:
    """The time that a text names: numbers, or names of versions, for which alone it reads the ledger. ``begins`` and
    ``nearest``: as in :meth:`VersionNames.coordinate`. UsageError, beginning with ``origin``.
    """
    names = VersionNames(project.dims, lambda: Ledger.load(Warehouse(project.warehouse)).labels())
    return names.time(text, origin, begins=begins, nearest=nearest)


def natural(least: int) -> Callable[[str], int]:
    """A parser for a whole number from ``least`` up."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} up")
        return int(text)

    return parse
