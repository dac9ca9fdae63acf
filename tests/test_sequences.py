"""Commands in any order, some of them killed: after each the warehouse holds what it promises.

``sequences.Life`` has the model and says what that is: inputs, labels and waiting versions are those of the model, and
at each version for which the law is promised the outputs are what the reference computes from the model's inputs.
Hypothesis chooses the commands and all about them, and shrinks a sequence that fails; the failure prints its commands.
``DDCORE_SEED`` repeats a run.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from forks import forks
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from seeds import seeds
from sequences import KINDS, Life

RANDOM = st.randoms(use_true_random=False)
SEQUENCES = seeds(60, share=5)


class Warehouse(RuleBasedStateMachine):
    """A warehouse of one project. Each rule is as likely as any other, so the commonest commands have two."""

    life: Life

    @staticmethod
    def begun(rng: random.Random) -> Life:
        """A project without a warehouse."""
        raise NotImplementedError

    def do(self, kind: str, rng: random.Random) -> None:
        self.failed = True
        self.life.do(kind, rng)
        self.failed = False

    @initialize(rng=RANDOM)
    def first_ingest(self, rng: random.Random) -> None:
        self.life = self.begun(rng)
        self.do("ingest", rng)

    @rule(rng=RANDOM)
    def ingest(self, rng: random.Random) -> None:
        self.do("ingest", rng)

    @rule(rng=RANDOM)
    def ingest_with_label(self, rng: random.Random) -> None:
        self.do("label", rng)

    @rule(rng=RANDOM)
    def ingest_late_rows(self, rng: random.Random) -> None:
        self.do("late", rng)

    @rule(rng=RANDOM)
    def ingest_a_source_again(self, rng: random.Random) -> None:
        self.do("again", rng)

    @rule(rng=RANDOM)
    def restate(self, rng: random.Random) -> None:
        self.do("restate", rng)

    @rule(rng=RANDOM)
    def undo(self, rng: random.Random) -> None:
        self.do("undo", rng)

    @rule(rng=RANDOM)
    def run(self, rng: random.Random) -> None:
        self.do("run", rng)

    @rule(rng=RANDOM)
    def ingest_and_run(self, rng: random.Random) -> None:
        self.do("ingest", rng)
        self.do("run", rng)

    @rule(rng=RANDOM)
    def killed_run(self, rng: random.Random) -> None:
        self.do("killed", rng)

    @rule(rng=RANDOM, compacted=st.booleans())
    def killed_run_of_another_program(self, rng: random.Random, compacted: bool) -> None:
        """It is given up, and what it left is compacted."""
        self.do("killed", rng)
        self.do("program", rng)
        if compacted:
            self.do("compact", rng)

    @rule(rng=RANDOM)
    def change_program(self, rng: random.Random) -> None:
        self.do("program", rng)

    @rule(rng=RANDOM)
    def change_retention(self, rng: random.Random) -> None:
        self.do("retention", rng)

    @rule(rng=RANDOM)
    def compact(self, rng: random.Random) -> None:
        self.do("compact", rng)

    def teardown(self) -> None:
        """Whatever happened, plain runs go on from there."""
        if not hasattr(self, "life"):
            return
        try:
            if not self.failed:
                self.life.end()
        finally:
            note("\n".join(self.life.transcript))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sequences", "length"),
    [(4, 8), pytest.param(len(SEQUENCES), 16, marks=pytest.mark.long)],
    ids=["few", "many"],
)
def test_what_holds_after_each_of_many_commands(sequences: int, length: int, tmp_path: Path) -> None:
    lives: list[Life] = []
    with forks(tmp_path, synced="DDCORE_FSYNC" in os.environ) as processes:

        class Here(Warehouse):
            @staticmethod
            def begun(rng: random.Random) -> Life:
                shutil.rmtree(tmp_path / "life", ignore_errors=True)
                lives.append(Life(tmp_path / "life", processes, rng))
                return lives[-1]

        run_state_machine_as_test(
            Here,
            settings=settings(
                max_examples=sequences, stateful_step_count=length, deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
    did = sum((life.did for life in lives), Counter[str]())
    print(len(lives), did)
    tried = {name.partition(" ")[0] for name in did}
    assert len(tried) > len(KINDS) / 3 and (tried == {*KINDS} or len(lives) < 40), did
