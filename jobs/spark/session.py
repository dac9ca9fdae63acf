"""A Spark session that starts quickly, prints nothing, and stops at once.

:func:`spark_session` uses the caller's session where there is one (a notebook, ``spark-submit``), as it is, and never
stops it; else it starts one with the settings of :mod:`ddcore.jobs.spark.settings`, Delta's jars from the cache,
and the JVM's output in a log file. Nothing here touches the network.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ddcore.base.cache import note_use
from ddcore.base.errors import DdError
from ddcore.io.storage import scratch
from ddcore.jobs.spark import class_archive, connect, jars
from ddcore.jobs.spark.failures import is_of_spark
from ddcore.jobs.spark.gateway import Gateway, Scratch, interruptible, keeping_signals, launch, log4j_file, log_hint
from ddcore.jobs.spark.installed import check_installed
from ddcore.jobs.spark.java import java_path
from ddcore.jobs.spark.settings import DELTA, defaults_file, is_debugging, is_local, is_this_machine, runtime, settings
from ddcore.jobs.spark.shipping import package_zip
from ddcore.text.redaction import PATTERN, keep_secret, masked

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Spark = TypeVar("Spark", "SparkSession", "SparkContext")

# The JVM that this process launched. PySpark has one context per process, in a variable of its own: this is beside it,
# so that the JVM is ended wherever that context is.
_own: Gateway | None = None
_keeping = 0  # contexts of :func:`kept` that are open
_UNTIL_DEAD = 2.0  # seconds from a lost connection until the JVM's end is known


@contextlib.contextmanager
def spark(
    conf: Mapping[str, str], master: str = "local[*]", parallelism: int | None = None, *, bulk: bool = False
) -> Iterator[SparkSession]:
    """A session for the length of a ``with``. SIGINT and SIGTERM cancel its jobs and end its JVM at once.

    The ``with`` then raises what their handlers raise; by default ``KeyboardInterrupt`` and ``SystemExit(143)``.
    In a session that existed before, the jobs are cancelled and nothing is stopped. ``master`` may be the address of a
    Spark Connect server.
    """
    if connect.is_used(master):
        with connect.connected(conf, master, parallelism, bulk=bulk) as session:
            yield session
        return
    with _hold(lambda: spark_session(conf, master, parallelism, bulk=bulk)) as session:
        yield session


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Inside, the first session that is started here stays for those after it, until the end. None is started."""
    global _keeping  # noqa: PLW0603
    is_borrowed = _own is not None  # launched by an outer caller, who continues with it
    _keeping += 1
    try:
        yield
    finally:
        _keeping -= 1
        if not (is_borrowed or _keeping) and _own is not None:
            from pyspark import SparkContext

            stop(SparkContext._active_spark_context)


def check() -> None:
    """Raise UsageError without PySpark, StorageError without Java or Delta's jars, before anything is started."""
    if not _is_callers():
        java_path()
        jars.paths()


@contextlib.contextmanager
def spark_context(
    conf: Mapping[str, str], master: str = "local[*]", parallelism: int | None = None
) -> Iterator[SparkContext]:
    """A Spark context (:func:`spark`) for jobs that need no SQL: it starts 0.7 s sooner."""
    with _hold(lambda: _context(conf, master, parallelism)) as context:
        yield context


def spark_session(
    conf: Mapping[str, str], master: str = "local[*]", parallelism: int | None = None, *, bulk: bool = False
) -> SparkSession:
    """The session to work in; if there is none, one is started in about 2 s. End it with :func:`stop`.

    ``conf`` is the project's ``[spark] conf`` and wins over every setting of ours, as do ``spark-defaults.conf`` and
    ``PYSPARK_SUBMIT_ARGS``. ``parallelism`` is the number of workers (default: the cores); ``bulk`` sets it up for a
    long run. ``DDCORE_DEBUG`` shows Spark's output on stderr.

    Raises UsageError without PySpark, StorageError without Java or the jars, DdError where Spark does not start.
    """
    if _is_callers():
        return _callers_session(conf, parallelism, bulk=bulk)
    from pyspark.sql import SparkSession

    return _launch(SparkSession.builder.getOrCreate, conf, master, parallelism, bulk=bulk)


def _context(conf: Mapping[str, str], master: str, parallelism: int | None) -> SparkContext:
    """The context to work in: the caller's, or a new one."""
    if _is_callers():
        return _callers_context(conf)
    from pyspark import SparkContext

    return _launch(SparkContext.getOrCreate, conf, master, parallelism)


def stop(spark: SparkSession | SparkContext | None, patience: float = 10.0) -> None:
    """End a session or context that was started here, and its JVM; about 0.2 s. Any other is left alone.

    After ``patience`` seconds the JVM is killed: it has no state that the next run needs.
    """
    global _own
    if _own is not None:
        gateway, _own = _own, None
        with keeping_signals():
            gateway.stop(_context_of(spark), patience)


def cancel(spark: SparkSession | SparkContext) -> None:
    """Cancel all jobs of a session's context; they fail in the threads that wait. Callable from any thread."""
    connect.within(5.0, _context_of(spark).cancelAllJobs)


def log_file() -> Path | None:
    """The file of the running JVM's output; None if it is shown, or the JVM is not ours."""
    return _own.log if _own is not None else None


@contextlib.contextmanager
def _hold(start: Callable[[], Spark]) -> Iterator[Spark]:
    """The session or context of ``start``, for the length of a ``with``: see :func:`spark`."""
    session: Spark | None = None
    is_borrowed = _own is not None  # launched by an outer caller, who continues with it

    def interrupt() -> None:
        if _own is not None and not is_borrowed:
            _own.terminate()
        elif session is not None:
            cancel(session)

    with interruptible(interrupt):
        try:
            session = start()
            yield session
        except BaseException as error:
            death = _death(error)
            if death or not (is_borrowed or _keeping):
                stop(session, patience=3.0)
            if death:
                raise death from error
            raise
        if not (is_borrowed or _keeping):
            stop(session)


def _death(error: BaseException) -> DdError | None:
    """The error to raise instead of ``error`` if the JVM died; PySpark itself reports a lost connection only."""
    if _own is None or not isinstance(error, Exception):
        return None
    is_lost = any(is_of_spark(cause) or isinstance(cause, OSError) for cause in (error, error.__cause__) if cause)
    ending = _own.death(_UNTIL_DEAD if is_lost else 0.0)
    if not ending:
        return None
    return DdError(
        f"Spark's Java process died: {ending}",
        "run it again; if it dies again, give it more memory, or fold fewer versions at a time (run: --to-version)"
        + (f"; its whole output is in {_own.log}" if _own.log else ""),
    )


def _context_of(spark: SparkSession | SparkContext | None) -> Any:
    return getattr(spark, "sparkContext", spark)


def _launch(
    start: Callable[[], Spark], conf: Mapping[str, str], master: str, parallelism: int | None, *, bulk: bool = False
) -> Spark:
    """The session or context that ``start`` creates, in a JVM of our own."""
    global _own  # noqa: PLW0603
    import pyspark

    spark_home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    defaults = defaults_file(os.environ, spark_home)
    keep_secret(defaults)
    folders = _scratch()
    archive = class_archive.archive(java_path(), spark_home)
    if archive is not None:
        note_use(archive)
    spark_conf = settings(
        master,
        {**defaults, **conf},
        jars=jars.paths(),
        log4j=log4j_file(),
        archive=archive,
        package=None if is_local(master) else package_zip(),
        blocks=folders.blocks,
        sockets=folders.sockets,
        parallelism=parallelism,
        bulk=bulk,
    )
    if is_debugging():
        spark_conf["spark.driver.extraJavaOptions"] += " -Dddcore.log=warn"
    environment = {"PYSPARK_PYTHON": spark_conf.get("spark.pyspark.python", sys.executable)}
    if is_this_machine(master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    with keeping_signals(), _without_remote():
        try:
            _own = launch(spark_conf, environment, folders)
        except BaseException:
            folders.remove()
            raise
        try:
            return start()
        except Exception as error:
            log, cause, death = log_file(), _cause(error), _death(error)
            stop(None)
            if death:
                raise death from error
            raise DdError(f"Spark did not start on {master}: {cause}", log_hint(log)) from error


@contextlib.contextmanager
def _without_remote() -> Iterator[None]:
    """Hide an address that another master wins over: where the variable is set, PySpark starts nothing else."""
    address = os.environ.pop("SPARK_REMOTE", None)
    try:
        yield
    finally:
        if address is not None:
            os.environ["SPARK_REMOTE"] = address


def _scratch() -> Scratch:
    blocks = Path(tempfile.mkdtemp(dir=scratch.folder()))
    # A socket's path has at most a hundred characters; PySpark's file name takes 43 of them.
    is_short = len(str(blocks)) <= 60
    return Scratch(blocks, blocks if is_short else Path(tempfile.mkdtemp(dir=scratch.folder(short=True))))


def _is_callers() -> bool:
    """Whether the caller has a context already, or a JVM for one. Raises UsageError where PySpark is not installed."""
    check_installed()
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _callers_context(conf: Mapping[str, str]) -> SparkContext:
    """The caller's context; under ``spark-submit``, which brings a JVM only, a new one in that JVM."""
    global _own  # noqa: PLW0603
    from pyspark import SparkConf, SparkContext

    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    with keeping_signals():
        SparkContext._ensure_initialized()
        _own = Gateway(SparkContext._gateway)
        existing = SparkConf()
        for name, value in ({"spark.redaction.regex": PATTERN} | _extensions() | dict(conf)).items():
            if name != "spark.master" and not existing.contains(name):
                existing.set(name, value)
        return SparkContext.getOrCreate(existing)


def _callers_session(conf: Mapping[str, str], parallelism: int | None, *, bulk: bool) -> SparkSession:
    """A session of our own on the caller's context, so that our SQL settings are not seen in theirs."""
    from pyspark.sql import SparkSession

    existing = _callers_context(conf).getConf()
    session = SparkSession.builder.getOrCreate().newSession()
    for name, value in runtime(parallelism, bulk=bulk).items():
        if name == "spark.sql.session.timeZone" or not (existing.contains(name) or name in conf):
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
    """The innermost line of a Java stack trace that says what happened, else the error's own first line.

    Asks the JVM, if the error is one of Java's.
    """
    try:
        text = masked(str(error))
    except Exception:  # the JVM is gone
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by:", ": "))]
    return (causes or lines or [type(error).__name__])[-1].removeprefix("Caused by: ").removeprefix(": ")[:300]
