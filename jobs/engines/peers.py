"""The connections between the workers of a fold: plain sockets, from each worker to each other one.

Only workers of this fold can connect: both ends prove that they know its secret, which never travels. Until then a
connection can send a few bytes, for a few seconds, and whatever it sends ends nothing but itself. Afterwards the size
of each part is compared with what its header says before memory is taken for it. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PeerLost", "Peers", "Unreachable", "meeting"]

Header = dict[str, Any]
Part = tuple[Header, list[memoryview]]
Accept = Callable[[Header, bytearray], None]

MEETING = 10.0  # seconds in which all workers must have found each other
_GREETING = 3.0  # seconds that one connection may take to prove who it is
_STRANGERS = 32  # connections at once that have not
SILENCE = 20.0  # seconds without a byte of a worker that is waited for
_BEAT = 1.0  # seconds between the signs of life of a worker that computes
_MOST_HEADER, _MOST_BODY = 1 << 20, 1 << 31
_MOST_SENT = 1 << 20  # bytes that are given to a socket at once
_FRAME = struct.Struct("<IQ")  # the lengths of a header and of its body
_ALIVE = _FRAME.pack(0, 0)
_WHO = struct.Struct("<I32s")  # a worker's number, and a number used once


class Unreachable(Exception):
    """The workers of a fold cannot reach each other."""


class PeerLost(Exception):
    """A worker is gone, hangs, or sent what no worker sends: the fold must begin again."""


# --- meeting ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def meeting(rank: int, host: str, secret: bytes, gather: Callable[[str], list[str]]) -> Iterator[Future[Peers]]:
    """The connections to all other workers, which are made in the background, or Unreachable. Closed at the end.

    ``host``: the address at which this worker listens, and no other. ``gather`` gives each worker the words of all, by
    their numbers.
    """
    pool = ThreadPoolExecutor(1)
    future = pool.submit(_meet, rank, host, secret, gather)
    try:
        yield future
    finally:
        future.add_done_callback(_closed)
        pool.shutdown(wait=False)


def _closed(connected: Future[Peers]) -> None:
    if connected.exception() is None:
        connected.result().close()


def _meet(rank: int, host: str, secret: bytes, gather: Callable[[str], list[str]]) -> Peers:
    words: Header = {"token": secrets.token_hex(16)}
    with contextlib.ExitStack() as opened:
        listener = None
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = opened.enter_context(socket.create_server((host, 0), family=family))
            words["address"] = listener.getsockname()[:2]
        except OSError as error:
            words["error"] = f"worker {rank} cannot listen at {host}: {error}"
        others = [json.loads(text) for text in gather(json.dumps(words))]
        if listener is None or any("error" in other for other in others):
            raise Unreachable(next(other["error"] for other in others if "error" in other))
        key = hmac.digest(secret, "".join(other["token"] for other in others).encode(), "sha256")  # of this attempt
        deadline = time.monotonic() + MEETING
        connections = {
            peer: opened.enter_context(_call(rank, peer, others[peer]["address"], key, deadline))
            for peer in range(rank)
        }
        for peer, connection in _answer(rank, set(range(rank + 1, len(others))), listener, key, deadline).items():
            connections[peer] = opened.enter_context(connection)
        listener.close()
        peers = Peers(rank, connections)
        opened.callback(peers.close)
        try:
            peers.exchange({}, patience=max(1.0, deadline - time.monotonic()))
        except PeerLost as error:
            raise Unreachable(str(error)) from error
        opened.pop_all()
        return peers


def _call(rank: int, peer: int, address: list[Any], key: bytes, deadline: float) -> socket.socket:
    """A connection to a worker of a lower number."""
    place = f"{address[0]}:{address[1]}"
    with contextlib.ExitStack() as opened:
        try:
            patience = max(0.1, deadline - time.monotonic())
            connection = opened.enter_context(socket.create_connection((address[0], address[1]), timeout=patience))
            connection.settimeout(_GREETING)
            mine = _WHO.pack(rank, secrets.token_bytes(32))
            connection.sendall(mine)
            theirs = _received(connection, _WHO.size)
            if not hmac.compare_digest(_received(connection, 32), _proof(key, b"answers", mine, theirs)):
                raise Unreachable(f"what answers at {place} is not worker {peer}")
            connection.sendall(_proof(key, b"calls", mine, theirs))
        except OSError as error:
            raise Unreachable(f"worker {rank} cannot reach worker {peer} at {place}: {error}") from error
        opened.pop_all()
        return connection


def _answer(
    rank: int, awaited: set[int], listener: socket.socket, key: bytes, deadline: float
) -> dict[int, socket.socket]:
    """The connections of workers with higher numbers. Each is greeted in a thread: a stranger holds up nobody."""
    found: dict[int, socket.socket] = {}
    room, lock = threading.Semaphore(_STRANGERS), threading.Lock()

    def greet(connection: socket.socket) -> None:
        try:
            connection.settimeout(_GREETING)
            theirs = _received(connection, _WHO.size)
            mine = _WHO.pack(rank, secrets.token_bytes(32))
            connection.sendall(mine + _proof(key, b"answers", theirs, mine))
            known = hmac.compare_digest(_received(connection, 32), _proof(key, b"calls", theirs, mine))
            peer = _WHO.unpack(theirs)[0]
            with lock:
                if known and peer in awaited and peer not in found:
                    found[peer] = connection
                    return
            connection.close()
        except OSError:
            connection.close()
        finally:
            room.release()

    listener.settimeout(0.05)
    while len(found) < len(awaited):
        if time.monotonic() > deadline:
            with lock:
                missing = ", ".join(map(str, sorted(awaited - set(found))))
                awaited.clear()  # who comes now is sent away
                for connection in found.values():
                    connection.close()
            raise Unreachable(f"worker {rank} was not reached by worker {missing} within {MEETING:.0f} s")
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            if room.acquire(blocking=False):
                threading.Thread(target=greet, args=(connection,), daemon=True).start()
            else:
                connection.close()
    return found


def _proof(key: bytes, side: bytes, caller: bytes, answering: bytes) -> bytes:
    return hmac.digest(key, side + caller + answering, "sha256")


def _received(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        some = connection.recv(size - len(parts))
        if not some:
            raise ConnectionResetError("the connection was closed")
        parts += some
    return parts


# --- exchanging -------------------------------------------------------------------------------------------------------


@dataclass
class _Line:
    """One connection: what is still to be sent, and what has arrived of the next part."""

    peer: int
    socket: socket.socket
    parts: Iterator[Part] = field(default_factory=lambda: iter(()))
    sending: deque[memoryview] = field(default_factory=deque)
    is_sent: bool = True
    buffer: bytearray = field(default_factory=lambda: bytearray(_FRAME.size))
    got: int = 0
    header_size: int = 0  # of the part whose header is awaited
    body_size: int = 0
    header: Header | None = None  # of the part whose body is awaited
    note: Header | None = None  # what the worker says at the end of an exchange
    sent: int = 0  # bytes
    heard: float = 0.0  # the time of the last sign that the worker lives

    def send(self) -> None:
        """Send until the connection takes no more, or all parts are gone."""
        while not self.is_sent:
            while not self.sending and (part := next(self.parts, None)) is not None:
                self.sending.extend(_frame(*part))
            if not self.sending:
                self.is_sent = True
                return
            try:
                first = self.sending[0]
                sent = self.socket.send(first[:_MOST_SENT])
            except BlockingIOError:
                return
            self.heard = time.monotonic()
            self.sent += sent
            if sent == len(first):
                self.sending.popleft()
            else:
                self.sending[0] = first[sent:]

    def receive(self, accept: Accept) -> None:
        """Read what is there, up to the end of the exchange; what comes after it stays with the connection."""
        while self.note is None:
            try:
                got = self.socket.recv_into(memoryview(self.buffer)[self.got :])
            except BlockingIOError:
                return
            if not got:
                raise PeerLost(f"worker {self.peer} closed its connection")
            self.got += got
            self.heard = time.monotonic()
            if self.got == len(self.buffer):
                self._arrived(accept)

    def _arrived(self, accept: Accept) -> None:
        """The buffer is full: with the lengths of a part, with its header, or with its body."""
        full, self.got = self.buffer, 0
        if self.header is not None:
            header, self.header, self.buffer = self.header, None, bytearray(_FRAME.size)
            accept(header, full)
        elif self.header_size:
            try:
                header = json.loads(full)
                sizes = header.get("sizes", ())
                if min(sizes, default=0) < 0:
                    raise ValueError(f"sizes {sizes}")
                size = sum(map(_padded, sizes))
            except (ValueError, TypeError, AttributeError) as error:
                raise PeerLost(f"worker {self.peer} sent a header that is none: {error}") from None
            self.header_size = 0
            if size != self.body_size:
                raise PeerLost(f"worker {self.peer} sent {self.body_size} bytes where its header says {size}")
            if "note" in header:
                self.note, self.buffer = header["note"], bytearray(_FRAME.size)
            else:
                self.header, self.buffer = header, bytearray(size)
                if not size:
                    self._arrived(accept)
        else:
            self.header_size, self.body_size = _FRAME.unpack(full)
            if self.header_size > _MOST_HEADER or self.body_size > _MOST_BODY:
                raise PeerLost(f"worker {self.peer} sent a part of {self.body_size} bytes")
            self.buffer = bytearray(self.header_size or _FRAME.size)  # a sign of life is nothing else


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def _frame(header: Header, buffers: Iterable[memoryview]) -> Iterator[memoryview]:
    """A part as bytes: each buffer begins at a multiple of eight."""
    buffers = list(buffers)
    if buffers:
        header = {**header, "sizes": [len(buffer) for buffer in buffers]}
    text = json.dumps(header, separators=(",", ":")).encode()
    yield memoryview(_FRAME.pack(len(text), sum(_padded(len(buffer)) for buffer in buffers)) + text)
    for buffer in buffers:
        if len(buffer):
            yield buffer
        if len(buffer) % 8:
            yield memoryview(bytes(-len(buffer) % 8))


class Peers:
    """The connections of one worker to all others. Close them with :meth:`close`.

    While the worker computes, a thread of its own tells the others that it lives.
    """

    def __init__(self, rank: int, connections: Mapping[int, socket.socket]) -> None:
        self.rank, self.number = rank, len(connections) + 1
        self._lines = {peer: _Line(peer, connection) for peer, connection in connections.items()}
        for connection in connections.values():
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock, self._closed = threading.Lock(), threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    @property
    def sent(self) -> int:
        """The bytes that this worker has sent."""
        return sum(line.sent for line in self._lines.values())

    def exchange(
        self,
        note: Header,
        parts: Mapping[int, Iterable[Part]] | None = None,
        accept: Accept = lambda header, body: None,
        patience: float | None = None,
    ) -> list[Header]:
        """Send parts to their workers, give to ``accept`` what the others send to this one, and return the notes of
        all, by their numbers. Raises PeerLost.
        """
        with self._lock:
            try:
                self._exchange(note, parts or {}, accept, SILENCE if patience is None else patience)
            except OSError as error:
                raise PeerLost(f"a worker is gone: {error}") from error
        notes: dict[int, Header] = {line.peer: line.note or {} for line in self._lines.values()}
        return [note if rank == self.rank else notes[rank] for rank in range(self.number)]

    def _exchange(self, note: Header, parts: Mapping[int, Iterable[Part]], accept: Accept, patience: float) -> None:
        with selectors.DefaultSelector() as selector:
            for line in self._lines.values():
                line.parts, line.is_sent, line.note = _with(parts.get(line.peer, ()), note), False, None
                line.heard = time.monotonic()
                line.send()
                line.receive(accept)
                self._register(selector, line)
            beaten = time.monotonic()
            while selector.get_map():
                for key, _ in selector.select(_BEAT):
                    line = key.data
                    line.send()
                    line.receive(accept)
                    selector.unregister(line.socket)
                    self._register(selector, line)
                now = time.monotonic()
                if now - beaten > _BEAT:
                    beaten = now
                    self._tell()
                for line in self._lines.values():
                    if (line.note is None or not line.is_sent) and now - line.heard > patience:
                        raise PeerLost(f"worker {line.peer} has been silent for {patience:.0f} s")

    def _register(self, selector: selectors.BaseSelector, line: _Line) -> None:
        events = (0 if line.note is not None else selectors.EVENT_READ) | (0 if line.is_sent else selectors.EVENT_WRITE)
        if events:
            selector.register(line.socket, events, line)

    def _beat(self) -> None:
        while not self._closed.wait(_BEAT):
            if self._lock.acquire(blocking=False):
                try:
                    self._tell()
                finally:
                    self._lock.release()

    def _tell(self) -> None:
        """A sign of life, where no part is half sent. An error shows in the next exchange."""
        for line in self._lines.values():
            if line.is_sent and not line.sending:
                with contextlib.suppress(OSError):
                    sent = line.socket.send(_ALIVE)
                    if sent < len(_ALIVE):
                        line.sending.append(memoryview(_ALIVE)[sent:])

    def close(self) -> None:
        """Close all connections; the others see that this worker is gone."""
        self._closed.set()
        for line in self._lines.values():
            line.socket.close()


def _with(parts: Iterable[Part], note: Header) -> Iterator[Part]:
    yield from parts
    yield {"note": note}, []
