"""The project of `ddcore init /srv/trams` under Airflow 3: ingest, fold, show what changed, verify."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

PLACE = {"DDCORE_PROJECT": "/srv/trams", "PATH": "/srv/trams/.venv/bin:/usr/bin:/bin"}

with DAG(
    "trams",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # after a pause one run folds all that is new
    max_active_runs=1,
    default_args={
        "env": PLACE,
        "append_env": True,
        "skip_on_exit_code": 99,  # with --skip-code 99: nothing new
        "retries": 3,  # 75: another command has locked the warehouse; 143: stopped
        "retry_delay": timedelta(minutes=5),
    },
) as dag:
    # One after the other: both lock the warehouse. A file that is in already adds nothing.
    links = BashOperator(task_id="ingest_links", bash_command="ddcore ingest links /srv/trams/links --skip-code 99")
    starts = BashOperator(
        task_id="ingest_starts",
        bash_command="ddcore ingest starts /srv/trams/starts --skip-code 99",
        trigger_rule="none_failed",  # also if ingest_links was skipped
    )
    fold = BashOperator(
        task_id="fold",
        bash_command="ddcore run --skip-code 99",
        trigger_rule="none_failed",  # an earlier DAG run may have ingested what it did not fold
        output_processor=json.loads,  # the last line: the XCom is a dict
        execution_timeout=timedelta(hours=1),
    )
    changes = BashOperator(
        task_id="changes",
        bash_command='ddcore diff journeys "$VERSIONS"',
        env=PLACE | {"VERSIONS": "{{ ti.xcom_pull('fold').first - 1 }}..{{ ti.xcom_pull('fold').last }}"},
    )
    verify = BashOperator(task_id="verify", bash_command="ddcore verify", retries=0)  # 3: rows are wrong

    links >> starts >> fold >> [changes, verify]
