"""Every failure leaves a way on: one line, a hint, the documented exit code; and then the same command works.

A walk through every class of error and every other cause that ends a command. Each is caused from the command line, in
a project that has stored state. Then the cause is removed, and the very next command, the same one, has to work
without ``--full-refresh`` and leave the logs that it leaves where nothing ever happened.
"""

from __future__ import annotations

import inspect
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sparkless
from trams import Command
from warehouses import logs_of

from ddcore.base import errors
from ddcore.base.errors import DdError, Mismatch
from ddcore.cli import main
from ddcore.io.project.finding import find_project
from ddcore.io.project.program import load_program
from ddcore.io.storage.warehouse import Warehouse
from ddcore.planning.planner import build

PAGE = Path(__file__).resolve().parent.parent / "docs" / "exit-codes.md"

PROGRAM = """
from pathlib import Path

import polars as pl

import ddcore as dd


class Odd(BaseException):
    pass


def told(frame):
    cause = Path(__file__).with_name("cause")
    text = cause.read_text() if cause.exists() else ""
    if text.startswith("call "):
        exec(text.removeprefix("call "), {"Odd": Odd})
    rows = frame.select("row", kind=pl.lit("plain"), m=pl.col("n") * 2)
    if text.startswith("rows "):
        odd = eval(text.removeprefix("rows "))
        rows = pl.concat([rows, rows.with_columns(kind=pl.lit(odd[0]), m=pl.lit(odd[1], pl.Int64))])
    return rows


def flip(w):
    return w.select(m="CASE WHEN m >= 1000 THEN 2001 - m ELSE m END")


def program(numbers):
    rows = numbers.flat_map(told, schema={"kind": "string", "m": "int64"})
    plain = rows.where("kind = 'plain'").select("m")
    return {
        "doubled": plain,
        "looped": rows.where("kind IN ('plain', 'swing')").select("m").iterate(flip, max_rounds=20),
        "sums": rows.where("kind IN ('plain', 'large')").group_by("kind").agg(total=dd.sum("m")),
        "once": plain.concat(rows.where("kind = 'taken'").select("m").negate()).distinct(),
    }
"""
HEAD = "n,version,diff\n"
ROWS = "".join(f"{n},{version},1\n" for version in range(4) for n in range(version, version + 5))

Cause = Callable[[pytest.MonkeyPatch], AbstractContextManager[None]]


@dataclass
class Walk:
    """A command, what makes it fail, the class of the error (None: not ours), and the exit code."""

    command: list[str]
    cause: Cause
    error: type[BaseException]
    code: int = 1
    lines: int = 2


WALKS: dict[str, Walk] = {}


def walk(command: str, error: type[BaseException], code: int = 1) -> Callable[[Callable[..., Iterator[None]]], None]:
    def register(cause: Callable[..., Iterator[None]]) -> None:
        WALKS[cause.__name__] = Walk(command.split(), contextmanager(cause), error, code)

    return register


@contextmanager
def changed(file: str, content: str | bytes) -> Iterator[None]:
    """A file with another content, for a while; there or not before."""
    path = Path(file)
    kept = path.read_bytes() if path.exists() else None
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    yield
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(kept)


def by_function(name: str, text: str, error: type[BaseException], code: int = 1) -> None:
    def cause(patch: pytest.MonkeyPatch) -> Iterator[None]:
        with changed("cause", text):
            yield

    cause.__name__ = name
    walk("run", error, code)(cause)


# --- the program and its functions ------------------------------------------------------------------------------------

by_function("a_loop_that_never_ends", "rows ('swing', 1000)", errors.Diverged)
by_function("a_sum_that_overflows", "rows ('large', 2**62)", errors.DiffOverflow)
by_function("a_count_below_zero", "rows ('taken', 5)", errors.NegativeMultiplicity)
by_function("a_function_that_raises", "call raise ValueError('bad')", errors.ExpressionError)
by_function("a_function_that_exits", "call raise SystemExit(0)", errors.ExpressionError)
by_function("a_function_that_raises_what_is_no_exception", "call raise Odd()", errors.ExpressionError)
by_function("no_memory_in_a_function", "call raise MemoryError('32 GiB')", errors.ExpressionError)
by_function("a_panic_of_a_library", "call import polars; raise polars.exceptions.PanicException('x')",
            errors.ExpressionError)  # fmt: skip
by_function("an_interrupt", "call import os, signal; os.kill(os.getpid(), signal.SIGINT)", KeyboardInterrupt, 130)
by_function("a_termination", "call import os, signal; os.kill(os.getpid(), signal.SIGTERM)", KeyboardInterrupt, 143)


@walk("run", errors.ProgramError)
def a_program_that_cannot_be_built(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with changed("program.py", PROGRAM.replace('.select("m")', '.select("nothing")', 1)):
        yield


@walk("sync", errors.LateSource, 5)
def a_source_that_is_late(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with changed("dd.toml", Path("dd.toml").read_text().replace("1 week", "0.001 seconds")):
        yield


@walk("run", errors.BrokenTest, 4)
def a_data_test_that_is_broken(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with changed("dd.toml", Path("dd.toml").read_text() + '[tests.small]\nempty = "doubled"\nwhere = "m > 2"\n'):
        yield


@walk("verify", errors.ProgramChanged)
def a_program_that_changed(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with changed("program.py", PROGRAM.replace("* 2)", "* 3)")):
        yield


@walk("verify", Mismatch, 3)
def outputs_that_are_not_what_the_program_gives(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with changed("cause", "rows ('plain', 7)"):
        yield


# --- what comes in ----------------------------------------------------------------------------------------------------


@walk("ingest numbers more.csv", errors.DataError)
def a_row_that_is_no_number(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with changed("more.csv", HEAD + "seven,4,1\n"):
        yield


@walk("ingest numbers more.csv", errors.LateUpdate)
def a_row_that_is_late(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with changed("more.csv", HEAD + "70,0,1\n"):
        yield


@walk("ingest numbers more.csv", errors.UnknownRetraction)
def a_retraction_of_nothing(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with changed("more.csv", HEAD + "70,4,-1\n"):
        yield


# --- settings, and other processes ------------------------------------------------------------------------------------


@walk("run", errors.UsageError, 2)
def a_setting_that_is_wrong(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with changed("dd.toml", Path("dd.toml").read_text().replace("inline", "outline")):
        yield


@walk("run", errors.LockHeld, 75)
def another_process_at_work(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with Warehouse("warehouse").lock("ddcore run"):
        yield


@walk("ingest numbers more.csv", errors.LockHeld, 75)
def another_process_at_work_during_an_ingest(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with Warehouse("warehouse").lock("ddcore run"):
        yield


# --- the machine ------------------------------------------------------------------------------------------------------


def damaged(folder: str, command: str, content: bytes) -> None:
    def cause(patch: pytest.MonkeyPatch) -> Iterator[None]:
        files = [file for file in Path("warehouse", folder).rglob("*.parquet") if "_delta_log" not in file.parts]
        kept = {file: file.read_bytes() for file in files}
        assert kept
        for file in files:
            file.write_bytes(content)
        yield
        for file, before in kept.items():
            file.write_bytes(before)

    cause.__name__ = f"damaged_files_of_{folder}_at_{command.split(maxsplit=1)[0]}_{len(content)}"
    walk(command, errors.StorageError)(cause)


damaged("state", "run", b"not this")
damaged("state", "run", b"")
damaged("inputs", "run", b"not this")
damaged("outputs", "show doubled", b"not this")
damaged("outputs", "diff doubled 0 1", b"not this")
damaged("ledger", "run", b"not this")
damaged("ledger", "ingest numbers more.csv", b"not this")


def lost(folder: str) -> None:
    def cause(patch: pytest.MonkeyPatch) -> Iterator[None]:
        Path("warehouse", folder).rename("elsewhere")
        yield
        shutil.rmtree(Path("warehouse", folder), ignore_errors=True)
        Path("elsewhere").rename(Path("warehouse", folder))

    cause.__name__ = f"lost_{folder}"
    walk("run", errors.StorageError)(cause)


lost("ledger")
lost("inputs")
lost("state")
lost(".")


def refusing(name: str, number: int, command: str, after: int = 0) -> None:
    """A system call that fails, from its ``after``-th time on: root may write anywhere, and a disk is never full."""

    def cause(patch: pytest.MonkeyPatch) -> Iterator[None]:
        real, calls = os.fsync, 0

        def refuse(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > after:
                raise OSError(number, os.strerror(number), "x")
            return real(*arguments, **named)

        with patch.context() as inside:
            inside.setattr(os, "fsync", refuse)
            yield

    cause.__name__ = name
    walk(command, errors.StorageError)(cause)


for _after in (0, 2, 5, 9, 14):
    refusing(f"a_full_disk_after_{_after}_writes_of_a_run", 28, "run", after=_after)
for _after in (0, 1, 2, 3):
    refusing(f"a_full_disk_after_{_after}_writes_of_an_ingest", 28, "ingest numbers more.csv", after=_after)
refusing("a_folder_that_may_not_be_written", 13, "run")
refusing("a_read_only_file_system", 30, "ingest numbers more.csv")


@walk("run --engine spark", errors.StorageError)
def no_java(patch: pytest.MonkeyPatch) -> Iterator[None]:
    from ddcore.jobs.spark import session

    with patch.context() as inside:
        inside.setattr(session, "check", REAL_CHECK)
        inside.setattr(session, "_is_callers", lambda: False)
        inside.setenv("JAVA_HOME", "/nowhere")
        yield


@walk("run --engine spark", DdError)
def a_job_of_spark_that_fails(patch: pytest.MonkeyPatch) -> Iterator[None]:
    def failing(*_: Any) -> Any:
        raise JavaError("call o5.\n: java.io.IOException: the executor is gone")

    with patch.context() as inside:
        inside.setattr(sparkless.Stage, "run", failing)
        yield


@walk("run", errors.FoldError)
def no_memory(patch: pytest.MonkeyPatch) -> Iterator[None]:
    from ddcore.jobs.engines import inline

    def refuse(*_: Any, **__: Any) -> Any:
        raise MemoryError("32 GiB")

    with patch.context() as inside:
        inside.setattr(inline, "write_result", refuse)
        yield


@walk("run", errors.StorageError)
def kernels_that_do_not_load(patch: pytest.MonkeyPatch) -> Iterator[None]:
    with patch.context() as inside:
        inside.setitem(sys.modules, "ddcore.jobs.engines.inline", None)
        yield


class JavaError(Exception):
    """As py4j raises them."""

    __module__ = "py4j.protocol"


def _real_check() -> Callable[[], None]:
    from ddcore.jobs.spark import session

    return session.check


REAL_CHECK = _real_check()


# --- the walk ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 0 to 3 are ingested, 0 and 1 are folded; version 4 is in a file."""
    folder = tmp_path_factory.mktemp("way") / "project"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "dd.toml").write_text(
        '[project]\nprogram = "program.py:program"\n[run]\nengine = "inline"\n'
        '[inputs.numbers]\nschema = { n = "int64" }\nsource = { path = "first.csv", expect = "1 week" }\n'
    )
    (folder / "first.csv").write_text(HEAD + ROWS)
    (folder / "more.csv").write_text(HEAD + "70,4,1\n3,4,-1\n")
    location = ["--project", str(folder), "-q"]
    assert main.run_command(["ingest", "numbers", str(folder / "first.csv"), *location]) == 0
    assert main.run_command(["run", "--to-version", "1", *location]) == 0
    return folder


@pytest.fixture
def project(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(base, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def logs(folder: Path) -> Any:
    project = find_project(folder, {})
    return logs_of(project, build(load_program(project), project.inputs, project.dims).outputs)


def finish(folder: Path, dd: Command) -> Any:
    """The logs after all that is ingested is folded, and what the input's table holds, as its law has it."""
    assert dd("run", "-q", "--project", str(folder))[0] == 0
    assert dd("verify", "-q", "--project", str(folder))[0] == 0
    return logs(folder)


def short() -> list[str]:
    """One walk for each class of error and exit code; the others are for every night."""
    return list({(one.error, one.code): name for name, one in reversed(WALKS.items())}.values())


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name", [name if name in short() else pytest.param(name, marks=pytest.mark.long) for name in WALKS]
)
def test_the_same_command_works_as_soon_as_the_cause_is_removed(
    name: str, project: Path, tmp_path: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, ended = WALKS[name], []
    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(project, undisturbed)
    real = main._ended

    def noting(error: BaseException, *rest: Any) -> Any:
        ended.append(type(error))
        return real(error, *rest)

    monkeypatch.setattr(main, "_ended", noting)
    sparkless.install(monkeypatch)
    with one.cause(monkeypatch):
        for _ in range(2):  # it fails as often as it is called
            code, out, err = dd(*one.command)
            assert code == one.code, err
            told = [line for line in err if not line.startswith(("version=", "run=", "law", "doubled", "looped"))]
            check_lines(told, one)
            assert out == [] or one.error in (Mismatch, errors.LateSource), out
    assert set(ended) <= {one.error} and (ended or one.error is KeyboardInterrupt)
    assert dd(*one.command)[0] == 0
    if one.command[0] == "ingest":
        assert dd(*one.command, "--project", str(undisturbed))[0] == 0
    assert finish(project, dd) == finish(undisturbed, dd)
    assert not [line for line in dd("log")[1] if "full-refresh" in line]


def check_lines(err: list[str], one: Walk) -> None:
    """The last two lines on stderr: what happened, and what to do."""
    assert len(err) >= 2, err
    error, hint = err[-2:]
    assert re.match(r"error: \S.*", error) and re.match(r"  \S.*", hint), err
    assert not any("Traceback" in line or "panicked" in line for line in err)
    if one.command[0] == "run":
        assert "--full-refresh" not in hint or "damage" in error or "cannot read" in error, hint


def test_the_walk_has_every_class_of_error() -> None:
    """A new class without a walk fails here."""
    classes = {item for _, item in inspect.getmembers(errors, inspect.isclass) if issubclass(item, DdError)}
    assert {one.error for one in WALKS.values()} >= classes


def test_the_walk_has_every_exit_code_of_a_failure() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE.read_text(), flags=re.MULTILINE)}
    assert {one.code for one in WALKS.values()} == codes - {0}


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("limit", [300, *(pytest.param(limit, marks=pytest.mark.long) for limit in (1500, 4000))])
def test_a_disk_that_is_really_full(limit: int, project: Path, tmp_path: Path, dd: Command) -> None:
    """No file grows beyond ``limit`` bytes: libraries that write by themselves meet it, too."""
    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(project, undisturbed)
    command = [str(Path(sys.executable).with_name("ddcore")), "run"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600,
        env=dict(os.environ),  # as it is here: coverage changes that of a fork
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert done.returncode in (0, 1)
    if done.returncode:
        check_lines(done.stderr.splitlines(), WALKS["no_java"])
    assert finish(project, dd) == finish(undisturbed, dd)
