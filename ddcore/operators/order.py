"""Orders of rows: the columns that decide, and of each whether it descends and has its nulls first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ddcore.base.errors import ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema, Type
from ddcore.base.source_line import caller
from ddcore.data import encoding
from ddcore.operators import arguments
from ddcore.text.wording import brief


@dataclass(frozen=True)
class Order:
    """An order by columns: each ascending or descending, with nulls last or first.

    The other columns decide among equal rows, ascending with nulls last; if it is ``turned``, the other way round.
    """

    by: tuple[str, ...] = ()
    downs: tuple[bool, ...] = ()
    firsts: tuple[bool, ...] = ()
    turned: bool = False

    @classmethod
    def of(
        cls, schema: Schema, keys: Sequence[str], by: Any, descending: Any, nulls_first: Any = False, *, where: str
    ) -> Order:
        """An order of the rows of groups by ``keys``. Raises ProgramError."""
        names = arguments.names_of(by, where)
        for name in names:
            arguments.require(schema, name, where)
            if name in keys:
                raise ProgramError(f"{caller()}: {where}: {name} is a key", "order by other columns")
            if schema[name].is_nested:
                raise ProgramError(
                    f"{caller()}: {where}: {name} is {schema[name]}: lists and structs have no order",
                    "order by a column, or by one computed from a field with with_columns()",
                )
        downs, firsts = (flags_of(given, len(names), f"{where}: {what}") for given, what in
                         ((descending, "descending"), (nulls_first, "nulls_first")))  # fmt: skip
        return cls(tuple(names), downs, firsts)

    def reversed(self) -> Order:
        """The same from its end."""
        downs, firsts = (tuple(not flag for flag in flags) for flags in (self.downs, self.firsts))
        return Order(self.by, downs, firsts, turned=not self.turned)


def flags_of(value: Any, number: int, where: str) -> tuple[bool, ...]:
    """One truth value for each of so many columns, or one for all. Raises ProgramError for anything else."""
    flags = [value] * number if isinstance(value, bool) else value
    if not isinstance(flags, list | tuple) or not all(isinstance(flag, bool) for flag in flags):
        raise ProgramError(f"{caller()}: {where} is {brief(value)}", "give True or False, or a list")
    if len(flags) != number:
        what, _, name = where.rpartition(": ")
        raise ProgramError(
            f"{caller()}: {what}: {number} columns, and {name} has {len(flags)}", "give one for each column"
        )
    return tuple(flags)


def sortable(words: np.ndarray, kind: Type, *, down: bool, first: bool) -> tuple[np.ndarray, np.ndarray]:
    """Whether nulls keep each back, and integers that ascend in the requested order: int64 has no number behind its
    last.
    """
    ranks, _ = encoding.rank_words(words, kind)
    nulls = words == encoding.NULL
    return nulls != first, np.where(nulls, 0, ~ranks if down else ranks)
