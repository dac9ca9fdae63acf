"""Long random sequences of all commands: the ledger goes through merges of merges, and every read agrees with a model.

:mod:`histories` says what holds after each command. A failure prints the seed and all commands.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from histories import History
from seeds import nightly, seeds

ENTRIES = 210


@pytest.mark.slow
@pytest.mark.parametrize("entries", [ENTRIES // 4, pytest.param(ENTRIES, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "dimensions", [pytest.param(1, marks=pytest.mark.long), 2], ids=["one dimension", "two dimensions"]
)
@pytest.mark.parametrize("seed", nightly(seeds(15, share=20), 1))
def test_every_read_agrees_after_each_of_many_commands(
    seed: int, dimensions: int, entries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # what is tested here does not depend on it
    history = History(tmp_path / "project", seed, dimensions)
    try:
        while history.entries < entries:
            history.step()
    except BaseException:
        print(f"seed {seed}, {dimensions} dimensions", *history.transcript, sep="\n")
        raise
    print(history.did)
    if entries < ENTRIES:
        return
    assert min(history.did[kind] for kind in ("ingest", "restate", "undo", "run", "full refresh", "compact")) > 2
    assert history.did["undo of a restatement"] and history.did["program"] > 2 and history.did["read"]
