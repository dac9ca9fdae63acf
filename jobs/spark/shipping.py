"""What executors get: this package as a zip, and the work with the user's program in it.

The package's libraries (numpy, pyarrow, pandas, Polars, numba) contain native code and must be installed on the
executors; see docs/spark.md. Importing the package from the zip unpacks it into the executor's cache folder, once per
content, and continues from there: Spark puts the zip into a new folder for every application, and numba needs source
files to cache compiled functions. The zip has the driver's compiled kernels, those of its package and those of its
cache, so that executors on processors of the same kind compile none.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddcore.base import cache
from ddcore.base.cache import (
    OWN_FOLDER,
    cache_folder,
    distrust,
    kernel_folder,
    kernel_names,
    make_private,
    note_use,
    shipped_folder,
    write_private,
)
from ddcore.base.errors import ProgramError, StorageError
from ddcore.jobs.failures import one_line

_PACKAGES = ("ddcore", "ddcore.io", "ddcore.jobs", "ddcore.cli")
_INSIDE = "unpacked/"  # also in ddcore.base.cache.unpacked
_EPOCH = (1980, 1, 1, 0, 0, 0)

# ddcore/__init__.py of the zip. Beside it lies a copy of ddcore/base/cache.py, which unpacks the rest.
_BOOTSTRAP = '''"""Unpacks the package into the cache folder of this machine and continues from there."""
import os
import sys

from ddcore.base.cache import unpacked

__path__ = [os.path.join(unpacked(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "ddcore")]
__file__ = os.path.join(__path__[0], "__init__.py")
del sys.modules["ddcore.base.cache"], sys.modules["ddcore.base"]  # the unpacked ones lie beside the kernels
with open(__file__, encoding="utf-8") as _source:
    exec(compile(_source.read(), __file__, "exec"))
'''


def package_zip() -> Path:
    """The zip of the package and its compiled kernels as they are now; written only if its content is new. Some 200 ms.

    Raises StorageError where the cache folder cannot be used.
    """
    content = _pack()
    target = cache_folder() / "ship" / f"ddcore-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    try:
        make_private(target.parent)
        if not target.exists() or target.read_bytes() != content:
            write_private(target, content)
        note_use(target)
    except OSError as error:
        raise StorageError(f"the package for the executors cannot be written: {error}", OWN_FOLDER) from None
    return target


def pickled(work: Any) -> bytes:
    """A pickled plan, or object with a plan, with the user's functions by value: executors need no program file.

    Raises ProgramError if a function holds an object that cannot be pickled.
    """
    from pyspark import cloudpickle

    modules = [module for name, module in sys.modules.items() if name.startswith("_ddcore_program")]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        dumped: bytes = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
        return dumped
    except Exception as error:
        raise ProgramError(
            f"the program cannot be sent to Spark's workers: a function cannot be pickled: {one_line(error)}",
            "let its functions capture plain values only, not open files, locks or generators; or use --engine inline",
        ) from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _pack() -> bytes:
    """The zip's bytes, the same for the same sources."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(zipfile.ZipInfo("ddcore/__init__.py", _EPOCH), _BOOTSTRAP)
        packed.writestr(zipfile.ZipInfo("ddcore/base/__init__.py", _EPOCH), "")
        packed.writestr(zipfile.ZipInfo("ddcore/base/cache.py", _EPOCH), Path(cache.__file__).read_bytes())
        for name, file in sorted([*_files(), *_kernels().items()]):
            packed.writestr(zipfile.ZipInfo(_INSIDE + name, _EPOCH), file.read_bytes())
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    """Every source file of the package, with its path as installed."""
    for package in _PACKAGES:
        (folder,) = map(Path, importlib.import_module(package).__path__)
        for file in folder.rglob("*.py"):
            yield f"{package.replace('.', '/')}/{file.relative_to(folder).as_posix()}", file


def _kernels() -> dict[str, Path]:
    """The compiled kernels of the package, else of the cache, with their paths as in a built package."""
    folders = [shipped_folder(), *([] if distrust(kernel_folder()) else [kernel_folder()])]
    names = kernel_names()
    files = [file for folder in reversed(folders) if folder.is_dir() for file in folder.iterdir() if file.stem in names]
    return {f"ddcore/compiled/{file.parent.name}/{file.name}": file for file in files}
