"""Operators: the settings from a program, ready to run, and a text that identifies them.

Operators are immutable and are pickled for executors. Each has a constructor, such as ``Join.of``, that checks the
schemas of its inputs and the arguments of a program, and raises ProgramError with the user's line. There are three
kinds:

- :class:`Linear`: maps a batch by itself; it has no state and runs wherever its input updates are.
- :class:`Keyed`: looks rows up by key, in arrangements of its inputs; a :class:`Step` does its work at one position.
- the others mark the borders of a program and of its loops; the worker moves updates across them.

``reference/`` defines what an operator means; it shares no code with this folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema

if TYPE_CHECKING:
    from ddcore.operators.arrangement import Arrangement
    from ddcore.operators.block import Block, Rounds
    from ddcore.operators.delivery import Delivery
    from ddcore.operators.ends import Ends
    from ddcore.traces.batch import Batch
    from ddcore.traces.budget import Budget
    from ddcore.traces.sorted_batch import SortedBatch
    from ddcore.traces.trace import Trace

Port = tuple[int, tuple[str, ...]]
Needs = tuple[str, Sequence[frozenset[str]]]
"""A text that identifies the settings, and columns: of each input, or one entry for all of them. An empty text: they
are those columns of the only input.
"""


@dataclass(frozen=True, eq=False)
class Operator:
    """The settings of one operator.

    ``schema``: columns of the result. ``text``: the settings in words of our own, equal for equal operators in every
    process and release; fingerprints are computed from it. ``inner``: a part of another operator, which no program
    names; ``in_tree``: of a tree of partial results, which only large groups reach. ``signs``: of the counts of its
    result: "kept", none is negative where none of its inputs' is; "positive", none ever is; "any" says nothing
    (:mod:`ddcore.planning.signs`).
    """

    name: ClassVar[str]
    inner: ClassVar[bool] = False
    in_tree: ClassVar[bool] = False
    signs: ClassVar[Literal["any", "kept", "positive"]] = "any"
    schema: Schema
    text: str

    def needs(self, columns: frozenset[str]) -> Needs | None:
        """What these columns of the result depend on; None: on all of every input."""
        return None


@dataclass(frozen=True, eq=False)
class Linear(Operator, ABC):
    """An operator that maps each row by itself, so that it maps updates as it maps collections."""

    @property
    def carried(self) -> Mapping[str, str]:
        """The columns of the result that are columns of the input as they are: the name there, by the name here."""
        return {}

    @abstractmethod
    def apply(self, batch: Batch, source_line: str) -> Batch:
        """The updates of the result, for updates of the input. Raises the FoldError family, naming ``source_line``."""


class Keeping(Linear):
    """An operator whose result has the columns of its input as they are, all or some, perhaps beside others that have
    names of their own.
    """

    @property
    def carried(self) -> Mapping[str, str]:
        """All columns."""
        return {name: name for name in self.schema}


@dataclass(frozen=True, eq=False)
class Keyed(Operator, ABC):
    """An operator that looks rows up by key, in arrangements of its inputs.

    ``needs_delta``: it tells new updates of an arrangement from earlier ones, with :meth:`Trace.before`.
    """

    needs_delta: ClassVar[bool] = True

    @property
    def spans(self) -> Ends | None:
        """The ends of the intervals in its arrangement without a key, which hold values in the key of the other."""
        return None

    @property
    def has_one_key(self) -> bool:
        """Whether equal keys of all its arrangements have one owner."""
        return True

    @property
    @abstractmethod
    def ports(self) -> Sequence[Port]:
        """The arrangements it reads: the number of an input and the key columns."""

    @property
    def output_key(self) -> tuple[str, ...] | None:
        """The key by which an operator keeps its own output as state, beside pending times; None: it keeps neither."""
        return None

    @property
    def result_key(self) -> tuple[str, ...] | None:
        """The columns of the result that hold the key of the first port, in its order; None: some may be missing."""
        return None

    @abstractmethod
    def step(self, plan: Dataflow, block: Block) -> Step:
        """The work of this operator in one block of a plan."""


class _Node(Protocol):
    """A node of the dataflow, as far as a step looks at it: see :class:`ddcore.program.graph.Node`."""

    @property
    def operator(self) -> Operator: ...
    @property
    def inputs(self) -> tuple[int, ...]: ...
    @property
    def schema(self) -> Schema: ...


class Dataflow(Protocol):
    """The part of a plan that a step may use: see :class:`ddcore.planning.plan.Plan`."""

    @property
    def dims(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def nodes(self) -> Sequence[_Node]: ...  # noqa: D102
    @property
    def arrangements(self) -> Sequence[Arrangement]: ...  # noqa: D102


class State(Protocol):
    """The part of the worker that a step may use."""

    budget: Budget
    """Memory, threads and sizes."""
    upper: np.ndarray
    """The frontier (inputs, elements) at or beyond which times are not complete in this fold."""

    def trace(self, arrangement: Arrangement) -> Trace:
        """The history of an arrangement, with its new updates of this position."""

    def delta_at(self, arrangement: Arrangement, rounds: Rounds) -> SortedBatch | None:
        """The new updates of an arrangement at ``rounds``, or None."""

    def arrived(self, arrangement: Arrangement, rounds: Rounds) -> Iterable[SortedBatch]:
        """The new updates of an arrangement at ``rounds`` in portions, and what passes through one, once."""

    def frontier(self, rounds: Rounds) -> np.ndarray:
        """The least times of work that may be left at a position with these rounds: (coordinates, elements)."""

    def emit(self, block: Block, batch: Batch) -> None:
        """Send updates of the block's collection to its readers."""

    def forward(self, block: Block, batch: Batch) -> list[Delivery]:
        """What such updates are for their readers, for :meth:`deliver`. Several threads may call this."""

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Send what :meth:`forward` returned."""

    def keyed(self, arrangement: Arrangement, batch: Batch) -> SortedBatch:
        """Updates of a collection, sorted by key code. Several threads may call this."""

    def keep(self, arrangement: Arrangement, rounds: Rounds, updates: SortedBatch) -> None:
        """Add updates of the block's own output, all at ``rounds``, to the arrangement of it."""

    def postpone(self, block: Block, pending: SortedBatch) -> None:
        """Keep (key, time) pairs at which the block has to be evaluated later."""

    def large(self, block: Block) -> np.ndarray | None:
        """The key codes of the groups that have a tree of partial results: int64[m], ascending; None for no group."""

    def note_large(self, block: Block, codes: np.ndarray) -> None:
        """Note groups that are to have one in the next fold. Several threads may call this."""


class Step(ABC):
    """The work of a keyed operator at one position: all versions of a run, one setting of the rounds."""

    @abstractmethod
    def run(self, state: State, rounds: Rounds, pending: SortedBatch | None) -> None:
        """Process the new updates of the arrangements at ``rounds`` and the pending times there; emit the results.

        Raises the FoldError family.
        """
