"""``dd init``: a project folder that runs at once."""

from __future__ import annotations

import os
from pathlib import Path

from ddcore.base.errors import UsageError
from ddcore.cli.beginnings import sample_of
from ddcore.cli.completion import one_of
from ddcore.cli.options import Call, argument, command, option
from ddcore.cli.samples import SAMPLES, Sample
from ddcore.text.wording import meant

# A folder that is a repository may have these two already: they are left as they are.
_OPTIONAL = ("README.md", ".gitignore")


@command("quiet")
def init(
    call: Call,
    folder: Path = argument("DIR", "The folder to fill; it is created if missing.", default=Path(".")),
    *,
    example: str = option(
        "trams|bitemporal",
        "What to make: a tram network in five versions, or daily figures that later reports restate.",
        default="trams",
        complete=one_of(*SAMPLES),
    ),
    sources: list[str] | None = option(
        "PATH",
        "A file, a folder, a quoted glob or a Delta table: the project has an input for it, with its schema, and "
        "ddcore sync takes it in. May be repeated.",
        names=("--from",),
    ),
) -> int:
    """Make a project folder that runs at once: dd.toml, program.py and a little data; or, with --from, over your own
    files and tables.

    No existing file is overwritten.
    """
    out = call.output
    sample = sample_of(sources, folder) if sources else _sample(example)
    _refuse_to_overwrite(folder, sample)
    names = [name for name in sample.files if name not in _OPTIONAL or not (folder / name).exists()]
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(sample.files[name], encoding="utf-8")
    here = folder.resolve() == Path.cwd()
    out.say(f"made {'a project here' if here else folder}: {', '.join(names)}")
    out.say()
    out.say("next:")
    for line in (*([] if here else [f"cd {folder}"]), *sample.commands):
        out.say(f"  {line}")
    return 0


def _sample(name: str) -> Sample:
    if name not in SAMPLES:
        raise UsageError(f"--example: there is no {name!r}; there are: {', '.join(SAMPLES)}", meant(name, SAMPLES))
    return SAMPLES[name]


def _refuse_to_overwrite(folder: Path, sample: Sample) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder", "name another folder: ddcore init DIR")
    present = [name for name in sample.files if name not in _OPTIONAL and os.path.lexists(folder / name)]
    if present:
        where = "this folder" if folder.resolve() == Path.cwd() else folder
        raise UsageError(
            f"{where} already has {', '.join(present)}; init overwrites nothing", "name another folder: ddcore init DIR"
        )
