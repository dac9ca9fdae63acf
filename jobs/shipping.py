"""What executors are given: this package as a zip, and the work with the user's program in it.

The package's libraries (numpy, pyarrow, pandas, Polars, numba) have native code and must be on the executors; see
docs/spark.md. What is imported from the zip is a few lines that lay the real files into the executor's cache folder,
once per content, and go on from there: numba keeps compiled kernels by the path of their source, and Spark puts the
zip into a new folder for every application.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ddcore.cache import cache_folder
from ddcore.errors import ProgramError
from ddcore.wording import described

__all__ = ["package_zip", "pickled"]

_ROOMS = ("ddcore", "ddcore.io", "ddcore.jobs", "ddcore.cli")
_INSIDE = "unpacked/"
_STACK, _DEPTH = 512 << 20, 1_000_000  # bytes and calls to pickle a plan with; memory is taken as it is used
_EPOCH = (1980, 1, 1, 0, 0, 0)

# Becomes ddcore/__init__.py of the zip. It cannot import this package: it is what makes it importable.
_BOOTSTRAP = '''"""Lays the package into the cache folder of this machine and goes on from there."""
import os
import shutil
import tempfile
import zipfile


def _lay(archive):
    name = os.path.splitext(os.path.basename(archive))[0]
    places = [os.environ.get("DDCORE_CACHE") or os.path.expanduser("~/.cache/ddcore"),
              os.path.join(tempfile.gettempdir(), "ddcore-%d" % os.getuid())]
    for place in places:
        target = os.path.join(place, "code", name)
        if os.path.isdir(target):
            return target
        try:
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            fresh = tempfile.mkdtemp(dir=os.path.dirname(target))
        except OSError:
            continue
        with zipfile.ZipFile(archive) as packed:
            members = [m for m in packed.namelist() if m.startswith("unpacked/")]
            packed.extractall(fresh, members)
        try:
            os.rename(os.path.join(fresh, "unpacked"), target)
        except OSError:
            pass  # another worker was first
        shutil.rmtree(fresh, ignore_errors=True)
        return target
    raise ImportError("no folder to unpack %s into: tried %s" % (archive, places))


__path__ = [os.path.join(_lay(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "ddcore")]
__file__ = os.path.join(__path__[0], "__init__.py")
with open(__file__, encoding="utf-8") as _source:
    exec(compile(_source.read(), __file__, "exec"))
'''


def package_zip() -> Path:
    """The zip of the package as it is now; made when its content is new, at most a few ten milliseconds."""
    content = _packed()
    target = cache_folder() / "ship" / f"ddcore-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as fresh:
            fresh.write(content)
        os.chmod(fresh.name, 0o644)
        os.replace(fresh.name, target)
    return target


def pickled(work: Any) -> bytes:
    """A plan, or what holds one, with the user's own functions inside: executors need not have the program's file.

    Raises ProgramError for a function that holds what no process can be sent, such as a lock.

    A plan is a graph, which pickle follows to its end: on a stack of its own, or a hundred operators were too many.
    """
    from pyspark import cloudpickle

    mine = [module for name, module in sys.modules.items() if name.startswith("_ddcore_program")]
    for module in mine:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    stack, depth = threading.stack_size(_STACK), sys.getrecursionlimit()
    sys.setrecursionlimit(_DEPTH)
    try:
        with ThreadPoolExecutor(1) as deep:
            dumped: bytes = deep.submit(cloudpickle.dumps, work).result()
            return dumped
    except Exception as error:
        raise ProgramError(
            f"the program cannot be sent to Spark's workers: a function of it holds what cannot be pickled: "
            f"{described(error)}",
            "make that inside of the function, or fold in this process: --engine inline",
        ) from error
    finally:
        sys.setrecursionlimit(depth)
        threading.stack_size(stack)
        for module in mine:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _packed() -> bytes:
    """The zip's bytes, the same for the same sources."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(zipfile.ZipInfo("ddcore/__init__.py", _EPOCH), _BOOTSTRAP)
        for name, file in sorted(_files()):
            packed.writestr(zipfile.ZipInfo(_INSIDE + name, _EPOCH), file.read_bytes())
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    """Every source file of the four rooms, with its place in the installed shape."""
    for room in _ROOMS:
        (folder,) = map(Path, importlib.import_module(room).__path__)
        for file in folder.rglob("*.py"):
            yield f"{room.replace('.', '/')}/{file.relative_to(folder).as_posix()}", file
