"""Commands whose project has another tuning: no setting gives one, so they get it on their way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddcore.base.tuning import Tuning
from ddcore.io.project.project import Project
from ddcore.jobs import replay

__all__ = ["tune_runs"]


def tune_runs(patch: pytest.MonkeyPatch, tuning: Tuning) -> None:
    """From here on each run of this process is tuned so."""
    run = replay.run

    def tuned(project: Project, **how: Any) -> Any:
        return run(replace(project, tuning=tuning), **how)

    patch.setattr(replay, "run", tuned)
