"""Dividing key codes between workers: contiguous ranges, as even as stored quantiles or a sample allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddcore.io.changelog import ChangeLog
from ddcore.jobs.fold import Fold
from ddcore.libraries import numpy as np
from ddcore.operators.base import Keyed
from ddcore.plan import Arrangement, Plan

__all__ = ["Boundaries", "boundaries_of"]

Boundaries = Mapping[
    int, Sequence[int]
]  # by arrangement index: parallelism - 1 key codes at which the next worker begins

_SAMPLE = 100_000


def boundaries_of(fold: Fold, parallelism: int) -> dict[int, list[int]]:
    """Codes at which the next worker's range begins, per arrangement: from stored quantiles, or for the first run
    from estimates.

    Arrangements that meet in an operator get the same boundaries, so that all rows of a key have one worker. Hashed
    codes are spread evenly over 64 bits. Codes that are values themselves are divided at the quantiles of a sample of
    the inputs' integers.
    """
    even = [int(-(2**63) + (2**64 * partition) // parallelism) for partition in range(1, parallelism)]
    sample: np.ndarray | None = None
    boundaries: dict[int, list[int]] = {}
    single = _of_one_worker(fold.plan)
    for group in _meeting(fold.plan):
        if single & {arrangement.index for arrangement in group}:
            boundaries.update({arrangement.index: [-(2**63)] * (parallelism - 1) for arrangement in group})
            continue
        codes = np.sort(np.array([c for a in group for c in fold.quantiles.get(a.fingerprint, ())], dtype=np.int64))
        if len(codes) == 0 and group[0].direct:
            sample = _sampled(fold) if sample is None else sample
            codes = sample
        for arrangement in group:
            boundaries[arrangement.index] = _quantiles(codes, parallelism) if len(codes) else even
    return boundaries


def _of_one_worker(plan: Plan) -> set[int]:
    """Arrangements that one operator looks up by several keys: the last worker owns all codes of them."""
    operators = ((block, plan.operator(block)) for block in plan.blocks if block.ports)
    return {port for block, op in operators if isinstance(op, Keyed) and op.one_worker for port in block.ports}


def _meeting(plan: Plan) -> list[list[Arrangement]]:
    """The arrangements in groups: both sides of a join, and input and output of a reduce, are in one."""
    leader = {arrangement.index: arrangement.index for arrangement in plan.arrangements}
    for block in plan.blocks:
        together = [*block.ports, *([] if block.output is None else [block.output])]
        for other in together[1:]:
            old, new = leader[other], leader[together[0]]
            leader = {index: new if current == old else current for index, current in leader.items()}
    groups: dict[int, list[Arrangement]] = {}
    for arrangement in plan.arrangements:
        groups.setdefault(leader[arrangement.index], []).append(arrangement)
    return list(groups.values())


def _quantiles(codes: np.ndarray, parallelism: int) -> list[int]:
    return [int(codes[(len(codes) * partition) // parallelism]) for partition in range(1, parallelism)]


def _sampled(fold: Fold) -> np.ndarray:
    """Integers of the new updates, sorted: at most a hundred thousand per input, from the head of its window."""
    samples = [np.empty(0, dtype=np.int64)]
    for name, schema in fold.plan.inputs.items():
        columns = [column for column, kind in schema.items() if kind.name == "int64"]
        log = ChangeLog(fold.stored.warehouse.input(name), schema, fold.plan.dims)
        if columns:
            frame = log.collect(log.window(fold.window, fold.inputs[name]).select(columns).head(_SAMPLE))
            samples += [frame[column].drop_nulls().to_numpy() for column in columns]
    return np.sort(np.concatenate(samples))
