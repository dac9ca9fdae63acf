"""Everything that is made once per machine, so that no run pays for it: ``python -m ddcore.jobs.setup``.

Delta's jars, compiled kernels, and a class archive for a quicker start of Spark. Each step that finds its work done
costs next to nothing; all of it lies in the cache folder and can be deleted at any time.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ddcore.errors import DdError
from ddcore.jobs import cds, jars
from ddcore.jobs.java import find_java
from ddcore.jobs.session import is_debugging

__all__ = ["compile_kernels", "main"]


def compile_kernels() -> bool:
    """Import every kernel module, which compiles what the cache lacks: about a minute once, 1 s later on."""
    import ddcore.kernels

    began = time.monotonic()
    for module in pkgutil.iter_modules(ddcore.kernels.__path__):
        importlib.import_module(f"ddcore.kernels.{module.name}")
    return time.monotonic() - began > 5.0


def main(arguments: list[str]) -> int:
    """Do the steps, a line each on stderr; exit code 1 with what to do where one of them cannot be done."""
    debug = "--debug" in arguments or is_debugging()
    try:
        find_java()
        _step("Delta's jars", "13 MB, once", lambda: jars.resolve(debug))
        # One keeps Python busy and the other Java: on two cores they take the time of the longer one.
        with ThreadPoolExecutor(1) as beside:
            archive = None if "--no-archive" in arguments else beside.submit(cds.make_archive, debug)
            _step("compiled kernels", "about a minute, once", compile_kernels)
            if archive is not None:
                _step("class archive", "about a minute, once; Spark then starts in half the time", archive.result)
    except DdError as error:
        _say(f"\n{error}")
        return error.exit_code
    return 0


def _step(name: str, cost: str, step: Callable[[], bool]) -> None:
    _say(f"  {name:<18}{cost} ... ", end="")
    began = time.monotonic()
    made = step()
    _say(f"{time.monotonic() - began:.0f} s" if made else "there")


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
