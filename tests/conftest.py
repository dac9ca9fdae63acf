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
