"""The cache folder of a user: jars, compiled kernels, class archives, unpacked code, logs. All of it can be rebuilt.

Code is loaded from it, so a folder that another user could have filled is never used. This module imports nothing but
the standard library: the package that executors get carries a copy of it (see :mod:`ddcore.jobs.spark.shipping`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import sys
import tempfile
import time
from pathlib import Path

OWN_FOLDER = "set DDCORE_CACHE to a folder that only you can write to"  # the hint where the cache cannot be used
LEVEL = "x86-64-v3"  # the processors that a built package has compiled kernels for, in LLVM's words
_LEVEL_FEATURES = frozenset({
    "avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2",
    "ssse3", "xsave",
})  # fmt: skip
# Lines of /proc/cpuinfo that say which processor it is and what it can do, on x86-64 and on ARM.
_OF_PROCESSOR = {
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
}  # fmt: skip
_KEPT = {
    "kernels": 16,
    "sorts": 16,
    "plans": 64,
    "linked": 8,
    "code": 16,
    "ship": 16,
    "cds": 4,
}  # folders of the cache, and what stays of each at least
_RECENTLY, _LONG_AGO = 7 * 86_400, 30 * 86_400  # seconds
_A_DAY = 86_400  # seconds
_REMOVED = "removed"  # an empty file: when what is unused was removed last
_DIGEST = 32  # bytes before the content of a sealed file
_FORMAT = 2  # of the files that ddcore.compiling.kernel_cache writes
_CODE = "unpacked/"  # the sources inside the package's zip


def cache_folder() -> Path:
    """``DDCORE_CACHE`` when it is set, else ``~/.cache/ddcore``. It need not exist yet.

    A user without a home gets a folder of the user's own in the temporary directory.
    """
    if folder := os.environ.get("DDCORE_CACHE"):
        return Path(folder)
    home = os.path.expanduser("~")
    return Path(home, ".cache", "ddcore") if home != "~" else _temporary()


def _temporary() -> Path:
    return Path(tempfile.gettempdir(), f"ddcore-{os.getuid()}")


# --- folders that code may be loaded from -----------------------------------------------------------------------------


def distrust(folder: Path) -> str:
    """Why code must not be loaded from ``folder``: the reason in one clause; empty if code may be loaded.

    It must belong to this user or to root, and only its owner may write to it. The same goes for all folders above it
    (their group may write) and for links in the path, because their owners could replace it. ``/tmp`` is accepted
    because of its sticky bit. For a missing folder, only those above it are checked. A few ``stat`` calls.
    """
    try:
        real = folder.resolve()
    except (OSError, RuntimeError) as error:
        return f"{folder} cannot be read: {error}"
    path = folder.absolute()
    for parent in dict.fromkeys((path, *path.parents, real, *real.parents)):
        try:
            status = parent.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{parent} cannot be read: {error.strerror}"
        if status.st_uid not in (0, os.getuid()):
            return f"{parent} belongs to another user"
        if stat.S_ISLNK(status.st_mode):
            continue
        if not stat.S_ISDIR(status.st_mode):
            return f"{parent} is not a folder"
        others = stat.S_IWGRP | stat.S_IWOTH if parent == real else stat.S_IWOTH
        if status.st_mode & others and (parent == real or not status.st_mode & stat.S_ISVTX):
            return f"other users may write to {parent}"
    return ""


def make_private(folder: Path) -> None:
    """Make ``folder`` and the missing ones above it, readable by this user only.

    Raises PermissionError if the folder exists and :func:`distrust` gives a reason; OSError if it cannot be created.
    """
    for parent in (*reversed(folder.parents), folder):
        if not parent.exists():
            with contextlib.suppress(FileExistsError):  # another process created it; or a dangling link
                parent.mkdir(mode=0o700)
    if reason := distrust(folder):
        raise PermissionError(reason)


def write_private(file: Path, content: bytes) -> None:
    """Write a file of the cache, whole or not at all, into a folder that is made private. Raises OSError."""
    make_private(file.parent)
    number, name = tempfile.mkstemp(dir=file.parent)
    try:
        with open(number, "wb") as fresh:
            fresh.write(content)
        os.replace(name, file)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def write_sealed(file: Path, content: bytes) -> None:
    """:func:`write_private` with the digest of the content before it. Raises OSError."""
    write_private(file, hashlib.blake2b(content, digest_size=_DIGEST).digest() + content)


def read_sealed(file: Path) -> bytes | None:
    """The content of a file of :func:`write_sealed`; None where it is missing, cannot be read, or is damaged."""
    try:
        whole = file.read_bytes()
    except OSError:
        return None
    content = whole[_DIGEST:]
    return content if hashlib.blake2b(content, digest_size=_DIGEST).digest() == whole[:_DIGEST] else None


# --- what is not used any more ----------------------------------------------------------------------------------------


def note_use(entry: Path) -> None:
    """Note that a file or folder of the cache is in use now."""
    with contextlib.suppress(OSError):
        os.utime(entry)


def remove_unused_daily() -> None:
    """:func:`remove_unused`, unless that was done within a day: a cache of many projects has thousands of plans."""
    done = cache_folder() / _REMOVED
    with contextlib.suppress(OSError):
        if 0 <= time.time() - done.stat().st_mtime < _A_DAY:
            return
    remove_unused()
    with contextlib.suppress(OSError):
        os.close(os.open(done, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        os.utime(done, follow_symlinks=False)


def remove_unused() -> None:
    """Delete kernels, code, archives of code and class archives that no process has used for 30 days; and for 7 days,
    where 16 others of their kind (4 class archives) were used later. Some stat calls.

    Each state of the sources, and each release, has its own. A process that still needs one makes it again.
    """
    now = time.time()
    for kind, kept in _KEPT.items():
        folder = cache_folder() / kind
        try:
            with os.scandir(folder) as found:
                entries = sorted(
                    ((entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in found), reverse=True
                )
        except OSError:
            continue
        unused = [
            path
            for number, (used, path) in enumerate(entries)
            if now - used > (_RECENTLY if number >= kept else _LONG_AGO)
        ]
        if unused and not distrust(folder):
            for path in map(Path, unused):
                _remove(path)


def _remove(path: Path) -> None:
    import shutil

    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


# --- compiled kernels -------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _kernel_sources() -> tuple[tuple[str, bytes], ...]:
    """Module name and source of every kernel module, ordered by name."""
    files = sorted((Path(__file__).parent.parent / "kernels").glob("*.py"))
    return tuple((file.stem, file.read_bytes()) for file in files)


@functools.lru_cache(maxsize=1)
def _kernel_state() -> str:
    """A digest of everything that the compiled kernels depend on, except the processor."""
    digest = hashlib.blake2b(digest_size=8)
    python = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"
    for part in (_FORMAT, python, version_of("numba"), version_of("llvmlite")):
        digest.update(f"{part}\0".encode())
    for name, source in _kernel_sources():
        digest.update(f"{name} {len(source)}\0".encode() + source)
    return digest.hexdigest()


def version_of(package: str) -> str:
    """The version of an installed package: from the name of the folder beside it, else from its metadata.

    The metadata are a message as of mail, and Python's parser of those takes longer to import than many commands work.
    """
    from importlib import import_module, util

    spec = util.find_spec(package)
    folders = [] if spec is None else spec.submodule_search_locations or []
    found = [
        name.removeprefix(f"{package}-").removesuffix(".dist-info")
        for folder in folders
        for name in _names_in(os.path.dirname(folder))
        if name.startswith(f"{package}-") and name.endswith(".dist-info")
    ]
    if len(found) == 1:
        return found[0]
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a packed environment may lack the metadata
        return str(import_module(package).__version__)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def kernel_folder() -> Path:
    """The folder of the kernels compiled on this machine: one for each state of their sources, Python, numba, llvmlite.

    The path of the installation does not matter, so a checkout, a wheel and an executor's copy of one version share it.
    """
    return cache_folder() / "kernels" / _kernel_state()


def shipped_folder() -> Path:
    """The folder of the compiled kernels that came with the package. It does not exist in a checkout, or where the
    versions of Python, numba or llvmlite are others than those that the package was built with.

    These files are code of the package, as its modules are, and trusted like them.
    """
    return Path(__file__).parent.parent / "compiled" / _kernel_state()


def shipped_kernels() -> list[Path]:
    """The kernels that came with the package, without those that this processor cannot run."""
    folder = shipped_folder()
    if not folder.is_dir():
        return []
    unfit = "" if level_digest() else _digest_of_level()
    return [folder / name for name in sorted(os.listdir(folder)) if name.rpartition(".")[2] != unfit]


def processor_digest(triple: str, processor: str, features: str) -> str:
    """The ending of the files of kernels that are compiled for a processor, as LLVM names it."""
    return hashlib.blake2b(repr((triple, processor, features)).encode(), digest_size=8).hexdigest()


@functools.lru_cache(maxsize=1)
def described_processor() -> str:
    """A digest of this processor as Linux describes it, which needs no LLVM; empty on other systems."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read().partition("\n\n")[0]
    except OSError:
        return ""
    lines = [line for line in first.splitlines() if line.partition(":")[0].strip() in _OF_PROCESSOR]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest() if lines else ""


@functools.lru_cache(maxsize=1)
def level_digest() -> str:
    """The ending of the files of kernels compiled for ``LEVEL``; empty where this processor lacks one of its features,
    or numba's environment variables choose a processor.
    """
    from llvmlite import binding

    if os.environ.get("NUMBA_CPU_NAME") or os.environ.get("NUMBA_ENABLE_AVX") == "0":
        return ""
    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM knows no features of this processor
        return ""
    return _digest_of_level() if all(features.get(name) for name in _LEVEL_FEATURES) else ""


def _digest_of_level() -> str:
    from llvmlite import binding

    return processor_digest(binding.get_process_triple(), LEVEL, "")


def kernel_names() -> list[str]:
    """Names of all kernels, ``module.function``, found in the sources: numba is not imported."""
    pattern = re.compile(r"^@kernel\b.*?^def (\w+)\(", re.MULTILINE | re.DOTALL)
    return [f"{module}.{name}" for module, source in _kernel_sources() for name in pattern.findall(source.decode())]


def missing_kernels() -> list[str]:
    """Names of the kernels that the next process has to compile, judged by names of files; numba is not imported.

    :func:`ddcore.compiling.kernel_cache.current_kernels` also checks that the files are intact and for this processor.
    """
    folder, names = kernel_folder(), kernel_names()
    try:
        files = [] if distrust(folder) else os.listdir(folder)
    except OSError:
        files = []
    compiled = {file.rpartition(".")[0] for file in (*files, *(path.name for path in shipped_kernels()))}
    return [name for name in names if name not in compiled]


def compiling(count: int) -> str:
    """What is said when ``count`` kernels are compiled, and why, where the package brought some."""
    why = ""
    if shipped_folder().is_dir():
        why = "; those that came with the package are for other processors, or damaged"
    elif shipped_folder().parent.is_dir():
        why = "; those that came with the package are for other versions of Python, numba or llvmlite"
    return f"compiling {count} kernel{'s' * (count != 1)}, once on this machine; this can take a minute{why}"


# --- the package, as executors get it ---------------------------------------------------------------------------------


def unpacked(archive: str) -> str:
    """The folder that holds the sources of the package's zip: unpacked once for each content of the zip.

    It is in the cache folder; if that cannot be used, in the user's own folder of the temporary directory; if that
    fails too, in a new folder that is deleted when this process ends. An earlier copy is used only if every file
    equals the one in the zip. Milliseconds; raises ImportError if nothing can be written.
    """
    reasons = []
    for folder in (cache_folder(), _temporary()):
        try:
            if folder == _temporary():
                _check_temporary(folder)
            make_private(folder / "code")
            target = _unpacked_into(archive, folder / "code")
        except OSError as error:
            reasons.append(str(error))
            continue
        os.environ["DDCORE_CACHE"] = str(folder)  # kernels are cached beside the code
        return target
    try:
        fresh = tempfile.mkdtemp(prefix="ddcore-")
    except OSError as error:
        raise ImportError(f"no folder to unpack {archive} into: {'; '.join([*reasons, str(error)])}") from None
    import atexit
    import shutil

    atexit.register(shutil.rmtree, fresh, ignore_errors=True)
    return _unpacked_into(archive, Path(fresh))


def _check_temporary(folder: Path) -> None:
    """Make a folder in the temporary directory, where another user may have created one of that name; OSError then."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(f"{folder} is not a folder that only this user can use")


def _unpacked_into(archive: str, code: Path) -> str:
    import shutil
    import zipfile

    target = code / Path(archive).stem
    with zipfile.ZipFile(archive) as packed:
        content = {name: packed.read(name) for name in packed.namelist() if name.startswith(_CODE)}
    if _holds(target, content):
        note_use(target)
        return str(target)
    remove_unused()
    fresh = Path(tempfile.mkdtemp(dir=code))
    try:
        (fresh / _CODE).mkdir(mode=0o700)
        for name, data in content.items():
            file = fresh / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        try:
            if os.path.lexists(target):
                os.rename(target, fresh / "damaged")
            os.rename(fresh / _CODE, target)
        except OSError:
            if not _holds(target, content):  # else another process was first
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return str(target)


def _holds(target: Path, content: dict[str, bytes]) -> bool:
    """Whether the sources below ``target`` are those of the zip: none differs, none is missing, none is added."""
    if target.is_symlink() or distrust(target):
        return False
    files = {file.relative_to(target).as_posix() for file in target.rglob("*") if file.suffix not in ("", ".pyc")}
    try:
        return files == {name[len(_CODE) :] for name in content} and all(
            (target / name[len(_CODE) :]).read_bytes() == data for name, data in content.items()
        )
    except OSError:
        return False
