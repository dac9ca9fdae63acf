"""A class archive for Spark's JVM, written by set-up: with it a session starts in half the time.

The archive (AppCDS, about 200 MB) holds the classes that one typical session loaded. The JVM uses it only if Java and
the class path are exactly the same, and ignores it silently otherwise. So a missing or stale archive costs time and
changes no result.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from ddcore.base.cache import cache_folder, distrust
from ddcore.base.errors import DdError
from ddcore.jobs.spark import jars
from ddcore.jobs.spark.installed import check_installed
from ddcore.jobs.spark.java import java_path


def archive(java: str, spark_home: Path) -> Path | None:
    """The archive for this Java and this Spark; None if it is missing or not trusted. A few ``stat`` calls."""
    file = _file(java, spark_home)
    return file if file.is_file() and not distrust(file.parent) else None


def current() -> Path | None:
    """The archive that a session started now would use; None without an archive, Java or PySpark."""
    try:
        return archive(java_path(), _spark_home())
    except DdError:
        return None


def path() -> Path:
    """The file of the archive for this machine's Java and Spark, there or not. Raises StorageError without Java."""
    return _file(java_path(), _spark_home())


def _spark_home() -> Path:
    check_installed()
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _file(java: str, spark_home: Path) -> Path:
    real = Path(java).resolve()
    release = real.parent.parent / "release"
    parts = [str(real), release.read_text() if release.is_file() else "", str(spark_home), str(jars.folder())]
    with contextlib.suppress(OSError):
        parts.append(str(real.stat().st_mtime_ns))
    return cache_folder() / "cds" / f"spark-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}.jsa"
