"""The projects of :mod:`workshop` with their warehouses in a local object store."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from forks import Ended, Forks, forks
from s3_server import BUCKET, served
from workshop import Workshop

from ddcore.io.storage import lease, objects
from ddcore.io.storage.address import Address, Location, address_of


class StoreShop(Workshop):
    """As :class:`Workshop`; the warehouse of the project in a folder is below a prefix of the folder's name."""

    def __init__(self, folder: Path, processes: Forks, store: Mapping[str, str]) -> None:
        super().__init__(folder, processes)
        self.store, self.prefix = dict(store), f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"

    def environment(self, folder: Path) -> dict[str, str]:
        return {**self.store, "DDCORE_WAREHOUSE": f"{self.prefix}/{folder.name.replace(' ', '-')}"}

    def root(self, folder: Path) -> Address:
        return address_of(self.environment(folder)["DDCORE_WAREHOUSE"], "warehouse")

    def command(self, project: Path, *arguments: str, **environment: str) -> Ended:
        new = ["--new-warehouse"] if arguments[0] == "ingest" and "--undo" not in arguments else []
        return super().command(project, *arguments, *new, **environment)

    def duplicate(self, base: Path, folder: Path) -> None:
        shutil.copytree(base, folder)
        source, target = self.root(base), self.root(folder)
        for location, _, _ in objects.entries(source):
            objects.put(target / location.relative_to(source), objects.read(location))

    def remove(self, folder: Path) -> None:
        shutil.rmtree(folder)
        objects.delete(location for location, _, _ in objects.entries(self.root(folder)))

    def write(self, location: Location, content: bytes) -> None:
        assert isinstance(location, Address)
        objects.put(location, content)

    def forget_holder(self, folder: Path) -> None:
        """Whoever takes over from a killed process releases the lock at its end."""
        with lease.hold(self.root(folder) / ".lock", "a test"):
            pass


def forget_clients() -> None:
    """The environment is read again when a store is next used."""
    objects._store.cache_clear()
    objects._is_store.cache_clear()


@contextmanager
def store_environment() -> Iterator[dict[str, str]]:
    """A server, and this process's environment to reach it."""
    with served() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        forget_clients()
        try:
            yield environment
        finally:
            forget_clients()


@contextmanager
def store_shop(folder: Path) -> Iterator[StoreShop]:
    """A workshop over a server of its own."""
    with store_environment() as environment, forks(folder) as processes:
        yield StoreShop(folder, processes, environment)
