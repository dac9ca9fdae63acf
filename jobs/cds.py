"""A class archive for Spark's JVM, written once: with it a session starts in half the time.

The archive (AppCDS, about 200 MB) holds the classes that one typical session loaded. The JVM uses it only if Java and
the class path are exactly the same, and ignores it silently otherwise. So a missing or stale archive costs time and
changes no result.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ddcore.cache import cache_folder, distrust, make_private
from ddcore.errors import DdError
from ddcore.jobs import jars
from ddcore.jobs.java import java_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["archive", "current", "make_archive"]

_KEPT = 3  # archives of other environments of this user


def archive(java: str, spark_home: Path) -> Path | None:
    """The archive for this Java and this Spark; None if it is missing or not trusted. A few ``stat`` calls."""
    file = _file(java, spark_home)
    return file if file.is_file() and not distrust(file.parent) else None


def current() -> Path | None:
    """The archive that a session started now would use; None if there is no archive or no Java."""
    try:
        return archive(java_path(), _spark_home())
    except DdError:
        return None


def make_archive(debug: bool = False) -> bool:
    """Write the archive, in some 40 s; False if it exists already or cannot be written: it is optional."""
    from ddcore.jobs.session import spark_session, stop

    target = _file(java_path(), _spark_home())
    if target.exists():
        return False
    fresh = target.with_suffix(f".{os.getpid()}")
    try:
        make_private(target.parent)
        session = spark_session({"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={fresh}"}, debug=debug)
        _exercise(session)
        stop(session, patience=180.0)  # the JVM writes the archive when it exits
        os.replace(fresh, target)
    except (DdError, OSError):
        return False
    finally:
        fresh.unlink(missing_ok=True)
    for old in sorted(target.parent.glob("*.jsa"), key=os.path.getmtime)[:-_KEPT]:
        old.unlink(missing_ok=True)
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


def _spark_home() -> Path:
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _file(java: str, spark_home: Path) -> Path:
    real = Path(java).resolve()
    release = real.parent.parent / "release"
    parts = [str(real), release.read_text() if release.is_file() else "", str(spark_home), str(jars.folder())]
    with contextlib.suppress(OSError):
        parts.append(str(real.stat().st_mtime_ns))
    return cache_folder() / "cds" / f"spark-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}.jsa"
