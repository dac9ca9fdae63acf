"""What is recorded while a program is evaluated: what operators with state store, and what is inspected."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from ddcore.reference.logs import Time, differences, grid
from ddcore.reference.rows import Row, Rows, nonzero, require_int64


class Record:
    """The inputs and results of operators with state at one time, by the number of the call and, for calls inside of
    loops, by the rounds.

    A program makes the same calls at every time, but its loops may take different numbers of rounds.
    ``inspected`` has the inspected collections by name and rounds; ``blind`` ones are only noted (``missed``).
    """

    def __init__(self, rounds: Sequence[Any] = ()) -> None:
        self.calls: defaultdict[Time, dict[Any, Rows]] = defaultdict(dict)
        self.numbers = [0] * (len(rounds) + 1)  # of the next call, for each enclosing loop
        self.rounds: list[Any] = list(rounds)
        self.inspected: dict[str, dict[Any, Rows]] = {}
        self.blind = self.missed = False
        self.spelled = False  # whether the program spells out rows, which are there from the least time on
        self.tells_time = False  # whether it uses the instants of versions

    def keep(self, rows: Rows) -> None:
        """Record the collection of the next call."""
        self.numbers[-1] += 1
        self.calls[tuple(self.numbers)][tuple(self.rounds)] = rows

    def inspect(self, name: str, rows: Rows, loops: int) -> None:
        """Record a collection in these rounds of the ``loops`` that it is in."""
        self.missed |= self.blind
        if not self.blind:
            self.inspected.setdefault(name, {})[tuple(self.rounds[:loops])] = rows

    @contextlib.contextmanager
    def round(self, number: Any) -> Iterator[None]:
        """Record calls as inside of a loop, in this round."""
        self.numbers.append(0)
        self.rounds.append(number)
        yield
        self.numbers.pop()
        self.rounds.pop()

    def at(self, call: Time, rounds: Time) -> Rows:
        """The collection of the call in these rounds."""
        return _settled(self.calls[call], rounds)


def _settled(collections: Mapping[Any, Rows], rounds: tuple[Any, ...]) -> Rows:
    """The collection in these rounds. After its fixed point a loop stays as in its last round."""
    reached: tuple[Any, ...] = ()
    for number in rounds:
        numbers = {collection[len(reached)] for collection in collections if collection[: len(reached)] == reached}
        reached += (max(earlier for earlier in numbers if earlier <= number),)
    return collections[reached]


def by_round(collections: Mapping[Any, Rows]) -> Rows:
    """The differences between the rounds of a collection, as counts of rows that end with their rounds.

    A round of a loop with priorities is (whether there is one, the priority, the round): see ``by_priority``.
    """
    axes = [sorted(set(axis)) for axis in zip(*collections, strict=True)]
    at = {rounds: _settled(collections, rounds) for rounds in product(*axes)}
    rows: Rows = Counter()
    for positions in product(*(range(len(axis)) for axis in axes)):
        columns: Row = ()
        for axis, position in zip(axes, positions, strict=True):
            number = axis[position]  # a tuple if the loop has priorities
            columns += (number[1] if number[0] else None, number[2]) if isinstance(number, tuple) else (number,)
        for back in product((0, 1), repeat=len(axes)):  # on each axis: this round, less the one before
            before = [position - step for position, step in zip(positions, back, strict=True)]
            if min(before, default=0) >= 0:
                for row, count in at[
                    tuple(axis[position] for axis, position in zip(axes, before, strict=True))
                ].items():
                    rows[row + columns] += count * (-1) ** sum(back)
    return nonzero(rows.items())


recorders: list[Record] = [Record()]
"""The active recorder is the last one; records outside of :func:`replay` are not read."""


@contextlib.contextmanager
def recording() -> Iterator[Record]:
    """A record of its own for what is evaluated meanwhile."""
    recorders.append(Record())
    try:
        yield recorders[-1]
    finally:
        recorders.pop()


def require_int64_differences(records: Mapping[Time, Record]) -> None:
    """Raise DiffOverflow if a recorded collection, over all times and rounds, has a difference that is no int64."""
    dims = len(next(iter(records), ()))
    for call in {call for record in records.values() for call in record.calls}:

        def collection_at(point: Time, call: Time = call) -> Rows:
            return records[point[:dims]].at(call, point[dims:])

        counts = [
            count for record in records.values() for rows in record.calls[call].values() for count in rows.values()
        ]
        if max(map(abs, counts), default=0) * 2 ** (dims + len(call)) < 2**63:
            continue  # a difference is a sum of at most 2**coordinates counts
        rounds = (
            grid({rounds for record in records.values() for rounds in record.calls[call]}) if len(call) > 1 else [()]
        )
        for diff in differences(collection_at, [(*time, *at) for time in records for at in rounds]).values():
            require_int64(diff)
