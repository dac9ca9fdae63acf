"""The seven jars of Delta Lake, resolved once at set-up and handed to Spark as files ever after.

The ``delta-spark`` wheel holds no jars. Left to itself Spark would resolve 33 of them at every start (seconds), and
all 33 on the class path shadow Spark's own and break it; these seven are what Spark lacks. :func:`resolve` is the
only thing in this project that touches the network, and it does so through Spark's own resolver: mirrors and proxies
are set where Spark looks for them (``spark.jars.ivySettings`` in ``spark-defaults.conf``).

Where the machine has no network, put the seven files into :func:`folder` by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ddcore.cache import cache_folder
from ddcore.errors import StorageError
from ddcore.jobs.java import find_java

__all__ = ["JARS", "VERSION", "folder", "missing", "paths", "resolve"]

VERSION = "4.4.0"
_ROOT = f"io.delta:delta-spark_4.2_2.13:{VERSION}"
# Named as Ivy names them: organisation_module-revision.jar
JARS = (
    f"io.delta_delta-spark_4.2_2.13-{VERSION}.jar",
    f"io.delta_delta-storage-{VERSION}.jar",
    f"io.delta_delta-kernel-api-{VERSION}.jar",
    f"io.delta_delta-kernel-defaults-{VERSION}.jar",
    f"io.delta_delta-kernel-unitycatalog-{VERSION}.jar",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar",
)
# What Spark brings itself, in other versions.
_EXCLUDES = (
    "org.apache.hadoop:*,org.apache.parquet:*,com.fasterxml.jackson.core:*,com.fasterxml.jackson.datatype:*,"
    "org.apache.logging.log4j:*,org.slf4j:*,org.roaringbitmap:*,com.google.code.findbugs:*,javax.annotation:*"
)
_MEND = "run: make setup, or: ddcore doctor to see what else is missing"


def folder() -> Path:
    """Where the jars are: one folder per Delta version."""
    return cache_folder() / "jars" / f"delta-{VERSION}"


def missing() -> list[str]:
    """Names of the jars that are not there, or are empty."""
    return [name for name in JARS if not _is_whole(folder() / name)]


def paths() -> list[str]:
    """The seven files. Seven ``stat`` calls, no JVM; StorageError when one is missing."""
    if lacking := missing():
        raise StorageError(
            f"{len(lacking)} of Delta's {len(JARS)} jars are not in {folder()}: {', '.join(lacking)}", _MEND
        )
    return [str(folder() / name) for name in JARS]


def resolve(debug: bool = False) -> bool:
    """Bring the jars into the cache; False, at once, when they are there already. Some 10 s of a small JVM otherwise.

    Every file is moved into place whole, so an interrupted call leaves nothing half-written and may be repeated.
    """
    if not missing():
        return False
    find_java()
    folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder().parent, prefix="ivy-") as ivy:
        said = _run_ivy(Path(ivy), debug)
        for name in missing():
            source = Path(ivy) / "jars" / name
            if not _is_whole(source):
                raise StorageError(
                    f"Spark could not resolve {_ROOT}: {name} did not arrive{_reason(said)}",
                    f"check the network and run make setup again, or copy the jars into {folder()}",
                )
            os.replace(source, folder() / name)
    return True


def _run_ivy(ivy: Path, debug: bool) -> str:
    """Let spark-submit resolve the jars into ``ivy`` and run an empty script; gives what it said."""
    import pyspark  # only for where it lies

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
    done = subprocess.run(
        [*command, str(script)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if debug:
        sys.stderr.write(done.stdout)
    return done.stdout


def _reason(said: str) -> str:
    """The resolver's own complaint, when there is one among its lines."""
    complaints = [
        line.strip(" :\t") for line in said.splitlines() if "unresolved dependency" in line or "ERROR" in line
    ]
    return f" ({complaints[-1]})" if complaints else ""


def _is_whole(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
