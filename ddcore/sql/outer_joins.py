"""LEFT, RIGHT and FULL JOIN of two collections."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from ddcore.base.source_line import planning
from ddcore.sql.join_conditions import Condition, met, range_of, sides_of
from ddcore.sql.names import types
from ddcore.sql.pairs import Pair, paired, placed
from ddcore.sql.values import null

if TYPE_CHECKING:
    from ddcore.sql.env import Env, Queries


@dataclass
class OuterJoin:
    """The parts of an outer join of two collections."""

    queries: Queries
    env: Env
    single: AbstractSet[str]
    left: Any
    right: Any
    conditions: Sequence[Condition]
    join: exp.Join

    def result(self, side: str, after: Sequence[str]) -> Any:
        """Pairs, and the rows without a partner, with nulls for the other side, of which the columns ``after`` stay."""
        with planning(self.queries.source.where(self.join)):
            kinds = types(self.left), types(self.right)
            equal = [(condition, sides_of(self.queries, self.env, condition, *kinds)) for condition in self.conditions]
            pairs = [pair for _, pair in equal if pair is not None]
            rest = [condition for condition, pair in equal if pair is None]
            own, other = set(types(self.left)), set(types(self.right))
            left = self._limited(self.left, [condition for condition in rest if condition.keys <= own])
            right = self._limited(
                self.right, [condition for condition in rest if condition.keys <= other and condition.keys]
            )
            mixed = [condition for condition in rest if not condition.keys <= own and not condition.keys <= other]
            matches = self._matches(left, right, pairs, mixed, after)
            parts = [matches]
            if side in ("LEFT", "FULL"):
                parts.append(self._unmatched(self.left, left, right, pairs, mixed, matches=matches))
            if side in ("RIGHT", "FULL"):
                swapped = [(others, ours, safe) for ours, others, safe in pairs]
                parts.append(self._unmatched(self.right, right, left, swapped, mixed, matches=matches))
            schema = types(matches)
            padded = [
                part.select(**{n: pl.col(n) if n in types(part) else null(kind) for n, kind in schema.items()})
                for part in parts[1:]
            ]
            return matches.concat(*padded)

    def _matches(
        self, left: Any, right: Any, pairs: Sequence[Pair], mixed: Sequence[Condition], after: Sequence[str]
    ) -> Any:
        """The pairs that meet the conditions on both sides. Of a range nobody needs the ends any more."""
        found = range_of(self.queries, self.env, mixed, left, right, single=self.single)
        if found is None:
            return self._limited(paired(left, right, pairs), mixed)
        rest = [condition for condition in mixed if not any(condition is one for one in found.met)]
        used = {*after}.union(*(condition.keys for condition in rest))
        kept = [*types(left), *(name for name in types(right) if name in used)]
        return self._limited(found.joined(left, right, pairs, kept), rest)

    def _limited(self, rows: Any, conditions: Sequence[Condition]) -> Any:
        for condition in conditions:
            rows = met(self.queries, self.env, rows, condition)
        return rows

    def _unmatched(
        self, every: Any, fitting: Any, others: Any, pairs: Sequence[Pair], mixed: Sequence[Condition], *, matches: Any
    ) -> Any:
        """The rows of one side that are in no pair; ``fitting`` are those that meet the conditions on it alone."""
        if mixed:
            own = types(every)
            used = sorted({key for condition in mixed for key in condition.keys if key in own})
            keys: list[Pair] = [(pl.col(name), pl.col(name), True) for name in used]
            columns, keys = placed([*keys, *((ours, ours, False) for ours, _, _ in pairs)], "partner")
            partners = matches.select(**columns)
            paired_rows = paired(fitting, partners, keys, "semi")
        else:
            paired_rows = paired(fitting, others, pairs, "semi")
        return every.concat(paired_rows.negate())
