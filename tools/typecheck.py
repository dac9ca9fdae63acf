"""``mypy --strict`` over the four folders of the package, as they are installed.

At the top of the repository ``io``, ``jobs`` and ``cli`` are folders beside ``ddcore``; installed they are
``ddcore.io`` and so on. mypy follows neither the mapping in pyproject.toml nor the import hook of an editable install,
and at the top of the repository it confuses ``io`` with the standard library's. So it runs in a folder of links with
the installed layout. Paths in its messages are changed back to those of the repository.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from mypy import api

TOP = Path(__file__).resolve().parent.parent
LINKS = TOP / "build" / "rooms"
FOLDERS = ("io", "jobs", "cli")
SCRIPTS = ("tools", "sample_data", "examples", "bench", "tests")


def link_all() -> None:
    """Bring the folder of links up to date: the package as installed, and the scripts beside it."""
    _link(LINKS / "ddcore", [*(TOP / "ddcore").iterdir(), *(TOP / room for room in FOLDERS)])
    _link(LINKS, [TOP / name for name in SCRIPTS if any((TOP / name).rglob("*.py"))], keep="ddcore")


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
    """The path in the folder of links of the file that the repository has at ``path``."""
    return f"ddcore/{path}" if Path(path).parts[0] in FOLDERS else path


def real_paths(text: str) -> str:
    """Messages with the paths of the repository instead of those of the links."""
    return re.sub(rf"^ddcore/({'|'.join(FOLDERS)})\b", r"\1", text, flags=re.MULTILINE)


def main(paths: list[str]) -> int:
    """Check ``paths`` (relative to the repository; all of it when there are none). Returns mypy's exit code."""
    link_all()
    os.chdir(LINKS)
    everything = sorted(entry.name for entry in LINKS.iterdir() if entry.name != "build")
    settings = ["--config-file", str(TOP / "pyproject.toml"), "--cache-dir", str(TOP / ".mypy_cache")]
    out, err, code = api.run([*settings, *(linked(path) for path in paths or everything)])
    sys.stdout.write(real_paths(out))
    sys.stderr.write(err)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
