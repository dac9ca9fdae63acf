"""The entry point: names, traps, exit codes, streams, and what is not imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ddcore.base.errors import LockHeld
from ddcore.cli import main as entry
from ddcore.cli.main import run_command

HEAVY = ("polars", "numba", "pyspark", "pyarrow", "deltalake", "numpy", "pandas", "rich")
COMMANDS = ("init", "ingest", "run", "diff", "show", "log", "status", "plan", "doctor")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_command(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def process(code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=600, **options
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from ddcore.cli.main import run_command; code = run_command(sys.argv[1:]);"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]; sys.exit(code or ', '.join(heavy) or 0)"
    )
    done = process(code, *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_completion_imports_nothing_heavy() -> None:
    code = (
        "import sys, atexit; atexit.register(lambda: print([n for n in sys.modules if n in "
        f"{HEAVY!r}], file=sys.stderr)); from ddcore.cli.main import run_command; run_command([], 'dd')"
    )
    environment = {
        **os.environ,
        "_DD_COMPLETE": "complete_bash",
        "COMP_WORDS": "dd st",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    done = process(code, env=environment)
    assert "status" in done.stdout
    assert done.stderr.strip().endswith("[]")


def test_bare_prints_help_and_never_reads_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    class Never:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(f"stdin.{name}")

    monkeypatch.setattr(sys, "stdin", Never())
    code, out, err = said(capsys)
    assert (code, out) == (2, "")
    assert "Usage: ddcore" in err


@pytest.mark.parametrize("argument", ["if=/dev/zero", "of=x", "bs=4M", "count=1", "status=progress"])
def test_the_other_dd(argument: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = said(capsys, argument, "of=y")
    assert (code, out) == (2, "")
    assert f"error: '{argument}' is for the dd that copies files; this dd is ddcore\n" in err
    assert f"  that one is at /bin/dd: /bin/dd {argument} of=y\n" in err
    assert not list(tmp_path.iterdir())


def test_version_begins_with_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "--version")
    assert (code, err) == (0, "")
    assert out.startswith("ddcore 0.")


@pytest.mark.parametrize(
    ("arguments", "says", "hint"),
    [
        (["runn"], "error: no such command 'runn'. Did you mean 'run'?", "see: ddcore --help"),
        (
            ["run", "--full"],
            "error: no such option: --full (Possible options: --full-refresh)",
            "see: ddcore run --help",
        ),
        (["run", "x"], "unexpected extra argument", "see: ddcore run --help"),
        (["run", "--parallelism", "two"], "'two' is not a whole number from 1 up", "see: ddcore run --help"),
        (["run", "--skip-code", "300"], "'300' is not a whole number from 0 to 255", "see: ddcore run --help"),
        (["diff"], "missing argument 'OUTPUT'", "usage: ddcore diff OUTPUT [A] [B]; see: ddcore diff --help"),
    ],
)
def test_wrong_arguments(arguments: list[str], says: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, *arguments)
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert says in lines[0]
    assert lines[1:] == [f"  {hint}"]


# --- how errors end ---------------------------------------------------------------------------------------------------


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Makes `ddcore init` raise what it is given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDCORE_DEBUG", "")

    def fail(error: BaseException) -> None:
        def raiser(*_: object) -> None:
            raise error

        monkeypatch.setattr("ddcore.cli.init._refuse_to_overwrite", raiser)

    return fail


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (LockHeld("in use by pid 7", "wait"), 75, "error: in use by pid 7\n  wait\n"),
        (KeyError("x"), 1, "error: KeyError: 'x'\n  this should not happen: see --debug\n"),
        (ValueError("two\nlines"), 1, "error: ValueError: two lines\n  this should not happen: see --debug\n"),
        (
            PermissionError(13, "Permission denied", "/w/x"),
            1,
            "error: /w/x: Permission denied\n  give this user access to it",
        ),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (SystemExit(5), 5, ""),
        (MemoryError(), 1, "error: memory ran out: MemoryError"),
    ],
)
def test_errors_are_two_lines(
    failing: Any, error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(error)
    got, out, err = said(capsys, "init")
    assert (got, out) == (code, "")
    assert err.startswith(text)
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_debug_shows_the_traceback(
    failing: Any, how: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    failing(KeyError("x"))
    if how == "environment":
        monkeypatch.setenv("DDCORE_DEBUG", "1")
    code, _, err = said(capsys, "init", *(["--debug"] if how == "flag" else []))
    assert code == 1
    assert err.startswith("error: KeyError: 'x'\n")
    assert "Traceback (most recent call last)" in err


@pytest.mark.parametrize("before", [None, ""])
def test_debug_is_for_one_command(
    failing: Any, before: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(KeyError("x"))
    if before is None:
        monkeypatch.delenv("DDCORE_DEBUG")
    assert "Traceback" in said(capsys, "init", "--debug")[2]
    assert os.environ.get("DDCORE_DEBUG") == before
    assert "Traceback" not in said(capsys, "init")[2]


_SLEEPER = """
import sys, time
from ddcore.cli import init, main
def sleep(*arguments):
    try:
        print("asleep", file=sys.stderr, flush=True)
        time.sleep(30)
    finally:
        print("let go", file=sys.stderr, flush=True)
init._refuse_to_overwrite = sleep
sys.argv = ["ddcore", "init"]
main.main()
"""


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_signals_unwind(number: int, code: int, word: str, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _SLEEPER], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "asleep\n"
        time.sleep(0.1)
        child.send_signal(number)
        _, err = child.communicate(timeout=600)
    assert child.returncode == code
    assert err.startswith(f"let go\nerror: {word}\n  the warehouse is as the last finished run")


@pytest.mark.long
@pytest.mark.parametrize("ignored", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_these_tests_pass_where_a_signal_is_ignored(ignored: signal.Signals) -> None:
    """As in the background of a script: commands that the tests start do not ignore it."""
    script = (
        f"import os, signal, sys; signal.signal({int(ignored)}, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', *sys.argv[1:]])"
    )
    tests = ["--assert=plain", f"{__file__}::test_signals_unwind", "-k", str(128 + ignored)]
    done = subprocess.run([sys.executable, "-c", script, *tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_command_goes_on_where_its_caller_ignores_a_signal(tmp_path: Path) -> None:
    """Ctrl-C in the terminal of a script is not meant for what it has put into the background."""
    sleeper = _SLEEPER.replace("import sys, time", "import os, signal, sys, time").replace(
        "        time.sleep(30)", "        os.kill(os.getpid(), signal.SIGINT)\n        time.sleep(0.1)"
    )
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{sleeper}"
    done = subprocess.run(
        [sys.executable, "-c", ignoring], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0 and "interrupted" not in done.stderr, done.stderr


def test_a_signal_that_arrives_as_another_error(tmp_path: Path) -> None:
    """Compiled code wraps the exception of a handler, py4j swallows it: the exit code is the signal's all the same."""
    sleeper = _SLEEPER.replace("    finally:", "    except BaseException: raise SystemError('wrapped')\n    finally:")
    with subprocess.Popen([sys.executable, "-c", sleeper], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "asleep\n"
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=600)
    assert child.returncode == 143
    assert err.startswith("let go\nerror: terminated\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_cannot_be_raised_comes_again(number: int, code: int, tmp_path: Path) -> None:
    """Under a callback from compiled code Python drops what a handler raises; the command must end all the same."""
    callback = f"ctypes.CFUNCTYPE(None)(lambda: (os.kill(os.getpid(), {int(number)}), time.sleep(1)))()"
    sleeper = _SLEEPER.replace("import sys, time", "import ctypes, os, sys, time").replace(
        "        time.sleep(30)", f"        {callback}\n        time.sleep(30)"
    )
    done = subprocess.run(
        [sys.executable, "-c", sleeper], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == code
    assert done.stderr.startswith("asleep\nlet go\nerror: ")


def test_a_reader_that_goes_away_is_no_failure_and_the_work_goes_on(tmp_path: Path) -> None:
    code = (
        "import sys; from ddcore.cli import init, main, output\n"
        "def talk(*_):\n"
        "    for _ in range(100000): output.Output().data('x' * 80)\n"
        "init._refuse_to_overwrite = talk; sys.argv = ['ddcore', 'init']; main.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        err = child.stderr.read()
        assert child.wait(timeout=600) == 0
    assert err.startswith("made a project here")


def test_program_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for called, name in (("/usr/bin/dd", "dd"), ("ddcore", "ddcore"), ("/x/main.py", "ddcore"), ("dd.exe", "dd")):
        monkeypatch.setattr(sys, "argv", [called])
        assert entry._program_name() == name
