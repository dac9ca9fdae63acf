"""Prepares once per machine what would otherwise delay the first run: ``python -m ddcore.jobs.setup``.

Delta's jars, compiled kernels, and a class archive for a quicker start of Spark, all in the cache folder, which can be
deleted at any time. A step that is done already takes almost no time. Kernels need no Java and are compiled even
if the other steps fail. ``--inline`` prepares only what the inline engine needs, ``--no-archive`` leaves the archive
out, ``--debug`` shows what Ivy and Spark print.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ddcore.cache import OWN_FOLDER, distrust, kernel_folder
from ddcore.errors import DdError, StorageError
from ddcore.jobs import cds, jars
from ddcore.jobs.java import find_java
from ddcore.jobs.session import is_debugging

__all__ = ["compile_kernels", "main"]


def compile_kernels() -> bool:
    """Compile the kernels that the cache lacks, in about a minute; False if none is missing, after half a second.

    Raises StorageError where the cache folder cannot be used.
    """
    import ddcore.kernels
    from ddcore.kernel_cache import current_kernels

    count = len(current_kernels())
    for module in pkgutil.iter_modules(ddcore.kernels.__path__):
        importlib.import_module(f"ddcore.kernels.{module.name}")
    folder, names = kernel_folder(), current_kernels()
    if not names:
        reason = distrust(folder) or f"{folder} cannot be written"
        raise StorageError(f"compiled kernels cannot be kept: {reason}", OWN_FOLDER)
    return len(names) > count


def main(arguments: list[str]) -> int:
    """Do the steps, a line each on stderr; exit code 1, and what to do, if one of them fails."""
    logger = logging.getLogger("ddcore")
    logger.addHandler(logging.NullHandler())  # the lines below report the compilation of kernels
    debug, spark = "--debug" in arguments or is_debugging(), "--inline" not in arguments
    problems: list[DdError] = []

    def step(name: str, cost: str, action: Callable[[], bool]) -> bool:
        _say(f"  {name:<18}{cost} ... ", end="")
        start = time.monotonic()
        try:
            is_new = action()
        except (DdError, OSError) as error:
            problems.append(error if isinstance(error, DdError) else StorageError(f"{name}: {error}", OWN_FOLDER))
            _say("failed")
            return False
        _say(f"{time.monotonic() - start:.0f} s" if is_new else "done already")
        return True

    # Kernels keep Python busy and the archive Java, so they run at the same time.
    with ThreadPoolExecutor(1) as pool:
        has_jars = spark and step("Delta's jars", "13 MB, once", lambda: bool(find_java()) and jars.resolve(debug))
        archive = pool.submit(cds.make_archive, debug) if has_jars and "--no-archive" not in arguments else None
        step("compiled kernels", "about a minute, once", compile_kernels)
        if archive is not None:
            step("class archive", "about a minute, once; Spark then starts in half the time", archive.result)
    for problem in problems:
        _say(f"\n{problem}")
    if spark and not has_jars:
        _say("\nOnly Spark needs Java and the jars: ddcore run --engine inline works without.")
    return max((problem.exit_code for problem in problems), default=0)


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
