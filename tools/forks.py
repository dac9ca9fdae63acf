"""Commands in real processes that start quickly: a server that has imported everything forks one for each command.

The server itself runs no command, so none of its libraries has started threads of its own before the fork.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

__all__ = ["Ended", "Forks", "forks"]

UNSYNCED = "--unsynced"


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, negative for a signal, and what it wrote."""

    code: int
    out: list[str]
    err: list[str]


class Forks:
    """The server, from outside. Its commands sync nothing to the disk unless ``synced``: whatever kills them, the
    system keeps what they have written.
    """

    def __init__(self, folder: Path, synced: bool = True) -> None:
        self._folder = folder
        self._server = subprocess.Popen(
            [sys.executable, __file__, *([] if synced else [UNSYNCED])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            env={name: value for name, value in os.environ.items() if not name.startswith("DDCORE_FAILPOINT")},
        )  # fmt: skip

    def start(self, *arguments: object, **environment: str) -> int:
        """Start one command line of ddcore and return its process's number. :meth:`wait` has to be called next."""
        request = {
            "arguments": [str(argument) for argument in arguments], "environment": environment,
            "out": str(self._folder / "out"), "err": str(self._folder / "err"),
        }  # fmt: skip
        assert self._server.stdin is not None
        self._server.stdin.write(f"{json.dumps(request)}\n".encode())
        return self._answer()

    def wait(self, seconds: float | None = None) -> Ended | None:
        """Wait until the command ends, or None after so many seconds."""
        assert self._server.stdout is not None
        if not select.select([self._server.stdout], [], [], seconds)[0]:
            return None
        code = self._answer()
        out, err = ((self._folder / name).read_text().splitlines() for name in ("out", "err"))
        return Ended(code, out, err)

    def run(self, *arguments: object, **environment: str) -> Ended:
        """Run one command line of ddcore to its end."""
        self.start(*arguments, **environment)
        ended = self.wait()
        assert ended is not None
        return ended

    def _answer(self) -> int:
        """The number in the server's next line. Read without a buffer: ``select`` would not see a line in that."""
        assert self._server.stdout is not None
        return int(self._server.stdout.readline())

    def close(self) -> None:
        """End the server."""
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(30)
        self._server.stdout.close()


@contextmanager
def forks(folder: Path, synced: bool = True) -> Iterator[Forks]:
    """A server for the length of a ``with``; outputs of commands go to files in ``folder``."""
    server = Forks(folder, synced)
    try:
        yield server
    finally:
        server.close()


# --- the server -------------------------------------------------------------------------------------------------------


def _command(arguments: list[str], environment: Mapping[str, str], out: str, err: str) -> None:
    """The whole life of a forked process."""
    from ddcore.cli import main

    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.environ.update(environment)
    sys.argv = ["ddcore", *arguments]
    main.main()


def _modules() -> Iterator[str]:
    """What a command of the inline engine imports; kernels are loaded from the cache then."""
    yield from ("deltalake.transaction", "polars_hash", "pyarrow.ipc", "pyarrow.parquet")
    packages = ("cli", "io", "io.sources", "jobs", "jobs.ingesting", "kernels", "operators")
    for package in ("ddcore", *(f"ddcore.{name}" for name in packages)):
        folder = import_module(package).__path__
        yield from (f"{package}.{module.name}" for module in iter_modules(folder) if not module.ispkg)
    yield "ddcore.jobs.engines.inline"


def _serve() -> None:
    for name in _modules():
        import_module(name)
    if UNSYNCED in sys.argv:
        os.fsync = lambda fd: None
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                _command(**json.loads(line))
            except SystemExit as end:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(end.code if isinstance(end.code, int) else 1)
            os._exit(1)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _serve()
