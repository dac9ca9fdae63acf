"""Small programs from failing ones: hypothesis replays the choices of a seed and shrinks them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from choices import Choices
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes
from hypothesis.errors import HypothesisException
from programs import Case, drawn

__all__ = ["smallest"]

_KEY = b"the choices of the seed"


class _Enough(BaseException):
    """Ends the search; hypothesis lets it through."""


def smallest(seed: int, failure_of: Callable[[Case], Any], seconds: float = 60) -> Case:
    """The shortest program and history found that fail as those of this seed do: equal ``failure_of``, not None.

    Takes about ``seconds`` at most, whatever ``failure_of`` costs. Hypothesis may find another small one the next time.
    """
    end = time.monotonic() + seconds
    original = Choices.of_seed(seed)
    best = drawn(original, seed)
    wanted = failure_of(best)
    known: dict[str, bool] = {}

    def fails(candidate: Case) -> bool:
        nonlocal best
        if time.monotonic() > end:
            raise _Enough
        text = str(candidate)
        if text not in known:
            known[text] = failure_of(candidate) == wanted
        if known[text] and len(text) < len(str(best)):
            best = candidate
        return known[text]

    @st.composite
    def cases(draw: Any) -> Case:
        return drawn(Choices(lambda n: draw(st.integers(0, n - 1))), seed)

    database = InMemoryExampleDatabase()
    # Hypothesis shrinks what it replays only from its secondary corpus; the primary one holds what was shrunk before.
    database.save(_KEY + b".secondary", choices_to_bytes(original.record))
    how = settings(
        database=database,
        phases=[Phase.reuse, Phase.shrink],
        deadline=None,
        max_examples=10_000,
        suppress_health_check=list(HealthCheck),
    )
    with contextlib.suppress(_Enough, HypothesisException):  # the best case so far fails all the same
        find(cases(), fails, settings=how, database_key=_KEY)
    return best
