"""Random programs over random histories, each from its seed alone, written as source one can paste.

The operators come from the registry, each with a generator here by its public name. A test fails for one that has none.

Values come from small domains (integers mod 4, three words, nulls among them), so that rows meet, loops converge and
differences cancel. Loops are nested up to three deep; what may stand in a body is not restricted, but most bodies only
grow or only shrink what they are given, which makes them end. The few that swing must be reported by engine and
reference alike. A third of the programs have commas, quotes, spaces and letters beyond ASCII in the names of columns.
Functions are made by makers, in several ways that no pickle can tell apart, and some programs use two of one maker.
"""

from __future__ import annotations

import datetime
import functools
import json
import linecache
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import polars as pl
import registry
from choices import Choices
from folding import type_name
from notation import DIMS

from ddcore import reference
from ddcore.operators.gathering import GATHERED
from ddcore.reference.rows import canonical

MODULUS = 4
MAX_ROUNDS = 20
ORIGINS = [0, 0, 0, 0, 0, 70_000, 2**31, 2**50]
HEADER = "import polars as pl\nfrom polars import col\n\nimport ddcore as dd\n"
INPUTS = {
    "edges": {"a": "int", "b": "int"},
    "words": {"a": "int", "w": "str"},
    "nodes": {"b": "int"},
    "marks": {"w": "str", "f": "float"},
    "days": {"a": "int", "d": "date", "b": "int", "T": "clock"},
    "bills": {"m": "money", "n": "num", "t": "time"},
    "funds": {"a": "int", "W": "wide"},
    "trips": {"Y": "uuid", "Z": "span", "a": "int", "Q": "map"},
    "flags": {"o": "bool", "a": "int"},
    "limits": {"h": "huge", "b": "int"},
    "carts": {"a": "int", "l": "list"},
    "homes": {"s": "struct", "b": "int", "l": "list"},
}
VALUES: dict[str, list[Any]] = {
    "int": [0, 0, 1, 1, 2, 2, 3, 3, None],
    "str": ["x", "y", "z", None],
    "float": [0.5, -0.5, 0.1, 1e16, float("nan"), -0.0, 0.0, None],
    "date": [datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), None],
    "clock": [datetime.time(12, 30), datetime.time(0), datetime.time(23, 59, 59, 999999), None],
    "time": [datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC), None],
    "money": [Decimal("0.05"), Decimal("-3.00"), Decimal("12345678.90"), None],
    "wide": [*map(Decimal, ["0.05", "-0.05", "0.06", f"{'9' * 32}.99", f"-{'9' * 32}.99", f"{2**64}.00"]), None],
    "uuid": [f"{number:08x}-0000-4000-8000-00000000000{number}" for number in (1, 2, 9)] + [None],
    "span": [
        {"months": 1, "days": 0, "microseconds": 0},
        {"months": 0, "days": 30, "microseconds": 0},
        {"months": 0, "days": -1, "microseconds": 86_400_000_001},
        {"months": -2, "days": 3, "microseconds": 0},
        None,
    ],  # the first two are equally long
    "map": [{"x": 1, "y": None}, {"y": None, "x": 1}, {"x": 2}, {}, None],
    "bool": [True, False, None],
    "num": [2**33, -(2**35), 0, 7, None],
    "huge": [
        2**63 - 1,
        -(2**63) + 1,
        2**63 - 2,
        2**62,
        -(2**62),
        0,
        None,
    ],  # passed on, compared, joined, least, greatest
    "list": [["x", "y"], ["x"], ["x", None], [None], [], [], None],
    "struct": [
        {"i": 1, "f": float("nan"), "l": []},
        {"i": 1, "f": -0.0, "l": None},
        {"i": 1, "f": 0.0, "l": None},
        {"i": 2, "f": 0.0, "l": [None, datetime.date(2024, 2, 29)]},
        {"i": None, "f": None, "l": None},
        None,
    ],
}
TYPES = {
    "int": pl.Int64(),
    "num": pl.Int64(),
    "huge": pl.Int64(),
    "str": pl.String(),
    "float": pl.Float64(),
    "date": pl.Date(),
    "clock": pl.Time(),
    "time": pl.Datetime("us", "UTC"),
    "money": pl.Decimal(10, 2),
    "sum of money": pl.Decimal(18, 2),
    "tax": pl.Decimal(18, 4),
    "wide": pl.Decimal(38, 2),
    "uuid": pl.Extension("ddcore.uuid", pl.String()),
    "span": pl.Struct({"months": pl.Int32, "days": pl.Int32, "microseconds": pl.Int64}),
    "map": pl.Map(pl.String, pl.Int64),
    "bool": pl.Boolean(),
    "list": pl.List(pl.String),
    "struct": pl.Struct({"i": pl.Int64, "f": pl.Float64, "l": pl.List(pl.Date)}),
}
OTHERWISE = {
    "str": "pl.lit('y')",
    "float": "0.25",
    "date": "pl.date(2024, 2, 29)",
    "clock": "pl.time(12, 30)",
    "time": 'pl.datetime(2024, 2, 29, time_unit="us", time_zone="UTC")',
    "bool": "pl.lit(True)",
    "uuid": 'pl.lit("00000002-0000-4000-8000-000000000002").ext.to(pl.Extension("ddcore.uuid", pl.String()))',
    "span": "pl.lit(None, dtype=pl.Struct({'months': pl.Int32, 'days': pl.Int32, 'microseconds': pl.Int64}))",
    "map": "pl.lit(None, dtype=pl.Map(pl.String, pl.Int64))",
    "huge": "2**63 - 1",
    "list": 'pl.concat_list(pl.lit("x"))',
    "struct": 'pl.lit(None, dtype=pl.Struct({"i": pl.Int64, "f": pl.Float64, "l": pl.List(pl.Date)}))',
}
NAMES = {
    "int": "abc",
    "num": "nk",
    "str": "wv",
    "float": "fg",
    "date": "de",
    "clock": "TU",
    "time": "tu",
    "money": "mp",
    "sum of money": "xy",
    "tax": "iI",
    "wide": "WX",
    "bool": "oq",
    "uuid": "YJ",
    "span": "ZR",
    "map": "QK",
    "huge": "hj",
    "list": "lr",
    "struct": "sz",
}
NESTED = ("list", "struct")
WITHOUT_ORDER = (*NESTED, "map")
UNHASHED = (*WITHOUT_ORDER, "span")  # which have no specified hash
UNORDERED = (*UNHASHED, "str", "uuid", "wide")  # not looked up by their order
DECIMALS = ("money", "sum of money", "tax")
ODD = {  # what columns are called in a third of the programs: texts that join names may mix these up
    "a": "a", "b": "a,b", "c": "b,c", "n": "n k", "k": "größe", "w": "w'", "v": "a;w=1", "f": "f|g", "g": "f`",
    "d": "d:e", "e": "{e}", "m": "m,p|", "p": "日", "t": "t\t", "u": "-", "o": "o=q", "q": "(q)", "h": "h,j", "j": "h",
    "x": "x y", "y": "y\\", "l": "l[]", "r": "r.i", "s": "s: struct", "z": 'z"',
    "i": "i*p", "I": "1-i", "W": "w.w", "X": "W\t", "T": "t;T", "U": "U'",
    "Y": "Y:", "J": "j J", "Z": "z,Z", "R": "é", "Q": "{Q}", "K": "K|k",
}  # fmt: skip
MAKERS = {
    "closure": """
        def run(frame):
            {body}
        return run
    """,
    "partial": """
        def run(k, frame):
            {body}
        return functools.partial(run, k)
    """,
    "local class": """
        class Run:
            def __call__(self, frame):
                {body}
        return Run()
    """,
    "attribute": """
        class Run:
            def __init__(self):
                self.k = k
            def __call__(self, frame):
                k = self.k
                {body}
        return Run()
    """,
    "lock and lambda": """
        lock, number = threading.Lock(), lambda: k
        def run(frame):
            with lock:
                k = number()
            {body}
        return run
    """,
    "cached": """
        @functools.lru_cache
        def number():
            return k
        def run(frame):
            k = number()
            {body}
        return run
    """,
}  # ways to make a function that uses the number k
UNPICKLABLE = ("lock and lambda", "cached")


@dataclass
class Case:
    """A program, its source, and the history of each of its inputs."""

    seed: int
    source: str
    program: Callable[..., dict[str, Any]]
    frames: dict[str, pl.DataFrame]

    def __str__(self) -> str:
        histories = "\n".join(f"{name} = {_literal(frame)}" for name, frame in self.frames.items())
        return f"# seed {self.seed}\n{self.source}\n{histories}\n"


@dataclass
class Named:
    """A collection of the program under way: its variable, kinds by column, and whether no count can be negative."""

    name: str
    columns: dict[str, str]
    positive: bool = True

    def having(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.columns.items() if kind in kinds]


@functools.cache
def case(seed: int, *, plain: bool = False) -> Case:
    """The case of this seed, drawn once; ``plain``: for a project, with names of columns that a table can have,
    functions that can be sent, and nothing that needs instants of versions.
    """
    return drawn(Choices.of_seed(seed), seed, plain=plain)


def drawn(rng: Choices, seed: int, *, plain: bool = False) -> Case:
    """The case that these choices lead to."""
    names = ["edges", *rng.sample([name for name in INPUTS if name != "edges"], rng.randint(0, 2))]
    if "limits" not in names and rng.chance(25):
        names.append("limits")
    if "carts" not in names and rng.chance(25):
        names.append("carts")
    odd = rng.chance(33) and not plain
    columns = {name: {ODD[c] if odd else c: kind for c, kind in INPUTS[name].items()} for name in names}
    source = Writer(rng, odd, plain).program(columns)
    filename = f"<{'plain ' if plain else ''}program {seed}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)  # for inspect.getsource
    scope: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), scope)
    return Case(seed, source, scope["program"], history(rng, columns))


# Histories


def history(rng: Choices, inputs: dict[str, dict[str, str]]) -> dict[str, pl.DataFrame]:
    """Insertions and retractions at one, two or three coordinates; no count is negative at any time of the grid."""
    dims = DIMS[rng.choice([1, 1, 2, 2, 3, 3])]
    extent = {1: rng.randint(2, 6), 2: rng.randint(2, 4), 3: rng.randint(2, 3)}[len(dims)]
    axes = [sorted(rng.choice(ORIGINS) + step for step in rng.sample(range(9), extent)) for _ in dims]
    frames = {}
    for name, columns in inputs.items():
        updates: list[tuple[Any, ...]] = []
        rows = [tuple(rng.choice(VALUES[kind]) for kind in columns.values()) for _ in range(rng.randint(2, 9))]
        histories: dict[Any, list[tuple[tuple[int, ...], int]]] = {}
        for _ in range(rng.choice([1, 2, 4, 8, 16, 32, 8, 16, 32])):
            time = tuple(rng.choice(axis) for axis in axes)
            row, diff = rng.choice(rows), rng.choice([1, 1, 1, 2, -1, -1, -1, -2])
            past = histories.setdefault(canonical(row), [])
            if never_negative([*past, (time, diff)]):
                past.append((time, diff))
                updates.append((*row, *time, diff))
        if not updates:
            updates.append((*rows[0], *(axis[0] for axis in axes), 1))
        frames[name] = framed(columns, dims, updates)
    return frames


def framed(columns: dict[str, str], dims: tuple[str, ...], updates: list[tuple[Any, ...]]) -> pl.DataFrame:
    schema = {name: TYPES[kind] for name, kind in columns.items()} | {name: pl.Int64() for name in (*dims, "diff")}
    plain = {name: pl.String() if isinstance(kind, pl.Extension) else kind for name, kind in schema.items()}
    frame = pl.DataFrame(updates, schema=plain, orient="row")
    return frame.with_columns(pl.col(name).ext.to(kind) for name, kind in schema.items() if kind != plain[name])


def never_negative(diffs: Sequence[tuple[tuple[int, ...], int]]) -> bool:
    """Whether the diffs of one row, with their times, add up to no negative count at any time."""
    return all(
        sum(diff for when, diff in diffs if reference.precedes(when, time)) >= 0
        for time in reference.grid(when for when, _ in diffs)
    )


# Programs


Generator = Callable[["Writer", Named, list[Named]], Any]
GENERATORS: dict[str, list[Generator]] = {}
"""Of each public name the methods of Writer that write a call of it. Loops are written by ``Writer.loop``."""
LOOPS = ("iterate", "dd.iterate")


def writes(*names: str) -> Callable[[Generator], Generator]:
    """Registers a method of Writer as a generator of these operators."""

    def register(method: Generator) -> Generator:
        for name in names:
            GENERATORS.setdefault(name, []).append(method)
        return method

    return register


@dataclass
class Block:
    """Statements under way: how far they are set in, what they may use, and their lines."""

    indent: str
    env: list[Named]
    lines: list[str] = field(default_factory=list)


@dataclass
class Writer:
    """Writes one program, statement by statement. ``functions`` are those it calls, ``count`` the names it gave."""

    rng: Choices
    odd: bool = False
    plain: bool = False
    functions: list[str] = field(default_factory=list)
    count: int = 0
    tags: list[str] = field(default_factory=list)  # parameters of the functions around, which tell their calls apart

    def program(self, inputs: dict[str, dict[str, str]]) -> str:
        names = list(inputs)
        block = Block("    ", [Named(name, dict(columns)) for name, columns in inputs.items()])
        for _ in range(self.rng.randint(0, 2)):
            self.chain(block, 0, block.env)
        self.chain(block, self.rng.choice([0, 1, 1, 2, 2, 3, 3]), block.env)
        *made, last = block.env[len(names) :]
        outputs = [*self.rng.sample(made, min(3, len(made))), last]
        result = ", ".join(f'"out{number}": {output.name}' for number, output in enumerate(outputs, 1))
        lines = [f"def program({', '.join(names)}):", *_used([*block.lines, f"    return {{{result}}}"])]
        functions = [text for text in self.functions if text[4 : text.index("(")] in "\n".join(lines)]
        written = "\n\n".join([*functions, "\n".join(lines)]) + "\n"
        modules = [f"import {name}\n" for name in ("datetime", "functools", "threading") if f"{name}." in written]
        modules += ["from decimal import Decimal\n"] * ("Decimal(" in written)
        return "".join([*modules, "\n" if modules else "", HEADER, "\n\n", written])

    def chain(self, block: Block, depth: int, begin: list[Named]) -> Named:
        """One to four operators after one another; one of them is a loop where ``depth`` is not 0."""
        current = self.rng.choice(begin)
        steps = self.rng.randint(1, 4)
        loop_at = self.rng.below(steps) if depth else -1
        for step in range(steps):
            current = self.loop(block, depth, current) if step == loop_at else self.operator(block, current)
            block.env.append(current)
        return current

    def assign(self, block: Block, text: str, columns: dict[str, str], positive: bool) -> Named:
        self.count += 1
        made = Named(f"t{self.count}", columns, positive)
        block.lines.append(f"{block.indent}{made.name} = {text}")
        return made

    def operator(self, block: Block, of: Named) -> Named:
        while True:
            name = self.rng.choice(_pool())
            made = self.rng.choice(GENERATORS[name])(self, of, block.env)
            if made:
                return self.assign(block, *made)

    # Operators: each gives its source, its columns, and whether no count is negative; or None where it has no place

    @writes("select")
    def select(self, of: Named, env: list[Named]) -> Any:
        columns = self.fresh(self.rng.choice([["int"], ["int", "int"], ["int", "str"], [*of.columns.values()][:3]]), of)
        return f"{of.name}.select({self.fit(of, columns)})", columns, of.positive

    @writes("select")
    def spread(self, of: Named, env: list[Named]) -> Any:
        """Several columns by one expression."""
        one = self.rng.choice([*of.columns])
        others = {name: kind for name, kind in of.columns.items() if name != one}
        choices = ['"*"', "pl.all()", f"{q(one)}, pl.exclude({q(one)})", f"pl.col({_quoted([*of.columns])})"]
        text = self.rng.choice(choices)
        columns = {one: of.columns[one], **others} if "exclude" in text else of.columns
        return f"{of.name}.select({text})", columns, of.positive

    @writes("with_columns")
    def with_columns(self, of: Named, env: list[Named]) -> Any:
        """A column replaced, or one more."""
        kind = self.rng.choice(["int", "num", "str"])
        free = [name for name in self.names(kind) if name not in of.columns or of.columns[name] == kind]
        if not free or len(of.columns) > 4:
            return None
        name = self.rng.choice(free)
        return (
            f"{of.name}.with_columns({kw({name: self.expression(of, kind)})})",
            of.columns | {name: kind},
            of.positive,
        )

    @writes("inspect")
    def inspect(self, of: Named, env: list[Named]) -> Any:
        return f"{of.name}{self.inspection()}", of.columns, of.positive

    def inspection(self) -> str:
        """A call of ``inspect`` with a name of its own."""
        return f".inspect({' + '.join([q(f'seen{self.count}'), *self.tags])})"

    @writes("drop")
    def without(self, of: Named, env: list[Named]) -> Any:
        gone = self.rng.choice([*of.columns])
        columns = {name: kind for name, kind in of.columns.items() if name != gone}
        return columns and (f"{of.name}.drop({q(gone)})", columns, of.positive)

    @writes("rename")
    def rename(self, of: Named, env: list[Named]) -> Any:
        old = self.rng.choice([*of.columns])
        free = [name for name in self.names(of.columns[old]) if name not in of.columns]
        if not free:
            return None
        columns = {free[0] if name == old else name: kind for name, kind in of.columns.items()}
        return f"{of.name}.rename({{{q(old)}: {q(free[0])}}})", columns, of.positive

    @writes("arrange_by")
    def arrange_by(self, of: Named, env: list[Named]) -> Any:
        keys = self.rng.sample([*of.columns], self.rng.randint(1, len(of.columns)))
        return f"{of.name}.arrange_by({_quoted(keys)})", of.columns, of.positive

    @writes("where", "filter")
    def where(self, of: Named, env: list[Named]) -> Any:
        predicate, method = self.predicate(of), self.rng.choice(["where", "where", "filter"])
        return predicate and (f"{of.name}.{method}({predicate})", of.columns, of.positive)

    @writes("join")
    def join(self, of: Named, env: list[Named]) -> Any:
        other = self.rng.choice(env)
        pairs = [(x, y) for x, k in of.columns.items() for y, kind in other.columns.items() if _joins(k, kind)]
        if not pairs:
            return None
        on = dict([self.rng.choice(pairs)])
        if self.rng.chance(20):
            on |= {x: y for x, y in [self.rng.choice(pairs)] if x not in on and y not in on.values()}
        how = self.rng.choice(["inner", "inner", "semi", "anti", "left", "right", "full"])
        if not (of.positive and other.positive):
            how = "inner"  # the others ask whether a key is there, which a negative count leaves open
        text = f"{of.name}.join({other.name}, on={_on(on)}" + (")" if how == "inner" else f', how="{how}")')
        if how in ("semi", "anti"):
            return text, of.columns, True
        joined = dict(of.columns)
        for name, kind in other.columns.items():
            if name not in on.values():
                joined[f"{name}_right" if name in of.columns else name] = kind
        both = Named("", joined)
        wanted = self.fresh(self.rng.sample([*joined.values()], min(len(joined), self.rng.randint(1, 3))), both)
        return f"{text}.select({self.fit(both, wanted)})", wanted, of.positive and other.positive

    @writes("join_between")
    def join_between(self, of: Named, env: list[Named]) -> Any:
        """Ends are columns of another collection or computed from one; with a key, or without."""
        other = self.rng.choice(env)
        kinds = [kind for kind in of.columns.values() if kind not in UNORDERED and other.having(kind)]
        kinds += ["int"] * bool(of.having("int") and other.having("int", "num"))
        if not kinds:
            return None
        kind = self.rng.choice(kinds)
        column = self.rng.choice(of.having(kind))
        ends = {name: self.expression(other, kind) for name in self.rng.choice([["L"], ["R"], ["L", "R"], ["L", "R"]])}
        if kind in ("int", "num") and len(ends) == 2 and self.rng.chance(50):
            lower = f"pl.sql_expr({ends['L']})" if ends["L"].startswith('"') else ends["L"]  # a bare string is SQL
            ends["R"] = f"{lower} + {self.rng.randint(0, 3)}"
        rest = self.rng.sample([*other.columns], self.rng.randint(0, min(2, len(other.columns))))
        columns = {f"i{number}": other.columns[name] for number, name in enumerate(rest)}
        keys = [(x, y) for x, k in of.columns.items() for y, z in columns.items() if x != column and _joins(k, z)]
        on = dict([self.rng.choice(keys)]) if keys and self.rng.chance(60) else {}
        renamed = {new: f"col({q(old)})" for new, old in zip(columns, rest, strict=True)}
        arguments = [f"{other.name}.select({kw(renamed | ends)})", q(column)]
        arguments += [f"lower={q('L')}"] * ("L" in ends) + [f"upper={q('R')}"] * ("R" in ends)
        arguments += [f"on={_on(on)}"] * bool(on)
        closed = self.rng.choice(["both", "left", "right", "none"])
        arguments += [f"closed={q(closed)}"] * (closed != "both") + ["open_nulls=True"] * self.rng.chance(30)
        both = Named("", of.columns | {name: kind for name, kind in columns.items() if name not in on.values()})
        wanted = self.fresh(
            self.rng.sample([*both.columns.values()], min(len(both.columns), self.rng.randint(1, 3))), both
        )
        text = f"{of.name}.join_between({', '.join(arguments)})"
        return f"{text}.select({self.fit(both, wanted)})", wanted, of.positive and other.positive

    @writes("tumble", "hop", "sessions")
    def time_windows(self, of: Named, env: list[Named]) -> Any:
        """Windows of whole numbers and of moments, and sessions by some of the other columns."""
        kinds = [kind for kind in ("int", "num", "date", "time") if of.having(kind)]
        name = self.rng.choice(["tumble", "hop", "sessions", "sessions"])
        if not kinds or (name == "sessions" and not of.positive):
            return None
        kind = self.rng.choice(kinds)
        column = self.rng.choice(of.having(kind))

        def length(*numbers: int) -> str:
            number = self.rng.choice(numbers)
            return f"datetime.timedelta(days={number})" if kind in ("date", "time") else str(number)

        if name == "sessions":
            others = [item for item in of.columns if item != column]
            by = self.rng.sample(others, min(len(others), self.rng.randint(0, 2)))
            arguments = [q(column), length(0, 1, 1, 2), *([f"[{', '.join(map(q, by))}]"] if by else [])]
        else:
            arguments = [q(column), length(1, 2, 2), *([length(1, 2, 3, 5)] if name == "hop" else [])]
            arguments += [f"offset={length(0, 1, -1)}"] * self.rng.chance(40)
        start, end = (next(f"{end}{n}" for n in range(99) if f"{end}{n}" not in of.columns) for end in ("from", "to"))
        arguments += [f"start={q(start)}", f"end={q(end)}"]
        windows = Named("", of.columns | {start: kind, end: kind})
        wanted = self.fresh(
            self.rng.sample([*windows.columns.values()], min(len(windows.columns), self.rng.randint(2, 4))), windows
        )
        return f"{of.name}.{name}({', '.join(arguments)}).select({self.fit(windows, wanted)})", wanted, of.positive

    @writes("join_asof")
    def join_asof(self, of: Named, env: list[Named]) -> Any:
        """With a key, or without, by a column of a kind that both have."""
        other = self.rng.choice(env)
        kinds = [kind for kind in of.columns.values() if kind not in UNORDERED and other.having(kind)]
        if not kinds:
            return None
        kind = self.rng.choice(kinds)
        column, time = self.rng.choice(of.having(kind)), self.rng.choice(other.having(kind))
        rest = [name for name in self.rng.sample([*other.columns], min(2, len(other.columns))) if name != time]
        columns = {"at": kind} | {f"i{number}": other.columns[name] for number, name in enumerate(rest)}
        keys = [(x, y) for x, k in of.columns.items() for y, z in columns.items() if column != x and _joins(k, z)]
        keys = [(x, y) for x, y in keys if y != "at"]
        on = dict([self.rng.choice(keys)]) if keys and self.rng.chance(60) else {}
        renamed = {new: f"col({q(old)})" for new, old in zip(columns, [time, *rest], strict=True)}
        arguments = [f"{other.name}.select({kw(renamed)})", q(column), q("at")]
        arguments += [f"on={_on(on)}"] * bool(on) + [f"direction={q('forward')}"] * self.rng.chance(50)
        arguments += ["exact=False"] * self.rng.chance(30) + [f"how={q('left')}"] * self.rng.chance(50)
        arguments += ["allow_negative=True"] * (not other.positive)
        both = Named("", of.columns | {name: kind for name, kind in columns.items() if name not in on.values()})
        wanted = self.fresh(
            self.rng.sample([*both.columns.values()], min(len(both.columns), self.rng.randint(1, 3))), both
        )
        return f"{of.name}.join_asof({', '.join(arguments)}).select({self.fit(both, wanted)})", wanted, of.positive

    @writes("concat")
    def concat(self, of: Named, env: list[Named]) -> Any:
        other = self.rng.choice(env)
        columns = self.fresh(self.rng.choice([["int"], ["int", "int"], ["int", "str"], ["int", self.nested(of)]]), of)
        texts = [f"{item.name}.select({self.fit(item, columns)})" for item in (of, other)]
        return f"{texts[0]}.concat({texts[1]})", columns, of.positive and other.positive

    @writes("dd.constant")
    def constant(self, of: Named, env: list[Named]) -> Any:
        """Rows that the program spells out, alone or beside those of a collection."""
        columns = self.fresh(self.rng.choice([["int"], ["int", "int"], ["int", "str"], ["int", "bool"]]), of)
        rows = [
            tuple(self.rng.choice(VALUES[kind]) for kind in columns.values()) for _ in range(self.rng.randint(0, 3))
        ]
        schema = ", ".join(f"{q(name)}: pl.{TYPES[kind]}" for name, kind in columns.items())
        text = f'dd.constant(pl.DataFrame({rows}, schema={{{schema}}}, orient="row"))'
        if self.rng.chance(30):
            return text, columns, True
        beside = f"{of.name}.select({self.fit(of, columns)})"
        if self.rng.chance(30):
            return f"{beside}.concat({text}.negate())", columns, False
        return f"{text}.concat({beside})", columns, of.positive

    @writes("dd.now")
    def now(self, of: Named, env: list[Named]) -> Any:
        """Rows on one side of the instant of the version, or beside it. Versions of projects drawn here have none."""
        if self.plain:
            return None
        times = of.having("time")
        if not times:
            columns = self.fresh(["time"], Named("", {}))
            return f"dd.now().select({kw(dict.fromkeys(columns, 'col(' + q('now') + ')'))})", columns, True
        moved = f'col("now") + datetime.timedelta(hours={self.rng.randint(-30, 30)})'
        arguments = [q(self.rng.choice(times)), f"{self.rng.choice(['lower', 'upper'])}={q('limit')}"]
        closed = self.rng.choice(["both", "left", "right", "none"])
        text = f"{of.name}.join_between(dd.now().select(limit={moved}), {', '.join(arguments)}, closed={q(closed)})"
        return text, of.columns, of.positive

    @writes("concat", "negate")
    def less(self, of: Named, env: list[Named]) -> Any:
        """A difference that may be negative."""
        other = self.rng.choice(env)
        columns = self.fresh(self.rng.choice([["int"], ["int", "int"]]), of)
        texts = [f"{item.name}.select({self.fit(item, columns)})" for item in (of, other)]
        return f"{texts[0]}.concat({texts[1]}.negate())", columns, False

    @writes("concat", "negate")
    def rest(self, of: Named, env: list[Named]) -> Any:
        """A difference that cannot be negative: without a part of itself."""
        predicate = self.predicate(of)
        return predicate and (f"{of.name}.concat({of.name}.where({predicate}).negate())", of.columns, of.positive)

    @writes("distinct")
    def distinct(self, of: Named, env: list[Named]) -> Any:
        return f"{of.name}.distinct({_allow(of)})", of.columns, True

    @writes("union", "intersect", "except_")
    def multiset(self, of: Named, env: list[Named]) -> Any:
        other, operation = self.rng.choice(env), self.rng.choice(["union", "intersect", "except_"])
        columns = self.fresh(self.rng.choice([["int"], ["int", "int"], ["int", "str"], ["int", self.nested(of)]]), of)
        texts = [f"{item.name}.select({self.fit(item, columns)})" for item in (of, other)]
        positive = of.positive and other.positive
        allow = "" if positive else ", allow_negative=True"
        return f"{texts[0]}.{operation}({texts[1]}{allow})", columns, positive or operation == "except_"

    @writes("group_by.top_k")
    def top_k(self, of: Named, env: list[Named]) -> Any:
        names = [*of.columns]
        keys = [name for name in names if self.rng.chance(30)]
        rest = [name for name in names if name not in keys]
        ordered = [name for name in rest if of.columns[name] not in WITHOUT_ORDER]
        if not ordered:
            return None
        by = self.rng.sample(ordered, self.rng.randint(1, min(2, len(ordered))))
        downs, ties = [self.rng.chance(50) for _ in by], self.rng.choice(["cut", "rank"])
        allow = "" if of.positive else ", allow_negative=True"
        order = f"[{_quoted(by)}], descending={downs}, ties={q(ties)}"
        text = f"{of.name}.group_by({_quoted(keys)}).top_k({self.rng.randint(1, 3)}, {order}{allow})"
        return text, {name: of.columns[name] for name in [*keys, *rest]}, True

    @writes("group_by.over")
    def over(self, of: Named, env: list[Named]) -> Any:
        """Of distinct rows or of a few copies, because each copy is numbered."""
        keys = [name for name in of.columns if self.rng.chance(30)]
        ordered = [name for name, kind in of.columns.items() if name not in keys and kind not in WITHOUT_ORDER]
        allow = "" if of.positive else ", allow_negative=True"
        rows = f"{of.name}.distinct({_allow(of)})"
        if ordered and self.rng.chance(50):
            rows = f"{of.name}.group_by({_quoted(keys)}).top_k(6, {q(ordered[0])}{allow})"
        by = self.rng.sample(ordered, self.rng.randint(0, min(2, len(ordered))))
        made = {f"r{number}_": self.window(of, by) for number in range(self.rng.randint(1, 3))}
        flags = ", ".join(
            f"{name}=[{', '.join(str(self.rng.chance(50)) for _ in by)}]" for name in ("descending", "nulls_first")
        )
        results = kw({name: text for name, (text, _) in made.items()})
        both = Named("", of.columns | {name: kind for name, (_, kind) in made.items()})
        wanted = self.fresh([*(kind for _, kind in made.values()), *of.columns.values()][:3], both)
        text = f"{rows}.group_by({_quoted(keys)}).over([{_quoted(by)}], {flags}, {results})"
        return f"{text}.select({self.fit(both, wanted)})", wanted, True

    def window(self, of: Named, by: list[str]) -> tuple[str, str]:
        """A function of rows in an order, and the kind of its result."""
        numbers = {
            "row_number": "num",
            "rank": "num",
            "dense_rank": "num",
            "percent_rank": "float",
            "cume_dist": "float",
        }
        name = self.rng.choice(
            ["lag", "lead", "value", "value", "aggregate", "aggregate", "aggregate", "ntile", *numbers]
        )
        if name in numbers:
            return f"dd.{name}()", numbers[name]
        if name == "ntile":
            return f"dd.ntile({self.rng.randint(1, 3)})", "num"
        nulls, argument = ", ignore_nulls=True" * self.rng.chance(40), self.rng.choice([*of.columns])
        if name in ("lag", "lead"):
            default = f", default=col({q(argument)})" * self.rng.chance(40)
            return f"dd.{name}({q(argument)}, {self.rng.randint(0, 2)}{default}{nulls})", of.columns[argument]
        frame = self.frame(of, by) if self.rng.chance(80) else ""
        if name == "value":
            name = self.rng.choice(["first_value", "last_value", "nth_value"])
            n = f", {self.rng.randint(1, 3)}" * (name == "nth_value")
            return f"dd.{name}({q(argument)}{n}{nulls}){frame}", of.columns[argument]
        while True:
            name = self.rng.choice([name for name in AGGREGATES if name not in GATHERED])
            if pool := AGGREGATES[name](of):
                break
        argument, condition = self.rng.choice([*pool]), self.predicate(of) if self.rng.chance(30) else ""
        arguments = ", ".join(filter(None, [argument, condition and f"where={condition}"]))
        return f"dd.{name}({arguments}){frame}", pool[argument]

    def frame(self, of: Named, by: list[str]) -> str:
        """A frame, of distances where the order has them."""
        kind, units = of.columns[by[0]] if len(by) == 1 else "", ["rows", "groups", "range"]
        unit, distances = self.rng.choice(units), ["None", "-2", "-1", "0", "1", "2"]
        if unit == "range":
            distances = {
                "float": ["None", "-0.6", "0", "0.25", "1e16"],
                "huge": ["None", "-(2**62)", "-1", "0", "1", "2**63"],
                "date": ["None", "0", "datetime.timedelta(days=-19783)", "datetime.timedelta(days=30000)"],
                "time": ["None", "0", "datetime.timedelta(hours=-1)", "datetime.timedelta(days=1)"],
                "money": ["None", "-3.05", "0", "4"],
            }.get(kind, distances if kind in ("int", "num") else ["None", "0"])
        exclude = self.rng.choice(["", "", ', exclude="row"', ', exclude="peers"', ', exclude="ties"'])
        start, end = self.rng.choice(distances), self.rng.choice(distances)
        if kind == "money" and unit == "range":
            start, end = (f'Decimal("{item}")' if "." in item else item for item in (start, end))
        return f".{unit}_between({start}, {end}{exclude})"

    @writes("dd.delta_join")
    def delta_join(self, of: Named, env: list[Named]) -> Any:
        """A triangle, a path or a star of collections with two or three columns."""
        shapes = [
            ["ab", "bc", "ac"],
            ["ab", "bc", "cd"],
            ["ab", "ac", "da"],
            ["abc", "cd", "da"],
            ["ab", "bc", "cd", "da"],
        ]
        relations, positive = [], True
        for number, names in enumerate(self.rng.choice(shapes)):
            one = self.rng.choice([of, *env]) if number else of
            columns = {f"r_{name}": self.integer(one) for name in names}
            relations.append(f"({one.name}.select({kw(columns)}), [{_quoted([*names])}])")
            positive = positive and one.positive
        columns = self.fresh(["int", "int"], of)
        names = kw({new: f"col({q(old)})" for new, old in zip(columns, "ab", strict=True)})
        return f"dd.delta_join({', '.join(relations)}).select({names})", columns, positive

    @writes("intern", "with_row_id")
    def intern(self, of: Named, env: list[Named]) -> Any:
        """Rows with ids: rather few ids, so that rows collide, or a hash by which they do."""
        free = [name for name in self.names("num") if name not in of.columns]
        if not free or len(of.columns) > 4:
            return None
        positive = "" if of.positive else ".distinct(allow_negative=True)"
        if of.having(*UNHASHED) or self.rng.chance(30):  # nested columns have no specified hash
            how = f'hash="(round + {self.rng.randint(0, 3)}) // {self.rng.randint(1, 2)} * 3"'
        else:
            how = f"bits={self.rng.choice([3, 4, 5, 32])}"
        text = f"{of.name}{positive}.{self.rng.choice(['intern', 'with_row_id'])}({q(free[0])}, {how}, max_rounds=60)"
        return text, of.columns | {free[0]: "num"}, True

    @writes("attributes", "dd.rows")
    def attributes(self, of: Named, env: list[Named]) -> Any:
        """Some columns taken apart and put together again."""
        names = self.rng.sample([*of.columns], min(len(of.columns), self.rng.randint(1, 3)))
        if "i_" in of.columns:
            return None
        positive = "" if of.positive else ".distinct(allow_negative=True)"
        how = 'hash="round // 2"' if of.having(*UNHASHED) else f"bits={self.rng.choice([4, 62])}"
        parts = f'{of.name}{positive}.attributes(id="i_", {how}, max_rounds=60)'
        columns = {name: of.columns[name] for name in names}
        chosen = ", ".join(f"{q(name)}" for name in names)
        return f'dd.rows(*map({parts}.get, [{chosen}]), id="i_").select({chosen})', columns, True

    @writes("group_by.agg")
    def agg(self, of: Named, env: list[Named]) -> Any:
        keys = self.rng.sample([*of.columns], self.rng.randint(0, min(2, len(of.columns))))
        picking = [name for name in AGGREGATES if name not in ADDING and name not in GATHERED]
        names = self.rng.choice([[*ADDING, *picking], [*AGGREGATES]] if of.positive else [ADDING, picking])
        made: dict[str, tuple[str, str]] = {}
        for _ in range(self.rng.randint(1, 3)):
            name = self.rng.choice(names)
            if of.having("wide") and self.rng.chance(80):  # whose sums are operators of their own
                name = self.rng.choice(["sum", "mean"])
            pool = AGGREGATES[name](of)
            if name in ("sum", "mean") and of.having("wide"):
                pool = {text: kind for text, kind in pool.items() if any(q(wide) in text for wide in of.having("wide"))}
            if pool:
                argument = self.rng.choice([*pool])
                condition = self.predicate(of) if self.rng.chance(30) else ""
                arguments = ", ".join(filter(None, [argument, condition and f"where={condition}"]))
                made[f"r{len(made)}_"] = (f"dd.{name}({arguments})", pool[argument])
        if not made:
            return None
        columns = {key: of.columns[key] for key in keys} | {name: kind for name, (_, kind) in made.items()}
        results = ", ".join(f"{name}={text}" for name, (text, _) in made.items())
        columns_now = self.fresh([*columns.values()], of)
        renamed = kw({new: f"col({q(old)})" for new, old in zip(columns_now, columns, strict=True)})
        allow = "" if of.positive else ", allow_negative=True"
        return f"{of.name}.group_by({_quoted(keys)}).agg({results}{allow}).select({renamed})", columns_now, True

    @writes("group_by.reduce")
    def reduce(self, of: Named, env: list[Named]) -> Any:
        value = self.rng.choice([*of.columns])
        keys = [name for name in of.columns if name != value and self.rng.chance(50)]
        if self.rng.chance(10):
            keys = [*of.columns]
        kind, v, by = of.columns[value], q(value), 'group_by("group", maintain_order=True)'
        counted = [
            ('frame.group_by("group").agg(r_=pl.len().cast(pl.Int64) + k)', "num"),
            ('frame.group_by("group").agg(r_=col("count").sum() * k).filter(col("r_") > 1)', "num"),
            ('frame.group_by("group").agg(r_=col("count").sum() * 0.5 + k)', "float"),
            ('frame.group_by("group").agg(r_=col("count").sum().cast(pl.Float64) * k)', "num"),
            ('frame.select("group", "count", r_=col("count") * k)', "num"),
        ]
        bodies = [
            *counted,
            (f'frame.group_by("group").agg(r_=col({v}).min(), count=col("count").sum() * k)', kind),
            (f'frame.sort("group", {v}).{by}.first().select("group", r_={v})', kind),
            (f'frame.select("group", r_={v}).unique()', kind),
            (f'frame.select("group", col("count") * k, r_={v})', kind),
        ]
        if kind in ("float", *UNHASHED):  # Polars' own min skips NaN, which is not at issue here, and takes no lists
            bodies = [body for body in bodies if ".min()" not in body[0]]
        body, result = self.rng.choice(counted if value in keys else bodies)
        # Such counts are negative where those that the function is given are.
        returns_counts = "count=" in body or ('"count"' in body and ".agg(" not in body)
        columns = self.fresh([*(of.columns[key] for key in keys), result], of)
        names = kw({new: f"col({q(old)})" for new, old in zip(columns, [*keys, "r_"], strict=True)})
        schema = f'{{"r_": "{_type(result)}"}}'
        less = of.positive and self.rng.chance(15)
        rows, positive = f"{of.name}.negate()" if less else of.name, of.positive and not less
        allow = "" if positive else ", allow_negative=True"
        call = f"{rows}.group_by({_quoted(keys)}).reduce(FUNCTION, {schema}{allow})"
        return f"{self.called(call, f'return {body}')}.select({names})", columns, positive or not returns_counts

    def called(self, call: str, body: str) -> str:
        """``call`` of a function with this body; or two calls of two functions that one maker made."""
        maker, form = (
            f"maker_{len(self.functions)}",
            self.rng.choice([form for form in MAKERS if not (self.plain and form in UNPICKLABLE)]),
        )
        lines: list[str] = []
        for line in textwrap.dedent(MAKERS[form]).strip().splitlines():
            margin = line[: len(line) - len(line.lstrip())]
            lines += [margin + text for text in body.splitlines()] if "{body}" in line else [line]
        self.functions.append(f"def {maker}(k):\n" + textwrap.indent("\n".join(lines), "    "))
        first = call.replace("FUNCTION", f"{maker}(1)")
        return f"{first}.concat({call.replace('FUNCTION', f'{maker}(2)')})" if self.rng.chance(40) else first

    @writes("flat_map")
    def lists(self, of: Named, env: list[Named]) -> Any:
        ints = of.having("int")
        own = of.having("list")
        if own and (not ints or self.rng.chance(70)):
            exploded = self.rng.choice(own)
            columns = self.fresh([*[kind for kind in of.columns.values() if kind != "list"][:2], "str"], of)
            rest = [name for name, kind in of.columns.items() if kind != "list"][:2]
            names = kw({new: f"col({q(old)})" for new, old in zip(columns, [*rest, exploded], strict=True)})
            return f"{of.name}.flat_map({kw({exploded: f'col({q(exploded)})'})}).select({names})", columns, of.positive
        if not ints:
            return None
        a, b = self.rng.choice(ints), self.rng.choice(ints)
        expr = self.rng.choice([f"pl.concat_list({q(a)}, {q(b)})", f"pl.int_ranges(0, {q(a)})"])
        columns = self.fresh([*[*of.columns.values()][:1], "int"], of)
        names = kw({new: f"col({q(old)})" for new, old in zip(columns, [next(iter(of.columns)), "l_"], strict=True)})
        return f"{of.name}.flat_map(l_={expr}).select({names})", columns, of.positive

    @writes("flat_map")
    def flat_map(self, of: Named, env: list[Named]) -> Any:
        ints = of.having("int")
        if not ints:
            return None
        a = q(self.rng.choice(ints))
        again = self.rng.choice([f"col({a}) > 1", f"col({a}) != k", "pl.lit(True)"])
        body = (
            f'once = frame.select("row", r_={a})\n'
            f'again = frame.filter({again}).select("row", r_=(col({a}) * 3 + k) % {MODULUS})\n'
            f"return pl.concat([once, again])"
        )
        columns = self.fresh(["int"], of)
        call = self.called(f'{of.name}.flat_map(FUNCTION, schema={{"r_": "int64"}})', body)
        result = dict.fromkeys(columns, 'col("r_")')
        return f"{call}.select({kw(result)})", columns, of.positive

    # Loops

    def loop(self, block: Block, depth: int, of: Named) -> Named:
        """A loop from ``of``. What its body returns is positive, and of the same columns as it is given."""
        kinds = self.rng.choice([["int"], ["int", "int"], ["int", "int"], ["int", "str"], ["int", self.nested(of)]])
        columns = self.fresh(kinds, of)
        source = f"{of.name}.select({self.fit(of, columns)})"
        source += "" if of.positive else ".distinct(allow_negative=True)"
        start = self.assign(block, source, columns, True)
        kind = self.rng.below(100)
        if kind >= 85:
            return self.together(block, depth, of, start)
        if kind >= 73 and len(columns) == 2:
            return self.prioritized(block, start)
        if kind >= 55 and depth > 1:
            return self.called_in_a_loop(block, depth, start)
        self.count += 1
        body, given = f"body{self.count}", Named(f"w{self.count}", columns)
        inner = Block(block.indent + "    ", [*block.env, start, given])
        result = self.body(inner, depth, given, start)
        block.lines += [f"{block.indent}def {body}({given.name}):", *inner.lines, f"{inner.indent}return {result}"]
        return self.assign(block, f"{start.name}.iterate({body}, {self.limit()})", columns, True)

    def limit(self) -> str:
        if self.rng.chance(15):
            return f'max_rounds={self.rng.randint(1, 4)}, at_limit="return"'
        return f"max_rounds={MAX_ROUNDS}"

    def called_in_a_loop(self, block: Block, depth: int, start: Named) -> Named:
        """A loop as a function, which another loop's body calls, and sometimes the program around it, too."""
        self.count += 1
        number, columns = self.count, start.columns
        rows, given = Named(f"rows{number}", columns), Named(f"w{number}", columns)
        inner = Block(block.indent + "    ", [*block.env, start, rows])
        self.tags.append(f"tag{number}")
        result = self.loop(inner, depth - 1, rows)
        self.tags.pop()
        once = f"{result.name}.select({self.fit(result, columns)}).distinct()"
        block.lines += [
            f"{block.indent}def loop{number}({rows.name}, tag{number}):",
            *inner.lines,
            f"{inner.indent}return {once}",
        ]
        called = f'loop{number}({given.name}, "inside")'
        shape = self.rng.choice([f"{called}.concat({given.name}).distinct()", f"{start.name}.intersect({called})"])
        block.lines += [f"{block.indent}def body{number}({given.name}):", f"{inner.indent}return {shape}"]
        text = f"{start.name}.iterate(body{number}, {self.limit()})"
        if self.rng.chance(50):
            text += f'.concat(loop{number}({start.name}, "outside"))'
        return self.assign(block, text, columns, True)

    def together(self, block: Block, depth: int, of: Named, start: Named) -> Named:
        """Two collections round one loop, each of which grows by what becomes of the other."""
        other = self.assign(
            block, f"{of.name}.select({self.fit(of, start.columns)}).distinct({_allow(of)})", start.columns, True
        )
        self.count += 1
        odd, even = f"odd{self.count}", f"even{self.count}"
        body, left, right = f"body{self.count}", Named(odd, start.columns), Named(even, start.columns)
        inner = Block(block.indent + "    ", [*block.env, start, other, left, right])
        texts = []
        for grown, by in ((left, right), (right, left)):
            derived = self.chain(inner, depth - 1, [by])
            fitted = f"{derived.name}.select({self.fit(derived, start.columns)})"
            texts.append(f'"{grown.name}": {grown.name}.concat({fitted}).distinct({_allow(derived)})')
        block.lines += [
            f"{block.indent}def {body}({odd}, {even}):",
            *inner.lines,
            f"{inner.indent}return {{{', '.join(texts)}}}",
        ]
        both = f'{{"{odd}": {start.name}, "{even}": {other.name}}}'
        text = f'dd.iterate({both}, {body}, {self.limit()})["{even}"]'
        return self.assign(block, text, start.columns, True)

    def prioritized(self, block: Block, start: Named) -> Named:
        """What can be reached, some of the start later than the rest: in whatever order, the result is the same."""
        steps = next((item for item in block.env if item.positive and len(item.having("int")) > 1), None)
        key, value = start.columns
        if steps is None or start.columns[key] != "int":
            return start
        x, y = self.rng.sample(steps.having("int"), 2)
        y = f"{y}_right" if y in start.columns else y
        onward = f"join({steps.name}, on={{{q(key)}: {q(x)}}}).select("
        onward += kw({key: f"col({q(y)})", value: f"col({q(value)})"}) + ")"
        priority = self.rng.choice([f"col({q(key)})", f"-col({q(key)})", f"col({q(key)}) % 2 - 5"])
        self.count += 1
        body, indent = f"body{self.count}", block.indent
        seen = self.inspection() if self.rng.chance(30) else ""
        if self.rng.chance(30):
            block.lines += [
                f"{indent}def {body}(odd, even):",
                f'{indent}    return {{"odd": odd.concat(even.{onward}).distinct(){seen},',
                f'{indent}            "even": even.concat(odd.{onward}).distinct()}}',
            ]
            both = f'{{"odd": {start.name}, "even": {start.name}.where(col({q(key)}) > 1)}}'
            text = f'dd.iterate({both}, {body}, priority={{"odd": {priority}}}, max_rounds={MAX_ROUNDS})["even"]'
        else:
            block.lines += [f"{indent}def {body}(w):", f"{indent}    return w.{onward}.concat(w).distinct(){seen}"]
            text = f"{start.name}.iterate({body}, priority={priority}, max_rounds={MAX_ROUNDS})"
        return self.assign(block, text, start.columns, True)

    def body(self, block: Block, depth: int, given: Named, start: Named) -> str:
        """Writes the body's statements; returns the expression it returns."""
        columns, names = given.columns, [*given.columns]
        shape = self.rng.choice(["grow", "grow", "shrink", "shrink", "least", "bag", "seeded", "free"])
        if shape == "least" and list(columns.values()) == ["int", "int"]:
            steps = self.rng.choice([item for item in block.env if len(item.having("int")) > 1])
            x, y = self.rng.sample(steps.having("int"), 2)
            text = f"{given.name}.join({steps.name}, on={{{q(names[0])}: {q(x)}}})"
            y = f"{y}_right" if y in columns else y
            allow = "" if steps.positive else ", allow_negative=True"
            passed = (
                f"{text}.select({kw({names[0]: f'col({q(y)})', names[1]: f'col({q(names[1])})'})}).concat({start.name})"
            )
            least = kw({names[1]: f"dd.min({q(names[1])})"})
            return f"{passed}.group_by({q(names[0])}).agg({least}{allow})"
        if shape == "bag":
            fewer = {name: f"col({q(name)})" for name in names} | {names[0]: f"col({q(names[0])}) - 1"}
            return f"{given.name}.where(col({q(names[0])}) > 0).select({kw(fewer)}).concat({start.name})"
        derived = self.chain(block, depth - 1, self.rng.choice([[given], [given], block.env]))
        fitted = f"{derived.name}.select({self.fit(derived, columns)})"
        once = f".distinct({_allow(derived)})"
        if shape == "shrink":
            key = self.rng.choice(names)
            keep = self.fit(derived, {key: columns[key]})
            return f"{given.name}.join({derived.name}.select({keep}){once}, on={q(key)})"
        if shape == "seeded":
            return f"{fitted}.concat({start.name}){once}"
        if shape == "free":
            return f"{fitted}{once}"
        return f"{given.name}.concat({fitted}){once}"

    # Expressions

    def fresh(self, kinds: list[str], of: Named) -> dict[str, str]:
        """Names for columns of these kinds."""
        columns: dict[str, str] = {}
        for kind in kinds:
            name = next((name for name in self.names(kind) if name not in columns), f"{kind}{len(columns)}")
            columns[name] = kind
        return columns

    def fit(self, of: Named, columns: dict[str, str]) -> str:
        """The arguments of a ``select`` that makes ``columns`` of what ``of`` has."""
        return kw({name: self.expression(of, kind) for name, kind in columns.items()})

    def nested(self, of: Named) -> str:
        """A kind of lists or structs, if possible one that is there."""
        return next((kind for kind in of.columns.values() if kind in NESTED), self.rng.choice(NESTED))

    def names(self, kind: str) -> list[str]:
        """What columns of this kind are called."""
        return [ODD[letter] if self.odd else letter for letter in NAMES[kind]]

    def expression(self, of: Named, kind: str) -> str:
        same = of.having(kind)
        if kind == "int":
            return self.integer(of)
        if kind == "num":
            numbers = of.having("num", "int")
            return f"col({q(self.rng.choice(numbers))}) - 1" if numbers else "5"
        if same:
            return f"col({q(self.rng.choice(same))})"
        if kind == "str" and of.having("list"):
            return f"col({q(of.having('list')[0])}).list.get(1, null_on_oob=True)"
        if kind == "float" and of.having("struct"):
            return f'col({q(of.having("struct")[0])}).struct.field("f")'
        return OTHERWISE[kind]

    def integer(self, of: Named) -> str:
        """An integer of the small domain, or null."""
        ints, numbers = of.having("int"), of.having("int", "num")
        if of.having("list") and self.rng.chance(30):
            return f"col({q(of.having('list')[0])}).list.len()"
        if of.having("struct") and self.rng.chance(30):
            return f'col({q(of.having("struct")[0])}).struct.field("i")'
        if not numbers:
            words = of.having("str")
            return f"pl.when(col({q(words[0])}) == 'y').then(2).otherwise(1)" if words else "3"
        b = self.rng.choice(numbers)
        if not ints:
            return f"col({q(b)}) % {MODULUS}"
        a = self.rng.choice(ints)
        if self.rng.chance(50):
            return f"col({q(a)})"
        return self.rng.choice(
            [
                f"(col({q(a)}) + col({q(b)})) % {MODULUS}",
                q(f"({sql(a)} * 3 + {sql(b)}) % {MODULUS}"),
                f"(col({q(a)}) + 1) % {MODULUS}",
                q(f"CASE WHEN {sql(a)} = 1 THEN 2 ELSE {sql(a)} END"),
                f"pl.when(col({q(b)}) > 1).then(col({q(a)})).otherwise(0)",
                f"col({q(a)}).fill_null(2)",
                "1",
            ]
        )

    def predicate(self, of: Named) -> str:
        choices = []
        for a in of.having("int", "num"):
            choices += [
                f"col({q(a)}) > 1",
                q(f"{sql(a)} < 3"),
                f"col({q(a)}).is_null()",
                q(f"{sql(a)} IN (0, 2, 5)"),
                f"col({q(a)}) != 1",
            ]
            choices += [f"col({q(a)}) != col({q(b)})" for b in of.having("int", "num") if b != a]
        for h in of.having("huge"):
            choices += [f"col({q(h)}) > 0", q(f"{sql(h)} < 9223372036854775807"), f"col({q(h)}) != 2**62"]
            choices += [f"col({q(h)}) >= col({q(b)})" for b in of.having("huge", "int") if b != h]
        for w in of.having("str"):
            choices += [f'col({q(w)}) == "y"', q(f"{sql(w)} <> 'x'")]
        choices += [f"col({q(r)}).list.len() > 0" for r in of.having("list")]
        choices += [f"col({q(z)}).is_null()" for z in of.having("list", "struct")]
        choices += [f'col({q(z)}).struct.field("f") < 1' for z in of.having("struct")]
        for f in of.having("float"):
            choices += [f"col({q(f)}) > 0", f"col({q(f)}).is_nan()"]
        for o in of.having("bool"):
            choices += [q(sql(o)), f"~col({q(o)})"]
        for w in of.having("wide"):
            choices += [
                f"col({q(w)}) > 0",
                q(f"{sql(w)} = 0.05"),
                f"col({q(w)}) - 1 != Decimal('18446744073709551615')",
            ]
            choices += [f"col({q(w)}) >= col({q(m)})" for m in of.having("money", "sum of money", "wide") if m != w]
        for m in of.having(*DECIMALS):
            choices += [f"col({q(m)}) > 0", f"{_share(m)} * 1.5 > 0.0712", f"{_share(m)} + 0.125 > 0.15"]
        return self.rng.choice(choices) if choices else ""


def _used(lines: list[str]) -> list[str]:
    """Without variables and functions that nothing uses: the engine leaves them out, errors of theirs included.

    What is inspected is used.
    """
    for number, line in enumerate(lines):
        named = re.match(r"( *)(?:def )?(\w+)(?: = |\()", line)
        rest = [other for other in lines if other is not line]
        if named is None or ".inspect(" in line or any(re.search(rf"\b{named[2]}\b", other) for other in rest):
            continue
        inside = (n for n, other in enumerate(lines[number + 1 :], number + 1) if not other.startswith(named[1] + " "))
        return _used([*lines[:number], *lines[next(inside) :]])
    return lines


@functools.cache
def _pool() -> list[str]:
    """The operators to choose from, with the more interesting ones more than once."""
    return [*(name for name in registry.public() if name in GENERATORS), "join", "join", "group_by.agg"]


def _count(of: Named) -> dict[str, str]:
    return {"": "num"}


def _sum(of: Named) -> dict[str, str]:
    pool: dict[str, str] = {}
    for name in of.having("int", "num", "float"):
        kind = "float" if of.columns[name] == "float" else "num"
        pool |= {q(name): kind, f"col({q(name)}) * 3": kind}
    for name in of.having("huge"):
        pool |= {q(name): "huge", f"col({q(name)}) // 2**40": "huge"}
    pool |= {q(name): "sum of money" for name in of.having("money", "sum of money")}
    pool |= {f"col({q(name)}){more}": "wide" for name in of.having("wide") for more in ("", " - 1", " * -1")}
    return pool | {q(name): "tax" for name in of.having("tax")} | _products(of)


def _sorted_value(of: Named) -> dict[str, str]:
    """Without UUIDs and intervals, of which there is no mode and no quantile."""
    return {text: kind for text, kind in _value(of).items() if kind not in ("uuid", "span")}


def _products(of: Named) -> dict[str, str]:
    """Products of decimals, with the scales of both factors."""
    names = of.having("money", "sum of money")
    return {f"col({q(name)}) * 0.95": "tax" for name in names} | {_share(name): "tax" for name in names}


def _share(name: str) -> str:
    """A product of two decimals, whatever the column holds; of two with 2 digits after the point it has 4."""
    return f"col({q(name)}).clip(0, 1) * (1 - col({q(name)}).clip(0, 1))"


def _mean(of: Named) -> dict[str, str]:
    names = of.having("int", "num", "huge", "float", "wide", *DECIMALS)
    return {q(name): "float" for name in names} | {f"col({q(name)}) * 3": "float" for name in of.having("int", "float")}


def _value(of: Named) -> dict[str, str]:
    return {q(name): kind for name, kind in of.columns.items() if kind not in WITHOUT_ORDER} | _products(of)


def _number(of: Named) -> dict[str, str]:
    return {q(name): "num" for name in of.columns} | {f"col({q(name)}) > 1": "num" for name in of.having("int")}


def _truth(of: Named) -> dict[str, str]:
    pool = {q(name): "bool" for name in of.having("bool")}
    pool |= {f"col({q(name)}).is_null()": "bool" for name in of.columns}
    return pool | {f"col({q(name)}) > 1": "bool" for name in of.having("int", "num", "float")}


def _numbers(of: Named) -> list[str]:
    return [q(name) for name in of.having("int", "num", "huge", "float", *DECIMALS)]


def _spread(of: Named) -> dict[str, str]:
    return {f"{name}{option}": "float" for name in _numbers(of) for option in ("", ", population=True")}


def _pairs(*options: str) -> Callable[[Named], dict[str, str]]:
    def pool(of: Named) -> dict[str, str]:
        names = _numbers(of)
        both = [*zip(names, [*names[1:], *names[:1]], strict=True)]
        return {f"{one}, {other}{option}": "float" for one, other in both for option in options}

    return pool


def _quantile(of: Named) -> dict[str, str]:
    between = {f"{name}, 0.3, between=True": "float" for name in _numbers(of)}
    return {f"{text}, {part}": kind for text, kind in _sorted_value(of).items() for part in (0, 0.3, 1)} | between


def _end(of: Named) -> dict[str, str]:
    """By what :func:`_sorted_value` has, too."""
    by = q(next(iter(of.columns))) if next(iter(of.columns.values())) not in (*WITHOUT_ORDER, "uuid", "span") else ""
    return {f"{text}, {by}": kind for text, kind in _sorted_value(of).items() if by}


def _bits(of: Named) -> dict[str, str]:
    return {q(name): "num" for name in of.having("int", "num")}


def _texts(of: Named) -> dict[str, str]:
    """Cut, so that a loop does not make them ever longer."""
    texts = [f"col({q(name)}).str.slice(0, 3)" for name in of.having("str")]
    texts += [f"col({q(name)}).cast(pl.String)" for name in of.having("int")]
    options = (('""', ""), ('", "', ", distinct=True"), ('"-"', _order(of)))
    return {f"{text}, {separator}{option}": "str" for text in texts for separator, option in options}


def _lists(of: Named) -> dict[str, str]:
    texts = [*map(q, of.having("str")), *(f"col({q(name)}).cast(pl.String)" for name in of.having("int"))]
    return {f"{text}{option}": "list" for text in texts for option in ("", ", distinct=True", _order(of))}


def _order(of: Named) -> str:
    names = [q(name) for name, kind in of.columns.items() if kind not in WITHOUT_ORDER][:2]
    downs = [True, False][: len(names)]
    return f", order_by=[{', '.join(names)}], descending={downs}, nulls_first={downs[::-1]}" if names else ""


AGGREGATES: dict[str, Callable[[Named], dict[str, str]]] = {  # for each, the arguments there may be, and what they give
    "count": _count,
    "count_distinct": _number,
    "sum": _sum,
    "mean": _mean,
    "min": _value,
    "max": _value,
    "any": _truth,
    "all": _truth,
    "variance": _spread,
    "stddev": _spread,
    "covariance": _pairs("", ", population=True"),
    "corr": _pairs(""),
    "regression": _pairs(*(f', "{of}"' for of in ("slope", "intercept", "r2", "sxx", "syy", "sxy"))),
    "median": _mean,
    "quantile": _quantile,
    "mode": _sorted_value,
    "min_by": _end,
    "max_by": _end,
    "bit_and": _bits,
    "bit_or": _bits,
    "bit_xor": _bits,
    "string_agg": _texts,
    "array_agg": _lists,
}
ADDING = ["count", "sum", "mean"]  # with negative counts these are not mixed with the others


def q(name: str) -> str:
    """A text as a program writes it."""
    return json.dumps(name, ensure_ascii=False)


def sql(name: str) -> str:
    """A column as SQL writes it."""
    return name if name.isidentifier() and name.isascii() else '"' + name.replace('"', '""') + '"'


def kw(named: dict[str, str]) -> str:
    """Keyword arguments, also of names that Python does not take for keywords."""
    return ", ".join(
        f"{name}={text}" if name.isidentifier() and name.isascii() else f"**{{{q(name)}: {text}}}"
        for name, text in named.items()
    )


def _joins(left: str, right: str) -> bool:
    return left == right or {left, right} == {"int", "num"}


def _on(pairs: dict[str, str]) -> str:
    if [*pairs] == [*pairs.values()] and len(pairs) == 1:
        return q(next(iter(pairs)))
    return f"{{{', '.join(f'{q(x)}: {q(y)}' for x, y in pairs.items())}}}"


def _quoted(names: list[str]) -> str:
    return ", ".join(map(q, names))


def _allow(of: Named) -> str:
    return "" if of.positive else "allow_negative=True"


def _type(kind: str) -> str:
    return type_name(TYPES[kind])


def _literal(frame: pl.DataFrame) -> str:
    rows = ",\n    ".join(str(row) for row in frame.rows())
    schema = ", ".join(f"{q(name)}: {_polars_text(dtype)}" for name, dtype in frame.schema.items())
    return f'pl.DataFrame([\n    {rows},\n], schema={{{schema}}}, orient="row")'


def _polars_text(dtype: Any) -> str:
    if isinstance(dtype, pl.List):
        return f"pl.List({_polars_text(dtype.inner)})"
    if isinstance(dtype, pl.Extension):
        return f'pl.Extension("{dtype.ext_name()}", pl.String())'
    if isinstance(dtype, pl.Map):
        return f"pl.Map({_polars_text(dtype.key)}, {_polars_text(dtype.value)})"
    if isinstance(dtype, pl.Struct):
        return f"pl.Struct({{{', '.join(f'{q(item.name)}: {_polars_text(item.dtype)}' for item in dtype.fields)}}})"
    return f"pl.{dtype}"
