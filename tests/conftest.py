"""Shared by all tests. Nothing heavy is imported here; strictness is set in pyproject.toml."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import seeds
from trams import copied, dd, folded, fresh, here  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from workshop import Workshop

# In the background of a script, and under some runners, SIGINT is ignored, and so it would be in commands that tests
# start and interrupt. A handler of this process is none of theirs: they begin with the default.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


# As many workers as a test wants, however few rows it has: in this process and in all that it starts.
os.environ.setdefault("DDCORE_WORKER_ROWS", "0")

# Pytest writes the assertions of 230 files anew, half of its start: the next process finds what this one has written.
sys.dont_write_bytecode = False
FAILED = pytest.StashKey[bool]()
NUMBERS = count()
RECOVERY = {
    "test_clocks", "test_damage", "test_durability", "test_failed_runs", "test_failpoints", "test_folding_again",
    "test_given_up_runs", "test_growth", "test_integrity", "test_left_behind", "test_missing_versions",
    "test_recovery", "test_shared_publication_kills", "test_shop_kills", "test_tailing",
}  # fmt: skip
DOCS = {
    "test_cli_completion", "test_cli_docs", "test_contributing", "test_cookbook", "test_cron", "test_docs",
    "test_glossary", "test_packaging", "test_pictures", "test_public_api", "test_readme", "test_registry",
    "test_rooms", "test_setup", "test_site", "test_tutorial", "test_workflows",
}  # fmt: skip
NUMBERED = {
    "test_interning", "test_operators", "test_semantics", "test_semantics_compaction", "test_semantics_loops",
    "test_semantics_rounds",
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads its option
def pytest_configure(config: pytest.Config) -> None:
    """All that is random in this run comes from one seed, and a seed or a range that is none ends it here. With
    ``--last-failed`` it is the seed of the last run in which tests failed.
    """
    if not os.environ.get("DDCORE_FSYNC"):
        _write_to_memory()
    base = seeds.base(_seed_of_failed(config) if config.getoption("lf", False) else None)
    seeds.seeds(1)
    seeds.by_day("not long" in config.option.markexpr)
    gc.disable()  # until all is collected: nothing of what is created before is garbage
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(base)
    if config.getoption("hypothesis_profile", None) is None:
        config.option.hypothesis_profile = "default"  # where CI is set, hypothesis would draw the same in each run


def _write_to_memory() -> None:
    """Folders of tests are in memory where there is a file system for that with 4 GB; at night they are on the disk."""
    with suppress(OSError):
        memory = os.statvfs("/dev/shm")
        if memory.f_bavail * memory.f_frsize >= 4 << 30 and not memory.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Generator[None]:
    """Tells pytest-xdist, which gives files to processes, that all tests with Spark are of one file, ``spark``: one
    process starts a session, and not both.

    What imports and 14,000 tests have created stays until the end: no collection of garbage looks at it again. What
    tests create is looked at a tenth as often, as most of it is gone without.
    """
    items = session.items
    if hasattr(session.config, "workerinput"):
        session.items = [
            cast(pytest.Item, SimpleNamespace(nodeid=f"spark::{item.nodeid}"))
            if item.get_closest_marker("spark")
            else item
            for item in items
        ]
    yield
    session.items = items
    gc.freeze()
    gc.enable()
    gc.set_threshold(7_000, 20, 20)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keeps the seed of a run in which tests failed beside pytest's own list of them."""
    gc.unfreeze()
    if session.testsfailed and session.config.pluginmanager.has_plugin("cacheprovider"):
        file = _seed_of_failed(session.config)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(seeds.base()))


def _seed_of_failed(config: pytest.Config) -> Path:
    return config.rootpath / str(config.getini("cache_dir")) / "v" / "ddcore" / "seed"


def pytest_report_header() -> str:
    """How this run is repeated."""
    chosen = f" DDCORE_SEEDS={os.environ['DDCORE_SEEDS']}" if os.environ.get("DDCORE_SEEDS") else ""
    return f"to draw the same random tests again: DDCORE_SEED={seeds.base()}{chosen}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed and that, or whose seed, this run has drawn says how to repeat it."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    drawn = any(name == "seed" for name, _ in item.user_properties)
    if report.failed and (drawn or any(map(item.get_closest_marker, ("hypothesis", "sample")))):
        again = f"DDCORE_SEED={seeds.base()} .venv/bin/python -m pytest -m '' '{item.nodeid}'"
        report.sections.append(("the same test with the same seed", again))
    return report


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of this test, that goes with it unless it failed; no other test of the run has its path.

    Pytest's own one stays for three runs, 100,000 small files for each, and looks for its number among all before it.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.mktemp(f"{name}{next(NUMBERS)}", numbered=False)
    yield folder
    if FAILED not in request.node.stash:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make coverage` does not follow the processes of this test: they may not write files, or their modules count."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed of this test alone, new in each run; :mod:`seeds` says how a run is repeated."""
    number = seeds.of_test(request.node.nodeid)
    request.node.user_properties.append(("seed", number))  # junit.xml has it, too
    print(f"seed {number}")
    return number


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """By several workers only the numbered cases are folded; and of all cases those are made that this run takes."""
    yield
    if metafunc.definition.path.stem not in NUMBERED:
        metafunc._calls[:] = [call for call in metafunc._calls if call.params.get("fold") != "by_workers"]
    seeds.cases_of_this_run(metafunc)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts each test into one lane, which ``-m`` chooses: ``spark``, also without the mark where a test asks for the
    session, ``recovery``, ``docs``, or else ``unit``.

    Tests with Spark come first, and then files with slow ones: processes that get one file after the other then end at
    about the same time. Of tests marked ``sample`` or ``spark`` the run keeps those that it draws.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    seeds.leave_to_the_night(items)
    slow = set()
    for item in items:
        if not item.get_closest_marker("spark"):
            name = item.path.stem
            item.add_marker("recovery" if name in RECOVERY else "docs" if name in DOCS else "unit")
        if not item.get_closest_marker("long") and any(map(item.get_closest_marker, ("slow", "recovery"))):
            slow.add(item.path)
    items.sort(key=lambda item: (not item.get_closest_marker("spark"), item.path not in slow))


BY_NIGHT = pytest.param("by_workers", marks=pytest.mark.long)


@pytest.fixture(params=["by_reference", "whole", "one_time_each", "compacted", "randomly_cut", BY_NIGHT])
def fold(request: pytest.FixtureRequest) -> Any:
    """One way to fold: takes a program and its inputs, gives the logs of its outputs. By several workers only the
    numbered cases.
    """
    import by_workers
    import folding

    return by_workers.by_workers if request.param == "by_workers" else getattr(folding, request.param)


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """In this process nothing waits for the disk: only a loss of power would show the difference, and no test is one.

    ``test_durability`` records what is synced, and when; commands in other processes than those that :mod:`forks` makes
    sync as always, and so does everything with ``DDCORE_FSYNC``, as at night.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("DDCORE_FSYNC"):
            patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def uncompiled() -> Iterator[None]:
    """Modules of programs leave no bytecode: Python takes a text of the same second and size for the one before it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        yield


@pytest.fixture(autouse=True)
def jvm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No JVM starts in this process for a test that is not marked ``spark``: most often it only lacks an engine."""
    if not request.node.get_closest_marker("spark"):
        from ddcore.jobs.spark import session

        def refuse(*_: object) -> None:
            raise AssertionError("a test without the mark spark starts a JVM: give it the engine inline, or the mark")

        monkeypatch.setattr(session, "launch", refuse)


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
    with forks(folder, synced="DDCORE_FSYNC" in os.environ) as processes:
        yield Workshop(folder, processes)
