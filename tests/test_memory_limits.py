"""Memory that runs out: one line that says so, with the limit and what to do."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from trams import Command

from ddcore.cli.memory_limits import ran_out
from ddcore.io.sources import csvfile


def limited(mib: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    size = mib << 20
    return subprocess.run(
        [sys.executable, "-m", "ddcore.cli.main", *arguments], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)),
    )  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("options", [(), ("--version", "9")], ids=str)
@pytest.mark.parametrize("mib", [150, 400, 1000, 1600, 2000])
def test_a_limit_too_small_for_the_libraries_is_one_line(mib: int, options: tuple[str, ...], copied: Path) -> None:
    ended = limited(mib, "ingest", "links", "data/links.csv", *options)
    assert ended.returncode == 2, ended.stderr
    error, hint = ended.stderr.splitlines()
    assert error.startswith(f"error: the limit of memory is {mib:,} MiB of address space (ulimit -v)")
    assert "ulimit -v unlimited" in hint


@pytest.mark.parametrize("words", [("ingest", "--help"), ("run", "-h"), ("--version",)], ids=str)
def test_help_needs_little(words: tuple[str, ...], copied: Path) -> None:
    ended = limited(400, *words)
    assert ended.returncode == 0 and ended.stderr == ""


def test_a_limit_that_is_close_is_named_before_a_library_meets_it(copied: Path) -> None:
    ended = limited(3500, "log")
    assert ended.stderr.splitlines()[0].startswith("warning: the limit of memory is ")


def failed_import() -> None:
    try:
        raise ImportError("x.so: failed to map segment from shared object")
    except ImportError:
        undefined  # type: ignore[name-defined]  # noqa: B018, F821


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    "fail",
    [
        raising(MemoryError()), raising(pa.ArrowMemoryError("malloc of size 64 failed")), failed_import,
        raising(ImportError("libarrow.so: cannot allocate memory in static TLS block")),
        raising(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))), raising(RuntimeError("can't start new thread")),
    ],
)  # fmt: skip
def test_what_ran_out_is_memory(
    fail: Callable[..., None], copied: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddcore.jobs.ingest.ingest", lambda *_, **__: fail())
    code, _, err = dd("ingest", "links", "data/links.csv")
    assert code == 1 and err[0].startswith("error: memory ran out: ") and len(err) == 2
    assert "this should not happen" not in err[1] and "--memory" in err[1]


def test_a_source_is_not_blamed_for_it(copied: Path, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csvfile.CsvFile, "_parsed", raising(pa.ArrowMemoryError("malloc of size 64 failed")))
    code, _, err = dd("ingest", "links", "data/links.csv")
    assert code == 1 and err[0] == "error: memory ran out: malloc of size 64 failed"


def test_other_errors_are_not_about_memory() -> None:
    assert not ran_out(NameError("x")) and not ran_out(ImportError("no module named x"))
