"""Shared by all tests. Nothing heavy is imported here; strictness is set in pyproject.toml."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from trams import dd, folded, fresh, here, mine  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from workshop import Workshop

# In the background of a script, and under some runners, SIGINT is ignored, and so it would be in commands that tests
# start and interrupt. A handler of this process is none of theirs: they begin with the default.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


RECOVERY = {
    "test_clocks", "test_damage", "test_durability", "test_failed_runs", "test_failpoints", "test_folding_again",
    "test_given_up_runs", "test_growth", "test_integrity", "test_left_behind", "test_missing_versions",
    "test_recovery", "test_tailing",
}  # fmt: skip
DOCS = {
    "test_cli_completion", "test_cli_docs", "test_contributing", "test_cookbook", "test_cron", "test_docs",
    "test_glossary", "test_packaging", "test_pictures", "test_public_api", "test_readme", "test_registry",
    "test_rooms", "test_setup", "test_site", "test_tutorial", "test_workflows",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts each test into one lane, which ``-m`` chooses: ``spark``, ``recovery``, ``docs``, or else ``unit``."""
    for item in items:
        if not item.get_closest_marker("spark"):
            name = item.path.stem
            item.add_marker("recovery" if name in RECOVERY else "docs" if name in DOCS else "unit")


@pytest.fixture(params=["by_reference", "whole", "one_time_each", "compacted", "randomly_cut"])
def fold(request: pytest.FixtureRequest) -> Any:
    """One way to fold: takes a program and its inputs, gives the logs of its outputs."""
    import folding

    return getattr(folding, request.param)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session on two cores for all tests that ask for it; tests that do not never start a JVM."""
    from ddcore.jobs.spark.session import spark_session, stop

    session = spark_session({}, "local[2]")
    yield session
    stop(session)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """Projects and commands to disturb, in processes that are forked from one that has imported everything."""
    from forks import forks
    from workshop import Workshop

    folder = tmp_path_factory.mktemp("workshop")
    with forks(folder) as processes:
        yield Workshop(folder, processes)
