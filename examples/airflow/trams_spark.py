"""The same project, folded on a Spark cluster by `spark-submit`; the connection `spark` names the master."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from glob import glob

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

PYTHON = "/srv/trams/.venv/bin/python"  # on this machine and on the executors
COMMANDS = "/srv/ddcore/cli/main.py"  # what this prints: python -c 'from ddcore.cli import main; print(main.__file__)'
DELTA = glob("/srv/cache/ddcore/jars/delta-4.4.0/*.jar")  # in the cache folder of the set-up

with DAG(
    "trams_spark",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={
        "conn_id": "spark",
        "jars": ",".join(DELTA),
        "env_vars": {"PYSPARK_PYTHON": PYTHON, "PATH": "/srv/trams/.venv/bin:/usr/bin:/bin"},  # PATH: spark-submit
        "retries": 3,
        "retry_delay": timedelta(minutes=5),
    },
) as dag:
    engine = ["--project", "/srv/trams", "--engine", "spark"]
    links = SparkSubmitOperator(
        task_id="ingest_links",
        application=COMMANDS,
        application_args=["ingest", "links", "/srv/trams/links", *engine],
    )
    starts = SparkSubmitOperator(
        task_id="ingest_starts",
        application=COMMANDS,
        application_args=["ingest", "starts", "/srv/trams/starts", *engine],
    )
    fold = SparkSubmitOperator(task_id="fold", application=COMMANDS, application_args=["run", *engine])

    links >> starts >> fold
