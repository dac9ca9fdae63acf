"""What ``explain`` leaves out of the inputs makes no difference: on what is needed of them, the rows of a key are those
that the program gives on everything.

Checked for keys of random programs, some of which always run; ``DDCORE_SEEDS`` chooses those of the long
tests. Then operator by operator.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from programs import case
from seeds import seeds
from test_explaining import EDGES, Subject, at_the_end, frame, named, reach, row_of

import ddcore as dd
from ddcore import col
from ddcore.base.errors import FoldError, UsageError
from ddcore.base.schema import Schema, parse_schema
from ddcore.base.tuning import Tuning
from ddcore.engine.worker import Worker
from ddcore.explaining import Question, held
from ddcore.explaining.fetching import Fetch
from ddcore.explaining.needs import Needs
from ddcore.explaining.restricting import EVERYTHING, NOTHING, Restriction, Values
from ddcore.explaining.watching import TRIAL, Layout, Watch, run
from ddcore.io.delta.writer import Writer
from ddcore.io.logs.changelog import ChangeLog
from ddcore.io.project.times import time_of
from ddcore.planning.planner import build
from ddcore.program.graph import Graph
from ddcore.traces.batch import Batch
from ddcore.traces.frames import batch_of


class Planned:
    """A program planned once: its graph, and the nodes of its outputs."""

    def __init__(self, subject: Subject) -> None:
        returned: dict[str, dd.Collection] = {}

        @functools.wraps(subject.program)
        def kept(**inputs: dd.Collection) -> Mapping[str, dd.Collection]:
            returned.update(subject.program(**inputs))
            return returned

        self.plan, self.subject = build(kept, subject.schemas, (TRIAL,)), subject
        self.graph: Graph = next(iter(returned.values()))._graph
        self.outputs = {name: item._index for name, item in returned.items()}
        self.outputs |= {inspection.name: self.graph.inspected(inspection) for inspection in self.graph.inspections}

    def folded(self, needed: Sequence[Mapping[str, Restriction]]) -> Mapping[str, Batch]:
        """The outputs: version 0 on all of the inputs, each later one on what is needed then."""
        batches = {}
        for name, schema in self.subject.schemas.items():
            batch = batch_of(self.subject.inputs[name], schema, (), name)
            restrictions = [EVERYTHING, *(item.get(name, NOTHING) for item in needed)]
            masks = np.array(
                [restriction.mask(batch.words, len(batch), schema) for restriction in restrictions], dtype=np.int64
            )
            changes = np.diff(masks, axis=0, prepend=0) * batch.diffs
            rows = np.tile(np.arange(len(batch)), len(masks))
            versions = np.repeat(np.arange(len(masks)), len(batch))
            all_ = batch.take(rows)
            some = changes.ravel() != 0
            batches[name] = Batch(all_.words, [versions], changes.ravel()).take(some)
        return run(Worker(self.plan), batches)


def counts(batch: Batch | None, until: int, rows: Restriction, schema: Schema) -> Counter[tuple[int, ...]]:
    """The rows of a key at a version, by their words."""
    total: Counter[tuple[int, ...]] = Counter()
    if batch is not None:
        own = batch.take(rows.mask(batch.words, len(batch), schema) & (batch.times[0] <= until))
        words = zip(*(word.tolist() for word in own.words), strict=True) if own.words else [()] * len(own)
        for row, diff in zip(words, own.diffs.tolist(), strict=True):
            total[row] += diff
    return Counter({row: count for row, count in total.items() if count})


def keys_of(subject: Subject, planned: Planned, rng: random.Random) -> list[tuple[str, Restriction]]:
    """Keys of rows of each output, a few of them of rows that are not there."""
    keys = []
    for name, batch in planned.folded([]).items():
        schema = subject.outputs[name]
        flat = [column for column, kind in schema.items() if not kind.is_nested]
        locations = [list(schema).index(column) for column in flat]
        for _ in range(8 if flat and len(batch) else 0):
            chosen = rng.sample(range(len(flat)), rng.randint(1, min(3, len(flat))))
            values = {flat[at]: int(batch.words[locations[at]][rng.randrange(len(batch))]) for at in chosen}
            keys.append((name, Restriction(frozenset({frozenset((c, Values([v])) for c, v in values.items())}))))
    return keys


def check_law(seed: int) -> tuple[int, int]:
    """How many keys of a random program were checked, and for how many of them inputs are restricted."""
    drawn = case(seed)
    subject = at_the_end(drawn)
    planned = Planned(subject)
    try:
        keys = keys_of(subject, planned, random.Random(seed))
        needs = [Needs(planned.graph, planned.outputs[name], key).inputs for name, key in keys]
        outputs = planned.folded(needs)
    except FoldError:
        return 0, 0  # of the whole program, or of what is left of it: explain folds everything then
    for version, (name, key) in enumerate(keys, 1):
        schema = subject.outputs[name]
        whole, part = (counts(outputs.get(name), at, key, schema) for at in (0, version))
        assert whole == part, f"seed {seed}, output {name}, key {key}: {whole} != {part} of\n{drawn}"
    return len(keys), sum(any(not item.is_everything for item in needed.values()) for needed in needs)


def test_restricted_inputs_give_the_same_rows_of_a_key() -> None:
    checked, restricted = map(sum, zip(*(check_law(seed) for seed in range(32)), strict=True))
    assert checked > 500
    assert restricted > 100


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(200, share=10))
def test_restricted_inputs_of_random_programs_give_the_same_rows_of_a_key(seed: int) -> None:
    check_law(seed)


# --- operator by operator ---------------------------------------------------------------------------------------------


def needs(program: Callable[..., Any], schemas: Mapping[str, str], **key: Any) -> dict[str, list[dict[str, list[Any]]]]:
    """What a key of ``out`` needs of each input: alternatives, each with the values of columns. Look-ups have none."""
    inputs = {name: parse_schema(dict.fromkeys(columns.split(), "int64")) for name, columns in schemas.items()}
    layout = Layout(program, "out", inputs)
    row = pl.DataFrame({name: [value] for name, value in key.items()}, schema=dict.fromkeys(key, pl.Int64()))
    fetch = Fetch(layout, Restriction.to_row(row, dict.fromkeys(key, layout.graph.nodes[0].schema["k"])))
    found = {}
    for name, rows in fetch.needs.inputs.items():
        alternatives = [
            {column: values.words.tolist() for column, values in alternative} for alternative in rows.alternatives
        ]
        found[name] = sorted((dict(sorted(alternative.items())) for alternative in alternatives), key=str)
    return found


ALL: list[dict[str, list[Any]]] = [{}]
T = {"rows": "k x y"}
TWO = {"rows": "k x y", "others": "k z"}

CASES: list[tuple[str, Any, dict[str, str], dict[str, Any], dict[str, Any]]] = [
    ("bare columns", lambda rows: rows.select(a="k", b=col("x") + 1), T, {"a": 1, "b": 2}, {"rows": [{"k": [1]}]}),
    ("a computed column alone", lambda rows: rows.select(b=col("x") + 1), T, {"b": 2}, {"rows": ALL}),
    ("rename", lambda rows: rows.rename({"x": "a"}), T, {"a": 3}, {"rows": [{"x": [3]}]}),
    ("where", lambda rows: rows.where(col("y") > 0), T, {"x": 3}, {"rows": [{"x": [3]}]}),
    ("all of several columns", lambda rows: rows.distinct(), T, {"x": 3, "k": 1}, {"rows": [{"k": [1], "x": [3]}]}),
    (
        "concat: either",
        lambda rows: rows.select("k").concat(rows.select(k="x").negate()),
        T,
        {"k": 1},
        {"rows": [{"k": [1]}, {"x": [1]}]},
    ),
    ("except", lambda rows: rows.select("k").except_(rows.select(k="x")), T, {"k": 1},
     {"rows": [{"k": [1]}, {"x": [1]}]}),
    ("intersect", lambda rows, others: rows.select("k").intersect(others.select("k")), TWO, {"k": 1},
     {"rows": [{"k": [1]}], "others": [{"k": [1]}]}),
    ("group keys", lambda rows: rows.group_by("k").agg(n=dd.sum("x")), T, {"k": 1, "n": 5}, {"rows": [{"k": [1]}]}),
    ("an aggregate alone", lambda rows: rows.group_by("k").agg(n=dd.sum("x")), T, {"n": 5}, {"rows": ALL}),
    ("one group of all", lambda rows: rows.group_by().agg(n=dd.sum("x")), T, {"n": 5}, {"rows": ALL}),
    ("top_k: only its keys", lambda rows: rows.group_by("k").top_k(1, by="x"), T, {"k": 1, "x": 2, "y": 0},
     {"rows": [{"k": [1]}]}),
    ("top_k without keys", lambda rows: rows.group_by().top_k(1, by="x"), T, {"k": 1}, {"rows": ALL}),
    ("reduce", lambda rows: rows.group_by("k", "y").reduce(lambda frame: frame, {"x": "int64"}), T, {"y": 1, "x": 2},
     {"rows": [{"y": [1]}]}),
    ("flat_map with a function", lambda rows: rows.flat_map(lambda frame: frame, schema={"k": "int64"}), T, {"k": 1},
     {"rows": ALL}),
    ("flat_map of a list", lambda rows: rows.flat_map(each=pl.concat_list("x", "y")), T, {"k": 1, "each": 2},
     {"rows": [{"k": [1]}]}),
    ("ids of rows", lambda rows: rows.select("k", "x").intern("id", max_rounds=1), T, {"id": 4}, {"rows": ALL}),
    ("a join by its key", lambda rows, others: rows.join(others, on="k"), TWO, {"k": 1},
     {"rows": [{"k": [1]}], "others": [{"k": [1]}]}),
    ("a join by columns of both sides", lambda rows, others: rows.join(others, on="k"), TWO, {"x": 2, "z": 3},
     {"rows": [{"x": [2]}], "others": [{"z": [3]}]}),
    ("a join that looks up", lambda rows, others: rows.join(others, on="k"), TWO, {"x": 2},
     {"rows": [{"x": [2]}], "others": [{"k": []}]}),
    ("a join by other names", lambda rows, others: rows.join(others, on={"x": "k"}), TWO, {"z": 2, "x": 1},
     {"rows": [{"x": [1]}], "others": [{"k": [1], "z": [2]}]}),
    ("join_between by columns of both sides", lambda rows, others: rows.join_between(others, "x", "k"), TWO,
     {"x": 2, "z": 3}, {"rows": [{"x": [2]}], "others": [{"z": [3]}]}),
    ("join_between by a column of the rows", lambda rows, others: rows.join_between(others, "x", "k"), TWO, {"y": 2},
     {"rows": [{"y": [2]}], "others": ALL}),
    ("join_between that looks up", lambda rows, others: rows.join_between(others, "x", "z", on="k"), TWO, {"y": 2},
     {"rows": [{"y": [2]}], "others": [{"k": []}]}),
    ("a join with itself", lambda rows: rows.join(rows, on={"x": "k"}), T, {"k": 1}, {"rows": [{"k": [1]}, {"k": []}]}),
    ("semi and anti", lambda rows, others: rows.join(others, on="k", how="anti"), TWO, {"k": 1, "y": 2},
     {"rows": [{"k": [1], "y": [2]}], "others": [{"k": [1]}]}),
    ("anti by a column of the left", lambda rows, others: rows.join(others, on="k", how="anti"), TWO, {"y": 2},
     {"rows": [{"y": [2]}], "others": [{"k": []}]}),
    ("a left join by its key", lambda rows, others: rows.join(others, on="k", how="left"), TWO, {"k": 1},
     {"rows": [{"k": [1]}], "others": [{"k": [1]}]}),
    ("a left join by a column of the right: not the rows without a partner",
     lambda rows, others: rows.join(others, on="k", how="left"), TWO, {"z": 1},
     {"rows": [{"k": []}], "others": [{"z": [1]}]}),
    ("a left join by a null of the right", lambda rows, others: rows.join(others, on="k", how="left"), TWO, {"z": None},
     {"rows": ALL, "others": ALL}),
    ("constants", lambda rows, others: rows.select("k", t=1).concat(others.select("k", t=2)), TWO, {"t": 2, "k": 3},
     {"others": [{"k": [3]}]}),
    ("delta_join", lambda rows, others: dd.delta_join((rows, ["a", "b", "c"]), (others, ["c", "d"])), TWO,
     {"a": 1, "c": 2}, {"rows": [{"k": [1], "y": [2]}], "others": [{"k": [2]}]}),
    ("delta_join that looks up", lambda rows, others: dd.delta_join((rows, ["a", "b", "c"]), (others, ["c", "d"])), TWO,
     {"a": 1}, {"rows": [{"k": [1]}], "others": [{"k": []}]}),
    ("delta_join that looks up from one to the next", lambda rows, others: dd.delta_join(
        (rows.select("k", "x"), ["a", "b"]), (others, ["b", "c"]), (rows.select("x", "y"), ["c", "d"])), TWO, {"a": 1},
     {"rows": [{"k": [1]}, {"x": []}], "others": [{"k": []}]}),
    ("a loop that carries the column", lambda rows: rows.iterate(
        lambda w: w.join(rows, on={"x": "k"}).select("k", x="x_right", y="y_right").concat(rows).distinct()), T,
     {"k": 1}, {"rows": [{"k": [1]}, {"k": []}]}),
    ("a loop that swaps columns", lambda rows: rows.iterate(lambda w: w.select(k="x", x="k", y="y").distinct()), T,
     {"k": 1}, {"rows": [{"k": [1]}, {"x": [1]}]}),
    ("a loop that computes the column", lambda rows: rows.iterate(
        lambda w: w.select(k=col("k") + 1, x="x", y="y").where(col("k") < 5).concat(rows).distinct()), T,
     {"k": 1}, {"rows": ALL}),
    ("a loop in a loop", lambda rows: rows.iterate(lambda w: w.iterate(
        lambda v: v.group_by("k", "y").agg(x=dd.min("x")).select("k", "x", "y"))), T, {"y": 1}, {"rows": [{"y": [1]}]}),
    ("an input that the output does not read", lambda rows, others: rows, TWO, {"k": 1}, {"rows": [{"k": [1]}]}),
    ("one use that is whole", lambda rows: rows.select("k").concat(rows.group_by().agg(k=dd.max("k"))), T, {"k": 1},
     {"rows": ALL}),
    ("null is a value", lambda rows: rows, T, {"k": None}, {"rows": [{"k": [-(2**63)]}]}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "schemas", "key", "expected"), [item[1:] for item in CASES], ids=[c[0] for c in CASES]
)
def test_what_a_key_needs(program: Any, schemas: Any, key: Any, expected: Any) -> None:
    def of_one(rows: dd.Collection) -> dict[str, dd.Collection]:
        return {"out": program(rows)}

    def of_two(rows: dd.Collection, others: dd.Collection) -> dict[str, dd.Collection]:
        return {"out": program(rows, others)}

    assert needs(of_two if len(schemas) > 1 else of_one, schemas, **key) == expected


# --- looking up across joins ------------------------------------------------------------------------------------------


def chains(orders: dd.Collection, items: dd.Collection, kinds: dd.Collection) -> dict[str, dd.Collection]:
    priced = orders.join(items, on="item").join(kinds, on="kind")
    return {"out": priced.group_by("k").agg(n=dd.sum("price"))}


def anti(orders: dd.Collection, items: dd.Collection, kinds: dd.Collection) -> dict[str, dd.Collection]:
    known = items.join(kinds, on="kind")
    return {"out": orders.join(known, on="item", how="anti").concat(orders.join(known, on="item", how="semi").negate())}


def outer(orders: dd.Collection, items: dd.Collection, kinds: dd.Collection) -> dict[str, dd.Collection]:
    return {"out": orders.join(items.join(kinds, on="kind", how="full"), on="item", how="left")}


def loop(orders: dd.Collection, items: dd.Collection, kinds: dd.Collection) -> dict[str, dd.Collection]:
    """Paths through items, from each order; and what is not reached."""
    edges = items.select("item", next="kind")

    def onward(w: dd.Collection) -> dd.Collection:
        return w.join(edges, on="item").select("k", item="next").concat(orders.select("k", "item")).distinct()

    reached = orders.select("k", "item").iterate(onward)
    missed = orders.select("k").distinct().join(kinds.select(k="kind", item="price"), on="k")
    return {"out": reached.except_(missed)}


def spoilt(orders: dd.Collection, items: dd.Collection, kinds: dd.Collection) -> dict[str, dd.Collection]:
    """A loop with negation in it, which looks up on both of its ways."""

    def body(w: dd.Collection) -> dd.Collection:
        blocked = w.join(kinds.select(item="kind", by="price"), on="item").select("k", "item")
        onward = w.join(items.select("item", next="kind"), on="item").select("k", item="next")
        return orders.select("k", "item").concat(onward).distinct().except_(blocked)

    return {"out": orders.select("k", "item").iterate(body, max_rounds=6, at_limit="return")}


def three_ways(orders: dd.Collection, items: dd.Collection, kinds: dd.Collection) -> dict[str, dd.Collection]:
    relations = ((orders, ["k", "item"]), (items, ["item", "kind"]), (kinds, ["kind", "price"]))
    return {"out": dd.delta_join(*relations)}


SHAPES = [chains, anti, outer, loop, spoilt, three_ways]


def small(rng: random.Random, columns: str) -> pl.DataFrame:
    """Some rows of two columns of small integers, seldom null, each once."""
    rows = {tuple(rng.choice([*range(6), None]) for _ in columns.split()) for _ in range(rng.randint(4, 14))}
    schema = dict.fromkeys([*columns.split(), "diff"], pl.Int64)
    return pl.DataFrame([(*row, 1) for row in sorted(rows, key=str)], schema=schema, orient="row")


@pytest.mark.sample(2)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_what_is_fetched_gives_the_same_rows_of_a_key(shape: Any) -> None:
    layout, looked_up = None, 0
    for seed in range(25):
        rng = random.Random(seed)
        inputs = {
            name: small(rng, c) for name, c in (("orders", "k item"), ("items", "item kind"), ("kinds", "kind price"))
        }
        if layout is None:
            subject = Subject(shape, inputs)
            layout = Layout(shape, "out", subject.schemas)
        read = Question(shape, "out", subject.schemas, subject.outputs["out"])._reader(held(inputs))
        whole = Watch(layout, {name: read(name, EVERYTHING) for name in inputs})
        table, schema = whole.table(layout.output), subject.outputs["out"]
        if not len(table.rows):
            continue
        at = rng.randrange(len(table.rows))
        column = rng.choice([0, 0, rng.randrange(len(schema))])
        key = Restriction(frozenset({frozenset({(list(schema)[column], Values(table.words([at])[column].tolist()))})}))
        fetch = Fetch(layout, key)
        part, batches = fetch.watch(read)
        looked_up += bool(fetch.look_ups)
        rows = [_rows(watch, key, schema) for watch in (whole, part)]
        assert rows[0] == rows[1], f"seed {seed}, {key} of {inputs}, with {batches}"
    assert looked_up > 8


def _rows(watch: Watch, key: Restriction, schema: Schema) -> dict[tuple[int, ...], int]:
    table = watch.table(watch.output)
    words = table.words(np.arange(len(table.rows)))
    mask = key.mask(words, len(table.rows), schema)
    rows = zip(*(word[mask].tolist() for word in words), strict=True)
    return {row: count for row, count in zip(rows, table.counts(())[mask].tolist(), strict=True) if count}


def read_of(inputs: Mapping[str, pl.DataFrame], sizes: list[dict[str, int]]) -> Any:
    """Inputs in memory, and how many rows of each were read, turn by turn."""

    def read(name: str, rows: pl.Expr | None) -> pl.DataFrame:
        frame = held(inputs)(name, rows)
        if not sizes or name in sizes[-1]:
            sizes.append({})
        sizes[-1][name] = len(frame)
        return frame

    return read


LADDER = frame("a b", *((n, n + 1) for n in range(300)), *((n, 1000 + n) for n in range(1000, 1300)))


def up(edges: dd.Collection, roots: dd.Collection) -> dict[str, dd.Collection]:
    def onward(w: dd.Collection) -> dd.Collection:
        return w.join(edges, on={"at": "a"}).select("root", at="b").concat(w).distinct()

    return {"out": roots.select(root="a", at="a").iterate(onward)}


def test_a_loop_reads_the_edges_that_it_comes_to() -> None:
    subject, sizes = (
        Subject(up, {"edges": LADDER, "roots": frame("a", (290,), (1000,), (1001,))}),
        list[dict[str, int]](),
    )
    question = Question(up, "out", subject.schemas, subject.outputs["out"])
    explanation = question.explain(read_of(subject.inputs, sizes), row_of(root=290, at=293))
    assert named(explanation) == {"edges": [(290, 291), (291, 292), (292, 293)], "roots": [(290,)]}
    edges = [size["edges"] for size in sizes if "edges" in size]
    assert edges == sorted(edges)
    assert edges[-1] == 10
    assert max(size.get("roots", 0) for size in sizes) == 1


@pytest.mark.parametrize(("limit", "value"), [("explaining_folds", 3), ("explaining_keys", 3), ("explaining_rows", 8)])
def test_a_join_that_finds_more_and_more_keys_reads_everything(limit: str, value: int) -> None:
    subject, sizes = Subject(up, {"edges": LADDER, "roots": frame("a", (290,), (1000,))}), list[dict[str, int]]()
    tuning = Tuning(**{limit: value})
    question = Question(up, "out", subject.schemas, subject.outputs["out"], tuning=tuning)
    explanation = question.explain(read_of(subject.inputs, sizes), row_of(root=290, at=293))
    assert named(explanation)["edges"] == [(290, 291), (291, 292), (292, 293)]
    assert sizes[-1]["edges"] == len(LADDER)


def strict(rows: dd.Collection) -> dict[str, dd.Collection]:
    """A function that fails where it is not given both rows of a group."""

    def total(groups: pl.DataFrame) -> pl.DataFrame:
        sums = groups.group_by("group").agg(pl.col("k").sum(), rows=pl.len())
        assert (sums["rows"] == 2).all(), "a group has not two rows"
        return sums.select("group", total="k")

    return {"out": rows.join(rows.group_by("g").reduce(total, {"total": "int64"}), on="g")}


def test_where_the_program_fails_on_a_part_all_is_read() -> None:
    subject, sizes = Subject(strict, {"rows": frame("k g", (1, 1), (2, 1), (3, 2), (4, 2))}), list[dict[str, int]]()
    question = Question(strict, "out", subject.schemas, subject.outputs["out"])
    explanation = question.explain(read_of(subject.inputs, sizes), row_of(k=1, g=1, total=3))
    assert named(explanation) == {"rows": [(1, 1), (2, 1)]}
    row = row_of(k=1, g=1, total=3, diff=1)
    assert question.check(held(subject.inputs), row, explanation.inputs) == (True, True, False)


def test_changes_are_found_without_reading_all() -> None:
    before = {"edges": LADDER, "roots": frame("a", (290,), (1000,))}
    changes = {
        "edges": frame("a b", (295, 296), (292, 1298), (2298, 5000), (50, 3)).with_columns(
            diff=pl.Series([-1, 1, 1, 1])
        ),
        "roots": frame("a", (8,)),
    }
    subject, sizes = Subject(up, before), list[dict[str, int]]()
    question = Question(up, "out", subject.schemas, subject.outputs["out"])
    causes = question.explain_change(read_of(before, sizes), changes, row_of(root=290, at=5000))
    assert named(causes) == {"edges": [(292, 1298), (2298, 5000)]}
    assert causes.all_changes == 5
    assert max(size.get("edges", 0) for size in sizes) < 40


def counted(edges: dd.Collection, roots: dd.Collection) -> dict[str, dd.Collection]:
    """A join whose driver may have rows with some of the changes that it has neither before nor after all of them."""
    number = roots.group_by().agg(a=dd.count()).with_columns(k=1)
    return {"out": number.join(edges, on="a").select("k", "b")}


def test_of_changes_a_count_drives_no_look_up() -> None:
    before = {"edges": frame("a b", (1, 10), (2, 20), (3, 30)), "roots": frame("a", (1,))}
    changes = {"edges": frame("a b", (9, 9)), "roots": frame("a", (2,), (3,))}
    subject, sizes = Subject(counted, before), list[dict[str, int]]()
    question = Question(counted, "out", subject.schemas, subject.outputs["out"])
    causes = question.explain_change(read_of(before, sizes), changes, row_of(k=1))
    assert named(causes) == {"roots": [(2,), (3,)]}
    assert sizes[-1]["edges"] == 3


def best(rows: dd.Collection) -> dict[str, dd.Collection]:
    first = rows.group_by().top_k(2, by="x")
    return {"out": first, "sums": first.group_by("k").agg(n=dd.sum("x")), "least": rows.group_by().agg(x=dd.min("x"))}


RANKED = frame("k x", (1, 5), (1, 3), (1, 4), (2, 1), (2, 9))


@pytest.mark.parametrize(
    ("output", "row", "expected", "sizes"),
    [
        ("out", row_of(k=1, x=3), [(1, 3)], [1]),
        ("least", row_of(x=1), [(2, 1)], [1]),
        ("sums", row_of(k=2, n=1), [(2, 1)], [2, 5]),  # of the rows of 2 alone both are among the first
    ],
)
def test_rows_that_only_keep_others_away_are_not_read(output: str, row: Any, expected: Any, sizes: list[int]) -> None:
    subject, read = Subject(best, {"rows": RANKED}), list[dict[str, int]]()
    question = Question(best, output, subject.schemas, subject.outputs[output])
    explanation = question.explain(read_of(subject.inputs, read), row)
    assert named(explanation) == {"rows": expected}
    assert [item["rows"] for item in read] == sizes
    assert question.check(held(subject.inputs), row.with_columns(diff=1), explanation.inputs) == (True, True, False)
    subject.check(output, row)


# --- what is read -----------------------------------------------------------------------------------------------------

VALUES: list[tuple[str, list[Any]]] = [
    ("int64", [0, -5, 2**63 - 1, None]),
    ("float64", [0.0, 1.5, float("nan"), float("-inf"), None]),
    ("string", ["", "a", "NaN", "null", None]),
    ("bool", [True, False, None]),
    ("binary", [b"", b"a", None]),
    ("date", [0, 19000, None]),
    ("timestamp", [0, 10**15 + 1, None]),
    ("decimal(9,2)", ["1.20", "0.00", "-3.05", None]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[kind for kind, _ in VALUES])
def test_the_condition_is_the_mask(kind: str, values: list[Any], tmp_path: Path) -> None:
    """For one value, for two, and for all, read from a change log's files."""
    schema = parse_schema({"x": kind})
    series = pl.Series("x", values)
    frame = pl.DataFrame([series.cast(schema["x"].polars)])
    log = ChangeLog(tmp_path, schema, writer=Writer())
    state = log.append(frame.with_columns(version=pl.lit(0), diff=pl.lit(1)), 1, base=None)
    batch = batch_of(frame.with_columns(diff=pl.lit(1)), schema, (), "rows")
    for rows in (*([n] for n in range(len(values))), [0, len(values) - 1], [0, 1], range(len(values)), []):
        restriction = Restriction(frozenset({frozenset({("x", Values({*batch.words[0][list(rows)].tolist()}))})}))
        found = log.between(None, time_of(0), state, restriction.condition(schema))
        words = batch_of(found, schema, (), "rows").words[0]
        assert sorted(words.tolist()) == sorted(batch.words[0][list(rows)].tolist())
        assert np.flatnonzero(restriction.mask(batch.words, len(batch), schema)).tolist() == list(rows)


def test_restrictions_with_many_alternatives_are_dropped() -> None:
    one = Values([1])
    both = NOTHING
    for name in "abcdefghijklmnop":
        both |= Restriction(frozenset({frozenset({(name, one)})}))
    assert len(both.alternatives) == 16
    assert (both | Restriction(frozenset({frozenset({("a", one), ("z", one)})}))) == both
    assert (both | Restriction(frozenset({frozenset({("q", one)})}))) == EVERYTHING


def test_an_output_that_is_not_there() -> None:
    subject = Subject(reach, {"edges": EDGES, "roots": frame("a", (1,))})
    with pytest.raises(UsageError, match="no output 'other'; there are: out"):
        Layout(reach, "other", subject.schemas)
