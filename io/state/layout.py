"""The layout of state in tables: the tables of a plan, their columns, and their creation.

Must not import the engine: the driver of a fold on Spark creates and commits tables without loading it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ddcore.base.record import record
from ddcore.base.schema import Schema, Type, is_direct
from ddcore.io.delta import damaged, tables
from ddcore.io.storage.store import Location

if TYPE_CHECKING:
    from ddcore.io.delta.writer import Writer
    from ddcore.io.storage.warehouse import Warehouse
    from ddcore.operators.arrangement import Arrangement
    from ddcore.operators.block import Block
    from ddcore.planning.plan import Plan

CODE = "_code"

_INT64 = Type("int64")


@record
class Layout:
    """The columns of an arrangement: key columns, then value columns, in ``schema``; and ``times``.

    A *direct* arrangement has one key column of fixed width: the key's word is the code, and is not among the words
    of a run. Can be sent between processes, unlike a plan's arrangement.
    """

    schema: Schema
    key: tuple[str, ...]
    times: tuple[str, ...]

    @property
    def direct(self) -> bool:
        """Whether the key is its own code."""
        return is_direct([self.schema[name] for name in self.key])

    @property
    def stored(self) -> Schema:
        """The columns that are words of a run: all but a key that is its own code."""
        left_out = self.key if self.direct else ()
        return {name: kind for name, kind in self.schema.items() if name not in left_out}

    @property
    def columns(self) -> Schema:
        """The columns of a data file."""
        return {**self.schema, **dict.fromkeys((*self.times, "diff", CODE), _INT64)}


def create(writer: Writer, folder: Location, layout: Layout, *, replace: bool = False) -> None:
    """Create the table if it does not exist; with ``replace``, an existing one may change its columns."""
    tables.create(writer, folder, layout.columns, replace=replace)


def make_room(writer: Writer, warehouse: Warehouse, names: Iterable[str]) -> None:
    """Before a run writes to tables that it does not continue: set aside what lies in their places and is no table of
    ours that a commit can replace.
    """
    for folder in (warehouse.root / "state", warehouse.root / "outputs"):
        damaged.set_aside_file(folder)
    for name in names:
        damaged.set_aside(writer, warehouse.table(name))


def layout_of(arrangement: Arrangement) -> Layout:
    """The layout of an arrangement's table."""
    return _laid_out(arrangement.schema, arrangement.key, arrangement.times)


def pending_table(plan: Plan, block: Block) -> tuple[str, Layout]:
    """The table of a block's pending times: keys and times; every diff is 1."""
    assert block.output is not None
    port, output = plan.arrangements[block.ports[0]], plan.arrangements[block.output]
    layout = _laid_out({name: port.schema[name] for name in port.key}, port.key, port.times)
    return f"state/{output.fingerprint}_pending", layout


def held_table(arrangement: Arrangement) -> tuple[str, Layout]:
    """The table of updates that are held back before an arrangement until their times are complete."""
    return f"state/{arrangement.fingerprint}_held", layout_of(arrangement)


def tables_of(plan: Plan) -> Iterator[tuple[str, Layout, bool]]:
    """Every state table a plan can have: name, layout, and whether a run replaces its rows rather than adding to them.

    Pending times and held updates are replaced. With one time coordinate there are none: a run completes all its times.
    """
    for arrangement in plan.arrangements:
        if not arrangement.transient:
            yield f"state/{arrangement.fingerprint}", layout_of(arrangement), False
    if len(plan.dims) > 1:
        for arrangement in plan.arrangements:
            yield *held_table(arrangement), True
        for block in plan.blocks:
            if block.output is not None:
                yield *pending_table(plan, block), True


@record
class Use:
    """What a table of state is for: an operator, its place in the program (``file:line``) and what the table holds."""

    operator: str
    source_line: str
    holds: str


def uses_of(plan: Plan) -> dict[str, Use]:
    """What each state table of a plan is for, by table; one that several operators read is named after the first."""
    uses: dict[str, Use] = {}
    for block in plan.blocks:
        operator = plan.nodes[block.node].operator.name
        for number in dict.fromkeys(block.ports):
            arrangement = plan.arrangements[number]
            source = plan.nodes[arrangement.node].operator
            what = f"input {source.text}" if source.name == "input" else f"rows of {source.name}"
            key = f" by {', '.join(arrangement.key)}" if arrangement.key else ""
            _add(uses, arrangement, Use(operator, block.source_line, what + key))
        if block.output is not None:
            _add(uses, plan.arrangements[block.output], Use(operator, block.source_line, "its result"))
            uses.setdefault(pending_table(plan, block)[0], Use(operator, block.source_line, "pending times"))
    return uses


def _add(uses: dict[str, Use], arrangement: Arrangement, use: Use) -> None:
    uses.setdefault(f"state/{arrangement.fingerprint}", use)
    uses.setdefault(held_table(arrangement)[0], replace(use, holds=f"{use.holds}, held back"))


def _laid_out(schema: Schema, key: tuple[str, ...], times: tuple[str, ...]) -> Layout:
    return _layout(tuple(schema.items()), key, times)


@lru_cache(maxsize=4096)
def _layout(columns: tuple[tuple[str, Type], ...], key: tuple[str, ...], times: tuple[str, ...]) -> Layout:
    """A layout whose column names a table can have. A run asks for each several times.

    A program may give an intermediate column any name: ``diff``, ``a b``, or ``A`` beside ``a``. Such a column is named
    after its position instead. Times of day, UUIDs, intervals and maps have the types whose words they are.
    """
    names = _plain_names((name for name, _ in columns), (*times, "diff"), "column")
    plain = {names[name]: _plain_fields(kind.base) for name, kind in columns}
    return Layout(plain, tuple(names[name] for name in key), times)


def _plain_names(names: Iterable[str], taken: Iterable[str], noun: str) -> dict[str, str]:
    plain: dict[str, str] = {}
    used = {name.casefold() for name in taken}
    for number, name in enumerate(names):
        fits = name.isidentifier() and not name.startswith("_") and name.casefold() not in used
        plain[name] = name if fits else f"_{noun}_{number}"
        used.add(name.casefold())
    return plain


def _plain_fields(kind: Type) -> Type:
    """The type with names of fields that a table can have: words do not depend on these names."""
    if kind.element is not None:
        return replace(kind, element=_plain_fields(kind.element))
    if not kind.fields:
        return kind
    names = _plain_names((name for name, _ in kind.fields), (), "field")
    return replace(kind, fields=tuple((names[name], _plain_fields(inner)) for name, inner in kind.fields))
