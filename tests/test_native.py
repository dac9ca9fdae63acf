"""What a release of numba changed in what compiled kernels need of it: one line for each name, of the one module that
knows them.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

import ddcore
from ddcore.compiling import native

NEEDED = {
    "_helperlib": ("c_helpers",),
    "_dynfunc": ("c_helpers", "Environment", "make_function"),
    "core.runtime._nrt_python": ("c_helpers", "memsys_use_cpython_allocator", "memsys_shutdown"),
}
UPGRADE = f"numba {version('numba')} {{}}: ddcore/compiling/native.py has to follow"


@pytest.mark.parametrize("module", NEEDED)
def test_numba_has_the_modules_that_compiled_kernels_call(module: str) -> None:
    names = vars(native._extension(module))
    assert [name for name in NEEDED[module] if name not in names] == [], UPGRADE.format(f"has another {module}")


@pytest.mark.parametrize(
    "symbol", ["numba_unpickle", "NRT_MemInfo_alloc_aligned", "NRT_adapt_ndarray_to_python_acqref"]
)
def test_numba_has_the_symbols_that_compiled_kernels_call(symbol: str) -> None:
    assert native.symbols().get(symbol), UPGRADE.format(f"has no {symbol}")


def test_the_symbols_of_a_kernel_are_found_in_its_llvm_code() -> None:
    import numba

    (llvm,) = numba.njit("int64[::1](int64[::1])")(lambda values: values + 1).inspect_llvm().values()
    entry, environment = native.symbols_in(llvm)
    assert environment in llvm, UPGRADE.format("names environments in another way")
    assert entry != environment


def test_no_other_module_uses_what_numba_keeps_for_itself() -> None:
    root = Path(ddcore.__file__).parents[1]
    private = re.compile(r"numba\.core|numba\._|_numba_type_\b|_ZN|target_context|\.fndesc|_dynfunc")
    files = [file for room in ("ddcore", "io", "jobs", "cli") for file in (root / room).rglob("*.py")]
    assert {file.name for file in files if private.search(file.read_text())} == {"native.py"}
