"""``mypy --strict`` over the four rooms as the one package they are once installed.

At the top of the repository ``io``, ``jobs`` and ``cli`` are folders beside ``ddcore``; installed they are
``ddcore.io`` and so on. mypy follows neither the mapping in pyproject.toml nor the import hook of an
editable install, so it is given a folder of links that shows the installed shape. Paths in its messages
are put back to the real ones.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from mypy import api

TOP = Path(__file__).resolve().parent.parent
PACKAGE = TOP / "build" / "rooms" / "ddcore"
ROOMS = ("io", "jobs", "cli")
SCRIPTS = ("tools", "sample_data", "examples", "bench", "tests")


def link_rooms() -> None:
    """Bring ``build/rooms/ddcore`` up to date: links to all that is in ``ddcore/``, and to the three other rooms."""
    wanted = {entry.name: entry for entry in [*(TOP / "ddcore").iterdir(), *(TOP / room for room in ROOMS)]}
    wanted.pop("__pycache__", None)
    PACKAGE.mkdir(parents=True, exist_ok=True)
    for link in PACKAGE.iterdir():
        if link.name not in wanted:
            link.unlink(missing_ok=True)
    for name, entry in wanted.items():
        if not (PACKAGE / name).is_symlink():
            (PACKAGE / name).symlink_to(os.path.relpath(entry, PACKAGE))


def linked(path: str) -> str:
    """Where mypy finds the file that the repository has at ``path``."""
    room = Path(path).parts[0]
    if room == "ddcore":
        return f"build/rooms/{path}"
    return f"build/rooms/ddcore/{path}" if room in ROOMS else path


def real_paths(text: str) -> str:
    """Messages with the paths of the links replaced by those of the files."""
    text = re.sub(rf"^build/rooms/ddcore/({'|'.join(ROOMS)})\b", r"\1", text, flags=re.MULTILINE)
    return re.sub(r"^build/rooms/", "", text, flags=re.MULTILINE)


def main(paths: list[str]) -> int:
    """Check ``paths`` (relative to the repository; all of it when there are none). Gives mypy's exit code."""
    os.chdir(TOP)
    link_rooms()
    everything = ["ddcore", *(name for name in SCRIPTS if any((TOP / name).rglob("*.py")))]
    out, err, code = api.run([linked(path) for path in paths or everything])
    sys.stdout.write(real_paths(out))
    sys.stderr.write(err)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
