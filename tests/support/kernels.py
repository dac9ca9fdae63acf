"""A cache folder of compiled kernels for tests, and how many functions numba compiles."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from numba.core import event

from ddcore.base.cache import kernel_folder
from ddcore.jobs.setup import compile_kernels

# Loads all kernels and prints how many functions were compiled for it, and where the package lies.
LOAD_ALL = """
import ddcore
from ddcore.jobs.setup import compile_kernels
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    compile_kernels()
print(sum(e.is_start for _, e in recorder.buffer), ddcore.__path__[0])
"""


@contextmanager
def compiled_names() -> Iterator[list[str]]:
    """The names of the functions that numba compiles inside the ``with``; the list is filled at its end."""
    names: list[str] = []
    with event.install_recorder("numba:compile") as recorder:
        yield names
    names += [e.data["dispatcher"].py_func.__name__ for _, e in recorder.buffer if e.is_start]


def copy_of_cache(folder: Path, *lacking: str) -> Path:
    """A cache folder at ``folder`` with all kernels compiled, except for those named."""
    compile_kernels()
    target = folder / "kernels" / kernel_folder().name
    shutil.copytree(kernel_folder(), target)
    for location in (folder, folder / "kernels", target):
        location.chmod(0o700)
    for name in lacking:
        for file in target.glob(f"{name}.*"):
            file.unlink()
    return folder
