"""How the workers of a fold find each other, and nobody else finds them.

Both ends of a connection prove that they know the secret of the fold, which never travels, over TLS where the fold has
a certificate. A connection that has not proved it can send a few bytes, for a few seconds, and ends nothing but itself:
it holds up no worker, and where there are too many of them the oldest goes. Workers that are turned away call again.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.jobs.engines.certificates import context_of
from ddcore.jobs.engines.peers import Header, PeerLost, Peers
from ddcore.jobs.engines.protocol import Credentials, Unreachable

_AGAIN = 0.05  # seconds after which a worker that was turned away calls again
_WHO = struct.Struct("<I32s")  # a worker's number, and a number used once
_PROOF = 32  # bytes

Gather = Callable[[str], list[str]]


@dataclass(frozen=True)
class _Side:
    """How a worker proves who it is: as the one that calls, or the one that answers."""

    rank: int
    key: bytes
    context: ssl.SSLContext | None
    tuning: Tuning = DEFAULT


@contextlib.contextmanager
def meeting(
    rank: int, host: str, credentials: Credentials, gather: Gather, tuning: Tuning = DEFAULT
) -> Iterator[Future[Peers]]:
    """The connections to all other workers, which are made in the background, or Unreachable. Closed at the end.

    ``host``: the address at which this worker listens, and no other. ``gather`` gives each worker the words of all, by
    their numbers.
    """
    pool = ThreadPoolExecutor(1)
    future = pool.submit(_meet, rank, host.strip("[]"), credentials, gather, tuning)
    try:
        yield future
    finally:
        future.add_done_callback(_closed)
        pool.shutdown(wait=False)


def _closed(connected: Future[Peers]) -> None:
    if connected.exception() is None:
        connected.result().close()


def _meet(rank: int, host: str, credentials: Credentials, gather: Gather, tuning: Tuning) -> Peers:
    words: Header = {"token": secrets.token_hex(16)}
    with contextlib.ExitStack() as opened:
        listener = None
        try:
            listener = opened.enter_context(socket.create_server((host, 0), family=_family(host)))
            words["address"] = listener.getsockname()[:2]
        except OSError as error:
            words["error"] = f"worker {rank} cannot listen at {host}: {error}"
        others = [json.loads(text) for text in gather(json.dumps(words))]
        if listener is None or any("error" in other for other in others):
            raise Unreachable(next(other["error"] for other in others if "error" in other))
        tokens = "".join(other["token"] for other in others)  # of this attempt at the fold
        key = hmac.digest(credentials.secret, tokens.encode(), "sha256")
        calling, answering = (
            _Side(rank, key, context_of(credentials, answers=answers) if credentials.certificate else None, tuning)
            for answers in (False, True)
        )
        deadline = time.monotonic() + tuning.meeting_seconds
        connections = {
            peer: opened.enter_context(_called(calling, peer, others[peer]["address"], deadline))
            for peer in range(rank)
        }
        reception = _Reception(answering, set(range(rank + 1, len(others))))
        for peer, connection in reception.found(listener, deadline).items():
            connections[peer] = opened.enter_context(connection)
        listener.close()
        peers = Peers(rank, connections, tuning)
        opened.callback(peers.close)
        try:
            peers.exchange({}, patience=max(1.0, deadline - time.monotonic()))
        except PeerLost as error:
            raise Unreachable(str(error)) from error
        opened.pop_all()
        return peers


# --- calling ----------------------------------------------------------------------------------------------------------


def _called(side: _Side, peer: int, address: list[Any], deadline: float) -> socket.socket:
    """A connection to a worker of a lower number. Calls again if it is turned away: strangers may be in front of it."""
    where = f"worker {side.rank} cannot reach worker {peer} at {address[0]}:{address[1]}"
    while True:
        try:
            patience = max(0.1, min(side.tuning.reaching_seconds, deadline - time.monotonic()))
            connection = _connected(address, patience)
        except OSError as error:
            raise Unreachable(f"{where}: {error}") from error
        try:
            return _introduced(connection, side, min(deadline, time.monotonic() + side.tuning.greeting_seconds))
        except (PermissionError, ssl.SSLCertVerificationError) as error:
            raise Unreachable(f"{where}: {error}") from error
        except OSError as error:
            if time.monotonic() + _AGAIN > deadline:
                raise Unreachable(f"{where}: {error}") from error
            time.sleep(_AGAIN)


def _connected(address: list[Any], patience: float) -> socket.socket:
    """A connection to a numeric address. ``socket.create_connection`` looks it up as a name, and imports codecs."""
    connection = socket.socket(_family(address[0]), socket.SOCK_STREAM)
    try:
        connection.settimeout(patience)
        connection.connect((address[0], address[1]))
        return connection
    except BaseException:
        connection.close()
        raise


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _introduced(connection: socket.socket, side: _Side, until: float) -> socket.socket:
    """A connection whose ends know each other; it is closed if they do not."""
    try:
        connection.settimeout(_left(until))
        if side.context is not None:
            connection = side.context.wrap_socket(connection)
        caller = _WHO.pack(side.rank, secrets.token_bytes(32))
        connection.sendall(caller)
        answering = _received(connection, _WHO.size, until)
        if not hmac.compare_digest(
            _received(connection, _PROOF, until), _proof(side.key, b"answers", caller, answering)
        ):
            raise PermissionError("what answers there does not know the secret of this fold")
        connection.sendall(_proof(side.key, b"calls", caller, answering))
        return connection
    except BaseException:
        connection.close()
        raise


# --- answering --------------------------------------------------------------------------------------------------------


class _Reception:
    """Finds out who calls. Each connection is greeted in a thread of its own."""

    def __init__(self, side: _Side, awaited: set[int]) -> None:
        self._side, self._awaited = side, awaited
        self._found: dict[int, socket.socket] = {}
        self._strangers: list[socket.socket] = []  # the oldest first
        self._lock = threading.Lock()

    def found(self, listener: socket.socket, deadline: float) -> dict[int, socket.socket]:
        """The connections of the workers that are awaited, by number. Raises Unreachable after the deadline."""
        listener.settimeout(0.05)
        try:
            while len(self._found) < len(self._awaited):
                if time.monotonic() > deadline:
                    raise Unreachable(
                        f"worker {self._side.rank} was not reached by worker {self._missing()} "
                        f"within {self._side.tuning.meeting_seconds:.0f} s"
                    )
                with contextlib.suppress(OSError):  # nobody calls, has hung up already, or no file can be opened
                    self._admit(listener.accept()[0])
            return dict(self._found)
        except BaseException:
            with self._lock:
                self._awaited.clear()  # who comes now is sent away
                for connection in self._found.values():
                    connection.close()
            raise
        finally:
            self._send_away(0)

    def _missing(self) -> str:
        with self._lock:
            return ", ".join(map(str, sorted(self._awaited - set(self._found))))

    def _admit(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(self._side.tuning.greeting_seconds)
            if self._side.context is not None:
                connection = self._side.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            self._send_away(self._side.tuning.strangers + len(self._awaited) - 1)
            with self._lock:
                self._strangers.append(connection)
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()
        except Exception:
            connection.close()
            raise

    def _send_away(self, most: int) -> None:
        """Leave so many strangers; their threads end with their connections."""
        with self._lock:
            for connection in self._strangers[: max(0, len(self._strangers) - most)]:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not TLS's own, which would wait

    def _greet(self, connection: socket.socket) -> None:
        peer = None
        with contextlib.suppress(OSError, ValueError):  # ValueError: of a connection that was shut down meanwhile
            peer = self._proved(connection)
        with self._lock:
            self._strangers.remove(connection)
            if peer in self._awaited and peer not in self._found:
                self._found[peer] = connection
                return
        connection.close()

    def _proved(self, connection: socket.socket) -> int | None:
        """The number of the worker that calls; None if it does not know the secret."""
        until = time.monotonic() + self._side.tuning.greeting_seconds
        if isinstance(connection, ssl.SSLSocket):
            connection.do_handshake()
        caller = _received(connection, _WHO.size, until)
        answering = _WHO.pack(self._side.rank, secrets.token_bytes(32))
        connection.sendall(answering + _proof(self._side.key, b"answers", caller, answering))
        given = _received(connection, _PROOF, until)
        known = hmac.compare_digest(given, _proof(self._side.key, b"calls", caller, answering))
        return int(_WHO.unpack(caller)[0]) if known else None


def _proof(key: bytes, side: bytes, caller: bytes, answering: bytes) -> bytes:
    return hmac.digest(key, side + caller + answering, "sha256")


def _received(connection: socket.socket, size: int, until: float) -> bytes:
    """So many bytes, however slowly they come, but not after ``until``."""
    parts = b""
    while len(parts) < size:
        connection.settimeout(_left(until))
        some = connection.recv(size - len(parts))
        if not some:
            raise ConnectionResetError("the connection was closed")
        parts += some
    return parts


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
