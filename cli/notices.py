"""Notices for the person who waits for a run: that it compiles kernels, once, for a minute, and how far it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ddcore.base.cache import compiling, missing_kernels
from ddcore.cli.output import Output, Progress
from ddcore.compiling import compilation


class _Notices(logging.Handler):
    """Writes the engine's log records above the live bar; -q drops all but warnings."""

    def __init__(self, out: Output) -> None:
        super().__init__(logging.INFO)
        self.out = out

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        if self.out.bar_shown:
            self.out.stderr.write("\r\x1b[K")
        write = self.out.warn if record.levelno >= logging.WARNING else self.out.say
        write(record.getMessage())


@contextmanager
def notices(out: Output, progress: Progress | None = None) -> Iterator[None]:
    """Show the records of the logger ``ddcore``, and how many kernels are compiled, while the engine works in this
    process: in the bar of the command, or in one of its own.
    """
    bar = out.progress() if progress is None else progress
    logger, handler = logging.getLogger("ddcore"), _Notices(out)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

    def compiles(done: int, total: int, *, going_on: bool) -> None:
        bar.between("compiling kernels" if going_on else "", done, total, "once on this machine")

    try:
        with compilation.telling(compiles):
            yield
    finally:
        if progress is None:
            bar.close()
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def listener(out: Output, progress: Progress, engine: str) -> Callable[..., None]:
    """``progress``, with a line first where Spark's Python workers will compile kernels: their own logs are hidden."""
    started = False

    def listen(stage: str, *rest: Any) -> None:
        nonlocal started
        if not started and engine == "spark" and (names := missing_kernels()):
            out.say(compiling(len(names)))
            if progress.live:
                progress.watch(partial(_compiled, progress, len(names)))
        started = True
        progress(stage, *rest)

    return listen


def _compiled(progress: Progress, total: int) -> bool:
    """Show how many kernels Spark's workers on this machine have compiled: the cache has those. False at last."""
    done = total - len(missing_kernels())
    if done:
        progress.between("compiling kernels" if done < total else "", done, total, "once on this machine")
    return done < total
