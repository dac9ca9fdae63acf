"""The seven jars of Delta Lake: resolved once by the set-up, given to every Spark session as files.

The ``delta-spark`` wheel contains no jars. By itself Spark would resolve 33 of them at every start, which takes
seconds, and all 33 on the class path hide Spark's own and break it. These seven are the ones that Spark lacks. Only
:func:`resolve` uses the network, through Spark's own resolver: mirrors and proxies are configured where Spark reads
them (``spark.jars.ivySettings`` in ``spark-defaults.conf``).

On a machine without a network, copy the seven files into :func:`folder` by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ddcore.base.cache import OWN_FOLDER, cache_folder, distrust, make_private
from ddcore.base.errors import StorageError
from ddcore.jobs.spark.java import find_java
from ddcore.jobs.spark.settings import is_debugging
from ddcore.text.redaction import masked

VERSION = "4.4.0"
_ROOT = f"io.delta:delta-spark_4.2_2.13:{VERSION}"
# Ivy's names: organisation_module-revision.jar
JARS = (
    f"io.delta_delta-spark_4.2_2.13-{VERSION}.jar",
    f"io.delta_delta-storage-{VERSION}.jar",
    f"io.delta_delta-kernel-api-{VERSION}.jar",
    f"io.delta_delta-kernel-defaults-{VERSION}.jar",
    f"io.delta_delta-kernel-unitycatalog-{VERSION}.jar",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar",
)
# Spark has these itself, in other versions.
_EXCLUDES = (
    "org.apache.hadoop:*,org.apache.parquet:*,com.fasterxml.jackson.core:*,com.fasterxml.jackson.datatype:*,"
    "org.apache.logging.log4j:*,org.slf4j:*,org.roaringbitmap:*,com.google.code.findbugs:*,javax.annotation:*"
)
_SETUP = "run: make setup, or: python -m ddcore.jobs.setup; ddcore doctor lists what else is missing"


def folder() -> Path:
    """The folder of the jars, one per Delta version."""
    return cache_folder() / "jars" / f"delta-{VERSION}"


def missing() -> list[str]:
    """Names of the jars that are missing or empty."""
    return [name for name in JARS if not _is_whole(folder() / name)]


def paths() -> list[str]:
    """The paths of the seven files; StorageError where one is missing or another user could have written it."""
    if names := missing():
        raise StorageError(
            f"{len(names)} of Delta's {len(JARS)} jars are not in {folder()}: {', '.join(names)}", _SETUP
        )
    if reason := distrust(folder()):
        raise StorageError(f"Delta's jars cannot be trusted: {reason}", OWN_FOLDER)
    return [str(folder() / name) for name in JARS]


def resolve() -> bool:
    """Download the jars into the cache: some 10 s. False, at once, if none is missing.

    Every file is moved into place whole, so an interrupted call leaves no half-written file and may be repeated.
    Raises StorageError without Java, without a network, or if the folder cannot be used.
    """
    if not missing():
        return False
    find_java()
    try:
        make_private(folder())
    except OSError as error:
        raise StorageError(f"Delta's jars cannot be kept: {error}", OWN_FOLDER) from None
    with tempfile.TemporaryDirectory(dir=folder().parent, prefix="ivy-") as ivy:
        output = _run_ivy(Path(ivy))
        for name in missing():
            source = Path(ivy) / "jars" / name
            if not _is_whole(source):
                raise StorageError(
                    f"Spark could not resolve {_ROOT}: {name} did not arrive{_reason(output)}",
                    f"check the network and run the set-up again, or copy the jars into {folder()}",
                )
            os.replace(source, folder() / name)
    return True


def _run_ivy(ivy: Path) -> str:
    """Let spark-submit resolve the jars into ``ivy`` and run an empty script; returns its output."""
    import pyspark  # only for its path

    home = Path(pyspark.__file__).parent
    script = ivy / "nothing.py"
    script.write_text("")
    command = [str(home / "bin" / "spark-submit")]
    settings = {
        "spark.master": "local[1]",
        "spark.jars.packages": _ROOT,
        "spark.jars.excludes": _EXCLUDES,
        "spark.jars.ivy": str(ivy),
        "spark.pyspark.python": sys.executable,
    }
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.run(
        [*command, str(script)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    output = masked(process.stdout)  # the environment may hold settings of Spark
    if is_debugging():
        sys.stderr.write(output)
    return output


def _reason(output: str) -> str:
    """The resolver's own error message, where its output has one."""
    errors = [line.strip(" :\t") for line in output.splitlines() if "unresolved dependency" in line or "ERROR" in line]
    return f" ({errors[-1]})" if errors else ""


def _is_whole(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
