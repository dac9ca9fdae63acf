"""The exchange between the workers of a fold: one message from each worker to each other one, over connections that
:mod:`~ddcore.jobs.engines.meeting` has made.

The size of each part is compared with what its header says before memory is taken for it. Nothing is unpickled.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddcore.base.tuning import DEFAULT, Tuning

Header = dict[str, Any]
Part = tuple[Header, list[memoryview]]
Accept = Callable[[Header, bytearray], None]

_MOST_HEADER, _MOST_BODY = 1 << 20, 1 << 31
_MOST_SENT = 1 << 20  # bytes that are given to a socket at once
_SMALL = 1 << 15  # bytes: less than that is sent together with what follows it, and read together
_LOOKED = 0.1  # seconds between two looks at who is silent
_FRAME = struct.Struct("<IQ")  # the lengths of a header and of its body
_ALIVE = _FRAME.pack(0, 0)
_text = json.JSONEncoder(separators=(",", ":")).encode
_BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class PeerLost(Exception):
    """A worker is gone, hangs, or sent what no worker sends: the fold must begin again."""


@dataclass(eq=False)
class _Line:
    """One connection: what is still to be sent, and what has arrived of the next part."""

    peer: int
    socket: socket.socket
    outgoing: _Outgoing | None = None  # None: all is sent
    sending: deque[memoryview] = field(default_factory=deque)
    buffer: bytearray = field(default_factory=lambda: bytearray(_FRAME.size))
    got: int = 0
    ahead: memoryview = field(default_factory=lambda: memoryview(b""))  # what was read and is not in the buffer yet
    header_size: int = 0  # of the part whose header is awaited
    body_size: int = 0
    header: Header | None = None  # of the part whose body is awaited
    note: Header | None = None  # what the worker says at the end of an exchange
    sent: int = 0  # bytes
    heard: float = 0.0  # the time of the last sign that the worker lives

    @property
    def is_sent(self) -> bool:
        """Whether nothing of the exchange is left to be sent."""
        return self.outgoing is None

    @property
    def awaited(self) -> int:
        """What of this connection is waited for: events of ``poll``."""
        return (0 if self.note is not None else select.POLLIN) | (0 if self.is_sent else select.POLLOUT)

    def send(self) -> None:
        """Send until the connection takes no more, or all parts are gone."""
        while self.outgoing is not None:
            if not self.sending:
                self.sending.extend(_pieces(self.outgoing))
            if not self.sending:
                self.outgoing = None
                return
            try:
                first = self.sending[0]
                sent = self.socket.send(first[:_MOST_SENT])
            except _BLOCKED:
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
            wanted = memoryview(self.buffer)[self.got :]
            try:
                got = self._ahead(wanted) if len(wanted) < _SMALL or self.ahead else self.socket.recv_into(wanted)
            except _BLOCKED:
                return
            if not got:
                raise PeerLost(f"worker {self.peer} closed its connection")
            self.got += got
            self.heard = time.monotonic()
            if self.got == len(self.buffer):
                self._arrived(accept)

    def _ahead(self, wanted: memoryview) -> int:
        """Fill in what was read ahead, or as much as comes; how many bytes, 0 at the end of the connection."""
        if not self.ahead:
            self.ahead = memoryview(self.socket.recv(_SMALL))
        got = min(len(wanted), len(self.ahead))
        wanted[:got], self.ahead = self.ahead[:got], self.ahead[got:]
        return got

    def _arrived(self, accept: Accept) -> None:
        """The buffer is full: with the lengths of a part, with its header, or with its body."""
        full, self.got = self.buffer, 0
        if self.header is not None:
            header, self.header, self.buffer = self.header, None, bytearray(_FRAME.size)
            accept(header, full)
        elif self.header_size:
            try:
                header = json.loads(str(full, "utf-8"))
                sizes = header.get("sizes", ())
                if min(sizes, default=0) < 0:
                    raise ValueError(f"sizes {sizes}")
                size = sum(map(_padded, sizes))
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
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


def _frame(header: Header, buffers: Sequence[memoryview] = ()) -> Iterator[memoryview]:
    """A part as bytes: each buffer begins at a multiple of eight."""
    if sizes := [*map(len, buffers)]:
        header = {**header, "sizes": sizes}
    text, body = _text(header).encode(), sum(map(_padded, sizes))
    pieces = [memoryview(_FRAME.pack(len(text), body) + text)]
    for buffer, size in zip(buffers, sizes, strict=True):
        pieces += [buffer, memoryview(bytes(-size % 8))]
    if body < _SMALL:
        yield memoryview(b"".join(pieces))
    else:
        yield from filter(len, pieces)


def _pieces(frames: Iterator[memoryview]) -> Iterator[memoryview]:
    """Some further bytes to be sent, small pieces of them as one; nothing where none are left."""
    small, size = list[memoryview](), 0
    for piece in frames:
        if len(piece) >= _SMALL:
            if small:
                yield memoryview(b"".join(small))
            yield piece
            return
        small.append(piece)
        size += len(piece)
        if size >= _SMALL:
            break
    if small:
        yield memoryview(b"".join(small))


class Peers:
    """The connections of one worker to all others. Close them with :meth:`close`.

    While the worker computes, a thread of its own tells the others that it lives.
    """

    def __init__(self, rank: int, connections: Mapping[int, socket.socket], tuning: Tuning = DEFAULT) -> None:
        self.rank, self.number = rank, len(connections) + 1
        self._tuning = tuning
        self._lines = {peer: _Line(peer, connection) for peer, connection in connections.items()}
        for connection in connections.values():
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.seconds = 0.0  # spent in exchanges
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

        What an iterator of parts raises is raised after the exchange; its worker gets the note ``{"failing": True}``.
        """
        end = b"".join(_frame({"note": note}))
        outgoing = {peer: _Outgoing((parts or {}).get(peer, ()), end) for peer in self._lines}
        start = time.perf_counter()
        with self._lock:
            try:
                self._exchange(outgoing, accept, self._tuning.silent_seconds if patience is None else patience)
            except OSError as error:
                raise PeerLost(f"a worker is gone: {error}") from error
        self.seconds += time.perf_counter() - start
        for one in outgoing.values():
            if one.error is not None:
                raise one.error
        notes: dict[int, Header] = {line.peer: line.note or {} for line in self._lines.values()}
        return [note if rank == self.rank else notes[rank] for rank in range(self.number)]

    def _exchange(self, outgoing: Mapping[int, _Outgoing], accept: Accept, patience: float) -> None:
        beat = self._tuning.beat_seconds
        poll, waiting = select.poll(), dict[int, tuple[_Line, int]]()
        for line in self._lines.values():
            line.outgoing, line.note = outgoing[line.peer], None
            line.heard = time.monotonic()
            line.send()
            line.receive(accept)
            if line.awaited:
                waiting[line.socket.fileno()] = line, line.awaited
                poll.register(line.socket, line.awaited)
        beaten = looked = time.monotonic()
        while waiting:
            ready = [number for number, _ in poll.poll(1000 * beat)]
            now = time.monotonic()
            if now - looked > _LOOKED:
                looked = now
                # Not at those that are ready: what they said may have waited here, for a worker that was busy.
                for number in waiting.keys() - ready:
                    if now - waiting[number][0].heard > patience:
                        raise PeerLost(f"worker {waiting[number][0].peer} has been silent for {patience:.0f} s")
            for number in ready:
                line, awaited = waiting[number]
                line.send()
                line.receive(accept)
                if not line.awaited:
                    poll.unregister(number)
                    del waiting[number]
                elif line.awaited != awaited:
                    poll.modify(number, line.awaited)
                    waiting[number] = line, line.awaited
            if now - beaten > beat:
                beaten = now
                self._tell()

    def _beat(self) -> None:
        while not self._closed.wait(self._tuning.beat_seconds):
            if self._lock.acquire(blocking=False):
                try:
                    self._tell()
                finally:
                    self._lock.release()

    def _tell(self) -> None:
        """A sign of life, where no part is half sent. An error shows in the next exchange."""
        for line in self._lines.values():
            if line.is_sent and not line.sending:
                try:
                    sent = line.socket.send(_ALIVE)
                except ssl.SSLWantWriteError:
                    sent = 0  # an encrypted connection has begun to send it, and must be given the same again
                except OSError:
                    continue
                if sent < len(_ALIVE):
                    line.sending.append(memoryview(_ALIVE)[sent:])

    def close(self) -> None:
        """Close all connections; the others see that this worker is gone.

        After a last exchange without parts: a system that gets another's sign of life for a closed connection drops
        what it has not sent yet, and only a note is sent at once.
        """
        self._closed.set()
        for line in self._lines.values():
            line.socket.close()


class _Outgoing:
    """The bytes of the parts for one worker, then ``end``. An error of the parts is kept: the frames stay whole."""

    def __init__(self, parts: Iterable[Part], end: bytes) -> None:
        self._bytes = self._of(parts, end)
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[memoryview]:
        return self._bytes

    def __next__(self) -> memoryview:
        return next(self._bytes)

    def _of(self, parts: Iterable[Part], end: bytes) -> Iterator[memoryview]:
        try:
            for part in parts:
                yield from _frame(*part)
        except Exception as error:
            self.error, end = error, b"".join(_frame({"note": {"failing": True}}))
        yield memoryview(end)
