"""Sources in an object store: which objects a URL or a pattern names, and copies of them to read.

A file is read from a copy in a temporary folder of the process that reads it, made when it is first needed and kept
until the process ends (:mod:`ddcore.io.storage.scratch`). So every reader of files reads objects as well, and what is
read twice is the same both times.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ddcore.io.storage import objects, scratch
from ddcore.io.storage.address import Address, Location, address_of, is_url

if TYPE_CHECKING:
    import deltalake

GLOB = frozenset("*?[")  # the letters that make a path a pattern


def address_at(url: str) -> Address:
    """The address that a source's URL names. UsageError."""
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    root = address_of(f"{scheme}://{bucket}", url).root
    return Address(root, PurePosixPath(key.strip("/")))


def location_of(path: str) -> Location:
    """The place of a source's path, or of its URL."""
    return address_at(path) if is_url(path) else Path(path)


def copied(url: str) -> str:
    """The path of a copy of an object. FileNotFoundError."""
    return _copied(url, os.getpid())


@cache
def _copied(url: str, process: int) -> str:
    address = address_at(url)
    file = Path(tempfile.mkdtemp(dir=scratch.folder())) / address.name
    objects.fetch(address, file)
    return str(file)


def opened_table(path: str, version: int | None = None) -> deltalake.DeltaTable:
    """The Delta table at a path or a URL, at a version or the newest."""
    import deltalake

    options = objects.options() if "://" in path else None
    return objects.complete(lambda: deltalake.DeltaTable(path, version=version, storage_options=options))


def matching(url: str) -> list[Address]:
    """The objects and folders that match a pattern, sorted, as the shell matches files."""
    pattern = address_at(url)
    steps = pattern.path.parts
    literal = next(number for number, step in enumerate(steps) if GLOB & set(step))
    base = Address(pattern.root, PurePosixPath(*steps[:literal]))
    found: set[PurePosixPath] = set()
    for address, _, _ in objects.entries(base):
        below = address.path.relative_to(base.path)
        found.update(parent for parent in (below, *below.parents) if parent.parts)
    return sorted(Address(pattern.root, base.path / path) for path in found if _fits(path.parts, steps[literal:]))


def _fits(steps: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not steps
    if pattern[0] == "**":
        hidden = next((number for number, step in enumerate(steps) if step[0] in "._"), len(steps))
        return any(_fits(steps[skipped:], pattern[1:]) for skipped in range(hidden + 1))
    if not steps or (steps[0][0] in "._" and pattern[0] != steps[0]):
        return False
    return fnmatchcase(steps[0], pattern[0]) and _fits(steps[1:], pattern[1:])
