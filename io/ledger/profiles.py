"""The profile of a run, as its record has it: what each operator of the program did, and how they are connected.

It names operators, lines and loops by itself, so that it can be shown after the program has changed. Must not import
anything heavy: every command reads records.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddcore.base.as_json import Form, each_of, nested


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """One operator, or several linear ones in a row, under the number that ``dd plan`` has for it.

    ``loop``: the number of the innermost loop, 0 outside. ``reads`` are the numbers of operators; ``feedback`` those
    read in every round after the first. ``taken`` and ``sent`` are updates; ``memory`` is in bytes, at the end of the
    fold; rows and bytes are those of state, of an output those of its log. ``key`` is the heaviest key, if one is
    heavy, and ``key_rows`` are its updates at least.
    """

    number: int
    kind: str
    title: str
    source_line: str = ""
    loop: int = 0
    reads: tuple[int, ...] = ()
    feedback: tuple[int, ...] = ()
    taken: int = 0
    sent: int = 0
    seconds: float = 0.0
    memory: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    rows_written: int = 0
    bytes_written: int = 0
    key: str = ""
    key_rows: int = 0

    @property
    def keyed(self) -> bool:
        """Whether it looks rows up by key."""
        return self.kind == "keyed"

    @property
    def named(self) -> str:
        """Its title and its place: ``join on stop = src (program.py:11)``."""
        return f"{self.title} ({self.source_line})" if self.source_line else self.title


@dataclass(frozen=True, slots=True)
class LoopRecord:
    """A loop: its number, that of the loop around it (0: none), its name and its limit, as ``dd plan`` has them."""

    number: int
    parent: int
    name: str
    max_rounds: int
    returns: bool = False
    prioritized: bool = False


@dataclass(frozen=True, slots=True)
class HeatRecord:
    """Differences by version and round, in ranges of ``versions`` versions and ``rounds`` rounds.

    ``cells``: first version, first round (-1: outside of loops) and number. With several time dimensions the version is
    the first coordinate; in loops within loops the round is that of the outermost.
    """

    versions: int = 1
    rounds: int = 1
    cells: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """What a run's operators did, in the order of ``dd plan``.

    ``compiling``: the seconds in which kernels were compiled, which no operator's time has.
    """

    operators: tuple[OperatorRecord, ...] = ()
    loops: tuple[LoopRecord, ...] = ()
    heat: HeatRecord = HeatRecord()
    compiling: float = 0.0


NO_PROFILE = ProfileRecord()
PROFILE: Form = nested(ProfileRecord, {
    "operators": each_of(nested(OperatorRecord)),
    "loops": each_of(nested(LoopRecord)),
    "heat": nested(HeatRecord, {"cells": each_of((list, tuple))}),
})  # fmt: skip
