"""The JVM of a session that this process starts: launched with its output in a log file, stopped without delay.

PySpark lets the JVM write to the user's terminal, and at the end waits a second for a thread of its own. To avoid both,
this module uses private parts of PySpark; therefore ``pyspark`` is pinned to one version. Settings are elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ddcore.base.cache import cache_folder
from ddcore.base.errors import DdError
from ddcore.jobs.spark.java import find_java
from ddcore.jobs.spark.settings import is_debugging
from ddcore.text.redaction import is_secret, masked

_KEPT_LOGS = 20
_UNTIL_KILLED = 5.0  # seconds
_UNTIL_SHOWN = 2.0  # seconds from the end of a JVM until its last lines are written
_LOG4J = """\
rootLogger.level = ${sys:ddcore.log:-error}
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class Scratch:
    """Folders of one session, removed with it: for shuffled blocks, and for the sockets of Python workers."""

    blocks: Path
    sockets: Path

    def remove(self) -> None:
        """Remove both with their content."""
        for folder in {self.blocks, self.sockets}:
            shutil.rmtree(folder, ignore_errors=True)


class Gateway:
    """The JVM of a session that this process started. ``log`` is the file its output goes to; None if it is shown.

    Under ``spark-submit`` the JVM launched this process: then the session is ours, and the JVM is not.
    """

    def __init__(self, gateway: Any, output: _Output | None = None, scratch: Scratch | None = None) -> None:
        self._gateway, self._output = gateway, output
        self._process: subprocess.Popen[bytes] | None = gateway.proc
        self._scratch = scratch
        self._is_ended = False  # whether this process ended it
        self.log = None if output is None else output.log

    def terminate(self) -> None:
        """Send SIGTERM to the JVM: it cancels its jobs, and every call that waits for it fails. Does not wait.

        A JVM that hangs in its own clean-up is killed after 5 s; otherwise a waiting call would never return.
        """
        self._is_ended = True
        if self._process is not None:
            self._process.terminate()
            timer = threading.Timer(_UNTIL_KILLED, self._process.kill)
            timer.daemon = True
            timer.start()

    def death(self, patience: float) -> str:
        """How the JVM ended, if this process did not end it; else "". Waits for its end up to ``patience`` seconds.

        Also "" for a JVM that is not this process's child.
        """
        return "" if self._process is None or self._is_ended else _ending(self._process, patience)

    def stop(self, context: Any, patience: float) -> None:
        """Stop ``context`` (None if there is none) and end the JVM; kill it after ``patience`` seconds.

        Runs in a separate thread: after an interrupt in a call to the JVM, that thread's connection is unusable.
        """
        worker = threading.Thread(target=self._stop_politely, args=(context, patience), daemon=True)
        worker.start()
        worker.join(patience)
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            worker.join(1.0)
            _forget()
        if self._scratch is not None:
            self._scratch.remove()
        if self._output is not None:
            self._output.finish()

    def _stop_politely(self, context: Any, patience: float) -> None:
        # After a signal the JVM may have ended already; PySpark would warn about that.
        with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
            accumulators = None
            if context is not None:
                accumulators = _detach_accumulators(context)
                context.stop()
            if self._process is None:
                return
            self._gateway.shutdown()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(patience)
            if accumulators is not None:
                _close(accumulators)


def launch(conf: Mapping[str, str], environment: Mapping[str, str], scratch: Scratch) -> Gateway:
    """Start a JVM with ``conf``, register it with PySpark, and return it. About 1 s.

    ``environment`` sets variables that this process's environment lacks; ``scratch`` is removed when the JVM is
    stopped. Raises DdError, with the error in the log, if the JVM does not start.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    for name, value in environment.items():
        os.environ.setdefault(name, value)
    if not is_debugging():
        _silence()
    spark_conf = SparkConf(loadDefaults=False)
    for name, value in conf.items():
        if not is_secret(name):  # the settings are arguments of a command, which every user of the machine can list
            spark_conf.set(name, value)
    log = None if is_debugging() else _new_log()
    output = _Output(log)
    with output.open() as stream, _launches() as processes:
        try:
            gateway = cast(Any, launch_gateway)(spark_conf, popen_kwargs={"stdout": stream, "stderr": stream})
        except PySparkRuntimeError as error:
            output.finish()
            ending = _ending(processes[0], 1.0) if processes else ""
            if "killed" in ending:
                raise DdError(f"Spark's Java process died while it started: {ending}", log_hint(log)) from None
            find_java()  # raises a better error if Java is too old
            reason = _last_line(log) or error
            raise DdError(f"Spark's Java process did not start: {reason}", log_hint(log)) from None
    SparkContext._ensure_initialized(gateway=gateway)
    for name in filter(is_secret, conf):
        gateway.jvm.java.lang.System.setProperty(name, conf[name])  # Spark reads properties as settings
    return Gateway(gateway, output, scratch)


def log4j_file() -> Path:
    """The logging configuration of every JVM: errors only, unless ``-Dddcore.log=`` sets another level."""
    file = cache_folder() / "log4j2.properties"
    if not file.exists() or file.read_text() != _LOG4J:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f"{file.name}.{os.getpid()}")
        fresh.write_text(_LOG4J)
        os.replace(fresh, file)
    return file


@contextlib.contextmanager
def keeping_signals() -> Iterator[None]:
    """Restore the handler of SIGINT that PySpark replaces: PySpark's calls the JVM on a connection in use."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """While inside, SIGINT and SIGTERM call ``interrupt``, then do what they did before, or exit with 130 or 143.

    If a signal handler raises inside a call to the JVM, clean-up code of PySpark calls the JVM again, and another error
    replaces the handler's. So after a signal, this raises the handler's exception, whatever the other error is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raised: list[BaseException] = []

    def handle(number: Any, frame: Any) -> None:
        interrupt()
        try:
            before = previous[number]
            if callable(before):
                before(number, frame)
            elif before is signal.SIG_DFL:
                sys.exit(128 + number)
        except BaseException as error:
            raised.append(error)
            raise

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    previous = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    except BaseException as error:
        if raised and error is not raised[0]:
            raise raised[0] from None
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _Output:
    """What a JVM prints: line by line, without secrets, into ``log``; None: to this process's stderr.

    Spark may quote settings in its errors. A thread copies the lines, so that no file ever holds a secret, also if this
    process is killed.
    """

    def __init__(self, log: Path | None) -> None:
        self.log = log
        self._copier: threading.Thread | None = None

    @contextlib.contextmanager
    def open(self) -> Iterator[int]:
        """The descriptor to which the JVM is to print, for its launch."""
        source, sink = os.pipe()
        # this process's stdout is for data
        target = os.dup(2) if self.log is None else os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._copier = threading.Thread(target=_copy_masked, args=(source, target), name="spark output", daemon=True)
        self._copier.start()
        try:
            yield sink
        finally:
            os.close(sink)

    def finish(self) -> None:
        """Wait until the last lines of a JVM that has ended are written."""
        if self._copier is not None:
            self._copier.join(_UNTIL_SHOWN)


def _copy_masked(source: int, target: int) -> None:
    """Copy lines until the last process that prints them has ended. A reader or a disk that is gone stops nobody."""
    with open(source, "rb") as lines, open(target, "wb", buffering=0) as written:
        for line in lines:
            text = masked(line.decode("utf-8", "surrogateescape"))
            with contextlib.suppress(OSError):
                written.write(text.encode("utf-8", "surrogateescape"))


@contextlib.contextmanager
def _launches() -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that PySpark launches inside: if a launch fails, PySpark does not return its process."""
    from pyspark import java_gateway

    module, processes = cast(Any, java_gateway), []
    launcher = module.Popen

    def launch_and_record(*arguments: Any, **named: Any) -> Any:
        processes.append(launcher(*arguments, **named))
        return processes[-1]

    module.Popen = launch_and_record
    try:
        yield processes
    finally:
        module.Popen = launcher


def _ending(process: subprocess.Popen[bytes], patience: float) -> str:
    """How a process ended, waiting up to ``patience`` seconds; "" if it has not ended."""
    try:
        code = process.wait(patience)
    except subprocess.TimeoutExpired:
        return ""
    number = -code if code < 0 else code - 128  # a shell in between makes 137 of signal 9
    if number not in {known.value for known in signal.Signals}:
        return f"exit code {code}"
    name = signal.Signals(number).name
    return f"killed by {name}" + "; the system does that when memory runs out" * (name == "SIGKILL")


def _silence() -> None:
    """Keep PySpark from logging errors that it also raises, and py4j from reporting that the JVM has ended."""
    for name in ("py4j", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return not str(record.msg).endswith("while sending command.")


def _new_log() -> Path:
    folder = cache_folder() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("spark-*.log"))[: -_KEPT_LOGS + 1]:
        old.unlink(missing_ok=True)
    return folder / f"spark-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log"


def _last_line(log: Path | None) -> str:
    if log is None:
        return ""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("WARNING")]
    telling = [line for line in lines if "rror" in line or "xception" in line]
    return (telling or lines or [""])[0][:300]


def log_hint(log: Path | None) -> str:
    """The hint after a failed start: what to run, and where the JVM's output is."""
    return "run: ddcore doctor" + (f"; its whole output is in {log}" if log else "")


def _detach_accumulators(context: Any) -> Any:
    """Detach the server that ``SparkContext.stop`` would wait a second for. It ends by itself with the JVM."""
    server, context._accumulatorServer = context._accumulatorServer, None
    server.server_shutdown = True
    quiet: Callable[..., None] = lambda *_: None  # noqa: E731
    server.handle_error = quiet  # the end of its stream is expected
    return server


def _close(server: Any) -> None:
    """Close a server whose client has ended: in a thread, because it takes up to half a second."""
    threading.Thread(target=server.shutdown, daemon=True).start()
    if isinstance(server.server_address, str):
        with contextlib.suppress(OSError):
            os.remove(server.server_address)


def _forget() -> None:
    """Make PySpark forget its JVM, so that it can launch another one in this process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
