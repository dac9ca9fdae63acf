"""Prepares once per machine what would otherwise delay the first run: ``python -m ddcore.jobs.setup``.

Delta's jars, compiled kernels, and a class archive for a quicker start of Spark, all in the cache folder, which can be
deleted at any time. A step that is done already takes almost no time. Kernels need no Java and are compiled even
if the other steps fail. ``--inline`` prepares only what the inline engine needs, as happens where PySpark is not
installed; ``--no-archive`` leaves the archive out, ``--debug`` shows what Ivy and Spark print.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import pkgutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

from ddcore.base.cache import OWN_FOLDER, distrust, kernel_folder, kernel_names, make_private
from ddcore.base.errors import DdError, StorageError
from ddcore.base.threads import available
from ddcore.jobs.spark import class_archive, jars
from ddcore.jobs.spark.installed import EXTRA, lacking
from ddcore.jobs.spark.java import find_java
from ddcore.jobs.spark.session import spark_session, stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMPILERS = 8  # processes; the longest kernel takes half a minute, and more would wait for it


def compile_kernels() -> bool:
    """Compile the kernels that the cache lacks, in a minute or two, by a process for each processor; False if none is
    missing, after half a second.

    Raises StorageError where the cache folder cannot be used.
    """
    from ddcore.compiling.kernel_cache import current_kernels

    count, folder = len(current_kernels()), kernel_folder()
    missing = 0 if distrust(folder) else len(kernel_names()) - count
    spawn = get_context("spawn")  # this process may have threads
    helpers = [spawn.Process(target=_help) for _ in range(1, min(available(), missing, _COMPILERS))]
    for helper in helpers:
        helper.start()
    _load_kernels()
    for helper in helpers:
        helper.join()
    names = current_kernels()
    if not names:
        reason = distrust(folder) or f"{folder} cannot be written"
        raise StorageError(f"compiled kernels cannot be kept: {reason}", OWN_FOLDER)
    return len(names) > count


def _load_kernels() -> None:
    """Compile what is missing, except for what another process compiles."""
    import ddcore.kernels

    for module in pkgutil.iter_modules(ddcore.kernels.__path__):
        importlib.import_module(f"ddcore.kernels.{module.name}")


def _help() -> None:
    logging.getLogger("ddcore").addHandler(logging.NullHandler())
    _load_kernels()


def make_archive() -> bool | None:
    """Write the archive, in some 40 s; False if it exists already, None if it cannot be written: it is optional."""
    target = class_archive.path()
    if target.exists():
        return False
    fresh = target.with_suffix(f".{os.getpid()}")
    try:
        make_private(target.parent)
        session = spark_session({"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={fresh}"})
        _exercise(session)
        stop(session, patience=180.0)  # the JVM writes the archive when it exits
        os.replace(fresh, target)
    except (DdError, OSError):
        return None
    finally:
        fresh.unlink(missing_ok=True)
    return True


def _exercise(session: SparkSession) -> None:
    """Load the classes that a usual run loads: Python jobs, a shuffle, reads and writes of Parquet, CSV and Delta."""
    numbers = session.range(0, 100, 1, 2).selectExpr("id", "cast(id as string) as name", "current_date() as day")
    session.sparkContext.parallelize([0], 1).mapPartitions(lambda it: it).collect()
    numbers.repartition(2, "id").sortWithinPartitions("id").mapInArrow(lambda it: it, numbers.schema).toArrow()
    numbers.groupBy("id").count().where("count > 0").toArrow()
    session.createDataFrame(numbers.toArrow()).join(numbers, "id").count()
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Exception):
        numbers.write.parquet(f"{folder}/parquet")
        session.read.parquet(f"{folder}/parquet").where("id = 3").toArrow()
        numbers.write.option("header", True).csv(f"{folder}/csv")
        session.read.option("header", True).schema(numbers.schema).csv(f"{folder}/csv").toArrow()
        for mode in ("error", "append"):
            numbers.write.format("delta").mode(mode).save(f"{folder}/delta")
        session.read.format("delta").load(f"{folder}/delta").where("id = 3").toArrow()


def main(arguments: list[str]) -> int:
    """Do the steps, a line each on stderr; exit code 1, and what to do, if one of them fails."""
    logger = logging.getLogger("ddcore")
    logger.addHandler(logging.NullHandler())  # the lines below report the compilation of kernels
    if "--debug" in arguments:
        os.environ["DDCORE_DEBUG"] = "1"
    spark = "--inline" not in arguments and not lacking()
    problems: list[DdError] = []

    def step(name: str, cost: str, action: Callable[[], bool | None]) -> bool:
        _say(f"  {name:<18}{cost} ... ", end="")
        start = time.monotonic()
        try:
            is_new = action()
        except (DdError, OSError) as error:
            problems.append(error if isinstance(error, DdError) else StorageError(f"{name}: {error}", OWN_FOLDER))
            _say("failed")
            return False
        took = f"{time.monotonic() - start:.0f} s"
        _say({True: took, False: "done already", None: "not written, Spark starts without it"}[is_new])
        return True

    # Kernels keep Python busy and the archive Java, so they run at the same time.
    with ThreadPoolExecutor(1) as pool:
        has_jars = spark and step("Delta's jars", "13 MB, once", lambda: bool(find_java()) and jars.resolve())
        archive = pool.submit(make_archive) if has_jars and "--no-archive" not in arguments else None
        step("compiled kernels", "about a minute, once", compile_kernels)
        if archive is not None:
            step("class archive", "about a minute, once; Spark then starts in half the time", archive.result)
    for problem in problems:
        _say(f"\n{problem}")
    if spark and not has_jars:
        _say("\nOnly Spark needs Java and the jars: ddcore run --engine inline works without.")
    if not spark and "--inline" not in arguments:
        _say(f"\nFor the engine inline only: no {' and no '.join(lacking())} here. For Spark: {EXTRA}")
    return max((problem.exit_code for problem in problems), default=0)


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
