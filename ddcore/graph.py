"""The dataflow a program describes: nodes, the scopes of its loops, and the texts they are known by.

Nodes are interned while a program is built: two calls that say the same thing about the same collections give one
node, which is how equal sub-programs, and later their arrangements, come to be shared without the user naming them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddcore.digests import Part, digest
from ddcore.errors import ProgramError
from ddcore.schema import Schema

LINEAR = ("select", "where", "flat_map", "concat", "negate")


@dataclass(eq=False)
class Scope:
    """The inside of one loop; the root scope is the program itself. ``depth`` counts the loops around.

    ``text`` names the finished loop: what its inner collections hold depends on all of it.
    """

    parent: Scope | None = None
    loop: Loop | None = None
    closed: bool = False
    text: str = ""

    @property
    def digest(self) -> str:
        """Names all the loops around; empty at the root."""
        return "" if self.parent is None else digest(self.parent.digest, self.text)

    @property
    def depth(self) -> int:
        """How many loops are around."""
        return 0 if self.parent is None else self.parent.depth + 1

    def encloses(self, other: Scope) -> bool:
        """Whether ``other`` is this scope or lies inside it."""
        walk: Scope | None = other
        while walk is not None and walk is not self:
            walk = walk.parent
        return walk is self


@dataclass(eq=False)
class Node:
    """One operator and the collection it makes.

    ``settings`` is what the operator was given, ready to run; ``text`` says the same in our own words, for
    fingerprints.
    ``digest`` covers text, schema and inputs; inside a loop it does not yet say what the loop feeds back (see
    Scope.digest).
    """

    kind: str
    inputs: tuple[Node, ...]
    schema: Schema
    scope: Scope
    text: str
    settings: Any = None
    place: str = ""
    digest: str = ""
    targets: list[Any] = field(default_factory=list)  # where its updates go, filled in by the plan

    def __post_init__(self) -> None:
        before = [node.digest for node in self.inputs]
        self.digest = digest(self.kind, self.text, shape(self.schema), str(self.scope.depth), before)

    @property
    def fingerprint(self) -> str:
        """Names the contents of this collection whatever program it stands in: the digest, and that of the loops
        around.
        """
        return digest(self.digest, self.scope.digest)[:32]


@dataclass(eq=False)
class Loop:
    """One ``iterate``: W_0 = source, R_i = body(W_i), W_{i+1} = R_i; the result is R at the fixed point."""

    name: str
    variable: Node
    max_rounds: int
    scope: Scope
    result: Node | None = None
    border: Any = None  # from the plan: the arrangement that consolidates the variable past the last round allowed
    consolidates: bool = False  # from the plan: whether it does so at every round

    @property
    def source(self) -> Node:
        """The collection the loop starts with."""
        return self.variable.inputs[0]

    @property
    def body(self) -> Node:
        """The node of R; only after the body was built."""
        assert self.result is not None
        return self.result


def shape(schema: Schema) -> Part:
    """A schema as parts of a digest: names and types, in order."""
    return [[name, str(kind)] for name, kind in schema.items()]


@dataclass
class Graph:
    """The nodes of a program under construction."""

    root: Scope = field(default_factory=Scope)
    nodes: dict[str, Node] = field(default_factory=dict)
    open: list[Scope] = field(default_factory=list)
    leaves: list[Node] = field(default_factory=list)  # of every loop that was written, also of those that are one

    @property
    def innermost(self) -> Scope:
        """The scope of the loop body being built, or the root."""
        return self.open[-1] if self.open else self.root

    def add(self, kind: str, inputs: Iterable[Node], schema: Schema, text: str, settings: Any = None) -> Node:
        """The node for this operator, new or known. It lives in the innermost scope of its inputs.

        Raises ProgramError where an input belongs to a loop that is already left, and for a column without a name:
        Polars gives it one when it makes a frame.
        """
        if "" in schema:
            raise ProgramError(
                f"{caller()}: {kind}: a column has no name", 'name it, for example with rename({"": "x"})'
            )
        inputs = tuple(inputs)
        scope = self.root
        for node in inputs:
            if node.scope.closed:
                raise ProgramError(
                    f"{caller()}: {kind} uses a collection of loop {node.scope.loop.name} outside of it"  # type: ignore[union-attr]
                    f" (made at {node.place})",
                    "return it from the loop's body: only the result of iterate leaves a loop",
                )
            scope = node.scope if scope.encloses(node.scope) else scope
        return self.intern(Node(kind, inputs, schema, scope, text, settings, caller()))

    def intern(self, node: Node) -> Node:
        """The known node that says the same in the same scope, or this one."""
        return self.nodes.setdefault(f"{id(node.scope)}:{node.digest}", node)

    def share_limits(self) -> None:
        """Give loops that are one the greatest of their ``max_rounds``: the limit is no part of a loop's digest.

        To be called when the program is built, for then every loop has its fingerprint.
        """
        greatest: dict[str, int] = {}
        for leave in self.leaves:
            name = leave.fingerprint
            greatest[name] = max(greatest.get(name, 0), leave.settings.max_rounds)
        for leave in self.leaves:
            leave.settings.max_rounds = greatest[leave.fingerprint]


def caller() -> str:
    """``file.py:line`` of the user's call: the nearest frame outside this package."""
    inside = str(Path(__file__).parent) + os.sep
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
