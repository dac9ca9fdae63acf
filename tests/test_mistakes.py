"""What a program can get wrong is an error when it is built, at the line of the program that is wrong.

That line ends with the comment ``# wrong`` in each function here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import product
from typing import Any

import polars as pl
import pytest
import registry

import ddcore as dd
from ddcore import col
from ddcore.base.errors import ProgramError
from ddcore.planning.planner import build

SCHEMAS = {"t": {"n": "int64", "w": "string", "f": "float64"}}


def at_the_line(mistake: Callable[[Any], Any]) -> ProgramError:
    """The error of a program with this output; fails unless it names the marked line and says what to do."""
    with pytest.raises(ProgramError) as caught:
        build(lambda t: {"out": mistake(t)}, SCHEMAS)
    lines, first = inspect.getsourcelines(mistake)
    (wrong,) = [first + number for number, line in enumerate(lines) if line.rstrip().endswith("# wrong")]
    assert caught.value.message.startswith(f"test_mistakes.py:{wrong}: "), caught.value.message
    assert "\n" not in caught.value.message and caught.value.hint
    return caught.value


# -- columns that are not there ---------------------------------------------------------------------------------------

UNKNOWN: list[Callable[[Any], Any]] = [
    lambda t: t.select("m"),  # wrong
    lambda t: t.select(x=col("m") + 1),  # wrong
    lambda t: t.select(x="m + 1"),  # wrong
    lambda t: t.with_columns(col("m").fill_null(0)),  # wrong
    lambda t: t.drop("m"),  # wrong
    lambda t: t.rename({"m": "x"}),  # wrong
    lambda t: t.where("m > 1"),  # wrong
    lambda t: t.filter(col("m") > 1),  # wrong
    lambda t: t.flat_map(x=col("m").str.split("")),  # wrong
    lambda t: t.join(t, on="m"),  # wrong
    lambda t: t.join(t, on={"n": "m"}, how="semi"),  # wrong
    lambda t: t.join_between(t, "m", "n"),  # wrong
    lambda t: t.join_asof(t, "m"),  # wrong
    lambda t: t.join_between(t, "n", "n", "m"),  # wrong
    lambda t: t.join_between(t, "n", "n", on="m"),  # wrong
    lambda t: t.tumble("m", 2),  # wrong
    lambda t: t.hop("m", 2, 3),  # wrong
    lambda t: t.sessions("n", 2, "m"),  # wrong
    lambda t: t.group_by("m").agg(c=dd.count()),  # wrong
    lambda t: t.group_by("n").agg(c=dd.sum("m")),  # wrong
    lambda t: t.group_by("n").top_k(1, "m"),  # wrong
    lambda t: t.arrange_by("m"),  # wrong
    lambda t: t.iterate(lambda w: w, priority="m"),  # wrong
    lambda t: dd.iterate({"w": t}, lambda w: {"w": w}, priority={"w": col("m") * 2})["w"],  # wrong
]


@pytest.mark.parametrize("mistake", UNKNOWN, ids=lambda value: inspect.getsource(value).strip())
def test_an_unknown_column(mistake: Callable[[Any], Any]) -> None:
    assert " m" in at_the_line(mistake).message.replace('"', " ").replace("'", " ")


def test_an_unknown_column_inside_a_loop() -> None:
    def mistake(t: Any) -> Any:
        def body(w: Any) -> Any:
            return w.concat(
                t.select("f", "w", "n").where("nn > 1"),  # wrong
            )

        return t.iterate(body)

    assert at_the_line(mistake).hint == "did you mean 'n'?"


# -- types that do not meet -------------------------------------------------------------------------------------------

MISMATCHED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda t: t.select("n").concat(t.select(n="f")), "(n: int64) and (n: float64)"),  # wrong
    (lambda t: t.select("n").union(t.select(n="w")), "(n: int64) and (n: string)"),  # wrong
    (lambda t: t.select("n").concat(t.select(m="n")), "(n: int64) and (m: int64)"),  # wrong
    (lambda t: t.join(t, on={"n": "f"}), "n is int64 and f is float64"),  # wrong
    (lambda t: dd.delta_join((t.select("n"), ["a"]), (t.select("w"), ["a"])), "a is int64, and string"),  # wrong
    (lambda t: t.join_between(t, "n", "f"), "n is int64 and f is float64"),  # wrong
    (lambda t: t.join_between(t, "w", upper="w"), "w is string, which is not looked up by its order"),  # wrong
    (lambda t: t.join_between(t, "n", "n", on="n"), "n is a key"),  # wrong
    (lambda t: t.join_between(t, "n"), "neither lower nor upper"),  # wrong
    (lambda t: t.tumble("w", 2), "tumble: w is string"),  # wrong
    (lambda t: t.tumble("n", 0), "tumble: every is 0"),  # wrong
    (lambda t: t.tumble("n", 2, start="n"), "tumble: n is a column already"),  # wrong
    (lambda t: t.tumble("n", 2, start="x", end="x"), "tumble: x is a column already"),  # wrong
    (lambda t: t.hop("n", 1, 1001), "hop: each row is in 1001 windows, 1000 at most"),  # wrong
    (lambda t: t.sessions("n", -1), "sessions: gap is -1"),  # wrong
    (lambda t: t.sessions("n", 1, "n"), "sessions: n is a key"),  # wrong
    (lambda t: t.join_asof(t, "n", "f"), "n is int64 and f is float64"),  # wrong
    (lambda t: t.join_asof(t, "w"), "w is string, which is not looked up by its order"),  # wrong
    (lambda t: t.join_asof(t, "n", on="n"), "n is a key"),  # wrong
    (lambda t: t.join_asof(t, "n", direction="near"), "direction"),  # wrong
    (lambda t: t.group_by("n").agg(s=dd.sum("w")), "string"),  # wrong
]


@pytest.mark.parametrize(("mistake", "message"), MISMATCHED, ids=[message for _, message in MISMATCHED])
def test_types_that_do_not_meet(mistake: Callable[[Any], Any], message: str) -> None:
    assert message in at_the_line(mistake).message


@pytest.mark.parametrize(
    "on", [["n", "w"], ("n", "w"), {"n": 1, "w": 2}.keys(), iter(["n", "w"]), {"n": "n", "w": "w"}]
)
def test_several_names_in_order(on: Any) -> None:
    build(lambda t: {"out": t.join(t, on=on)}, SCHEMAS)


def test_names_without_order() -> None:
    """Texts have another order in a set in every process, and the program would have another fingerprint."""

    def mistake(t: Any) -> Any:
        return t.join(t, on={"n", "w"})  # wrong

    assert "is no column's name" in at_the_line(mistake).message


# -- loops ------------------------------------------------------------------------------------------------------------

BODIES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda w: w.select(n=col("n") * 0.5), "(n: float64)"),
    (lambda w: w.select(n=col("n").cast(pl.String)), "(n: string)"),
    (lambda w: w.select(m="n"), "(m: int64)"),
    (lambda w: w.select("n", m=1), "(n: int64, m: int64)"),
]


@pytest.mark.parametrize(("body", "returned"), BODIES)
def test_a_body_that_changes_the_schema(body: Any, returned: str) -> None:
    def of_one(t: Any) -> Any:
        return t.select("n").iterate(body)  # wrong

    def of_several(t: Any) -> Any:
        start = {"v": t.select("n"), "w": t.select("n")}
        return dd.iterate(start, lambda v, w: {"v": v, "w": body(w)})["w"]  # wrong

    message = f"the body of iterate is given the columns (n: int64) and returns {returned}"
    assert message in at_the_line(of_one).message
    assert message in at_the_line(of_several).message


@pytest.mark.parametrize(
    "returned", [None, 3, pl.DataFrame({"n": [1]}), {"w": None}], ids=lambda value: type(value).__name__
)
def test_a_body_that_returns_no_collection(returned: Any) -> None:
    def mistake(t: Any) -> Any:
        return t.iterate(lambda w: returned)  # wrong

    kind = "None" if returned is None else type(returned).__name__
    assert f"{kind} is no collection" in at_the_line(mistake).message


PRIORITIES = [
    (col("n") * 0.5, "priority is float64, not int64"),
    ("w", "priority is string, not int64"),
    (col("n") > 1, "priority is bool, not int64"),
    (2.5, "priority is float64, not int64"),
]


@pytest.mark.parametrize(("priority", "message"), PRIORITIES, ids=str)
def test_a_priority_that_is_no_integer(priority: Any, message: str) -> None:
    def mistake(t: Any) -> Any:
        return t.iterate(lambda w: w.distinct(), priority=priority)  # wrong

    assert message in at_the_line(mistake).message


def inner(t: Any) -> Any:
    """A collection of a loop's inside, taken out by a list."""
    leaked: list[Any] = []

    def body(w: Any) -> Any:
        leaked.append(w.where("n > 1"))
        return w.distinct()

    t.iterate(body)
    return leaked[0]


OUTSIDE: list[Callable[[Any], Any]] = [
    lambda t: inner(t).select("n"),  # wrong
    lambda t: t.concat(inner(t)),  # wrong
    lambda t: t.join(inner(t), on="n", how="full"),  # wrong
    lambda t: t.join_between(inner(t), "n", "n"),  # wrong
    lambda t: t.join_asof(inner(t), "n"),  # wrong
    lambda t: dd.delta_join((inner(t), ["a", "b", "c"]), (t, ["a", "d", "e"])),  # wrong
    lambda t: inner(t).group_by("n").agg(c=dd.count()),  # wrong
    lambda t: inner(t).iterate(lambda w: w.distinct()),  # wrong
    lambda t: dd.iterate({"v": t, "w": inner(t)}, lambda v, w: {"v": v, "w": w})["v"],  # wrong
    lambda t: t.iterate(inner),  # wrong
    lambda t: t.iterate(lambda w: w.concat(inner(w))),  # wrong
]


@pytest.mark.parametrize("mistake", OUTSIDE, ids=lambda value: inspect.getsource(value).strip())
def test_a_collection_of_a_loop_used_outside(mistake: Callable[[Any], Any]) -> None:
    """Also where the loop around it is still under construction."""
    message = at_the_line(mistake).message
    assert "a collection of loop body (test_mistakes.py:" in message and "outside of it (created at" in message


def test_an_output_that_is_a_collection_of_a_loop() -> None:
    with pytest.raises(ProgramError, match=r"^test_mistakes\.py:\d+: output out is a collection of loop body"):
        build(lambda t: {"out": inner(t)}, SCHEMAS)


BODIES_OF_OTHERS: list[Callable[[Any], Any]] = [
    lambda t: dd.iterate({"a": t, "b": t}, lambda a: {"a": a})["a"],  # wrong
    lambda t: dd.iterate({"a": t}, lambda a, b: {"a": a})["a"],  # wrong
    lambda t: dd.iterate({"a": t}, lambda b: {"a": b})["a"],  # wrong
]


@pytest.mark.parametrize("mistake", BODIES_OF_OTHERS, ids=lambda value: inspect.getsource(value).strip())
def test_a_body_that_takes_other_collections(mistake: Callable[[Any], Any]) -> None:
    assert "the body of iterate takes (" in at_the_line(mistake).message


def test_a_body_that_fails_leaves_nothing_behind() -> None:
    """A program that catches the error of a body may go on, but not with what the body made."""
    leaked: list[Any] = []

    def body(w: Any) -> Any:
        leaked.append(w.distinct())
        raise ValueError("no")

    def program(t: Any, use: bool) -> Any:
        with pytest.raises(ValueError, match="no"):
            t.iterate(body)
        return {"out": leaked[-1].negate() if use else t.iterate(lambda w: w.distinct())}

    build(lambda t: program(t, False), SCHEMAS)
    with pytest.raises(ProgramError, match="uses a collection of loop body"):
        build(lambda t: program(t, True), SCHEMAS)


# -- collections of another program -----------------------------------------------------------------------------------


def elsewhere() -> Any:
    """A collection of a program that was built before."""
    collections: list[Any] = []

    def program(t: Any) -> Any:
        collections.append(t)
        return {"out": t}

    build(program, SCHEMAS)
    return collections[0]


FOREIGN: list[Callable[[Any], Any]] = [
    lambda t: t.concat(elsewhere()),  # wrong
    lambda t: t.except_(elsewhere()),  # wrong
    lambda t: t.join(elsewhere(), on="n"),  # wrong
    lambda t: t.join_between(elsewhere(), "n", "n"),  # wrong
    lambda t: t.join_asof(elsewhere(), "n"),  # wrong
    lambda t: dd.delta_join((t, ["a", "b", "c"]), (elsewhere(), ["a", "d", "e"])),  # wrong
    lambda t: t.iterate(lambda w: elsewhere()),  # wrong
    lambda t: dd.iterate({"v": t, "w": elsewhere()}, lambda v, w: {"v": v, "w": w})["v"],  # wrong
]


@pytest.mark.parametrize("mistake", FOREIGN, ids=lambda value: inspect.getsource(value).strip())
def test_a_collection_of_another_program(mistake: Callable[[Any], Any]) -> None:
    assert "a collection of another program" in at_the_line(mistake).message


def test_an_output_of_another_program() -> None:
    with pytest.raises(ProgramError, match="output out is a collection of another program"):
        build(lambda t: {"out": elsewhere()}, SCHEMAS)


# -- arguments of any kind --------------------------------------------------------------------------------------------

COMPLETE: dict[str, Callable[[Any], tuple[Any, ...]]] = {  # arguments beside which one more is tried
    "join": lambda t: (t, "n"),
    "join_between": lambda t: (t, "n", "n"),
    "tumble": lambda t: ("n", 2),
    "hop": lambda t: ("n", 2, 3),
    "sessions": lambda t: ("n", 2),
    "join_asof": lambda t: (t, "n"),
    "iterate": lambda t: (lambda w: w,),
    "dd.iterate": lambda t: ({"a": t}, lambda a: {"a": a}),
    "group_by.top_k": lambda t: (1, "w"),
    "group_by.over": lambda t: ("w",),
    "group_by.reduce": lambda t: (lambda frame: frame, {"x": "int64"}),
    "flat_map": lambda t: (lambda frame: frame,),
    "union": lambda t: (t,),
    "intersect": lambda t: (t,),
    "except_": lambda t: (t,),
}


def any_values(t: Any) -> list[Any]:
    values = [None, 3, -1, 2.5, True, "n", "m", "n > 1", b"x", object(), [], ["n"], [3], {}, {"n": "n"}, {"n": 3}]
    values += [{3: "n"}, col("n"), pl.all(), pl.DataFrame({"n": [1]}), t, [t], (t,), (t, ["a", "b", "c"]), ("n", ["a"])]
    return [*values, {"a": t}, {"a": 3}, {3: t}, lambda *a: a[0], lambda *a, **k: k]


@pytest.mark.parametrize("name", registry.public())
def test_wrong_arguments_are_errors_of_the_program(name: str) -> None:
    """Whatever an operator is given, it works or is an error with the line and a hint; nothing else gets out."""
    function = registry.public()[name].function
    parameters = inspect.signature(function).parameters.values()
    keywords = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY or parameter.name in ("how", "priority")
    ]
    keywords += ["more" for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD]
    refusals = []

    def program(t: Any) -> Any:
        subject = {"": [t], "group_by": [t.group_by("n")], "dd": []}[name.rpartition(".")[0]]
        values = any_values(t)
        calls: list[tuple[Any, Any]] = [((), {}), *(((value,), {}) for value in values)]
        calls += [(both, {}) for both in product(values, repeat=2)]
        calls += [(COMPLETE.get(name, lambda t: ())(t), {key: value}) for key in keywords for value in values]
        for positional, named in calls:
            try:
                inspect.signature(function).bind(*subject, *positional, **named)
            except TypeError:
                continue  # Python itself refuses the call
            try:
                function(*subject, *positional, **named)
            except ProgramError as error:
                refusals.append(error)
            except Exception as error:
                error.add_note(f"{name} with {positional} {named}")
                raise
        return {"out": t}

    if name == "inspect":  # refuses a name when the program is complete
        with pytest.raises(ProgramError):
            build(program, SCHEMAS)
        return
    build(program, SCHEMAS)
    assert len(refusals) > 10 or name in ("dd.now", "distinct", "negate")
    for error in refusals:
        assert error.message.startswith("test_mistakes.py:") and "\n" not in error.message and error.hint


# -- a collection as a value of Python --------------------------------------------------------------------------------

AS_VALUES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda t: t.distinct() if t else t, "has no truth value"),  # wrong
    (lambda t: t.distinct() or t, "has no truth value"),  # wrong
    (lambda t: t.group_by("n") and t, "has no truth value"),  # wrong
    (lambda t: t.distinct() if bool(t) else t, "has no truth value"),  # wrong
    (lambda t: t.distinct() if len(t) > 1 else t, "has no length"),  # wrong
    (lambda t: t.distinct() if "n" in t else t, "cannot say what is in it"),  # wrong
    (lambda t: next(iter(t)), "cannot be iterated"),  # wrong
    (lambda t: t.negate() if t == t.distinct() else t, "cannot be compared"),  # wrong
    (lambda t: t.distinct() if t != None else t, "cannot be compared"),  # noqa: E711  # wrong
    (lambda t: t.distinct() if t.group_by("n") == t else t, "cannot be compared"),  # wrong
    (lambda t: t.negate() if t < t.distinct() else t, "cannot be compared"),  # wrong
]


@pytest.mark.parametrize(("mistake", "message"), AS_VALUES)
def test_a_collection_as_a_value_of_python(mistake: Callable[[Any], Any], message: str) -> None:
    error = at_the_line(mistake)
    named = "the result of group_by()" if "group_by" in inspect.getsource(mistake) else "a collection"
    assert error.message.endswith(f": {named} {message}, because its rows come when the program runs")


@pytest.mark.parametrize(
    "mistake",
    [
        lambda t: t.group_by("n").agg(m=dd.count() or dd.min("n")),  # wrong
        lambda t: t.group_by("n").agg(m=dd.count()) if dd.max("n") else t,  # wrong
        lambda t: t.group_by("n").agg(m=dd.count() and dd.min("n")),  # wrong
    ],
)
def test_an_aggregate_as_a_condition(mistake: Callable[[Any], Any]) -> None:
    assert " has no truth value, because its rows come when the program runs" in at_the_line(mistake).message


def test_a_collection_may_still_be_a_key_and_be_compared_by_identity() -> None:
    def program(t: Any) -> dict[str, Any]:
        small, large = t.where("n < 3"), t.where("n >= 3")
        names = {small: "small", large: "large"}
        return {names[item]: item for item in (small, large) if item is not t}

    assert list(build(program, SCHEMAS).outputs) == ["small", "large"]
