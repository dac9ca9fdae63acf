"""``delta_join``: a join of several collections from shared arrangements, with no intermediate one (delta queries).

Each collection has a rule: its new updates are matched with the others. The collections before it are read with their
new updates and those after it without, so every combination occurs exactly once. A rule binds one attribute after the
other. If several collections can bind the next attribute, each row uses the one with the fewest candidates and the
others only filter: for collections of two columns this is worst-case optimal (sources: Ngo 2012,
Ammar 2018).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ddcore.base.digests import digest
from ddcore.base.errors import DiffOverflow, ProgramError
from ddcore.base.lazy import numpy as np
from ddcore.base.schema import Schema
from ddcore.base.source_line import caller
from ddcore.data.encoding import key_codes
from ddcore.operators.base import Keyed, Port, State, Step
from ddcore.operators.block import Rounds
from ddcore.operators.join import Heads, matches
from ddcore.traces.batch import Batch, concatenate
from ddcore.traces.budget import Budget
from ddcore.traces.consolidation import arrange
from ddcore.traces.sorted_batch import ColumnBatch, SortedBatch
from ddcore.traces.trace import distinct_keys

if TYPE_CHECKING:
    from ddcore.operators.arrangement import Arrangement
    from ddcore.operators.base import Dataflow
    from ddcore.operators.block import Block

_NONE = -1


@dataclass(frozen=True)
class Binding:
    """One attribute, or several, bound by one of ``choices``: relations, each with the attributes it is looked up by.

    The choices that a row does not use filter it by all their attributes.
    """

    choices: tuple[tuple[int, tuple[str, ...]], ...]


@dataclass(frozen=True, eq=False)
class DeltaJoin(Keyed):
    """The rows of all inputs that agree on the attributes they share; null agrees with nothing.

    ``relations`` gives for each input its attribute by column; columns of one attribute have the same type.
    ``rules`` are for each input the stages in which the other inputs are matched. ``staged``: those are operators of
    their own (:mod:`ddcore.planning.staging`), and this one does nothing.
    """

    name = "delta_join"
    signs = "kept"
    relations: tuple[Mapping[str, str], ...]
    rules: tuple[tuple[Binding, ...], ...]
    staged: bool = False

    @property
    def has_one_key(self) -> bool:
        """Inputs are looked up by several keys."""
        return False

    @cached_property
    def ports(self) -> Sequence[Port]:
        """Every key by which a rule looks up, once for each input."""
        ports: dict[Port, None] = {}
        for rule in self.rules:
            for stage in rule:
                for relation, attributes in stage.choices:
                    ports[relation, self.columns(relation, attributes)] = None
                    if len(stage.choices) > 1:
                        ports[relation, tuple(self.relations[relation])] = None
        return tuple(ports)

    def columns(self, relation: int, attributes: Sequence[str]) -> tuple[str, ...]:
        """The columns of a relation that have these attributes, in the order of its columns."""
        return tuple(column for column, attribute in self.relations[relation].items() if attribute in attributes)

    @classmethod
    def of(cls, schemas: Sequence[Schema], names: Sequence[Sequence[str]]) -> DeltaJoin:
        """The operator for inputs of these schemas and the names of their attributes. Raises ProgramError."""
        attributes: Schema = {}
        for number, (schema, columns) in enumerate(zip(schemas, names, strict=True), 1):
            if len(schema) != len(columns) or len(set(columns)) != len(columns):
                raise ProgramError(
                    f"{caller()}: delta_join: relation {number} has the columns {', '.join(schema)} and the attributes "
                    f"{', '.join(columns)}",
                    "give each column a name of its own; select() the columns that are needed first",
                )
            for name, kind in zip(columns, schema.values(), strict=True):
                if attributes.setdefault(name, kind) != kind:
                    raise ProgramError(
                        f"{caller()}: delta_join: {name} is {attributes[name]}, and {kind} in relation {number}",
                        "cast one side with select()",
                    )
        relations = tuple(dict(zip(schema, named, strict=True)) for schema, named in zip(schemas, names, strict=True))
        rules = tuple(_rule(relations, number) for number in range(len(relations)))
        return cls(attributes, digest(names), relations, rules)

    def step(self, plan: Dataflow, block: Block) -> Step:
        """The work of a delta join's block."""
        return _Nothing() if self.staged else _DeltaJoinStep(self, plan, block)


def _rule(relations: Sequence[Mapping[str, str]], first: int) -> tuple[Binding, ...]:
    """The stages in which updates of one relation are matched with the others. Raises ProgramError."""
    bound = set(relations[first].values())
    waiting = [number for number in range(len(relations)) if number != first]
    stages = []
    while waiting:
        choices = _next(relations, bound, waiting)
        keys = tuple((choice, tuple(a for a in relations[choice].values() if a in bound)) for choice in choices)
        stages.append(Binding(keys))
        waiting = [number for number in waiting if number not in choices]
        bound.update(*(relations[number].values() for number in choices))
    return tuple(stages)


def _next(relations: Sequence[Mapping[str, str]], bound: set[str], waiting: Sequence[int]) -> list[int]:
    """The relations that bind next: one that binds nothing new, else those that share the fewest new attributes."""
    missing = {number: frozenset(relations[number].values()) - bound for number in waiting}
    touching = [number for number in waiting if missing[number] != frozenset(relations[number].values())]
    if not touching:
        raise ProgramError(
            f"{caller()}: delta_join: no relation shares an attribute with {', '.join(sorted(bound))}",
            "give columns that must be equal the same name",
        )
    groups: dict[frozenset[str], list[int]] = {}
    for number in touching:
        groups.setdefault(missing[number], []).append(number)
    if frozenset() in groups:
        return groups[frozenset()][:1]
    return max(groups.values(), key=lambda group: (-len(missing[group[0]]), len(group)))


@dataclass
class _Prefix:
    """Partly joined rows: the words of the attributes bound so far, times and diffs."""

    attributes: tuple[str, ...]
    batch: Batch

    def arrange_by(self, key: Sequence[str], arrangement: Arrangement, budget: Budget) -> ColumnBatch:
        """The rows sorted by the code of the key attributes, which come first among the words, and the others."""
        words = dict(zip(self.attributes, self.batch.words, strict=True))
        keys = [words[name] for name in key]
        codes = key_codes(keys, arrangement.key_types, len(self.batch))
        values = [words[name] for name in self.attributes if name not in key]
        return arrange(
            codes, values if arrangement.direct else keys + values, self.batch.times, self.batch.diffs, self.batch.high,
            budget=budget, summed=False,
        )  # fmt: skip


class _Nothing(Step):
    def run(self, state: State, rounds: Rounds, pending: SortedBatch | None) -> None:
        pass


class _DeltaJoinStep(Step):
    def __init__(self, join: DeltaJoin, plan: Dataflow, block: Block) -> None:
        self.join, self.block = join, block
        self.coordinates, self.label = len(plan.dims) + block.depth, f"delta_join ({block.source_line})"
        self.arrangements = {
            port: plan.arrangements[index] for port, index in zip(join.ports, block.ports, strict=True)
        }

    def run(self, state: State, rounds: Rounds, pending: SortedBatch | None) -> None:
        """One rule after the other. Raises DiffOverflow."""
        for number, relation in enumerate(self.join.relations):
            arrangement = next(found for (of, _), found in self.arrangements.items() if of == number)
            new = state.delta_at(arrangement, rounds)
            if new is None:
                continue
            rule = _Rule(self, state, rounds, number)
            batch = arrangement.batch_of(new)
            zeros = np.zeros(len(batch), dtype=np.int64)
            times = batch.times + [zeros] * (self.coordinates - len(batch.times))
            batch = batch.at(times)
            size = state.budget.tuning.rule_rows
            for start in range(0, len(batch), size):
                part = batch.take(np.arange(start, min(start + size, len(batch))))
                for prefix in rule.bind(_Prefix(tuple(relation.values()), part)):
                    words = dict(zip(prefix.attributes, prefix.batch.words, strict=True))
                    columns = [words[name] for name in self.join.schema]
                    state.emit(self.block, prefix.batch.of(columns))


@dataclass(frozen=True)
class _Rule:
    """The rule of input ``number`` at one position: the matches of its new updates with the other inputs.

    The inputs before it are read with their updates of this position, those after it without.
    """

    step: _DeltaJoinStep
    state: State
    rounds: Rounds
    number: int

    def bind(self, prefix: _Prefix, at: int = 0) -> Iterator[_Prefix]:
        """The prefix with all attributes bound, in portions, from stage ``at`` on."""
        stages = self.step.join.rules[self.number]
        if len(prefix.batch) == 0:
            return
        if at == len(stages):
            yield prefix
            return
        choices = stages[at].choices
        best = self._best(prefix, choices)
        for number, (relation, key) in enumerate(choices):
            chosen = np.flatnonzero(best == number)
            if len(chosen) == 0 or not self._others(relation, key):
                continue
            rows = _Prefix(prefix.attributes, prefix.batch.take(chosen))
            for match in self._match(rows, relation, key):
                yield from self.bind(self._confirm(match, [other for other, _ in choices if other != relation]), at + 1)

    def _best(self, prefix: _Prefix, choices: Sequence[tuple[int, tuple[str, ...]]]) -> np.ndarray:
        """For each row the number of the choice with the fewest candidates: int64[rows]; _NONE where there are none."""
        best = np.zeros(len(prefix.batch), dtype=np.int64)
        if len(choices) == 1:
            return best
        least = self._candidates(prefix, *choices[0])
        for number, choice in enumerate(choices[1:], 1):
            if not least.any():
                break
            counts = self._candidates(prefix, *choice)
            best[counts < least] = number
            least = np.minimum(least, counts)
        best[least == 0] = _NONE
        return best

    def _candidates(self, prefix: _Prefix, relation: int, key: tuple[str, ...]) -> np.ndarray:
        """How many updates of a relation have the key of each row (an upper bound of its rows): int64[rows]."""
        others = self._others(relation, key)
        if not others:
            return np.zeros(len(prefix.batch), dtype=np.int64)
        arrangement, names = self._arrangement(relation, key)
        words = dict(zip(prefix.attributes, prefix.batch.words, strict=True))
        keys = [words[name] for name in names]
        codes = key_codes(keys, arrangement.key_types, len(prefix.batch))
        numbers = np.arange(len(codes), dtype=np.int64)
        batch = arrange(
            codes, ([] if arrangement.direct else keys) + [numbers], [], np.ones(len(codes), dtype=np.int64),
            budget=self.state.budget, summed=False,
        )  # fmt: skip
        distinct, starts = distinct_keys(batch, arrangement.key_words)
        counts = np.zeros(len(distinct), dtype=np.int64)
        for other in others:
            lo, hi = other.locate(distinct.codes, self.state.budget)
            found, lo, hi = other.located(lo, hi) if len(distinct.words) else (other, lo, hi)
            found.count(counts, distinct.words, (lo, hi))
        row_counts = np.empty(len(codes), dtype=np.int64)
        row_counts[batch.words[-1]] = np.repeat(counts, np.diff(starts))
        return row_counts

    def _match(self, prefix: _Prefix, relation: int, key: tuple[str, ...]) -> Iterator[_Prefix]:
        """The prefix joined with a relation by some of its attributes; the others are bound by it."""
        arrangement, names = self._arrangement(relation, key)
        batch, others = prefix.arrange_by(names, arrangement, self.state.budget), self._others(relation, key)
        self._require_int64(batch)
        bound = [name for name in prefix.attributes if name not in names]
        fresh = [self.step.join.relations[relation][column] for column in arrangement.values]
        heads = Heads.of(batch, arrangement.key_words)
        for pairs in matches(batch, heads, others, self.step.coordinates, self.state.budget):
            keys = [batch.codes] if arrangement.direct else list(batch.words[: arrangement.key_words])
            words = [word[pairs.left] for word in (*keys, *batch.words[arrangement.key_words :])]
            words += [word[pairs.right] for word in pairs.other.words[arrangement.key_words :]]
            yield _Prefix((*names, *bound, *fresh), pairs.of(words))

    def _require_int64(self, batch: ColumnBatch) -> None:
        """Raises DiffOverflow where int64 does not hold a product of diffs, which :func:`matches` would cut off."""
        if batch.high is None:
            return
        for at in np.flatnonzero(batch.high != batch.diffs >> 63)[:1]:
            product = (int(batch.high[at]) << 64) + (int(batch.diffs[at]) & (2**64 - 1))
            raise DiffOverflow(f"{self.step.label}: diffs multiply to {product}, which int64 cannot hold")

    def _confirm(self, prefix: _Prefix, relations: Sequence[int]) -> _Prefix:
        """The prefix joined with relations all of whose attributes are bound."""
        for relation in relations:
            parts = list(self._match(prefix, relation, tuple(self.step.join.relations[relation].values())))
            if not parts:
                return _Prefix(prefix.attributes, prefix.batch.take(np.empty(0, dtype=np.int64)))
            prefix = _Prefix(parts[0].attributes, concatenate([part.batch for part in parts]))
        return prefix

    def _others(self, relation: int, key: Sequence[str]) -> list[SortedBatch]:
        """The updates of a relation that this rule reads."""
        arrangement, _ = self._arrangement(relation, key)
        trace = self.state.trace(arrangement)
        return trace.batches if relation < self.number else trace.before(self.state.delta_at(arrangement, self.rounds))

    def _arrangement(self, relation: int, key: Sequence[str]) -> tuple[Arrangement, list[str]]:
        """The arrangement of a relation by some of its attributes, and those in the order of its key."""
        arrangement = self.step.arrangements[relation, self.step.join.columns(relation, key)]
        return arrangement, [self.step.join.relations[relation][column] for column in arrangement.key]
