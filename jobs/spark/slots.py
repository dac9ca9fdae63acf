"""How many tasks Spark runs side by side, whether they can exchange messages, and in how many threads each works."""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, Any

from ddcore.jobs.spark.settings import LOCAL_CLUSTER, cores_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PATIENCE = 60.0  # seconds in which an executor of a cluster may come, after the command or the last one has
_SETTLED = 2.0  # seconds without a new one, after which no more are waited for, where nothing says how many come
_MANY = 1 << 16
# With these, Spark encrypts what its own processes send each other, or some of it.
_ENCRYPTED = (
    "spark.network.crypto.enabled",
    "spark.ssl.rpc.enabled",
    "spark.ssl.enabled",
    "spark.authenticate.enableSaslEncryption",
)


def obstacle(spark: SparkContext | SparkSession, number: int, patience: float = PATIENCE) -> str:
    """Why so many tasks cannot be workers of one fold; empty where they can. Waits so many seconds for an executor."""
    if _is_set(spark, "spark.dynamicAllocation.enabled"):
        return "spark.dynamicAllocation.enabled is set, and with it Spark does not start several tasks together"
    until, slots = time.monotonic() + patience, _slots(spark)
    while slots < number and time.monotonic() < until and not _are_all_here(spark):
        time.sleep(0.1)
        before, slots = slots, _slots(spark)
        if slots > before:
            until = time.monotonic() + patience
    if slots >= number or (slots := _slots(spark)) >= number:  # the last one may have come meanwhile
        return ""
    if slots == 0 and hasattr(spark, "parallelize"):
        return f"no executor has come within {patience:.0f} s"
    if slots == 0:
        return "nothing says how many tasks Spark runs at a time: spark.executor.instances is not set"
    return f"Spark runs {slots} task{'s' * (slots > 1)} at a time"


def workers_of(spark: SparkContext | SparkSession, patience: float = PATIENCE) -> int:
    """How many workers fold where no number is given: one for each executor, which works in as many threads as it has
    cores; as many as there are tasks at a time where ``spark.task.cpus`` says how many cores one gets, and on Spark
    Connect. Waits a while for executors: for as many as settings say, else until no more come.
    """
    if not hasattr(spark, "parallelize"):
        return max(1, _slots(spark))
    executors, expected, now = _executors(spark), _stated_executors(spark), time.monotonic()
    until = inf if expected else now + patience
    settled = now + (patience if expected or not executors else _SETTLED)
    while not _is_here(spark) and executors < (expected or _MANY) and time.monotonic() < min(until, settled):
        time.sleep(0.1)
        before, executors = executors, _executors(spark)
        if executors != before:
            settled = time.monotonic() + (patience if expected else _SETTLED)
    return max(1, _slots(spark) if _task_cpus(spark) > 1 else executors)


def threads_of(spark: SparkContext | SparkSession, workers: int) -> int:
    """In how many threads each of so many workers folds: its share of an executor's cores."""
    cpus, executors = _task_cpus(spark), _executors(spark) if hasattr(spark, "parallelize") else 0
    if executors == 0:
        return cpus
    cores = _slots(spark) * cpus
    return max(cpus, min(cores // executors, cores // workers))


def encryption(spark: SparkContext | SparkSession) -> str:
    """The setting by which Spark encrypts its own connections; empty where it does not."""
    return next((name for name in _ENCRYPTED if _is_set(spark, name)), "")


def _slots(spark: Any) -> int:
    """How many tasks run at a time: of a Spark Connect server, what it is set to."""
    if not hasattr(spark, "parallelize"):
        return _stated_cores(spark.conf) // _task_cpus(spark)
    scala: Any = spark._jsc.sc()  # private to Spark; pyspark is pinned to one version
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def _executors(spark: Any) -> int:
    """How many executors a context has. The driver is listed, too: without others its own process runs the tasks."""
    if _is_here(spark):
        return 1
    return len(spark._jsc.sc().statusTracker().getExecutorInfos()) - 1


def _stated_executors(spark: Any) -> int:
    """How many executors a context is to have, as its settings say; 0 where they do not."""
    cluster = LOCAL_CLUSTER.fullmatch(str(spark.master))
    return int(cluster[1] if cluster else _conf(spark).get("spark.executor.instances", "0"))


def _task_cpus(spark: Any) -> int:
    return int(_conf(spark).get("spark.task.cpus", "1"))


def _stated_cores(conf: Any) -> int:
    """The cores of a Spark Connect server as its settings say; 0 where they do not."""
    executors = int(conf.get("spark.executor.instances", "0")) * int(conf.get("spark.executor.cores", "1"))
    return cores_of(conf.get("spark.master", "")) or executors or int(conf.get("spark.default.parallelism", "0"))


def _is_here(spark: Any) -> bool:
    """Whether all tasks that there will be are there already."""
    return not hasattr(spark, "parallelize") or str(spark.master).startswith("local[") or spark.master == "local"


def _are_all_here(spark: Any) -> bool:
    """Whether no more executors come, as far as settings say."""
    return _is_here(spark) or 0 < _stated_executors(spark) <= _executors(spark)


def _is_set(spark: Any, name: str) -> bool:
    return str(_conf(spark).get(name, "false")).lower() == "true"


def _conf(spark: Any) -> Any:
    return spark.getConf() if hasattr(spark, "parallelize") else spark.conf
