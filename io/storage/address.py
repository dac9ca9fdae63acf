"""The address of a file or folder of a warehouse: a path of the file system, or a key of an object store.

An :class:`Address` has the arithmetic of a path and touches nothing, so code that only builds paths needs no difference
between the two. Whatever reads or writes goes through :mod:`ddcore.io.storage.store`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ddcore.base.errors import UsageError

SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3"}  # each with the one that the libraries take

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_KEY = re.compile(r"[A-Za-z0-9 !$&'()*+,.:;=@_~/-]*")  # the same before and after every library's encoding


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A key of an object store, or the prefix of several, which is called a folder here. ``root``: ``s3://BUCKET``.

    Can be sent between processes.
    """

    root: str
    path: PurePosixPath

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    def __truediv__(self, other: str | PurePosixPath) -> Address:
        return Address(self.root, self.path / other)

    @property
    def key(self) -> str:
        """The key in the bucket: ``warehouse/inputs/edges``."""
        return "" if self.path == PurePosixPath() else str(self.path)

    @property
    def name(self) -> str:
        """The last step of the key."""
        return self.path.name

    @property
    def stem(self) -> str:
        """The name without its last ending."""
        return self.path.stem

    @property
    def parent(self) -> Address:
        """The folder above; of the bucket, itself."""
        return Address(self.root, self.path.parent)

    def with_name(self, name: str) -> Address:
        """The address with another last step."""
        return Address(self.root, self.path.with_name(name))

    def with_suffix(self, suffix: str) -> Address:
        """The address with another ending."""
        return Address(self.root, self.path.with_suffix(suffix))

    def relative_to(self, folder: Address) -> PurePosixPath:
        """The steps from a folder to here. ValueError where this is not below it."""
        if self.root != folder.root:
            raise ValueError(f"{self} is not below {folder}")
        return self.path.relative_to(folder.path)


Location = Path | Address


def is_url(text: str) -> bool:
    """Whether a text is a URL rather than a path."""
    return _URL.match(text) is not None


def address_of(url: str, what: str) -> Address:
    """The address that a URL names; ``what`` names the setting for errors. UsageError for one that cannot be used."""
    scheme = url.partition("://")[0].lower()
    if scheme not in SCHEMES:
        raise UsageError(
            f"{what}: {url}: {scheme}:// is not supported", f"name a folder, or a URL that begins with {_listed()}"
        )
    bucket, _, key = url.partition("://")[2].partition("/")
    if "@" in bucket:
        raise UsageError(
            f"{what}: {url}: a URL has no place for credentials",
            "put them into the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    key = key.strip("/")
    steps = key.split("/") if key else []
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(f"{what}: {url}: {bucket!r} is no name of a bucket", "write s3://BUCKET/FOLDER")
    if not _KEY.fullmatch(key) or any(step in ("", ".", "..") for step in steps):
        raise UsageError(
            f"{what}: {url}: {key!r} is no folder that all libraries read alike",
            "use letters, digits and . _ - = in the names of folders, and no . or .. alone",
        )
    return Address(f"{SCHEMES[scheme]}://{bucket}", PurePosixPath(key))


def _listed() -> str:
    return " or ".join(f"{scheme}://" for scheme in ("s3", "s3a"))
