"""Objects of a store, by their addresses: what :mod:`ddcore.io.storage.store` does where the warehouse is no folder.

``obstore`` wraps the same Rust library that delta-rs and Polars have inside, so all of them take the same settings and
reach the same stores. Settings and credentials come from the environment only (``AWS_*``), and are never shown.

Only one thing is asked of a store that not every one has: a put that fails if the object is there (:func:`create`).
Delta's commits need the same.
"""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from ddcore.base.errors import DdError, StorageError, UsageError
from ddcore.base.lazy import numpy as np
from ddcore.base.lazy import obstore
from ddcore.io.storage.address import Address, Location
from ddcore.io.storage.store_settings import check_settings
from ddcore.text.redaction import keep_secret

if TYPE_CHECKING:
    from pathlib import Path

    from obstore.store import S3Store

Result = TypeVar("Result")
Listed = tuple[Address, int, float]

# Patterns are compiled when an answer is looked at: commands on a folder import this module, too.
_CODE = r"<Code>([A-Za-z]+)</Code>|\b(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket)\b"
_DENIALS = r"40[13] |\b(Forbidden|Unauthorized|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Expired)"
_CREDENTIALS = "check the credentials in the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN"
_CUT = r"body error|reading a body|end of file before message|Content-Range header not present|connection closed before"
_PAGE = r"(?i)<!doctype html|<html"
_NO_STORE = "what answers is a web page, and no object store"
_ENDPOINT = "check AWS_ENDPOINT_URL, and that this network asks for no login in a browser"
WAITS = (0.2, 1.0, 3.0)  # seconds before a request whose answer was cut off is made again
_TAIL = 64 * 1024  # bytes of the first read of an object, which holds most footers and most small files
_TOGETHER = 1000  # objects deleted in one request


def options() -> dict[str, str]:
    """The settings of the store for the table libraries, without credentials: those they read from the environment.

    UsageError for a setting that no store can have.
    """
    check_settings()
    chosen = {
        "aws_region": os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
        "aws_conditional_put": "etag",
    }
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        chosen["aws_endpoint_url"] = endpoint
        if endpoint.lower().startswith("http://"):
            chosen["aws_allow_http"] = "true"
    return chosen


@lru_cache(maxsize=8)
def _store(root: str, process: int) -> S3Store:
    """The client of a bucket. One per process: a fork does not take its threads along."""
    try:
        from obstore.store import S3Store
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "obstore":
            raise
        raise UsageError(
            f"{root}: object stores need the package obstore, which is not installed",
            "pip install 'ddcore[s3]'",
        ) from None
    keep_secret({name: value for name, value in os.environ.items() if name.startswith("AWS_")})
    settings: Any = {name.removeprefix("aws_"): value for name, value in options().items()}
    allow_http = settings.pop("allow_http", None) is not None
    from datetime import timedelta

    return S3Store(
        root.partition("://")[2],
        config=settings,
        client_options={"allow_http": allow_http, "timeout": timedelta(seconds=60)},
        retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=30)},
    )


def _client(address: Address) -> S3Store:
    return _store(address.root, os.getpid())


@contextmanager
def _errors(address: Address, doing: str) -> Iterator[None]:
    """Turn the library's errors into FileNotFoundError, or into a StorageError that names the object."""
    try:
        _client(address)  # says what to do where the package is not there
        yield
    except DdError:
        raise
    except BaseException as error:
        known = obstore.exceptions
        if (
            not isinstance(error, known.BaseError | OSError) and type(error).__module__ != "pyo3_runtime"
        ):  # Rust's panic
            raise
        missing = isinstance(error, known.NotFoundError | FileNotFoundError)
        if missing and "NoSuchBucket" not in str(error):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(address)) from None
        raise refused(address, doing, error) from error


def refused(address: Address, doing: str, error: BaseException) -> StorageError:
    """The error of a store that did not do what it was told."""
    return StorageError(f"cannot {doing} {address}: {denial(error) or _reason(error)}", _hint(error))


def complete(request: Callable[[], Result], waits: Sequence[float] = WAITS) -> Result:
    """What a request gives. It is made again where the answer was cut off, which the libraries do not always do:
    once after each of these seconds.
    """
    for seconds in waits:
        try:
            return request()
        except Exception as error:
            if not re.search(_CUT, str(error)):
                raise
            time.sleep(seconds)
    return request()


def denial(error: BaseException) -> str:
    """What a store said when it refused a request, in a word or two; empty for an error of another kind."""
    text = str(error)
    code = re.search(_CODE, text)
    named = next((group for group in code.groups() if group), "") if code else ""
    if named == "NoSuchBucket":
        return "there is no such bucket"
    if re.search(_DENIALS, text):
        return f"access denied ({named})" if named else "access denied"
    return _NO_STORE if re.search(_PAGE, text) else ""


def _hint(error: BaseException) -> str:
    said = denial(error)
    if said.startswith("access"):
        return _CREDENTIALS
    if said:
        return _ENDPOINT if said == _NO_STORE else "check the URL; ddcore creates no buckets"
    if "Config error" in str(error) or type(error).__module__ == "pyo3_runtime":
        return "check the variables AWS_... in the environment"
    return "check the network and AWS_ENDPOINT_URL, then run the same command again"


def _reason(error: BaseException) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"the answer was cut off again and again: {line}" if re.search(_CUT, line) else line


# --- reading ----------------------------------------------------------------------------------------------------------


def read(address: Address) -> bytes:
    """All bytes of an object. FileNotFoundError."""
    with _errors(address, "read"):
        return complete(lambda: bytes(obstore.get(_client(address), address.key).bytes()))


def fetch(address: Address, file: Path) -> None:
    """Write all bytes of an object into a file. FileNotFoundError."""

    def copy() -> None:
        with file.open("wb") as out:
            for part in obstore.get(_client(address), address.key).stream():
                out.write(part)

    with _errors(address, "read"):
        complete(copy)


def head(address: Address) -> tuple[int, float]:
    """The size of an object, and when it was written. FileNotFoundError."""
    with _errors(address, "read"):
        meta = obstore.head(_client(address), address.key)
    return meta["size"], meta["last_modified"].timestamp()


def size_of(address: Address) -> int | None:
    """The size of an object; None where there is none."""
    try:
        return head(address)[0]
    except FileNotFoundError:
        return None


def is_folder(folder: Address) -> bool:
    """Whether any object is below an address."""
    with _errors(folder, "list"):
        listed = complete(lambda: next(iter(obstore.list(_client(folder), prefix=_prefix(folder), chunk_size=1)), ()))
        _check_answers(folder, len(listed))
        return len(listed) > 0


def names(folder: Address) -> list[str]:
    """The sorted names of the objects and folders in a folder."""
    with _errors(folder, "list"):
        found = complete(lambda: obstore.list_with_delimiter(_client(folder), prefix=_prefix(folder)))
        _check_answers(folder, len(found["common_prefixes"]) + len(found["objects"]))
    paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
    return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)


def entries(folder: Address) -> Iterator[Listed]:
    """All objects below an address, or the one at it, with size and time."""
    if folder.key and size_of(folder) is not None:
        yield folder, *head(folder)
    with _errors(folder, "list"):
        listed = complete(
            lambda: [one for some in obstore.list(_client(folder), prefix=_prefix(folder)) for one in some]
        )
        _check_answers(folder, len(listed))
    for one in listed:
        address = Address(folder.root, PurePosixPath(one["path"]))
        yield address, one["size"], one["last_modified"].timestamp()


def _check_answers(folder: Address, found: int) -> None:
    """Raise StorageError where nothing is listed because no store answers: a web page is read as an empty list."""
    if not found and not _is_store(folder.root, os.getpid()):
        raise StorageError(f"cannot list {folder}: {_NO_STORE}", _ENDPOINT)


@lru_cache(maxsize=8)
def _is_store(root: str, process: int) -> bool:
    """Whether an object that nobody wrote is missing; where every request is answered by a page, it seems to exist."""
    try:
        obstore.head(_store(root, process), f"ddcore-no-such-object-{uuid.uuid4().hex}")
    except (obstore.exceptions.BaseError, FileNotFoundError) as error:
        return not re.search(_PAGE, str(error))
    return False


def _prefix(folder: Address) -> str | None:
    return f"{folder.key}/" if folder.key else None


class Object:
    """An object whose bytes are read here and there. Its end is read at once, and its size known from then on."""

    __slots__ = ("_address", "_tail", "size")

    def __init__(self, address: Address) -> None:
        self._address = address

        def tail() -> tuple[int, bytes]:
            result = obstore.get(_client(address), address.key, options={"range": {"suffix": _TAIL}})
            return result.meta["size"], bytes(result.bytes())

        with _errors(address, "read"):
            self.size, self._tail = complete(tail)

    def read(self, length: int, begin: int) -> bytes:
        """``length`` bytes from ``begin`` on."""
        start, end = self.size - len(self._tail), min(begin + length, self.size)
        if begin >= start:
            return self._tail[begin - start : end - start]
        return _read_all(self._address, [(begin, end)])[0]


class Parts:
    """An object as an array of bytes, of which those are there that were fetched: its end, and what was asked for.

    The array takes memory where it is filled.
    """

    __slots__ = ("address", "data")

    def __init__(self, address: Address) -> None:
        self.address: Location = address
        end = Object(address)
        self.data = np.zeros(end.size, np.uint8)
        tail = end.read(min(_TAIL, end.size), max(0, end.size - _TAIL))
        self.data[end.size - len(tail) :] = np.frombuffer(tail, np.uint8)

    def fetch(self, begins: np.ndarray, ends: np.ndarray) -> None:
        """Have the bytes of some ranges. One request, or a few at once; neighbours are read together."""
        assert isinstance(self.address, Address)
        wanted = np.minimum(ends, max(0, len(self.data) - _TAIL)) > begins
        ranges = list(zip(begins[wanted].tolist(), ends[wanted].tolist(), strict=True))
        for (begin, end), content in zip(ranges, _read_all(self.address, ranges), strict=True):
            self.data[begin:end] = np.frombuffer(content, np.uint8)


class Whole:
    """An object that is read once, as a whole."""

    __slots__ = ("address", "data", "size")

    def __init__(self, address: Address) -> None:
        self.address: Location = address
        self.data = np.frombuffer(read(address), np.uint8)
        self.size = len(self.data)

    def read(self, length: int, begin: int) -> bytes:
        """``length`` bytes from ``begin`` on."""
        return self.data[begin : begin + length].tobytes()

    def fetch(self, begins: np.ndarray, ends: np.ndarray) -> None:
        """Nothing: all bytes are there."""


def _read_all(address: Address, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes [begin, end) of several ranges; neighbours are read together."""
    if not ranges:
        return []
    with _errors(address, "read"):
        found = complete(
            lambda: obstore.get_ranges(
                _client(address), address.key, starts=[begin for begin, _ in ranges], ends=[end for _, end in ranges]
            )
        )
    return [bytes(part) for part in found]


# --- writing ----------------------------------------------------------------------------------------------------------


def put(address: Address, content: bytes | Path) -> None:
    """Write an object, in place of one that is there: bytes, or a file of this machine."""
    with _errors(address, "write"):
        obstore.put(_client(address), address.key, content)


def create(address: Address, content: bytes) -> bool:
    """Write an object unless there is one; return whether this call did. Of several at once, one does.

    An answer that was lost on its way may make the library ask again, and the store then says that the object is there:
    the caller compares the contents.
    """
    with _errors(address, "write"):
        try:
            obstore.put(_client(address), address.key, content, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return False
    return True


def copy(source: Address, target: Address) -> None:
    """Have the store copy an object to another address of the same bucket, in place of one that is there."""
    with _errors(source, "copy"):
        complete(lambda: obstore.copy(_client(source), source.key, target.key))


def delete(addresses: Iterable[Address]) -> None:
    """Delete objects, those that are there."""
    todo = list(addresses)
    for first in range(0, len(todo), _TOGETHER):
        some = todo[first : first + _TOGETHER]
        with _errors(some[0], "delete"):
            obstore.delete(_client(some[0]), [address.key for address in some])
