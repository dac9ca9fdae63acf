"""Random sequences of commands, some of them killed: after each the warehouse holds what it promises.

``sequences.Life`` says what that is. A failure prints the seed and the shortest sequence found that fails.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from forks import forks
from seeds import seeds
from sequences import lived, ops_of, smallest

SEEDS = seeds(60, share=5)


@pytest.mark.parametrize(
    ("sequences", "length"), [(1, 10), pytest.param(len(SEEDS), 14, marks=pytest.mark.long)], ids=["few", "many"]
)
def test_what_holds_after_each_of_many_commands(sequences: int, length: int, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with forks(tmp_path) as processes:
        for _ in range(sequences):
            seed = rng.randrange(10**6)
            print(f"seed {seed}, length {length}")
            ops = ops_of(seed, length)
            _, error = lived(tmp_path / "life", processes, seed, ops)
            if error is not None:
                life, error = smallest(tmp_path / "life", processes, seed, ops)
                print("\n".join(life.transcript))
                raise error
