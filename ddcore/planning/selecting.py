"""A part of a program: the outputs that a text names, with those before or after them in the dataflow.

``gold_sales`` is one output, ``gold_*`` are several; ``+gold_sales`` is it with all outputs that it is computed from,
``gold_sales+`` with all that are computed from it; ``orders+`` are the outputs that read an input; ``tag:hourly`` those
with a tag. Several texts name all that any of them names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

from ddcore.base.errors import UsageError
from ddcore.planning.plan import Plan
from ddcore.program.data_tests import is_test
from ddcore.text.wording import listed, meant

_TAG = "tag:"
_TERM = re.compile(r"(\+?)([^+]+)(\+?)")


def selected(plan: Plan, texts: Iterable[str], tags: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The outputs that ``texts`` name, with the data tests of these. ``tags``: those of each output. UsageError for a
    text that names none.

    A data test belongs to them if it looks at one of them, and at no output that neither is one of them nor comes
    before one.
    """
    sources = sources_of(plan)
    names = {name for name in sources if not is_test(name)}
    chosen = {name for text in texts for name in _named(text, names, plan, sources, tags)}
    before = chosen | {source for name in chosen for source in sources[name]}
    tests = (name for name in sources if is_test(name) and sources[name] & chosen and sources[name] & names <= before)
    return frozenset(chosen | {*tests})


def _named(
    text: str, names: Collection[str], plan: Plan, sources: Mapping[str, frozenset[str]],
    tags: Mapping[str, Collection[str]],
) -> set[str]:  # fmt: skip
    term = _TERM.fullmatch(text.strip())
    if term is None:
        raise UsageError(f"--select {text!r} names nothing", "for example: --select gold_sales, +gold_*, tag:hourly")
    with_before, word, with_after = term.groups()
    inputs: set[str] = set()
    if word.startswith(_TAG):
        tag = word.removeprefix(_TAG)
        found = {name for name in names if tag in tags.get(name, ())}
        hint = meant(tag, {*(tag for several in tags.values() for tag in several)})
        hint = hint or 'give outputs tags in dd.toml: [outputs.NAME] tags = ["hourly"]'
    else:
        found = {name for name in names if fnmatchcase(name, word)}
        inputs = {name for name in plan.inputs if fnmatchcase(name, word)} if with_after else set()
        hint = meant(word, names) or f"the outputs are {listed(sorted(names))}"
        if word in plan.inputs:
            hint = f"{word} is an input; the outputs that read it are: --select {word}+"
    chosen = set(found)
    if with_before:
        chosen |= {source for name in found for source in sources[name] & frozenset(names)}
    if with_after:
        chosen |= {name for name in names if sources[name] & (found | inputs)}
    if not chosen:
        raise UsageError(f"--select {text!r} names no output", hint)
    return chosen


def sources_of(plan: Plan) -> dict[str, frozenset[str]]:
    """For each output, those of data tests too, the inputs and the other outputs that it is computed from.

    Outputs that are the same collection are not computed from each other. Cost: nodes times outputs.
    """
    ends = plan.ends
    at: dict[int, set[str]] = {}
    for name, node in (*plan.sources.items(), *ends.items()):
        at.setdefault(node, set()).add(name)
    return {
        name: frozenset(source for node in plan.upstream([end]) if node != end for source in at.get(node, ()))
        for name, end in ends.items()
    }
