"""The lock of a warehouse in an object store: it expires, and whoever takes it over fences off the process before.

Each holder has a *token*, a number greater than all before it, and an object ``.lock/TOKEN`` with its name. A process
takes the lock by creating the object of the next token; the store lets one of several succeed. Only the greatest
token counts (sources: Gray 1989). The holder rewrites its own object again and again. One that was not
rewritten for as long as it says has expired: then another process takes the next token.

A process that lost its lock may not know it, and may still send requests. Nothing that it sends becomes visible: its
token is in the ledger's commits, and :meth:`ddcore.io.ledger.ledger.Ledger.load` says how that keeps it out. So no
clock has to be right for the warehouse to be; with a wrong one a lock is taken over too early, and the process before
it fails.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from ddcore.base.errors import DdError, LockHeld, StorageError, UsageError
from ddcore.io.storage import objects
from ddcore.io.storage.address import Address
from ddcore.io.storage.failpoint import failpoint
from ddcore.io.storage.holder import Holder, is_alive, this_process

SECONDS = "DDCORE_LOCK_SECONDS"
_DEFAULT = 60.0
RENEWALS = 3  # in the seconds after which the lock expires
_DIGITS = 20
_KEPT = 8  # objects of earlier tokens that stay
_NO_ONE = Holder("unknown", 0, "now", "another process")

_logger = logging.getLogger("ddcore")


@dataclass(frozen=True)
class _Claim:
    """The object of a token. ``mark`` differs between any two; ``machine``: where process numbers mean the same.

    ``owes``: a process before may still be working, and the ledger does not have this token yet.
    """

    holder: Holder
    seconds: float
    mark: str
    machine: str
    released: bool = False
    owes: bool = False

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> _Claim:
        values = json.loads(content)
        return cls(**{**values, "holder": Holder(**values["holder"])})


@dataclass(frozen=True)
class _Found:
    """The newest claim in the store: its token, what is in it, and how long ago it was written."""

    token: int
    claim: _Claim
    age: float

    @property
    def expired(self) -> bool:
        return self.age > self.claim.seconds

    @property
    def is_dead(self) -> bool:
        """Whether its process is known to have ended, because it ran on this machine."""
        return self.claim.machine == _machine() and not is_alive(self.claim.holder.pid)


class Lease:
    """A lock that this process holds. ``dead`` is the process that held it before and did not release it, if any.

    ``token`` numbers the holders. ``entry`` is the ledger's newest entry that this process has seen, which commits to
    tables name.
    """

    def __init__(self, folder: Address, token: int, claim: _Claim, dead: Holder | None) -> None:
        self._folder, self._claim, self.token, self.dead = folder, claim, token, dead
        self.entry: int | None = None
        self.is_recorded = False  # whether this process has written its token to the ledger
        self._writing, self._over = threading.Lock(), threading.Event()

    @property
    def holder(self) -> Holder:
        """This process."""
        return self._claim.holder

    @property
    def takes_over(self) -> bool:
        """Whether a process before may still be working, and the ledger does not have this token yet."""
        return self._claim.owes

    def note_recorded(self) -> None:
        """The ledger has the token."""
        self.is_recorded, self._claim = True, replace(self._claim, owes=False)

    def outbid(self, known: int) -> None:
        """Take a token greater than ``known``, which the ledger has: somebody deleted the objects of the lock, so that
        the tokens began anew. Raises LockHeld if another process took the lock over.
        """
        self._require_newest()
        claim = replace(self._claim, owes=True)
        if not _claimed(self._folder, known + 1, claim):
            raise self.lost()
        with self._writing:
            self.token, self._claim = known + 1, claim
        self._require_newest()

    def note_run(self, run: int) -> None:
        """Write the run's number into the lock, for the messages of other commands."""
        self._claim = replace(self._claim, holder=replace(self._claim.holder, run=run))
        self._write()

    def check(self) -> None:
        """Raise LockHeld if another process has taken the lock over. One request."""
        self._require_newest()

    def _require_newest(self) -> None:
        if max(_tokens(self._folder), default=0) > self.token:
            raise self.lost()

    def lost(self) -> LockHeld:
        """The error of a process whose lock was taken over."""
        found = _newest(self._folder)
        by = "" if found is None else f" by {found.claim.holder}"
        return LockHeld(
            f"the lock of {self._folder.parent} was taken over{by}: this process had not renewed it for "
            f"{self._claim.seconds:g} seconds",
            "nothing that this command did since is visible; wait until that one is done, then run it again",
        )

    def _write(self) -> None:
        with self._writing:
            objects.put(_object(self._folder, self.token), self._claim.to_bytes())

    def _renew(self, renewals: int) -> None:
        while not self._over.wait(self._claim.seconds / renewals):
            with suppress(DdError, OSError):  # the next try may do better; the commits find out if none did
                self._write()

    @contextmanager
    def renewed(self, renewals: int) -> Iterator[None]:
        """Within this context a thread renews the lock; after it, the lock is free."""
        thread = threading.Thread(target=self._renew, args=(renewals,), name="lock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._claim = replace(self._claim, released=True)
            with suppress(DdError, OSError):  # it expires then
                self._write()


@contextmanager
def hold(folder: Address, command: str, run: int = 0, renewals: int = RENEWALS) -> Iterator[Lease]:
    """Hold the lock whose objects are in ``folder``, and renew it so often in the seconds after which it expires.
    LockHeld names the process that holds it.
    """
    lease = _take(folder, _Claim(this_process(command, run), _seconds(), uuid.uuid4().hex, _machine()))
    with lease.renewed(renewals):
        failpoint("after-lock")
        yield lease


def holder(folder: Address) -> Holder | None:
    """The process that holds the lock, or None. For readers."""
    found = _newest(folder)
    return None if found is None or found.claim.released or found.expired or found.is_dead else found.claim.holder


def dead_holder(folder: Address) -> Holder | None:
    """The process that ended without releasing the lock, or let it expire; None without one. For readers."""
    found = _newest(folder)
    is_left = found is not None and not found.claim.released and (found.expired or found.is_dead)
    return found.claim.holder if found is not None and is_left else None


def _take(folder: Address, claim: _Claim) -> Lease:
    found = _newest(folder)
    dead = None if found is None else _predecessor(folder, found)
    token = 1 + (0 if found is None else found.token)
    claim = replace(claim, owes=dead is not None or (found is not None and found.claim.owes))
    if not _claimed(folder, token, claim):
        raise _held(folder, _newest(folder))
    lease = Lease(folder, token, claim, dead)
    lease.check()  # a process that was stopped between its reading and its claim may be far behind
    for earlier in sorted(_tokens(folder))[:-_KEPT]:
        objects.delete([_object(folder, earlier)])
    return lease


def _claimed(folder: Address, token: int, claim: _Claim) -> bool:
    """Whether this process got a token."""
    file, content = _object(folder, token), claim.to_bytes()
    # The mark tells our claim from another's where the store's answer was lost and the library asked again.
    return objects.create(file, content) or objects.read(file) == content


def _predecessor(folder: Address, found: _Found) -> Holder | None:
    """The process that did not release the lock, which is free now; None if it did. LockHeld if it may still work."""
    claim = found.claim
    if claim.released:
        return None
    if not found.is_dead:
        if not found.expired:
            raise _held(folder, found)
        # The clocks of two machines may differ. Whoever still works renews the lock meanwhile.
        _logger.info("note: the lock was not released: waiting %g seconds whether %s renews it", claim.seconds / 2,
                     claim.holder)  # fmt: skip
        time.sleep(claim.seconds / 2)
        again = _newest(folder)
        if again is None or again.token != found.token or again.age < found.age:
            raise _held(folder, again)
    return claim.holder


def _held(folder: Address, found: _Found | None) -> LockHeld:
    claim = None if found is None else found.claim
    message = f"warehouse {folder.parent} is in use by {_NO_ONE if claim is None else claim.holder}"
    again = "then run the same command again"
    if claim is not None and claim.holder.host != socket.gethostname():
        message += f"; this host is {socket.gethostname()}"
        again += f"; if it was killed, its lock expires {claim.seconds:g} seconds after its last renewal"
    return LockHeld(message, f"wait until it is done, {again}")


def _newest(folder: Address) -> _Found | None:
    """The newest claim, None where there never was one."""
    for _ in range(_KEPT):
        token = max(_tokens(folder), default=None)
        if token is None:
            return None
        file = _object(folder, token)
        with suppress(FileNotFoundError):  # deleted meanwhile, because there are newer ones
            _, written = objects.head(file)
            content = objects.read(file)
            try:
                claim = _Claim.from_bytes(content)
            except (ValueError, TypeError, KeyError):
                raise StorageError(
                    f"the lock {file} has other contents than the name of its holder",
                    "ddcore did not write it and has not changed it: move it away",
                ) from None
            return _Found(token, claim, time.time() - written)
    raise StorageError(f"the lock {folder} changes all the time", "run the same command again")


def _tokens(folder: Address) -> list[int]:
    return [int(name[:_DIGITS]) for name in objects.names(folder) if name[:_DIGITS].isdigit()]


def _object(folder: Address, token: int) -> Address:
    return folder / f"{token:0{_DIGITS}d}.json"


def _seconds() -> float:
    text = os.environ.get(SECONDS) or str(_DEFAULT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 86_400:
        raise UsageError(f"{SECONDS}={text}: not a number of seconds from 1 to 86400", f"for example: {_DEFAULT:g}")
    return seconds


def _machine() -> str:
    """What tells machines apart, and containers that number processes by themselves; a fresh name where unknown."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()}:{os.stat('/proc/self/ns/pid').st_ino}"
    return uuid.uuid4().hex
