"""A Spark session that starts quickly, says nothing, and stops when it is told to.

:func:`spark_session` takes what is there: a session of the caller's (a notebook, ``spark-submit``) is used as it is
and never stopped; else one is started with the settings of :mod:`ddcore.jobs.settings`, Delta's jars from the cache,
and the JVM's output in a log file. Nothing here touches the network.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ddcore.errors import DdError
from ddcore.jobs import cds, jars
from ddcore.jobs.failures import is_of_spark
from ddcore.jobs.gateway import Gateway, Scratch, interruptible, keeping_signals, launch, log4j_file, see
from ddcore.jobs.java import java_path
from ddcore.jobs.settings import DELTA, defaults_file, is_local, is_this_machine, runtime, settings
from ddcore.jobs.shipping import package_zip

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["cancel", "check", "is_debugging", "log_file", "spark", "spark_context", "spark_session", "stop"]

Spark = TypeVar("Spark", "SparkSession", "SparkContext")

# What this process launched; PySpark allows one context per process.
_own: Gateway | None = None
_UNTIL_DEAD = 2.0  # seconds from a lost connection until the JVM's end is known


@contextlib.contextmanager
def spark(
    conf: Mapping[str, str],
    master: str = "local[*]",
    parallelism: int | None = None,
    *,
    bulk: bool = False,
    debug: bool = False,
) -> Iterator[SparkSession]:
    """A session for the length of a ``with``. SIGINT and SIGTERM cancel its jobs and end its JVM at once.

    What their handlers raise is what leaves the ``with``; by default ``KeyboardInterrupt`` and ``SystemExit(143)``.
    Of a session that was there before, the jobs are cancelled and nothing is stopped.
    """
    with _held(lambda: spark_session(conf, master, parallelism, bulk=bulk, debug=debug)) as session:
        yield session


def check() -> None:
    """Raise StorageError where Java or Delta's jars are missing, before anything is started."""
    if not _is_callers():
        java_path()
        jars.paths()


@contextlib.contextmanager
def spark_context(
    conf: Mapping[str, str], master: str = "local[*]", parallelism: int | None = None
) -> Iterator[SparkContext]:
    """As :func:`spark`, for jobs that need no SQL: there 0.7 s sooner."""
    with _held(lambda: _context(conf, master, parallelism)) as context:
        yield context


def spark_session(
    conf: Mapping[str, str],
    master: str = "local[*]",
    parallelism: int | None = None,
    *,
    bulk: bool = False,
    debug: bool = False,
) -> SparkSession:
    """The session to work in; started, in about 2 s, when there is none. End it with :func:`stop`.

    ``conf`` is the project's ``[spark] conf`` and wins over every setting of ours, as do ``spark-defaults.conf`` and
    ``PYSPARK_SUBMIT_ARGS``. ``parallelism`` is the number of workers (default: the cores); ``bulk`` chooses for a long
    run; ``debug``, or ``DDCORE_DEBUG``, shows on stderr what Spark says.

    Raises StorageError where Java or the jars are missing, DdError where Spark does not start; both say what to do.
    """
    from pyspark.sql import SparkSession

    if _is_callers():
        return _callers_session(conf, parallelism, bulk=bulk)
    return _launched(SparkSession.builder.getOrCreate, conf, master, parallelism, bulk=bulk, debug=debug)


def _context(conf: Mapping[str, str], master: str, parallelism: int | None) -> SparkContext:
    """The context to work in: a caller's, or one started."""
    from pyspark import SparkContext

    return _callers_context(conf) if _is_callers() else _launched(SparkContext.getOrCreate, conf, master, parallelism)


def stop(spark: SparkSession | SparkContext | None, patience: float = 10.0) -> None:
    """End a session or context that was started here, and its JVM; about 0.2 s. Leaves any other alone.

    After ``patience`` seconds the JVM is killed: it has no state that the next run needs.
    """
    global _own
    if _own is not None:
        launched, _own = _own, None
        with keeping_signals():
            launched.stop(_context_of(spark), patience)


def cancel(spark: SparkSession | SparkContext) -> None:
    """Cancel all jobs of a session's context; they fail in the threads that wait. Callable from any thread."""
    helper = threading.Thread(target=_context_of(spark).cancelAllJobs, daemon=True)
    helper.start()
    helper.join(5.0)


def log_file() -> Path | None:
    """Where the running JVM's output goes; None when it is shown, or the JVM is not ours."""
    return _own.log if _own is not None else None


def is_debugging() -> bool:
    """Whether ``DDCORE_DEBUG`` asks for what Spark says; the command line's ``--debug`` sets it."""
    return os.environ.get("DDCORE_DEBUG", "0") not in ("", "0")


@contextlib.contextmanager
def _held(start: Callable[[], Spark]) -> Iterator[Spark]:
    """What ``start`` gives, for the length of a ``with``, as :func:`spark` describes."""
    found: Spark | None = None
    borrowed = _own is not None  # launched by this process, for others who go on with it

    def interrupt() -> None:
        if _own is not None and not borrowed:
            _own.terminate()
        elif found is not None:
            cancel(found)

    with interruptible(interrupt):
        try:
            found = start()
            yield found
        except BaseException as error:
            died = _death(error)
            if died or not borrowed:
                stop(found, patience=3.0)
            if died:
                raise died from error
            raise
        if not borrowed:
            stop(found)


def _death(error: BaseException) -> DdError | None:
    """The error to raise instead of ``error``, where the JVM died; PySpark only knows of a connection that was lost."""
    if _own is None or not isinstance(error, Exception):
        return None
    lost = any(is_of_spark(each) or isinstance(each, OSError) for each in (error, error.__cause__) if each)
    how = _own.death(_UNTIL_DEAD if lost else 0.0)
    if not how:
        return None
    return DdError(
        f"Spark's Java process died: {how}",
        "run it again; if it dies again, give it more memory, or less to do at a time (run: --to-version)"
        + (f"; all of what it said is in {_own.log}" if _own.log else ""),
    )


def _context_of(spark: SparkSession | SparkContext | None) -> Any:
    return getattr(spark, "sparkContext", spark)


def _launched(
    start: Callable[[], Spark],
    conf: Mapping[str, str],
    master: str,
    parallelism: int | None,
    *,
    bulk: bool = False,
    debug: bool = False,
) -> Spark:
    """What ``start`` gives in a JVM of our own."""
    global _own  # noqa: PLW0603
    import pyspark

    debug = debug or is_debugging()
    spark_home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    local = is_local(master)
    scratch = _scratch()
    chosen = settings(
        master,
        {**defaults_file(os.environ, spark_home), **conf},
        jars=jars.paths(),
        log4j=log4j_file(),
        archive=cds.archive(java_path(), spark_home) if local else None,
        package=None if local else package_zip(),
        blocks=scratch.blocks,
        sockets=scratch.sockets,
        parallelism=parallelism,
        bulk=bulk,
    )
    if debug:
        chosen["spark.driver.extraJavaOptions"] += " -Dddcore.log=warn"
    environment = {"PYSPARK_PYTHON": chosen.get("spark.pyspark.python", sys.executable)}
    if is_this_machine(master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    with keeping_signals():
        try:
            _own = launch(chosen, environment, scratch, debug)
        except BaseException:
            scratch.remove()
            raise
        try:
            return start()
        except Exception as error:
            log, died = log_file(), _death(error)
            stop(None)
            if died:
                raise died from error
            raise DdError(f"Spark did not start on {master}: {_cause(error)}", see(log)) from error


def _scratch() -> Scratch:
    blocks = Path(tempfile.mkdtemp(prefix="dd-"))
    # A socket's path has a hundred characters at most, 43 of which PySpark takes for a name.
    return Scratch(blocks, blocks if len(str(blocks)) <= 60 else Path(tempfile.mkdtemp(prefix="dd-", dir="/tmp")))


def _is_callers() -> bool:
    """Whether this process has a context, or a JVM to have one in, that is not ours to launch."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _callers_context(conf: Mapping[str, str]) -> SparkContext:
    """The caller's context; under ``spark-submit``, where there is only its JVM, one made in it."""
    global _own  # noqa: PLW0603
    from pyspark import SparkConf, SparkContext

    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    with keeping_signals():
        SparkContext._ensure_initialized()
        _own = Gateway(SparkContext._gateway)
        stated = SparkConf()
        for name, value in (_extensions() | dict(conf)).items():
            if name != "spark.master" and not stated.contains(name):
                stated.set(name, value)
        return SparkContext.getOrCreate(stated)


def _callers_session(conf: Mapping[str, str], parallelism: int | None, *, bulk: bool) -> SparkSession:
    """A session of our own on the caller's context, so that our SQL settings are not seen in theirs."""
    from pyspark.sql import SparkSession

    stated = _callers_context(conf).getConf()
    session = SparkSession.builder.getOrCreate().newSession()
    for name, value in runtime(parallelism, bulk=bulk).items():
        if name == "spark.sql.session.timeZone" or not (stated.contains(name) or name in conf):
            session.conf.set(name, value)
    return session


def _extensions() -> dict[str, str]:
    """Delta's part of the settings, where the JVM that ``spark-submit`` started has Delta on its class path."""
    from pyspark import SparkContext

    assert SparkContext._jvm is not None
    loader = SparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(DELTA["spark.sql.extensions"])
    except Exception:
        return {}
    return dict(DELTA)


def _cause(error: Exception) -> str:
    """The innermost line of a Java stack trace that says what happened, else the error's own first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by:", ": "))]
    return (causes or lines or [type(error).__name__])[-1].removeprefix("Caused by: ").removeprefix(": ")[:300]
