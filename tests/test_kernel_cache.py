"""Compiled kernels on the disk: when they are loaded, when they are compiled, and who says so."""

from __future__ import annotations

import io
import logging
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from kernels import compiled_names, copy_of_cache
from seeds import nightly

from ddcore.base import cache
from ddcore.base.cache import kernel_folder, kernel_names, missing_kernels
from ddcore.cli import notices as notices_module
from ddcore.cli.main import run_command
from ddcore.cli.notices import listener, notices
from ddcore.cli.output import Output, Progress
from ddcore.compiling import compilation, kernel_cache
from ddcore.compiling.kernel_cache import current_kernels
from ddcore.engine.profile import Profile
from ddcore.jobs.setup import compile_kernels
from ddcore.kernels.compiling import IN1, INT, OUT1, VOID, kernel


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a process that has said nothing yet."""
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "cache"))
    for once in (kernel_cache._announce_once, kernel_cache._warn):
        once.cache_clear()
    return tmp_path / "cache"


def twice(x):  # type: ignore[no-untyped-def]
    return 2 * x


def thrice(x):  # type: ignore[no-untyped-def]
    return 3 * x


def load(function: Callable[..., Any]) -> tuple[int, list[str]]:
    """What the kernel gives for 21, and what was compiled for it."""
    with compiled_names() as names:
        loaded = kernel(INT, INT)(function)
    return loaded(21), names


def file_of(function: Callable[..., Any]) -> Path:
    return kernel_folder() / f"{__name__.rpartition('.')[2]}.{function.__name__}.{kernel_cache.processor()}"


def test_a_kernel_is_compiled_once_and_then_loaded(folder: Path) -> None:
    assert load(twice) == (42, ["twice"])
    assert load(twice) == (42, [])
    assert load(thrice) == (63, ["thrice"])
    assert oct(folder.stat().st_mode & 0o777) == "0o700"


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_is_compiled_again_and_replaced(folder: Path, damage: str) -> None:
    load(twice)
    content = file_of(twice).read_bytes()
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    file_of(twice).write_bytes({"cut": content[:-1], "flipped": bytes(flipped), "empty": b""}[damage])
    assert load(twice) == (42, ["twice"])
    assert load(twice) == (42, [])


def test_where_nothing_can_be_written_kernels_are_compiled_in_memory_and_that_is_said_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("a file, where the folder should be")
    assert load(twice) == (42, ["twice"])
    assert load(thrice) == (63, ["thrice"])
    lines = [line for line in caplog.messages if "cannot be kept" in line]
    assert len(lines) == 1, lines
    assert str(folder) in lines[0] and "DDCORE_CACHE" in lines[0]


def test_a_folder_that_others_may_write_to_is_not_loaded_from(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(thrice)
    trap = file_of(thrice).read_bytes()
    file_of(thrice).unlink()
    file_of(twice).write_bytes(trap)
    kernel_folder().chmod(0o777)
    assert load(twice) == (42, ["twice"])
    assert "other users may write to" in caplog.text
    kernel_folder().chmod(0o700)
    assert load(twice) == (63, []), "the trap works: only the look at the folder keeps it from being loaded"


def test_the_folder_changes_with_all_that_decides_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def state() -> str:
        cache._kernel_state.cache_clear()
        return cache._kernel_state()

    first, sources, version = state(), cache._kernel_sources(), cache.version_of
    try:
        states = [first, state()]
        for changed in ("numba", "llvmlite"):
            monkeypatch.setattr(cache, "version_of", lambda name, other=changed: version(name) + "+" * (name == other))
            states.append(state())
        monkeypatch.setattr(cache, "version_of", version)
        monkeypatch.setattr(cache, "_kernel_sources", lambda: (*sources[:-1], (sources[-1][0], b"# changed")))
        states.append(state())
        monkeypatch.setattr(cache, "_kernel_sources", lambda: sources)
        monkeypatch.setattr(sys.implementation, "cache_tag", "cpython-399")
        states.append(state())
    finally:
        cache._kernel_state.cache_clear()
    assert states[0] == states[1]
    assert len(set(states[1:])) == 5


@pytest.mark.sample(4, of="compiling")
def test_processes_that_compile_at_once_share_the_kernels(folder: Path) -> None:
    script = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/support']\n"
        "import test_kernel_cache as t; sys.stdin.read(1)\n"
        "from ddcore.kernels.compiling import kernel, INT\n"
        "with t.compiled_names() as names:\n"
        "    for _ in range(5): assert kernel(INT, INT)(t.twice)(21) == 42 and kernel(INT, INT)(t.thrice)(21) == 63\n"
        "print(*names)\n"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("g")
        process.stdin.flush()
    compiled = []
    for process in processes:
        out, err = process.communicate()
        assert process.returncode == 0, err
        compiled += out.split()
    assert sorted(compiled) == ["thrice", "twice"]
    assert load(twice) == (42, []) and load(thrice) == (63, [])
    assert len(list(kernel_folder().iterdir())) == 2, "one file per kernel, and nothing half-written"


def test_what_a_killed_process_was_compiling_is_compiled_where_it_is_called(folder: Path) -> None:
    script = (
        "import sys; from ddcore.compiling import kernel_cache\n"
        "with kernel_cache.claimed(sys.argv[1]) as is_ours: print(is_ours, flush=True); sys.stdin.read()\n"
    )
    name = f"{__name__.rpartition('.')[2]}.twice"
    command = [sys.executable, "-c", script, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "True\n"
        with compiled_names() as names:
            loaded = kernel(INT, INT)(twice)
        assert names == [], "the other process has claimed it"
        process.kill()
        with compiled_names() as names:
            assert loaded(21) == loaded(21) == 42
        assert names == ["twice"]
    assert load(twice) == (42, [])


# --- what is loaded ---------------------------------------------------------------------------------------------------

WITHOUT_NUMBA = """
import sys
import numpy as np
from ddcore.jobs.setup import compile_kernels
assert not compile_kernels() and "numba" not in sys.modules
from ddcore.kernels.look_up import search
codes, zeros, ends = np.arange(5), np.zeros(2, np.int64), np.full(2, 5)
before = search(codes, np.array([1, 7]), zeros, ends)
assert not [name for name in sys.modules if name.partition(".")[0] == "numba" and "._" not in name]
import numba
import numba.core.serialize
assert numba.core.serialize.__file__
assert numba.njit(lambda size: np.arange(size).sum())(5) == 10
after = search(codes, np.array([1, 7]), zeros, ends)
assert [*map(list, before)] == [*map(list, after)] == [[1, 5], [2, 5]], (before, after)
"""


@pytest.mark.sample(4, of="compiling")
def test_kernels_are_loaded_without_numba_which_a_program_may_import_later() -> None:
    compile_kernels()
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMBA], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.sample(1)
@pytest.mark.parametrize("settings", [{}, {"NUMBA_CPU_NAME": "generic"}, {"NUMBA_ENABLE_AVX": "0"}])
def test_the_processor_is_the_one_that_numba_compiles_for(settings: dict[str, str]) -> None:
    script = (
        "from ddcore.base import cache; from ddcore.compiling import kernel_cache; name = kernel_cache.processor()\n"
        "from numba.core.registry import cpu_target\n"
        "assert name == cache.processor_digest(*cpu_target.target_context.codegen().magic_tuple())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def double(target, values):  # type: ignore[no-untyped-def]
    for location in range(len(values)):
        target[location] = 2 * values[location]


def squares(count):  # type: ignore[no-untyped-def]
    return np.arange(count) ** 2


def fail(number):  # type: ignore[no-untyped-def]
    if number > 0:
        raise ValueError("too great")
    return number


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("target", "values"),
    [
        (np.zeros(8, np.int64)[::2], np.arange(4)),
        (np.zeros(4, np.int64), np.arange(8)[::2]),
        (np.zeros(4), np.arange(4)),
        (np.zeros(4, np.uint64), np.arange(4)),
        (np.zeros(4, np.int32), np.arange(4)),
        (np.zeros(4, ">i8"), np.arange(4)),
        (np.zeros((1, 4), np.int64), np.arange(4)),
        (read_only(np.zeros(4, np.int64)), np.arange(4)),
        (np.frombuffer(bytearray(33), np.int64, 4, 1), np.arange(4)),
    ],
)
def test_arrays_of_another_kind_are_refused(folder: Path, target: Any, values: Any) -> None:
    doubled = kernel(VOID, OUT1, IN1)(double)
    before = target.tobytes()
    with pytest.raises(TypeError, match=r"test_kernel_cache\.double: argument [01] is .*; it takes int64"):
        doubled(target, values)
    assert target.tobytes() == before
    with pytest.raises(TypeError, match="takes 2 arguments, not 1"):
        doubled(target)


def test_arrays_of_the_kind_are_taken_whatever_object_their_type_is(folder: Path) -> None:
    doubled = kernel(VOID, OUT1, IN1)(double)
    for kind in ("l", "q"):  # two objects for one type
        target = np.zeros(4, kind)
        doubled(target, read_only(np.arange(4, dtype=kind)))
        assert target.tolist() == [0, 2, 4, 6]


@pytest.mark.sample(4, of="compiling")
def test_results_outlive_the_call_and_are_freed(folder: Path) -> None:
    squared = kernel(OUT1, INT)(squares)
    kept = squared(5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        assert squared(1_000_000)[-1] == 999_999**2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024, "in KiB; all of them are 800 MB"
    assert kept.tolist() == [0, 1, 4, 9, 16]


def test_an_error_in_a_kernel_is_raised(folder: Path) -> None:
    failing = kernel(INT, INT)(fail)
    assert failing(0) == 0
    with pytest.raises(ValueError, match="too great"):
        failing(1)


# --- which kernels there are ------------------------------------------------------------------------------------------


def test_the_names_from_the_sources_are_those_of_the_compiled_functions() -> None:
    compile_kernels()
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("ddcore.kernels.")]
    names = {
        f"{module.__name__.rsplit('.', 1)[-1]}.{name}"
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and hasattr(value, "py_func") and value.py_func.__module__ == module.__name__
    }
    assert names == set(kernel_names())


def test_missing_and_current_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(copy_of_cache(tmp_path / "cache", "hashing.mix")))
    assert missing_kernels() == ["hashing.mix"]
    file = next(kernel_folder().glob("look_up.search.*"))
    file.write_bytes(file.read_bytes()[:-1])
    os.rename(next(kernel_folder().glob("look_up.locate.*")), kernel_folder() / "look_up.locate.anotherprocessor")
    lacking = {"hashing.mix", "look_up.search", "look_up.locate"}
    assert set(kernel_names()) - set(current_kernels()) == lacking
    kernel_folder().chmod(0o777)
    assert (current_kernels(), missing_kernels()) == ([], kernel_names())


# --- who says that kernels are compiled -------------------------------------------------------------------------------

REPLAY = """
import sys, polars as pl, ddcore as dd
if sys.argv[1:]:
    import logging
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
frame = pl.DataFrame({"word": ["cat"], "version": [0], "diff": [1]})
assert dd.replay(lambda words: {"out": words.distinct()}, words=frame)["out"].height == 1
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "ddcore: compiling 1 kernel, once on this machine; this can take a minute"),
        (["log"], "INFO ddcore compiling 1 kernel, once on this machine; this can take a minute"),
    ],
)
def test_the_library_says_that_it_compiles_and_only_then(tmp_path: Path, arguments: list[str], expected: str) -> None:
    env = os.environ | {"DDCORE_CACHE": str(copy_of_cache(tmp_path / "cache", "hashing.mix"))}
    for lines in ([expected], []):
        done = subprocess.run(
            [sys.executable, "-c", REPLAY, *arguments], env=env, capture_output=True, text=True, check=True
        )
        assert done.stderr.splitlines() == lines


@pytest.mark.sample(4, of="compiling")
@pytest.mark.parametrize("quiet", nightly([False, True], 1))
def test_a_run_says_that_kernels_are_compiled_and_only_then(tmp_path: Path, quiet: bool) -> None:
    run_command(["init", str(tmp_path / "trams"), "--quiet"])
    env = os.environ | {"DDCORE_CACHE": str(copy_of_cache(tmp_path / "cache", "hashing.mix"))}

    def dd(*words: str) -> list[str]:
        command = [str(Path(sys.executable).with_name("ddcore")), *words, *["--quiet"] * quiet]
        done = subprocess.run(command, cwd=tmp_path / "trams", env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stderr.splitlines() if "compiling" in line]

    for name in ("links", "starts"):
        assert dd("ingest", name, f"data/{name}.csv", "--engine", "inline") == []
    assert dd("run") == ([] if quiet else ["compiling 1 kernel, once on this machine; this can take a minute"])
    assert dd("run", "--full-refresh") == []


@pytest.mark.parametrize(("engine", "lacking", "lines"), [("spark", 1, 1), ("spark", 0, 0), ("inline", 1, 0)])
def test_a_run_on_spark_says_it_for_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, lacking: int, lines: int
) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(copy_of_cache(tmp_path / "cache", *["hashing.mix"] * lacking)))
    out = Output()
    out.stderr = io.StringIO()
    listen = listener(out, Progress(out.stderr, live=False), engine)
    listen("fold", 0, None, "versions 0..1")
    listen("fold", 1, None, "round 1")
    assert (
        out.stderr.getvalue().splitlines()
        == ["compiling 1 kernel, once on this machine; this can take a minute"] * lines
    )


def test_a_bar_shows_how_many_kernels_are_compiled(folder: Path) -> None:
    """And what went on before is there again."""
    out = Output()
    out.stderr = io.StringIO()
    bar = Progress(out.stderr, live=True)
    bar("fold", 3, 7)
    with notices(out, bar):
        compilation.expect(2)
        kernel_cache.announce()
        bar._draw()
        load(twice)
        bar._draw()
    bar.close()
    drawn = out.stderr.getvalue().split("\r\x1b[K")
    assert any(
        re.match(r"compiling kernels  \[[#.]+\] [0-9]+/[0-9]+  once on this machine  [0-9]+s", item) for item in drawn
    )
    assert drawn[-2].startswith("fold") or drawn[-3].startswith("fold")


def test_a_command_without_a_bar_shows_one_while_it_compiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Output()
    out.stderr = io.StringIO()
    monkeypatch.setattr(Output, "bar_shown", True)
    with notices(out):
        load(twice)
    assert "compiling kernels" in out.stderr.getvalue()


def test_on_a_terminal_the_library_shows_how_far_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda _: False)
    monkeypatch.setattr(compilation, "_listeners", [])
    load(twice)
    said, *drawn = terminal.getvalue().split("\r\x1b[K")
    assert said.startswith("ddcore: compiling") and drawn[0].startswith("ddcore: compiling kernels ")
    assert drawn[-1] == "", "nothing is left of it"


def test_a_run_on_spark_shows_what_the_workers_have_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(copy_of_cache(tmp_path / "cache", "hashing.mix")))
    out = Output()
    out.stderr = io.StringIO()
    bar = Progress(out.stderr, live=True)
    assert notices_module._compiled(bar, 3)
    bar._draw()
    bar.close()
    assert "compiling kernels  [#############.......] 2/3" in out.stderr.getvalue()


def test_the_time_of_compiling_is_no_operators(folder: Path) -> None:
    compilation.take()
    wall, before = time.perf_counter_ns(), compilation.clock()  # the clock runs within the wall's time
    load(twice)
    operator, all_of_it, spent = compilation.clock() - before, time.perf_counter_ns() - wall, compilation.take()
    assert 0 < spent <= all_of_it and operator <= all_of_it - spent
    assert compilation.take() == 0
    profile = Profile(compiling=spent)
    profile.absorb(Profile(compiling=1))
    assert profile.compiling == spent


def test_notices_leave_the_logger_as_it_was() -> None:
    from ddcore.cli.notices import notices

    logger, out = logging.getLogger("ddcore"), Output()
    out.stderr = io.StringIO()
    before = (logger.level, list(logger.handlers), logger.propagate)
    with notices(out):
        logger.info("compiling")
        logger.warning("not kept")
    assert out.stderr.getvalue().splitlines() == ["compiling", "warning: not kept"]
    assert (logger.level, list(logger.handlers), logger.propagate) == before


# --- kernels that come with the package -------------------------------------------------------------------------------


@pytest.fixture
def shipped(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the package's kernels. It has ``twice``, compiled for the named level by a process of its own."""
    target = tmp_path / "package" / "compiled" / kernel_folder().name
    for module in (cache, kernel_cache):
        monkeypatch.setattr(module, "shipped_folder", lambda: target)
    script = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/support']; import test_kernel_cache as t\n"
        "from ddcore.kernels.compiling import kernel, INT\n"
        "kernel(INT, INT)(t.twice); print(t.file_of(t.twice))\n"
    )
    env = os.environ | {
        "NUMBA_CPU_NAME": cache.LEVEL,
        "NUMBA_CPU_FEATURES": "",
        "DDCORE_CACHE": str(tmp_path / "built"),
    }
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent)], env=env, capture_output=True, text=True, check=True
    )
    target.mkdir(parents=True)
    os.rename(done.stdout.strip(), target / Path(done.stdout.strip()).name)
    return target


@pytest.mark.sample(4, of="compiling")
def test_kernels_of_the_package_are_loaded_where_the_processor_has_the_features_of_their_level(
    folder: Path, shipped: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ddcore")
    assert cache.level_digest(), "this test needs a processor of the level"
    assert load(twice) == (42, [])
    assert not kernel_folder().exists() and not caplog.messages
    for module in (cache, kernel_cache):
        monkeypatch.setattr(module, "level_digest", lambda: "")
    assert cache.shipped_kernels() == []
    assert load(twice) == (42, ["twice"])
    assert "once on this machine" in caplog.text
    assert "those that came with the package are for other processors, or damaged" in caplog.text


@pytest.mark.parametrize("lacking", sorted(cache._LEVEL_FEATURES))
def test_the_level_needs_each_of_its_features(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from llvmlite import binding

    def with_features(names: frozenset[str]) -> str:
        cache.level_digest.cache_clear()
        monkeypatch.setattr(binding, "get_host_cpu_features", lambda: dict.fromkeys(names, True))
        return cache.level_digest()

    try:
        assert with_features(cache._LEVEL_FEATURES)
        assert not with_features(cache._LEVEL_FEATURES - {lacking})
    finally:
        cache.level_digest.cache_clear()


@pytest.mark.parametrize(("name", "value"), [("NUMBA_CPU_NAME", "generic"), ("NUMBA_ENABLE_AVX", "0")])
def test_who_names_a_processor_to_numba_gets_kernels_for_that_one(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    cache.level_digest.cache_clear()
    try:
        assert cache.level_digest() == ""
    finally:
        cache.level_digest.cache_clear()


@pytest.mark.sample(4, of="compiling")
@pytest.mark.parametrize("damage", nightly(["flipped", "cut", "empty"], 1))
def test_a_damaged_kernel_of_the_package_is_not_loaded(folder: Path, shipped: Path, damage: str) -> None:
    (file,) = shipped.iterdir()
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    file.write_bytes({"cut": content[:-1], "flipped": bytes(flipped), "empty": b""}[damage])
    assert load(twice) == (42, ["twice"])
    assert load(twice) == (42, []), "from the cache"


@pytest.mark.sample(4, of="compiling")
def test_kernels_of_another_python_or_numba_are_named_as_the_reason(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "shipped_folder", lambda: shipped.with_name("another"))
    assert cache.compiling(2) == (
        "compiling 2 kernels, once on this machine; this can take a minute; "
        "those that came with the package are for other versions of Python, numba or llvmlite"
    )
