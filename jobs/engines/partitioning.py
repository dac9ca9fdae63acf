"""Dividing key codes between workers: contiguous ranges, as even as stored state and a sample of new updates allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ddcore.base.lazy import numpy as np
from ddcore.base.schema import is_direct
from ddcore.jobs.engines.division import LAST, Division, Shares
from ddcore.jobs.engines.heavy_keys import divisible, hashed, looks_between, shares_of
from ddcore.jobs.engines.routes import Routing
from ddcore.jobs.engines.sampling import Samples, joined
from ddcore.jobs.engines.worker_count import owner_rows
from ddcore.jobs.fold import Fold
from ddcore.operators.arrangement import Arrangement
from ddcore.planning.plan import Plan

if TYPE_CHECKING:
    from ddcore.jobs.engines.sampling import Spread

_POINTS = 4096  # codes that are looked at to cut ranges
# The least share of new updates in the weight: they are the work, and of what is stored only what they meet is read.
_NEW, _UNSURE = 0.9, 0.5  # where it is known which column the keys come from, and where not


class Divider:
    """Divides the key codes of a fold between workers. What it needs to know of inputs and stored state is read once,
    for all numbers of workers.
    """

    def __init__(self, fold: Fold, routing: Routing) -> None:
        self._fold, self._routing = fold, routing
        self._joins = divisible(routing) if fold.rebuilding is None else []
        self._samples = Samples(fold, routing.keys, hashed(fold.plan, self._joins))

    def division(self, parallelism: int) -> Division:
        """The ranges of so many workers, as even as stored state and new updates say, and the heavy keys of joins.

        Arrangements whose equal keys have one owner get the same boundaries. Codes that are values themselves are
        divided by a sample of the columns of inputs that they come from; where they are computed, by all integers of
        the inputs. Hashed codes of which none is stored are spread evenly over 64 bits. Of arrangements that few rows
        reach the first workers own all.
        """
        fold, routing, samples = self._fold, self._routing, self._samples
        least = fold.settings.tuning.heavy_load
        shares = shares_of(routing, self._joins, samples, parallelism, rows=fold.rows, least=least)
        boundaries, worth = dict[int, list[int]](), owner_rows(fold)
        for group in routing.groups:
            stored = joined(samples.stored(a) for a in group if not (a.transient or a.ends))
            codes, rows = _without(_weighed(stored, *_new(samples, group)), _divided(group, shares))
            owners = min(parallelism, max(1, -(-samples.reaching(group) // worth))) if worth else parallelism
            cuts = _cuts(codes, rows, owners) if len(codes) else _even(owners)
            cuts += [LAST] * (parallelism - owners)
            boundaries.update({arrangement.index: cuts for arrangement in group})
        return Division(boundaries, routing.keys, shares, _everywhere(fold.plan, shares))


def _even(owners: int) -> list[int]:
    """The codes that divide 64 bits evenly."""
    return [int(-(2**63) + (2**64 * number) // owners) for number in range(1, owners)]


def _everywhere(plan: Plan, shares: Mapping[int, Shares]) -> dict[int, tuple[int, ...]]:
    """The values of which all workers have a part, by the arrangement of the intervals in which they are looked up."""
    found: dict[int, set[int]] = {}
    for block in plan.blocks:
        if looks_between(plan, block) and block.ports[0] in shares:
            found.setdefault(block.ports[1], set()).update(shares[block.ports[0]].codes)
    return {index: tuple(sorted(codes)) for index, codes in found.items()}


def _new(samples: Samples, group: Sequence[Arrangement]) -> tuple[Spread, float]:
    """Codes of new updates for some arrangements, and the share of the weight that they have at least.

    Nothing of hashed codes, but for joins.
    """
    sources = dict.fromkeys(source for arrangement in group for source in samples.sources(arrangement))
    codes = joined(map(samples.of, sources))
    keys = [[arrangement.collection[name] for name in samples.key(arrangement)] for arrangement in group]
    if not len(codes[0]) and any(map(is_direct, keys)):
        return samples.alike([kind for key in keys if is_direct(key) for kind in key]), _UNSURE
    return codes, _NEW


def _divided(group: Sequence[Arrangement], shares: Mapping[int, Shares]) -> Iterable[int]:
    """The heavy codes of a group of which no worker has all rows."""
    codes = [{*shares[a.index].codes} if a.index in shares else set() for a in group if not (a.transient or a.ends)]
    return set.intersection(*codes) if codes else ()


def _without(spread: Spread, codes: Iterable[int]) -> Spread:
    others = ~np.isin(spread[0], np.array([*codes], dtype=np.int64))
    return spread[0][others], spread[1][others]


def _weighed(stored: Spread, new: Spread, share: float) -> Spread:
    """Both, the new ones with this share of the weight, or more where they are more than that."""
    both, added = stored[1].sum(), new[1].sum()
    if both and added:
        share = max(share, added / (both + added))
        stored, new = (stored[0], stored[1] * ((1 - share) / both)), (new[0], new[1] * (share / added))
    return joined([stored, new])


def _cuts(codes: np.ndarray, rows: np.ndarray, parallelism: int) -> list[int]:
    """The codes at which the second range and all later ones begin, where each code stands for some rows.

    Ranges are filled one after the other with an even share of what is left, so a code with more rows than that gets a
    range of its own and the others are still even. Too few codes leave ranges at the end empty.
    """
    distinct, positions = np.unique(codes, return_inverse=True)
    loads = np.bincount(positions, rows)
    if len(distinct) > _POINTS:  # neighbours as one
        positions = np.minimum(np.cumsum(loads) * (_POINTS / loads.sum()), _POINTS - 1).astype(np.int64)
        starts = np.flatnonzero(np.diff(positions, prepend=-1))
        distinct, loads = distinct[starts], np.add.reduceat(loads, starts)
    cuts: list[int] = []
    left, filled = float(loads.sum()), 0.0
    for code, load in zip(distinct.tolist(), loads.tolist(), strict=True):
        share = left / (parallelism - len(cuts))
        if filled and filled + load / 2 > share and len(cuts) < parallelism - 1:
            cuts.append(code)
            left, filled = left - filled, 0.0
        filled += load
    return cuts + [LAST] * (parallelism - 1 - len(cuts))
