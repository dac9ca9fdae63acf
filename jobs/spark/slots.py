"""Whether Spark can run several tasks side by side that exchange messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ddcore.jobs.spark.settings import cores_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["obstacle"]

_PATIENCE = 30.0  # seconds in which executors of a cluster may come
# With these, Spark encrypts what its own processes send each other. What workers send is not encrypted.
_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.authenticate.enableSaslEncryption")


def obstacle(spark: SparkContext | SparkSession, number: int) -> str:
    """Why so many tasks cannot be workers of one fold; empty where they can. Waits a while for executors."""
    if _is_set(spark, "spark.dynamicAllocation.enabled"):
        return "spark.dynamicAllocation.enabled is set, and with it Spark does not start several tasks together"
    if names := [name for name in _ENCRYPTED if _is_set(spark, name)]:
        return f"{names[0]} is set, and messages between workers are not encrypted"
    until = time.monotonic() + _PATIENCE
    while (slots := _slots(spark)) < number and time.monotonic() < until and not _is_here(spark):
        time.sleep(0.1)
    if slots >= number:
        return ""
    if slots == 0:
        return "nothing says how many tasks Spark runs at a time: spark.executor.instances is not set"
    return f"Spark runs {slots} task{'s' * (slots > 1)} at a time"


def _slots(spark: Any) -> int:
    """How many tasks run at a time: of a Spark Connect server, what it is set to."""
    if not hasattr(spark, "parallelize"):
        return _stated_cores(spark.conf) // int(spark.conf.get("spark.task.cpus", "1"))
    scala: Any = spark._jsc.sc()  # private to Spark; pyspark is pinned to one version
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def _stated_cores(conf: Any) -> int:
    """The cores of a Spark Connect server as its settings say; 0 where they do not."""
    executors = int(conf.get("spark.executor.instances", "0")) * int(conf.get("spark.executor.cores", "1"))
    return cores_of(conf.get("spark.master", "")) or executors or int(conf.get("spark.default.parallelism", "0"))


def _is_here(spark: Any) -> bool:
    """Whether all tasks that there will be are there already."""
    return not hasattr(spark, "parallelize") or str(spark.master).startswith("local[") or spark.master == "local"


def _is_set(spark: Any, name: str) -> bool:
    conf = spark.getConf() if hasattr(spark, "parallelize") else spark.conf
    return str(conf.get(name, "false")).lower() == "true"
