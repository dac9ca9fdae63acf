"""The registry of operators, and what every operator in it must have: a meaning in the reference, a generator of random
calls, and a section with an example in the documentation.
"""

from __future__ import annotations

import functools
import inspect
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import registry
from choices import Choices
from notation import dims_of
from programs import GENERATORS, INPUTS, LOOPS, TYPES, Writer, case

from ddcore.base.errors import ProgramError
from ddcore.operators.base import Operator
from ddcore.planning.planner import build
from ddcore.planning.staging import staged
from ddcore.program.collection import Collection
from ddcore.reference import NaiveCollection, NaiveGroups

PAGE = Path(__file__).resolve().parent.parent / "docs" / "programs.md"
SOURCES = 600
"""Enough programs for every operator and every choice of its options."""


def test_the_registry_is_read_from_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    public = registry.public()
    assert {"select", "join", "group_by.agg", "dd.iterate", "dd.delta_join"} <= public.keys()
    assert public["join"].options["how"] == ("inner", "semi", "anti", "left", "right", "full")
    assert not {"schema", "columns", "group_by", "dd.replay", "dd.sum"} & public.keys()
    assert {"dd.count", "dd.sum", "dd.min", "dd.max"} <= registry.aggregates().keys()

    def twice(self: Collection) -> Collection:
        return self.concat(self)

    monkeypatch.setattr(Collection, "twice", twice, raising=False)
    assert registry.public().keys() - public.keys() == {"twice"}


def test_every_module_of_operators_is_in_the_registry() -> None:
    kinds = registry.kinds()
    assert {"Join", "DeltaJoin", "TopK", "Variable"} <= kinds.keys()
    assert not {"Linear", "Keyed", "Reduction"} & kinds.keys()
    assert all(issubclass(kind, Operator) and isinstance(kind.name, str) for kind in kinds.values())


# -- the reference ----------------------------------------------------------------------------------------------------


def parameters(function: Any) -> dict[str, Any]:
    """Names and defaults of the named parameters."""
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [
        parameter for parameter in inspect.signature(function).parameters.values() if parameter.kind not in various
    ]
    return {item.name: item.default for item in named}


@pytest.mark.parametrize("name", registry.public())
def test_every_operator_has_a_meaning_in_the_reference(name: str) -> None:
    """The methods have the same parameters; functions of ddcore call static methods of the collections they are given,
    and the random programs call them all."""
    prefix, _, method = name.rpartition(".")
    if prefix == "dd":
        assert any(f"dd.{method}(" in source for source in sources())
        return
    naive: Any = NaiveGroups if prefix == "group_by" else NaiveCollection
    assert hasattr(naive, method), f"ddcore/reference: {naive.__name__} has no {method}"
    assert parameters(getattr(naive, method)) == parameters(registry.public()[name].function)


def test_static_methods_of_collections_are_in_the_reference() -> None:
    static = [name for name, value in vars(Collection).items() if isinstance(value, staticmethod)]
    assert {"delta_join", "fixed_points"} <= set(static)
    for name in static:
        assert parameters(getattr(NaiveCollection, name)) == parameters(getattr(Collection, name)), name


# -- random programs --------------------------------------------------------------------------------------------------


@functools.cache
def sources() -> list[str]:
    """Programs as tests/support/programs.py writes them, on all inputs."""
    return [Writer(Choices.of_seed(seed)).program(INPUTS) for seed in range(SOURCES)]


def test_every_generator_writes_an_operator_of_the_registry() -> None:
    assert {*GENERATORS, *LOOPS} - registry.public().keys() == set()


@pytest.mark.parametrize("name", registry.public())
def test_random_programs_have_every_operator(name: str) -> None:
    """With every choice of its options. A name without a generator: add one to Writer in tests/support/programs.py."""
    assert name in GENERATORS or name in LOOPS, f"tests/support/programs.py has no generator of {name}"
    call = f"{name}(" if name.startswith("dd.") else f".{name.rpartition('.')[2]}("
    lines = [line for source in sources() for line in source.splitlines() if call in line]
    assert lines, f"no program of {SOURCES} calls {name}"
    for option, values in registry.public()[name].options.items():
        default = inspect.signature(registry.public()[name].function).parameters[option].default
        for value in {*values} - {default}:
            assert any(f'{option}="{value}"' in line for line in lines), f"{name}({option}={value!r}) is not drawn"


@pytest.mark.parametrize("name", registry.aggregates())
def test_random_programs_have_every_aggregate(name: str) -> None:
    assert any(f"{name}(" in source for source in sources()), f"tests/support/programs.py: Writer.agg has no {name}"


SHAPES = {
    "three loops in one another": r"^ {12}t\d+ = .*iterate\(",
    "a loop as a function": r"^ +def loop\d+\(",
    "its call in a body": r"^ +return .*\bloop\d+\(w\d+, ",
    "its call outside of a body": r"^ +t\d+ = .*\bloop\d+\(t\d+, ",
    "a loop with a priority": r"\.iterate\(body\d+, priority=",
    "several collections with a priority": r'dd\.iterate\(.*priority=\{"odd": ',
    "a reduce with counts that may be negative": r"\.reduce\(.*allow_negative=True",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_random_programs_have_every_shape(shape: str) -> None:
    number = sum(re.search(SHAPES[shape], source, flags=re.MULTILINE) is not None for source in sources())
    assert number, f"{number} of {SOURCES} programs have {shape}"


def test_random_histories_have_one_to_three_coordinates() -> None:
    numbers = [len(dims_of(case(seed).frames)) for seed in range(30)]
    assert {1, 2, 3} == set(numbers)


def test_plans_of_random_programs_have_every_kind_of_node() -> None:
    schemas = {name: {column: TYPES[kind] for column, kind in columns.items()} for name, columns in INPUTS.items()}
    kinds: set[str] = set()
    calls: set[str] = set()

    def has_news(source: str) -> bool:
        before = len(calls)
        calls.update(re.findall(r"(\w+)\(", source))
        return len(calls) > before

    texts = sources()
    for source in sorted(texts, key=has_news, reverse=True):  # programs with calls that those before them lack
        scope: dict[str, Any] = {}
        exec(compile(source, "<program>", "exec"), scope)
        with suppress(ProgramError):  # some are drawn with a mistake
            plan = build(scope["program"], schemas)
            kinds |= {type(node.operator).__name__ for nodes in (plan.nodes, staged(plan).nodes) for node in nodes}
        if kinds == registry.kinds().keys():
            return
    assert kinds == registry.kinds().keys()


# -- documentation ----------------------------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    """The text of each section of the page, by its heading, without that of the sections in it."""
    parts = re.split(r"^#+ (.+)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", registry.public())
def test_every_operator_has_a_section_with_an_example(name: str) -> None:
    """tests/test_docs.py runs the examples of the page."""
    word = name if name.startswith("dd.") else name.rpartition(".")[2]
    titles = [title for title in sections() if word in re.findall(r"[\w.]*\w", title)]
    assert titles, f"docs/programs.md has no section with {word} in its heading"
    text = "".join(sections()[title] for title in titles)
    code = "".join(re.findall(r"^```python$(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL))
    assert f"{word}(" in code, f"docs/programs.md: the section {titles[0]!r} has no example of {word}"
    for option, values in registry.public()[name].options.items():
        for value in values:
            assert f'"{value}"' in text, f"docs/programs.md: {titles[0]!r} does not mention {option}={value!r}"


@pytest.mark.parametrize("name", registry.aggregates())
def test_every_aggregate_is_documented(name: str) -> None:
    assert f"{name}(" in PAGE.read_text("utf-8")
