"""The image of all kernels works as what LLVM links; what cannot be linked or read is left to LLVM."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddcore.base.cache import kernel_names
from ddcore.compiling import kernel_cache, linked_kernels, linking, native
from ddcore.compiling.linking import Image, UnlinkableError, link
from ddcore.compiling.native import Array, Code
from ddcore.kernels.compiling import _compiled

IN, OUT = Array("int64", 1), Array("int64", 1, writes=True)

pytestmark = pytest.mark.skipif(linked_kernels.image_file() is None, reason="only on Linux and x86-64")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own for the image, and a process that has none yet."""
    monkeypatch.setattr(linked_kernels, "cache_folder", lambda: tmp_path)
    linked_kernels._placed.cache_clear()
    yield tmp_path / "linked"
    linked_kernels._placed.cache_clear()


def code_of(function: Any, returns: Any, *arguments: Any) -> Code:
    return _compiled(function, returns, arguments)


def linked_together(**codes: Code) -> dict[str, Any]:
    """The functions of an image of these kernels, which was written and read."""
    parts = {name: (code.entry, {key: [*types] for key, types in code.environments.items()}, code.objects)
             for name, code in codes.items()}  # fmt: skip
    image = Image.unpacked(link(parts).packed())
    base = image.load(linked_kernels._addresses(image.symbols))
    return {name: native.function_at(name, base, image.entries[name]) for name in codes}


def total(values):  # type: ignore[no-untyped-def]
    result = 0
    for value in values:
        result += value
    return result


def spread(values, out):  # type: ignore[no-untyped-def]
    fresh = np.zeros(len(values), np.int64)
    for location in range(len(values)):
        fresh[location] = values[location] * 3
        out[location] = fresh[location] + 1
    return fresh


def rounded(number):  # type: ignore[no-untyped-def]
    return int(np.floor(np.log10(number))) if number > 0 else -1


def refused(number):  # type: ignore[no-untyped-def]
    if number < 0:
        raise ValueError("less than nothing")
    return number


def test_kernels_of_an_image_work() -> None:
    """Results, new arrays, arguments that are written, functions of C and errors; several kernels in one image."""
    functions = linked_together(
        total=code_of(total, "int64", IN),
        spread=code_of(spread, OUT, IN, OUT),
        rounded=code_of(rounded, "int64", "int64"),
        refused=code_of(refused, "int64", "int64"),
    )
    values, out = np.arange(1000), np.empty(1000, np.int64)
    assert functions["total"](values) == 499_500
    fresh = functions["spread"](values, out)
    assert (fresh == values * 3).all() and (out == values * 3 + 1).all() and fresh.flags.owndata is not None
    assert [functions["rounded"](number) for number in (0, 9, 1000)] == [-1, 0, 3]
    assert functions["refused"](5) == 5
    with pytest.raises(ValueError, match="less than nothing"):
        functions["refused"](-1)


def test_all_kernels_are_linked_once_and_then_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if any(kernel_cache.load(name) is None for name in kernel_names()):
        pytest.skip("not all kernels are compiled")
    (name, *_) = kernel_names()
    assert linked_kernels.function(name) is not None
    (file,) = folder.iterdir()
    assert oct(folder.stat().st_mode & 0o777) == "0o700"
    linked_kernels._placed.cache_clear()
    monkeypatch.setattr(linked_kernels, "link", lambda _: pytest.fail("linked again"))
    assert linked_kernels.function(name) is not None and linked_kernels.function("time_columns.missing") is None
    assert Image.unpacked(file.read_bytes()[32:]).entries.keys() == {*kernel_names()}


def test_a_kernel_that_is_not_compiled_leaves_no_image(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, (*_, last) = kernel_cache.load, kernel_names()
    monkeypatch.setattr(kernel_cache, "load", lambda name: None if name == last else load(name))
    assert linked_kernels.function(kernel_names()[0]) is None
    assert not folder.exists()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_image_is_not_used(damage: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = linked_kernels.image_file()
    assert file is not None
    code = code_of(total, "int64", IN)
    content = link({"a.total": (code.entry, {}, code.objects)}).packed()
    folder.mkdir(mode=0o700)
    import hashlib

    whole = hashlib.blake2b(content, digest_size=32).digest() + content
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 1
    file.write_bytes(whole)
    assert linked_kernels._read(file) is not None
    other = hashlib.blake2b(b"[]\n", digest_size=32).digest() + b"[]\n"
    file.write_bytes({"cut": whole[:-1], "flipped": bytes(flipped), "empty": b"", "other": other}[damage])
    assert linked_kernels._read(file) is None


def test_an_image_where_others_may_write_is_not_used(folder: Path) -> None:
    file = linked_kernels.image_file()
    assert file is not None
    folder.mkdir(mode=0o700)
    content = link({}).packed()
    import hashlib

    file.write_bytes(hashlib.blake2b(content, digest_size=32).digest() + content)
    assert linked_kernels._read(file) is not None
    folder.chmod(0o777)
    assert linked_kernels._read(file) is None


def changed(content: bytes, location: int, form: str, value: int) -> bytes:
    return content[:location] + struct.pack(form, value) + content[location + struct.calcsize(form) :]


def test_what_is_not_as_expected_is_refused() -> None:
    code = code_of(refused, "int64", "int64")
    parts = {"other machine": changed(code.objects, 18, "<H", 183), "no object": b"\x7fELF", "text": b"text" * 40}
    parts["shared library"] = changed(code.objects, 16, "<H", 3)
    (table,) = struct.unpack_from("<Q", code.objects, 40)
    (count,) = struct.unpack_from("<H", code.objects, 60)
    for number in range(count):
        head = struct.unpack_from("<IIQQQQIIQQ", code.objects, table + 64 * number)
        if head[1] == 4:
            parts[f"another relocation in {number}"] = changed(code.objects, head[4] + 8, "<I", 2)
            parts[f"a relocation behind the end in {number}"] = changed(code.objects, head[4], "<Q", 1 << 30)
            parts[f"a symbol that is missing in {number}"] = changed(code.objects, head[4] + 12, "<I", 1 << 20)
    refusals = []
    for what, objects in parts.items():
        try:
            link({"a.refused": (code.entry, {}, objects)})
        except UnlinkableError:
            refusals.append(what)
    unwinding = len(parts) - len(refusals)
    assert unwinding <= 3, "only the section for unwinding is not read"
    assert {"other machine", "no object", "text", "shared library"} < {*refusals} and len(refusals) > 6
    with pytest.raises(UnlinkableError):
        link({"a.refused": ("another_entry", {}, code.objects)})


def test_a_symbol_that_is_missing_leaves_the_image_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image({}, ["no_such_function"], linking._PAGE, bytes(linking._PAGE + 8), np.empty((0, 2), np.int64),
                  np.array([[0, 0, 0]]))  # fmt: skip
    monkeypatch.setattr(linked_kernels, "_link", lambda _: image)
    assert linked_kernels.function("time_columns.inside") is None


def test_a_system_that_forbids_it_is_left_to_llvm() -> None:
    image, none = link({}), 1 << 20  # no such protection
    with pytest.raises(OSError, match="executable"):
        Image(image.entries, [], linking._PAGE, bytes(linking._PAGE), image.own, image.calls).load({}, none)


@pytest.mark.parametrize("variable", ["NUMBA_CPU_NAME", "NUMBA_ENABLE_AVX", "NUMBA_DISABLE_JIT"])
def test_numba_s_settings_of_the_processor_leave_it_to_llvm(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "generic" if variable == "NUMBA_CPU_NAME" else "1")
    assert linked_kernels.image_file() is None


def test_a_process_with_an_image_folds_without_llvm(tmp_path: Path) -> None:
    if linked_kernels.function(kernel_names()[0]) is None:
        pytest.skip("not all kernels are compiled")
    script = (
        "import sys, polars as pl, ddcore as dd\n"
        "rows = pl.DataFrame({'a': [1, 1, 2], 'version': [0, 0, 0], 'diff': [1, 1, 1]})\n"
        "log = dd.replay(lambda t: {'n': t.group_by('a').agg(n=dd.count())}, t=rows)['n']\n"
        "print(sorted(log.rows()), 'llvmlite' in sys.modules, 'numba' in sys.modules)\n"
    )
    command = [sys.executable, "-c", script]
    for _ in range(2):
        done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[(1, 2, 0, 1), (2, 1, 0, 1)] False False"
