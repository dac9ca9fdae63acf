"""Changed programs: what did not change is kept, the rest is rebuilt, and outputs go on with exactly the difference.

Random programs are changed in random ways between runs. At every version that was folded before the change an output
holds what the old program gives; from the next version on, what the new one gives. Seeds are printed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from notation import dims_of
from programs import Case, case
from warehouses import log_of, project_of

from ddcore import reference
from ddcore.errors import DdError
from ddcore.io.ledger import Ledger
from ddcore.io.program import load_plan, load_program
from ddcore.io.project import Project
from ddcore.io.warehouse import Warehouse
from ddcore.jobs import replay

SEEDS = int(os.environ.get("DDCORE_SEEDS", "300")) // 10

VERSION = ("version",)
Contents = dict[Any, int]


def contents(log: pl.DataFrame, version: int) -> Contents:
    """The collection that an output's log adds up to at a version."""
    total: Counter[Any] = Counter()
    for (row, time), diff in reference.log_of(log, VERSION).items():
        if time[0] <= version:
            total[row] += diff
    return {row: count for row, count in total.items() if count}


def expected(project: Project, frames: Mapping[str, pl.DataFrame], version: int) -> dict[str, Contents]:
    """What the project's present program gives for the inputs at a version, by definition."""
    logs = reference.replay(load_program(project), VERSION, **frames)
    collections: dict[str, Contents] = {}
    for name, log in logs.items():
        total: Counter[Any] = Counter()
        for (row, time), diff in log.items():
            if time[0] <= version:
                total[row] += diff
        collections[name] = {row: count for row, count in total.items() if count}
    return collections


def changed(drawn: Case, rng: random.Random) -> str:
    """The source of a variant of a program: outputs are dropped, added, or computed in another way."""
    lines = ["", "", f"def program({', '.join(drawn.frames)}):", f"    found = original({', '.join(drawn.frames)})"]
    ways = [
        "found[name]", "found[name].distinct()", "found[name].concat(found[name])", "found[name].distinct().negate()",
        "found[name].concat(found[name].distinct())",
    ]  # fmt: skip
    lines += ["    names, result = list(found), {}"]
    lines += ["    for place, name in enumerate(names):"]
    lines += [f"        kept = {rng.randrange(1, 8)} >> (place % 3) & 1", f"        more = {rng.random() < 0.5}"]
    lines += ["        if kept or place == 0:", f"            result[name] = {rng.choice(ways)}"]
    lines += ["        if more:", f"            result[f'more_{{place}}'] = {rng.choice(ways[1:])}"]
    lines += ["    return result"]
    return drawn.source.replace("def program(", "def original(") + "\n".join(lines) + "\n"


def usable(seed: int) -> Case:
    """A case with versions as times, whose program has no error."""
    for number in range(100_000 + 100 * seed, 100_100 + 100 * seed):
        drawn = case(number, plain=True)
        if dims_of(drawn.frames) == VERSION and any(len(frame) for frame in drawn.frames.values()):
            try:
                reference.replay(drawn.program, VERSION, **drawn.frames)
            except DdError:
                continue
            return drawn
    raise AssertionError(f"no usable case for seed {seed}")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_outputs_go_on_with_the_difference(seed: int, tmp_path: Path) -> None:
    drawn, rng = usable(seed), random.Random(seed)
    project = project_of(tmp_path / "project", drawn)
    versions = sorted({version for frame in drawn.frames.values() for version in frame["version"].to_list()})
    cut = rng.choice(versions)
    replay.run(project, last=cut, engine="inline")
    before = expected(project, drawn.frames, cut)
    (project.root / "program.py").write_text(changed(drawn, rng))
    print(f"seed {seed}, versions {versions}, changed after {cut}\n{(project.root / 'program.py').read_text()}")
    try:
        after = expected(project, drawn.frames, versions[-1] + 1)
    except DdError as error:
        with pytest.raises(type(error)):
            replay.run(project, engine="inline")
        return
    replay.run(project, engine="inline")
    if (run := Ledger.load(Warehouse(project.warehouse)).current_run()) is not None and run.corrections:
        replay.run(project, last=cut + 1, engine="inline")
    outputs = load_plan(project).outputs
    assert after.keys() == outputs.keys()
    for name, schema in outputs.items():
        log = log_of(project, name, schema)
        assert contents(log, cut) == before.get(name, {}), "published versions stay as they are"
        for version in (v for v in (cut + 1, *versions) if v > cut):
            assert contents(log, version) == expected(project, drawn.frames, version)[name]
