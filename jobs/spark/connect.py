"""Sessions on a Spark Connect server, at an address such as ``sc://HOST:15002``: no JVM of ours, no context, no RDDs.

The server's Python workers get this package as an artifact of the session. Everything else is as with other sessions:
the caller's session is used where there is one, and not stopped; ours ends with the command.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import uuid
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import DdError, UsageError
from ddcore.io.sources.spark import cores
from ddcore.jobs.spark.failures import is_of_spark, telling_line
from ddcore.jobs.spark.gateway import interruptible
from ddcore.jobs.spark.installed import check_installed
from ddcore.jobs.spark.settings import is_connect, runtime
from ddcore.jobs.spark.shipping import package_zip
from ddcore.text.redaction import masked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LIBRARIES = {  # module: package
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}
_UNTIL_REACHED = 10.0  # seconds
_UNTIL_RELEASED = 3.0
_MODE = "SPARK_CONNECT_MODE_ENABLED"  # by this variable functions of PySpark know which kind of columns to make

_shipped: set[str] = set()  # ids of sessions whose server has this package: a cache


def is_used(master: str) -> bool:
    """Whether jobs go to a Spark Connect server: the caller's session is of one, or ``master`` is its address."""
    return _active() is not None or (is_connect(master) and not _has_context())


def check(libraries: Mapping[str, str] = _LIBRARIES) -> None:
    """Raise UsageError where a library is missing, before anything is started. ``libraries``: their packages by their
    modules.
    """
    check_installed()
    if names := [package for module, package in libraries.items() if not _is_there(module)]:
        raise UsageError(
            f"Spark Connect needs {', '.join(names)}: not installed",
            "pip install 'ddcore[connect]'; without Spark: --engine inline",
        )


@contextlib.contextmanager
def connected(
    conf: Mapping[str, str], master: str, parallelism: int | None = None, *, bulk: bool = False
) -> Iterator[SparkSession]:
    """The caller's session, or a new one at ``master``, for the length of a ``with``; tasks can import this package.

    SIGINT and SIGTERM cancel the jobs that were started inside, and the ``with`` raises what their handlers raise.
    Our SQL settings are taken back from the caller's session; those in ``conf`` are for sessions of our own.
    Raises UsageError for a wrong address or setting, DdError where no server answers or the server is lost.
    """
    check()
    session: Any = _active()
    is_own = session is None
    mode, tag = os.environ.get(_MODE), f"ddcore-{uuid.uuid4().hex}"

    def interrupt() -> None:
        if session is not None:
            within(5.0, lambda: session.interruptTag(tag))

    with interruptible(interrupt), warnings.catch_warnings(), _explained(master):
        warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # an error follows it
        try:
            if is_own:
                session = _started(master)
            os.environ[_MODE] = "1"
            session.addTag(tag)
            # A server's default of 200 partitions takes most of the time of a small ingest.
            wanted = (
                runtime(parallelism or cores(session), bulk=bulk) | dict(conf) if is_own else runtime(None, bulk=bulk)
            )
            with _settings(session, wanted, conf, restored=not is_own):
                if session.session_id not in _shipped:
                    session.addArtifacts(str(package_zip()), pyfile=True)
                    _shipped.add(session.session_id)
                yield session
        finally:
            if session is not None:
                session.removeTag(tag)
                if is_own:
                    _stop(session)
            if mode is None:
                os.environ.pop(_MODE, None)


def _active() -> Any:
    """The session of Spark Connect that this process has already; None if there is none."""
    module: Any = sys.modules.get("pyspark.sql.connect.session")  # no import: without it there is no session
    if module is None:
        return None
    return module.SparkSession.getActiveSession() or module.SparkSession._get_default_session()


def _has_context() -> bool:
    """Whether the caller works on a context of its own, which wins over an address."""
    module: Any = sys.modules.get("pyspark.core.context")
    return "PYSPARK_GATEWAY_PORT" in os.environ or (
        module is not None and module.SparkContext._active_spark_context is not None
    )


def _started(master: str) -> Any:
    """A new session at an address. Nothing waits longer than :data:`_UNTIL_REACHED` for a server that is not there."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else its library writes its own lines to stderr
    import grpc
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    try:
        channel = DefaultChannelBuilder(master).toChannel()
    except (PySparkException, ValueError) as error:
        reason = masked(" ".join(str(error).split()))
        raise UsageError(
            f"master {_address(master)}: not an address of Spark Connect: {reason}", "write it as sc://HOST:15002"
        ) from error
    try:
        grpc.channel_ready_future(channel).result(timeout=_UNTIL_REACHED)
    except grpc.FutureTimeoutError:
        raise DdError(
            f"no Spark Connect server answers at {_address(master)} within {_UNTIL_REACHED:.0f} s",
            "is it running, and is the address right? without Spark: --engine inline",
        ) from None
    finally:
        channel.close()
    session: Any = SparkSession.builder.remote(master).create()
    # A lost server is given up after about half a minute. PySpark's own policy takes ten minutes.
    policy = DefaultPolicy(max_retries=7, initial_backoff=50, max_backoff=10_000, backoff_multiplier=4.0)
    session.client.set_retry_policies([policy])
    return session


@contextlib.contextmanager
def _settings(session: Any, wanted: Mapping[str, str], conf: Mapping[str, str], *, restored: bool) -> Iterator[None]:
    """Settings of a session; with ``restored``, those from before are set again at the end.

    Raises UsageError for one of the project, in ``conf``, that the server refuses.
    """
    from pyspark.errors import PySparkException

    before: dict[str, str | None] = {}
    try:
        for name, value in wanted.items():
            if restored:
                before[name] = session.conf.get(name)
            try:
                session.conf.set(name, value)
            except PySparkException as error:
                if name not in conf:
                    raise
                raise UsageError(
                    f"[spark] conf: a session of Spark Connect refuses {name}: {telling_line(error)}",
                    "settings of the whole server are made where it is started",
                ) from error
        yield
    finally:
        with contextlib.suppress(PySparkException):  # of a server that is lost
            for name, old in before.items():
                session.conf.unset(name) if old is None else session.conf.set(name, old)


@contextlib.contextmanager
def _explained(master: str) -> Iterator[None]:
    """One line for a server that is lost, or that refuses what is no job of ours."""
    try:
        yield
    except DdError:
        raise
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise DdError(
            f"the Spark Connect server at {_address(master)} failed: {telling_line(error)}",
            "run it again: it continues where it stopped",
        ) from error


def _stop(session: Any) -> None:
    """End a session of ours. A server that does not answer ends it by itself, after a while."""
    session.client.set_retry_policies([])
    _shipped.discard(session.session_id)
    session.release_session_on_close = False  # done here, because stop() logs a warning if the server is lost
    within(_UNTIL_RELEASED, session.client.release_session)
    session.stop()


def within(seconds: float, call: Any) -> None:
    """Call something in another thread, whose errors do not matter; wait for it no longer than this."""

    def quietly() -> None:
        with contextlib.suppress(Exception):
            call()

    helper = threading.Thread(target=quietly, daemon=True)
    helper.start()
    helper.join(seconds)


def _address(master: str) -> str:
    """The host and port of an address. What follows may be a token."""
    return master.partition(";")[0].rstrip("/") if is_connect(master) else "of this session"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of its parent
        return False
