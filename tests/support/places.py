"""Places of warehouses in folders: what a test that looks at files takes them for."""

from __future__ import annotations

from pathlib import Path

from ddcore.io.storage.address import Location


def local(location: Location) -> Path:
    """A place that is a path of the file system, as it is in a warehouse in a folder."""
    assert isinstance(location, Path), f"{location} is no file of this machine"
    return location
