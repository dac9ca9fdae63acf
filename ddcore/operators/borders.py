"""The borders of a program and of its loops: operators that change no collection, where updates enter and leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddcore.base.digests import digest
from ddcore.operators.base import Keeping, Operator
from ddcore.operators.priority import priority_of, round_of
from ddcore.traces.batch import Batch

if TYPE_CHECKING:
    from ddcore.operators.priority import Priority


@dataclass(frozen=True, eq=False)
class Input(Operator):
    """An input collection of the program; ``text`` is its name.

    ``origins``: what tells columns from those of the same name and type that held other values before, by name.
    """

    name = "input"
    origins: Mapping[str, str] = field(default_factory=dict)

    def text_of(self, columns: Collection[str]) -> str:
        """The text for the fingerprint of some of its columns."""
        origins = [[name, self.origins[name]] for name in sorted(columns) if name in self.origins]
        return digest(self.text, origins) if origins else self.text


@dataclass(frozen=True, eq=False)
class Variable(Operator):
    """A loop's variable number ``number``: what changes from round to round (sources: McSherry 2012, Fixed Point).

    Its input is the collection it starts with. W_0 = source and W_{i+1} = R_i, the body's result. With a ``priority``
    rows of the source enter one priority after the other, each once the loop has reached its fixed point for those
    before.
    """

    name = "variable"
    signs = "kept"
    loop: int
    number: int = 0
    priority: Priority | None = None


@dataclass(frozen=True, eq=False)
class Leave(Operator):
    """The result of a loop for its variable number ``number``: R at the fixed point, without the round.

    Its input is R, inside the loop.
    """

    name = "leave"
    signs = "kept"
    loop: int
    number: int = 0


@dataclass(frozen=True, eq=False)
class Inspect(Keeping):
    """The differences of a collection inside of loops, outside of them: loop coordinates become columns of the rows.

    ``prioritized`` has an entry for each enclosing loop, outermost first: whether its times have priorities. The
    schema has the columns of the collection, then a column for each round, after one for the priority if there is one.
    """

    name = "inspect"
    prioritized: tuple[bool, ...]

    def apply(self, batch: Batch, source_line: str) -> Batch:
        """Moves the loop coordinates from the times to the rows."""
        inputs = len(batch.times) - len(self.prioritized)
        words = list(batch.words)
        for prioritized, coordinates in zip(self.prioritized, batch.times[inputs:], strict=True):
            words += [priority_of(coordinates)] if prioritized else []
            words.append(round_of(coordinates))
        return Batch(words, batch.times[:inputs], batch.diffs, batch.high)
