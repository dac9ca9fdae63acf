"""Random programs over random histories, each from its seed alone, written as source one can paste.

Values come from small domains (integers mod 4, three words, nulls among them), so that rows meet, loops converge and
differences cancel. Loops are nested up to three deep; what may stand in a body is not restricted, but most bodies only
grow or only shrink what they are given, which makes them end. The few that swing must be reported by engine and
reference alike.
"""

from __future__ import annotations

import datetime
import linecache
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import polars as pl
from folding import grid, type_name
from notation import DIMS

from ddcore import reference

MODULUS = 4
MAX_ROUNDS = 20
ORIGINS = [0, 0, 0, 0, 0, 70_000, 2**31, 2**50]
HEADER = "import polars as pl\nfrom polars import col\n\nimport ddcore as dd\n"
INPUTS = {
    "edges": {"a": "int", "b": "int"},
    "words": {"a": "int", "w": "str"},
    "nodes": {"b": "int"},
    "marks": {"w": "str", "f": "float"},
    "days": {"a": "int", "d": "date", "b": "int"},
    "bills": {"m": "money", "n": "num", "t": "time"},
    "flags": {"o": "bool", "a": "int"},
}
VALUES: dict[str, list[Any]] = {
    "int": [0, 0, 1, 1, 2, 2, 3, 3, None],
    "str": ["x", "y", "z", None],
    "float": [0.5, -0.5, 0.1, 1e16, float("nan"), -0.0, 0.0, None],
    "date": [datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), None],
    "time": [datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC), None],
    "money": [Decimal("0.05"), Decimal("-3.00"), Decimal("12345678.90"), None],
    "bool": [True, False, None],
    "num": [2**33, -(2**35), 0, 7, None],
}
TYPES = {
    "int": pl.Int64(),
    "num": pl.Int64(),
    "str": pl.String(),
    "float": pl.Float64(),
    "date": pl.Date(),
    "time": pl.Datetime("us", "UTC"),
    "money": pl.Decimal(10, 2),
    "sum of money": pl.Decimal(18, 2),
    "bool": pl.Boolean(),
}
OTHERWISE = {
    "str": "pl.lit('y')",
    "float": "0.25",
    "date": "pl.date(2024, 2, 29)",
    "time": 'pl.datetime(2024, 2, 29, time_unit="us", time_zone="UTC")',
    "bool": "pl.lit(True)",
}
NAMES = {
    "int": "abc",
    "num": "nk",
    "str": "wv",
    "float": "fg",
    "date": "de",
    "time": "tu",
    "money": "mp",
    "sum of money": "xy",
    "bool": "oq",
}


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


def case(seed: int) -> Case:
    """The case of this seed."""
    rng = random.Random(seed)
    names = ["edges", *rng.sample([name for name in INPUTS if name != "edges"], rng.randint(0, 2))]
    source = Writer(rng).program(names)
    filename = f"<program {seed}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)  # for inspect.getsource
    scope: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), scope)
    return Case(seed, source, scope["program"], history(rng, names))


# Histories


def history(rng: random.Random, names: list[str]) -> dict[str, pl.DataFrame]:
    """Insertions and retractions at one, two or three coordinates; no count is negative at any time of the grid."""
    dims = DIMS[rng.choice([1, 1, 2, 2, 3, 3])]
    extent = {1: rng.randint(2, 6), 2: rng.randint(2, 4), 3: rng.randint(2, 3)}[len(dims)]
    axes = [sorted(rng.choice(ORIGINS) + step for step in rng.sample(range(9), extent)) for _ in dims]
    frames = {}
    for name in names:
        columns = INPUTS[name]
        updates: list[tuple[Any, ...]] = []
        rows = [tuple(rng.choice(VALUES[kind]) for kind in columns.values()) for _ in range(rng.randint(2, 9))]
        for _ in range(rng.choice([4, 8, 16, 32])):
            time = tuple(rng.choice(axis) for axis in axes)
            update = (*rng.choice(rows), *time, rng.choice([1, 1, 1, 2, -1, -1, -1, -2]))
            if never_negative(framed(columns, dims, [*updates, update])):
                updates.append(update)
        if not updates:
            updates.append((*rows[0], *(axis[0] for axis in axes), 1))
        frames[name] = framed(columns, dims, updates)
    return frames


def framed(columns: dict[str, str], dims: tuple[str, ...], updates: list[tuple[Any, ...]]) -> pl.DataFrame:
    schema = {name: TYPES[kind] for name, kind in columns.items()} | {name: pl.Int64() for name in (*dims, "diff")}
    return pl.DataFrame(updates, schema=schema, orient="row")


def never_negative(frame: pl.DataFrame) -> bool:
    times = grid({"it": frame})
    dims = next(dims for dims in reversed(DIMS.values()) if set(dims) <= set(frame.columns))
    updates = reference.log_of(frame, dims)
    for time in times:
        total: Counter[Any] = Counter()
        for (row, when), diff in updates.items():
            total[row] += diff if reference.precedes(when, time) else 0
        if min(total.values(), default=0) < 0:
            return False
    return True


# Programs


@dataclass
class Block:
    """Statements under way: how far they are set in, what they may use, and their lines."""

    indent: str
    env: list[Named]
    lines: list[str] = field(default_factory=list)


@dataclass
class Writer:
    """Writes one program, statement by statement. ``functions`` are those it calls, ``count`` the names it gave."""

    rng: random.Random
    functions: list[str] = field(default_factory=list)
    count: int = 0

    def program(self, names: list[str]) -> str:
        block = Block("    ", [Named(name, dict(INPUTS[name])) for name in names])
        for _ in range(self.rng.randint(0, 2)):
            self.chain(block, 0, block.env)
        self.chain(block, self.rng.choice([0, 1, 1, 2, 2, 3, 3]), block.env)
        *made, last = block.env[len(names) :]
        outputs = [*self.rng.sample(made, min(3, len(made))), last]
        result = ", ".join(f'"out{number}": {each.name}' for number, each in enumerate(outputs, 1))
        body = "\n".join([f"def program({', '.join(names)}):", *block.lines, f"    return {{{result}}}"])
        return "\n\n".join([HEADER, *self.functions, body]) + "\n"

    def chain(self, block: Block, depth: int, begin: list[Named]) -> Named:
        """One to four operators after one another; one of them is a loop where ``depth`` is not 0."""
        current = self.rng.choice(begin)
        steps = self.rng.randint(1, 4)
        loop_at = self.rng.randrange(steps) if depth else -1
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
        ops = [self.select, self.where, self.join, self.join, self.concat, self.less, self.rest]
        ops += [self.distinct, self.agg, self.agg, self.reduce, self.lists, self.flat_map]
        while True:
            made = self.rng.choice(ops)(of, block.env)
            if made:
                return self.assign(block, *made)

    # Operators: each gives its source, its columns, and whether no count is negative; or None where it has no place

    def select(self, of: Named, env: list[Named]) -> Any:
        columns = self.fresh(self.rng.choice([["int"], ["int", "int"], ["int", "str"], [*of.columns.values()][:3]]), of)
        return f"{of.name}.select({self.fit(of, columns)})", columns, of.positive

    def where(self, of: Named, env: list[Named]) -> Any:
        predicate = self.predicate(of)
        return predicate and (f"{of.name}.where({predicate})", of.columns, of.positive)

    def join(self, of: Named, env: list[Named]) -> Any:
        other = self.rng.choice(env)
        pairs = [(x, y) for x, k in of.columns.items() for y, kind in other.columns.items() if _joins(k, kind)]
        if not pairs:
            return None
        on = dict([self.rng.choice(pairs)])
        if self.rng.random() < 0.2:
            on |= {x: y for x, y in [self.rng.choice(pairs)] if x not in on and y not in on.values()}
        joined = dict(of.columns)
        for name, kind in other.columns.items():
            if name not in on.values():
                joined[f"{name}_right" if name in of.columns else name] = kind
        text = f"{of.name}.join({other.name}, on={_on(on)})"
        both = Named("", joined)
        wanted = self.fresh(self.rng.sample([*joined.values()], min(len(joined), self.rng.randint(1, 3))), both)
        return f"{text}.select({self.fit(both, wanted)})", wanted, of.positive and other.positive

    def concat(self, of: Named, env: list[Named]) -> Any:
        other = self.rng.choice(env)
        columns = self.fresh(self.rng.choice([["int"], ["int", "int"], ["int", "str"]]), of)
        texts = [f"{each.name}.select({self.fit(each, columns)})" for each in (of, other)]
        return f"{texts[0]}.concat({texts[1]})", columns, of.positive and other.positive

    def less(self, of: Named, env: list[Named]) -> Any:
        """A difference that may be negative."""
        other = self.rng.choice(env)
        columns = self.fresh(self.rng.choice([["int"], ["int", "int"]]), of)
        texts = [f"{each.name}.select({self.fit(each, columns)})" for each in (of, other)]
        return f"{texts[0]}.concat({texts[1]}.negate())", columns, False

    def rest(self, of: Named, env: list[Named]) -> Any:
        """A difference that cannot be negative: without a part of itself."""
        predicate = self.predicate(of)
        return predicate and (f"{of.name}.concat({of.name}.where({predicate}).negate())", of.columns, of.positive)

    def distinct(self, of: Named, env: list[Named]) -> Any:
        return f"{of.name}.distinct({_allow(of)})", of.columns, True

    def agg(self, of: Named, env: list[Named]) -> Any:
        keys = self.rng.sample([*of.columns], self.rng.randint(0, min(2, len(of.columns))))
        adding = {"n=dd.count()": "num"}
        for name in of.having("int", "num", "float"):
            kind = "float" if of.columns[name] == "float" else "num"
            adding |= {f's=dd.sum("{name}")': kind, f's=dd.sum(col("{name}") * 3)': kind}
        adding |= {f's=dd.sum("{name}")': "sum of money" for name in of.having("money", "sum of money")}
        picking: dict[str, str] = {}
        for name, kind in of.columns.items():
            picking |= {f'lo=dd.min("{name}")': kind, f'hi=dd.max("{name}")': kind}
        pool = adding | picking if of.positive else self.rng.choice([adding, picking])
        chosen = self.rng.sample([*pool], min(len(pool), self.rng.randint(1, 3)))
        made = {text.split("=")[0]: (text, pool[text]) for text in chosen}
        columns = {key: of.columns[key] for key in keys} | {f"{name}_": kind for name, (_, kind) in made.items()}
        renamed = ", ".join(f"{name}_={text.split('=', 1)[1]}" for name, (text, _) in made.items())
        columns_now = self.fresh([*columns.values()], of)
        names = ", ".join(f'{new}="{old}"' for new, old in zip(columns_now, columns, strict=True))
        allow = "" if of.positive else ", allow_negative=True"
        return f"{of.name}.group_by({_quoted(keys)}).agg({renamed}{allow}).select({names})", columns_now, True

    def reduce(self, of: Named, env: list[Named]) -> Any:
        value = self.rng.choice([*of.columns])
        keys = [name for name in of.columns if name != value and self.rng.random() < 0.5]
        kind = of.columns[value]
        first = f'groups.sort("group", "{value}").group_by("group", maintain_order=True).first()'
        bodies = [  # the first and the fourth give counts, which may be negative where those they see are
            (f'groups.group_by("group").agg(r_=col("{value}").min(), count=col("count").sum())', kind),
            (f'{first}.select("group", r_="{value}")', kind),
            (f'groups.select("group", r_="{value}").unique()', kind),
            (f'groups.select("group", "count", r_="{value}")', kind),
            ('groups.group_by("group").agg(r_=pl.len().cast(pl.Int64))', "num"),
            ('groups.group_by("group").agg(r_=col("count").sum()).filter(col("r_") > 1)', "num"),
        ]
        counting = (bodies[0], bodies[3])
        if kind == "float":
            bodies = bodies[1:]  # Polars' own min skips NaN, which is not at issue here
        body, result = self.rng.choice(bodies)
        self.functions.append(f"def per_group_{len(self.functions)}(groups):\n    return {body}")
        columns = self.fresh([*(of.columns[key] for key in keys), result], of)
        names = ", ".join(f'{new}="{old}"' for new, old in zip(columns, [*keys, "r_"], strict=True))
        schema = f'{{"r_": "{_type(result)}"}}'
        allow = "" if of.positive else ", allow_negative=True"
        text = f"{of.name}.group_by({_quoted(keys)}).reduce(per_group_{len(self.functions) - 1}, {schema}{allow})"
        return f"{text}.select({names})", columns, of.positive or (body, result) not in counting

    def lists(self, of: Named, env: list[Named]) -> Any:
        ints = of.having("int")
        if not ints:
            return None
        a, b = self.rng.choice(ints), self.rng.choice(ints)
        expr = self.rng.choice([f'pl.concat_list("{a}", "{b}")', f'pl.int_ranges(0, "{a}")'])
        columns = self.fresh([*[*of.columns.values()][:1], "int"], of)
        names = ", ".join(f'{new}="{old}"' for new, old in zip(columns, [next(iter(of.columns)), "l_"], strict=True))
        return f"{of.name}.flat_map(l_={expr}).select({names})", columns, of.positive

    def flat_map(self, of: Named, env: list[Named]) -> Any:
        ints = of.having("int")
        if not ints:
            return None
        a = self.rng.choice(ints)
        again = self.rng.choice([f'col("{a}") > 1', f'col("{a}") != 2', "pl.lit(True)"])
        body = (
            f'    once = batch.select("row", r_="{a}")\n'
            f'    again = batch.filter({again}).select("row", r_=(col("{a}") * 3 + 1) % {MODULUS})\n'
            f"    return pl.concat([once, again])"
        )
        self.functions.append(f"def per_row_{len(self.functions)}(batch):\n{body}")
        columns = self.fresh(["int"], of)
        text = f'{of.name}.flat_map(per_row_{len(self.functions) - 1}, schema={{"r_": "int64"}})'
        return f'{text}.select({next(iter(columns))}="r_")', columns, of.positive

    # Loops

    def loop(self, block: Block, depth: int, of: Named) -> Named:
        """A loop from ``of``. What its body returns is positive, and of the same columns as it is given."""
        kinds = self.rng.choice([["int"], ["int", "int"], ["int", "int"], ["int", "str"]])
        columns = self.fresh(kinds, of)
        source = f"{of.name}.select({self.fit(of, columns)})"
        source += "" if of.positive else ".distinct(allow_negative=True)"
        start = self.assign(block, source, columns, True)
        self.count += 1
        body, given = f"body{self.count}", Named(f"w{self.count}", columns)
        inner = Block(block.indent + "    ", [*block.env, start, given])
        result = self.body(inner, depth, given, start)
        block.lines += [f"{block.indent}def {body}({given.name}):", *inner.lines, f"{inner.indent}return {result}"]
        return self.assign(block, f"{start.name}.iterate({body}, max_rounds={MAX_ROUNDS})", columns, True)

    def body(self, block: Block, depth: int, given: Named, start: Named) -> str:
        """Writes the body's statements; returns the expression it returns."""
        columns, names = given.columns, [*given.columns]
        shape = self.rng.choice(["grow", "grow", "shrink", "shrink", "least", "bag", "seeded", "free"])
        if shape == "least" and list(columns.values()) == ["int", "int"]:
            steps = self.rng.choice([each for each in block.env if len(each.having("int")) > 1])
            x, y = self.rng.sample(steps.having("int"), 2)
            text = f'{given.name}.join({steps.name}, on={{"{names[0]}": "{x}"}})'
            y = f"{y}_right" if y in columns else y
            allow = "" if steps.positive else ", allow_negative=True"
            passed = f'{text}.select({names[0]}="{y}", {names[1]}="{names[1]}").concat({start.name})'
            return f'{passed}.group_by("{names[0]}").agg({names[1]}=dd.min("{names[1]}"){allow})'
        if shape == "bag":
            fewer = ", ".join([f'{names[0]}=col("{names[0]}") - 1', *(f'{name}="{name}"' for name in names[1:])])
            return f'{given.name}.where("{names[0]} > 0").select({fewer}).concat({start.name})'
        derived = self.chain(block, depth - 1, self.rng.choice([[given], [given], block.env]))
        fitted = f"{derived.name}.select({self.fit(derived, columns)})"
        once = f".distinct({_allow(derived)})"
        if shape == "shrink":
            key = self.rng.choice(names)
            keep = self.fit(derived, {key: columns[key]})
            return f'{given.name}.join({derived.name}.select({keep}){once}, on="{key}")'
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
            name = next((name for name in NAMES[kind] if name not in columns), f"{kind}{len(columns)}")
            columns[name] = kind
        return columns

    def fit(self, of: Named, columns: dict[str, str]) -> str:
        """The arguments of a ``select`` that makes ``columns`` of what ``of`` has."""
        return ", ".join(f"{name}={self.expression(of, kind)}" for name, kind in columns.items())

    def expression(self, of: Named, kind: str) -> str:
        same = of.having(kind)
        if kind == "int":
            return self.integer(of)
        if kind == "num":
            numbers = of.having("num", "int")
            return f'col("{self.rng.choice(numbers)}") - 1' if numbers else "5"
        if same:
            return f'"{self.rng.choice(same)}"'
        return OTHERWISE[kind]

    def integer(self, of: Named) -> str:
        """An integer of the small domain, or null."""
        ints, numbers = of.having("int"), of.having("int", "num")
        if not numbers:
            words = of.having("str")
            return f"pl.when(col('{words[0]}') == 'y').then(2).otherwise(1)" if words else "3"
        b = self.rng.choice(numbers)
        if not ints:
            return f'col("{b}") % {MODULUS}'
        a = self.rng.choice(ints)
        if self.rng.random() < 0.5:
            return f'"{a}"'
        return self.rng.choice(
            [
                f'(col("{a}") + col("{b}")) % {MODULUS}',
                f'"({a} * 3 + {b}) % {MODULUS}"',
                f'(col("{a}") + 1) % {MODULUS}',
                f'"CASE WHEN {a} = 1 THEN 2 ELSE {a} END"',
                f'pl.when(col("{b}") > 1).then(col("{a}")).otherwise(0)',
                f'col("{a}").fill_null(2)',
                "1",
            ]
        )

    def predicate(self, of: Named) -> str:
        choices = []
        for a in of.having("int", "num"):
            choices += [
                f'col("{a}") > 1',
                f'"{a} < 3"',
                f'col("{a}").is_null()',
                f'"{a} IN (0, 2, 5)"',
                f'col("{a}") != 1',
            ]
            choices += [f'col("{a}") != col("{b}")' for b in of.having("int", "num") if b != a]
        for w in of.having("str"):
            choices += [f'col("{w}") == "y"', f"\"{w} <> 'x'\""]
        for f in of.having("float"):
            choices += [f'col("{f}") > 0', f'col("{f}").is_nan()']
        for o in of.having("bool"):
            choices += [f'"{o}"', f'~col("{o}")']
        for m in of.having("money", "sum of money"):
            choices += [f'col("{m}") > 0']
        return self.rng.choice(choices) if choices else ""


def _joins(left: str, right: str) -> bool:
    return left == right or {left, right} == {"int", "num"}


def _on(pairs: dict[str, str]) -> str:
    return (
        f'"{next(iter(pairs))}"' if len(pairs) == 1 and [*pairs] == [*pairs.values()] else repr(pairs).replace("'", '"')
    )


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _allow(of: Named) -> str:
    return "" if of.positive else "allow_negative=True"


def _type(kind: str) -> str:
    return type_name(TYPES[kind])


def _literal(frame: pl.DataFrame) -> str:
    rows = ",\n    ".join(str(row) for row in frame.rows())
    schema = ", ".join(f'"{name}": pl.{dtype}' for name, dtype in frame.schema.items())
    return f'pl.DataFrame([\n    {rows},\n], schema={{{schema}}}, orient="row")'
