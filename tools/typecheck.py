"""``mypy --strict`` over the four rooms as the one package they are once installed.

At the top of the repository ``io``, ``jobs`` and ``cli`` are folders beside ``ddcore``; installed they are
``ddcore.io`` and so on. mypy follows neither the mapping in pyproject.toml nor the import hook of an
editable install, and started at the top it takes ``io`` for the standard library's. So it is started in a
folder of links that shows the installed shape. Paths in its messages are put back to the real ones.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from mypy import api

TOP = Path(__file__).resolve().parent.parent
SHAPE = TOP / "build" / "rooms"
ROOMS = ("io", "jobs", "cli")
SCRIPTS = ("tools", "sample_data", "examples", "bench", "tests")


def link_all() -> None:
    """Bring ``build/rooms`` up to date: the package in its installed shape, and the scripts beside it."""
    _link(SHAPE / "ddcore", [*(TOP / "ddcore").iterdir(), *(TOP / room for room in ROOMS)])
    _link(SHAPE, [TOP / name for name in SCRIPTS if any((TOP / name).rglob("*.py"))], keep="ddcore")


def _link(folder: Path, entries: list[Path], keep: str = "") -> None:
    wanted = {entry.name: entry for entry in entries if entry.name != "__pycache__"}
    folder.mkdir(parents=True, exist_ok=True)
    for link in folder.iterdir():
        if link.name not in wanted and link.name != keep:
            link.unlink(missing_ok=True)
    for name, entry in wanted.items():
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(os.path.relpath(entry, folder))


def linked(path: str) -> str:
    """Where mypy, in the folder of links, finds the file that the repository has at ``path``."""
    return f"ddcore/{path}" if Path(path).parts[0] in ROOMS else path


def real_paths(text: str) -> str:
    """Messages with the paths of the links replaced by those of the files."""
    return re.sub(rf"^ddcore/({'|'.join(ROOMS)})\b", r"\1", text, flags=re.MULTILINE)


def main(paths: list[str]) -> int:
    """Check ``paths`` (relative to the repository; all of it when there are none). Gives mypy's exit code."""
    link_all()
    os.chdir(SHAPE)
    everything = sorted(entry.name for entry in SHAPE.iterdir() if entry.name != "build")
    settings = ["--config-file", str(TOP / "pyproject.toml"), "--cache-dir", str(TOP / ".mypy_cache")]
    out, err, code = api.run([*settings, *(linked(path) for path in paths or everything)])
    sys.stdout.write(real_paths(out))
    sys.stderr.write(err)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
