"""The derivation of a row that ``dd explain`` shows: as a tree for people, step by step in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddcore.cli.output import Output
from ddcore.cli.text import aligned, cell, count, plain

if TYPE_CHECKING:
    from ddcore.explaining import Explanation
    from ddcore.explaining.derivation import Fact

MOST_STEPS = 40  # lines of a derivation that people are shown unless they ask for all
_PASSED_ON = ("concat", "variable", "leave")  # operators whose rows are those of an input
_ROUND_BITS = 32  # a priority is packed above the round: see ddcore.operators.priority
_FIRST_PRIORITY = 2**29 + 1


def text_derivation(out: Output, explanation: Explanation, *, whole: bool) -> None:
    """The derivation as a tree, without operators that pass rows on and without steps of one line of the program."""
    derivation = explanation.derivation
    lines: list[list[str]] = []
    told: set[Fact] = set()
    waiting: list[tuple[int, Fact]] = [(0, fact) for fact in reversed(derivation.roots)]
    more = 0
    while waiting:
        depth, fact = waiting.pop()
        fact = _settled(explanation, fact)
        again = fact in told and bool(derivation.supports[fact])
        told.add(fact)
        if not again:
            waiting += [(depth + 1, support) for support in reversed(_below(explanation, fact))]
        if len(lines) == MOST_STEPS and not whole:
            more += 1
            continue
        node = derivation.watch.node(fact[0])
        name, source_line = node.operator.name, node.source_line
        if name == "input":
            name, source_line = f"input {node.operator.text}", ""
        text = "  " * depth + cell(explanation.row(fact))
        lines.append([text, name, source_line, "as above" if again else _rounds(fact[1])])
    for line in aligned(lines, width=None):
        out.data(f"  {line}")
    if more:
        out.data(f"  ... and {count(more)} more step{'s' if more > 1 else ''}; all of them with --all")


def _settled(explanation: Explanation, fact: Fact) -> Fact:
    """The fact, or the one it passes on."""
    derivation = explanation.derivation
    while derivation.watch.node(fact[0]).operator.name in _PASSED_ON and len(derivation.supports[fact]) == 1:
        fact = derivation.supports[fact][0]
    return fact


def _below(explanation: Explanation, above: Fact) -> list[Fact]:
    """What a fact is made of; steps of the same line of the program that have one source each are left out."""
    derivation = explanation.derivation
    source_line = derivation.watch.node(above[0]).source_line
    facts = [_settled(explanation, support) for support in derivation.supports[above]]
    result: list[Fact] = []
    for fact in facts:
        below = fact
        while len(derivation.supports[below]) == 1 and derivation.watch.node(below[0]).source_line == source_line:
            below = _settled(explanation, derivation.supports[below][0])
        if below not in result:
            result.append(below)
    return result


def _rounds(rounds: Sequence[int]) -> str:
    texts = []
    for packed in rounds:
        priority, number = packed >> _ROUND_BITS, packed % 2**_ROUND_BITS
        texts.append(f"{number} of priority {priority - _FIRST_PRIORITY}" if priority else str(number))
    return f"{'rounds' if len(texts) > 1 else 'round'} {', '.join(texts)}" if texts else ""


def _priorities(rounds: Sequence[int]) -> dict[str, list[int | None]]:
    """The priorities of the loops around, in JSON; nothing where there are none."""
    numbers = [packed >> _ROUND_BITS for packed in rounds]
    return {"priorities": [number - _FIRST_PRIORITY if number else None for number in numbers]} if any(numbers) else {}


def json_derivation(out: Output, explanation: Explanation) -> None:
    """Every step of the derivation, with the numbers of those it is made of; the row itself first."""
    derivation = explanation.derivation
    numbers = {fact: number for number, fact in enumerate(derivation.supports)}
    for fact, supports in derivation.supports.items():
        if out.unread:
            return
        node = derivation.watch.node(fact[0])
        is_input = node.operator.name == "input"
        out.record(
            step=numbers[fact],
            operator=node.operator.name,
            **({"input": node.operator.text} if is_input else {"source_line": node.source_line}),
            rounds=[packed % 2**_ROUND_BITS for packed in fact[1]],
            **_priorities(fact[1]),
            row=plain_row(explanation.row(fact)),
            made_of=[numbers[support] for support in supports],
        )


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON has it."""
    return {name: plain(value) for name, value in row.items()}
