"""The rules of values: what each kind of expression means. :mod:`ddcore.sql.functions` fills them in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

__all__ = ["ARGUMENTS", "NEEDED", "RULES"]

RULES: dict[type[exp.Expr], Callable[..., Any]] = {}
"""By the kind of a node, a function of the values around and the node."""
ARGUMENTS: dict[type[exp.Expr], set[str]] = {}
"""What the rules read of a node beside ``this``, ``expression`` and ``expressions``. Anything else is refused."""
NEEDED: dict[type[exp.Expr], tuple[str, ...]] = {}
"""The arguments that a rule reads and that sqlglot does not ask for."""
