"""The borders of a program and of its loops: operators that compute nothing, where updates enter and leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddcore.operators.base import Operator

if TYPE_CHECKING:
    from ddcore.operators.priority import Priority

__all__ = ["Input", "Leave", "Variable"]


@dataclass(frozen=True, eq=False)
class Input(Operator):
    """An input collection of the program; ``text`` is its name."""

    name = "input"


@dataclass(frozen=True, eq=False)
class Variable(Operator):
    """A loop's variable number ``number``: the collection that changes from round to round (the patent's Fixed Point).

    Its input is the collection it starts with. W_0 = source and W_{i+1} = R_i, the body's result. With a ``priority``
    rows of the source enter one priority after the other, each once the loop has reached its fixed point for those
    before.
    """

    name = "variable"
    loop: int
    number: int = 0
    priority: Priority | None = None


@dataclass(frozen=True, eq=False)
class Leave(Operator):
    """The result of a loop for its variable number ``number``: R at the fixed point, without the round.

    Its input is R, inside the loop.
    """

    name = "leave"
    loop: int
    number: int = 0
