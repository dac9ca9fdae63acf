"""Spark's settings for a master and a purpose: a dict of strings, computed without starting anything.

The caller's own settings win. Where a setting is a list by nature (class path, JVM options, SQL extensions, jars)
ours comes first and the caller's is appended, so that the caller's wins there too.
Measured reasons for each setting: docs/spark.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddcore.text.redaction import PATTERN

# A setting that is a list: its separator.
_LISTS = {
    "spark.driver.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
    "spark.executor.extraJavaOptions": " ",
    "spark.jars": ",",
    "spark.sql.extensions": ",",
    "spark.submit.pyFiles": ",",
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_SAME_EVERYWHERE = {
    "spark.app.name": "ddcore",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.properties.defaults.checkpointInterval": "100",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    "spark.cleaner.periodicGC.interval": "5min",
    # Workers that exchange messages are a barrier stage: it needs executors that stay, and asks for free cores until
    # there are enough of them.
    "spark.dynamicAllocation.enabled": "false",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.redaction.regex": PATTERN,
    "spark.sql.ui.retainedExecutions": "20",
    # Hadoop's checksummed local file system leaves .crc files in tables, on which later Delta reads fail.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}
LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]")
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_UTC = "-Duser.timezone=UTC"
# The first-tier compiler alone starts faster; without the larger code cache it stops compiling after a minute.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"


def is_debugging() -> bool:
    """Whether Spark's output is shown: ``DDCORE_DEBUG`` is set. The command line's ``--debug`` sets it."""
    return os.environ.get("DDCORE_DEBUG", "0") not in ("", "0")


def is_local(master: str) -> bool:
    """Whether ``master`` runs everything in the driver's own JVM."""
    return master == "local" or master.startswith("local[")


def is_connect(master: str) -> bool:
    """Whether ``master`` is the address of a Spark Connect server."""
    return master.startswith("sc://")


def is_this_machine(master: str) -> bool:
    """Whether ``master`` uses this machine only: ``local[...]`` and ``local-cluster[...]``."""
    return master.startswith("local")


def cores_of(master: str) -> int | None:
    """How many tasks ``master`` runs at a time; None for a cluster: known only when it runs."""
    if master == "local":
        return 1
    here = re.fullmatch(r"local\[(\*|\d+)(?:,.*)?\]", master)
    if here:
        return _cpus() if here[1] == "*" else int(here[1])
    cluster = LOCAL_CLUSTER.fullmatch(master)
    return int(cluster[1]) * int(cluster[2]) if cluster else None


def settings(
    master: str,
    overrides: Mapping[str, str],
    *,
    jars: Sequence[str],
    log4j: Path,
    archive: Path | None = None,
    package: Path | None = None,
    blocks: Path | None = None,
    sockets: Path | None = None,
    parallelism: int | None = None,
    bulk: bool = False,
) -> dict[str, str]:
    """Spark's settings for ``master``, with ``overrides`` (the caller's) over them.

    ``parallelism`` is the number of workers; it defaults to the cores. ``bulk`` is for long runs: the optimising
    compiler and adaptive plans, which cost seconds and save minutes. ``archive`` is a class archive for a quicker
    start of the driver's JVM, which is on this machine whatever the master; ``package`` a zip of this package for
    executors that have none, ``blocks`` and ``sockets`` folders of this session alone.
    """
    ours = {**_SAME_EVERYWHERE, **DELTA, **runtime(parallelism or cores_of(master), bulk=bulk), "spark.master": master}
    everywhere = [_UTC] if bulk else [_UTC, _QUICK]
    options = [*everywhere, f"-Dlog4j2.configurationFile={log4j}"]
    if is_local(master):
        ours["spark.driver.memory"] = _memory()
    else:
        ours |= {"spark.jars": ",".join(jars), "spark.executor.extraJavaOptions": " ".join(everywhere)}
        if package is not None:
            ours["spark.submit.pyFiles"] = str(package)
    if archive is not None:
        options.append(f"-XX:SharedArchiveFile={archive} -Xshare:auto")
    if archive is not None or is_local(master):  # the archive is valid for this class path alone
        ours["spark.driver.extraClassPath"] = os.pathsep.join(jars)
    if is_this_machine(master):
        ours |= _LOOPBACK
    if is_this_machine(master) and blocks is not None and sockets is not None:
        ours |= {"spark.local.dir": str(blocks), "spark.python.unix.domain.socket.dir": str(sockets)}
    ours["spark.executorEnv.POLARS_MAX_THREADS"] = str(_threads(master, parallelism, overrides))
    ours["spark.driver.extraJavaOptions"] = " ".join(options)
    return _join(ours, overrides)


def runtime(parallelism: int | None, *, bulk: bool) -> dict[str, str]:
    """The settings of a session, not of its JVM: they may be set while it runs."""
    session_conf = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": str(bulk).lower(),
    }
    return session_conf if parallelism is None else {**session_conf, "spark.sql.shuffle.partitions": str(parallelism)}


def _threads(master: str, parallelism: int | None, overrides: Mapping[str, str]) -> int:
    """How many threads Polars may use in one task: the task's share of the machine or executor, not all of it."""
    cores = cores_of(master)
    if is_local(master):
        return max(1, cores // min(parallelism, cores)) if cores and parallelism else 1
    cluster = LOCAL_CLUSTER.fullmatch(master)
    stated = cluster or ("", overrides.get("spark.executor.instances", ""), overrides.get("spark.executor.cores", ""))
    executors, cores = (int(text) if text.isdecimal() and int(text) else None for text in (stated[1], stated[2]))
    executors, cores = executors or parallelism or 1, cores or 1
    return max(1, min(cores, cores * executors // (parallelism or executors)))


def _join(ours: dict[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    both = {**ours, **overrides}
    for name, separator in _LISTS.items():
        parts = [side[name] for side in (ours, overrides) if side.get(name)]
        if parts:
            both[name] = separator.join(dict.fromkeys(parts))
    return both


def defaults_file(environment: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """The settings of the ``spark-defaults.conf`` that Spark would read, which our own must not override."""
    folder = environment.get("SPARK_CONF_DIR")
    file = (Path(folder) if folder else spark_home / "conf") / "spark-defaults.conf"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (re.match(r"\s*([^#\s=:]+)[\s=:]+(.*)", line) for line in lines)
    return {pair[1]: pair[2].strip() for pair in pairs if pair}


def _cpus() -> int:
    # As the JVM counts them: those this process may run on.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> str:
    """A quarter of the machine's memory, at least 1 GiB and at most 8."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        total = 4 << 30
    return f"{min(max(total // 4, 1 << 30), 8 << 30) >> 20}m"
