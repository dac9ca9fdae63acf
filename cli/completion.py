"""What the shell's completion offers: names from the project at hand.

It reads ``dd.toml`` and lists folders, and imports nothing heavy. Where anything is wrong it offers nothing and prints
nothing: the command itself reports the error.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from ddcore.program.data_tests import is_test

_FILE_NAME = "dd.toml"
_VERSIONS = ("latest", "today", "yesterday")
_MOST = 100  # labels, or runs, that are offered


def input_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The inputs of ``dd.toml``."""
    return _starting(incomplete, _section(_project(ctx), "inputs"))


def output_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The outputs of ``dd.toml`` and those that a run has written."""
    project = _project(ctx)
    folders = _folders(_warehouse(ctx, project) / "outputs")
    names = {*_section(project, "outputs"), *(name for name in folders if not is_test(name))}
    return _starting(incomplete, names)


def branch_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The branches of the warehouse, and the name of the warehouse itself."""
    from ddcore.io.storage import branches

    home = _home(ctx, _project(ctx))
    there = [
        name for name in _folders(home / branches.FOLDER) if (home / branches.FOLDER / name / branches.NOTE).exists()
    ]
    return _starting(incomplete, (branches.MAIN, *there))


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Completion by some words."""

    def starting(incomplete: str) -> list[str]:
        return _starting(incomplete, words)

    return starting


def version_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Words and labels that name a version, of the labels the newest; numbers need no completion."""
    from ddcore.io.ledger import labels

    try:
        names = labels.merged(_notes(ctx, labels.FOOTER))
    except (OSError, ValueError, LookupError, TypeError):
        names = []
    known = [(coordinate, label) for of in names for coordinate, name in of.items() for label in name.labels]
    fitting = [label for _, label in sorted(known) if label.startswith(incomplete)]
    return _starting(incomplete, (*_VERSIONS, *fitting[-_MOST:]))


def run_numbers(ctx: typer.Context, incomplete: str) -> list[str]:
    """The numbers of finished runs, the newest first. Behind the first run of a range, those from it on."""
    from ddcore.io.ledger import entry_files

    try:
        found = entry_files.run_numbers(_notes(ctx, entry_files.RUNS))
    except (OSError, ValueError, LookupError, TypeError):
        found = []
    first = ctx.params.get("a")
    least = first if isinstance(first, int) else 0
    return [str(run) for run in found if run >= least and str(run).startswith(incomplete)][:_MOST]


def key_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The key columns that ``dd.toml`` gives the output on the command line; those of all outputs where it is unknown.

    Behind an option that still lacks its value the parser gives up, and no argument is known.
    """
    outputs = _section(_project(ctx), "outputs")
    output = ctx.params.get("output")
    chosen = [outputs.get(output)] if output in outputs else outputs.values()
    keys = [settings.get("key") for settings in chosen if isinstance(settings, dict)]
    return _starting(incomplete, [name for key in keys if isinstance(key, list) for name in key])


def _notes(ctx: typer.Context, name: str) -> list[str]:
    """A note of each file of the ledger; empty for files without it."""
    from ddcore.io.parquet import datafile

    ledger = _warehouse(ctx, _project(ctx)) / "ledger"
    return [datafile.glance(file, name) or "" for file in ledger.glob("entries-*.parquet")]


def _starting(incomplete: str, names: Iterable[Any]) -> list[str]:
    texts = [name for name in names if isinstance(name, str)]
    return sorted({name for name in texts if name.startswith(incomplete) and name.isprintable()})


def _project(ctx: typer.Context) -> tuple[Path, dict[str, Any]]:
    """The project's folder and its ``dd.toml``, empty where there is none that can be read."""
    given = ctx.params.get("project") or os.environ.get("DDCORE_PROJECT")
    try:
        here = Path.cwd()
        folders = [Path(given)] if given else [here, *here.parents]
        for folder in folders:
            file = folder if folder.name == _FILE_NAME else folder / _FILE_NAME
            if file.is_file():
                return file.parent, tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        pass
    return Path(), {}


def _section(project: tuple[Path, dict[str, Any]], name: str) -> dict[str, Any]:
    section = project[1].get(name)
    return section if isinstance(section, dict) else {}


def _warehouse(ctx: typer.Context, project: tuple[Path, dict[str, Any]]) -> Path:
    """The folder of the branch that is named, or of the warehouse itself."""
    from ddcore.io.storage import branches

    name, home = ctx.params.get("branch") or os.environ.get("DDCORE_BRANCH"), _home(ctx, project)
    return home / branches.FOLDER / str(name) if name and name != branches.MAIN else home


def _home(ctx: typer.Context, project: tuple[Path, dict[str, Any]]) -> Path:
    root, _ = project
    folder = ctx.params.get("warehouse") or os.environ.get("DDCORE_WAREHOUSE")
    if folder:
        return Path(str(folder))
    return root / str(_section(project, "project").get("warehouse") or "warehouse")


def _folders(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    except (OSError, ValueError):
        return []
