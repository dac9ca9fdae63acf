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
    """One connection: what is still to be sent, and what has arrived and is not taken yet."""

    peer: int
    socket: socket.socket
    outgoing: _Outgoing | None = None  # None: all is in ``sending``
    sending: deque[memoryview] = field(default_factory=deque)
    ahead: bytes = b""  # what was read, of which the first ``taken`` bytes are taken
    taken: int = 0
    header: Header | None = None  # of the part whose body is awaited
    body: bytearray = field(default_factory=bytearray)
    got: int = 0  # bytes of that body
    note: Header | None = None  # what the worker says at the end of an exchange
    sent: int = 0  # bytes
    heard: float = 0.0  # the time of the last sign that the worker lives

    @property
    def awaited(self) -> int:
        """What of this connection is waited for: events of ``poll``."""
        return (0 if self.note is not None else select.POLLIN) | (select.POLLOUT if self.sending else 0)

    def begin(self, parts: Iterable[Part] | None, end: bytes) -> None:
        """Begin an exchange: to send these parts and then ``end``."""
        self.note, self.outgoing, self.heard = None, None, time.monotonic()
        if parts is None:
            self.sending.append(memoryview(end))
        else:
            self.outgoing = _Outgoing(parts, end)
            self.sending.extend(_pieces(self.outgoing))
        self.send()

    def send(self) -> None:
        """Send until the connection takes no more, or all parts are gone."""
        while self.sending:
            try:
                first = self.sending[0]
                sent = self.socket.send(first[:_MOST_SENT])
            except _BLOCKED:
                return
            self.heard = time.monotonic()
            self.sent += sent
            if sent < len(first):
                self.sending[0] = first[sent:]
                continue
            self.sending.popleft()
            if not self.sending and self.outgoing is not None:
                self.sending.extend(_pieces(self.outgoing))

    def receive(self, accept: Accept) -> None:
        """Read what is there, up to the end of the exchange; what comes after it stays with the connection."""
        self._take(accept)
        while self.note is None:
            try:
                if self.header is None:
                    some = self.socket.recv(_SMALL)
                    got = len(some)
                    self.ahead, self.taken = self.ahead[self.taken :] + some, 0
                else:
                    got = self.socket.recv_into(memoryview(self.body)[self.got :])
                    self.got += got
            except _BLOCKED:
                return
            if not got:
                raise PeerLost(f"worker {self.peer} closed its connection")
            self.heard = time.monotonic()
            self._take(accept)

    def _take(self, accept: Accept) -> None:
        """Take what has arrived whole: parts, and the note that ends an exchange."""
        while self.note is None:
            if self.header is not None:
                if self.got < len(self.body):
                    return
                header, body, self.header, self.body = self.header, self.body, None, bytearray()
                accept(header, body)
            start = self.taken + _FRAME.size
            if len(self.ahead) < start:
                return
            header_size, body_size = _FRAME.unpack_from(self.ahead, self.taken)
            if header_size > _MOST_HEADER or body_size > _MOST_BODY:
                raise PeerLost(f"worker {self.peer} sent a part of {body_size} bytes")
            if len(self.ahead) < start + header_size:
                return
            self.taken = start + header_size
            if header_size:  # a sign of life has none
                self._header(self.ahead[start : self.taken], body_size)

    def _header(self, text: bytes, body_size: int) -> None:
        """Take a header, and of the body what was read with it."""
        try:
            header = json.loads(str(text, "utf-8"))
            sizes = header.get("sizes", ())
            if min(sizes, default=0) < 0:
                raise ValueError(f"sizes {sizes}")
            size = sum(map(_padded, sizes))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise PeerLost(f"worker {self.peer} sent a header that is none: {error}") from None
        if size != body_size:
            raise PeerLost(f"worker {self.peer} sent {body_size} bytes where its header says {size}")
        if "note" in header:
            self.note = header["note"]
            return
        some = self.ahead[self.taken : self.taken + size]
        self.taken, self.got = self.taken + len(some), len(some)
        self.header, self.body = header, bytearray(some) if len(some) == size else bytearray(size)
        self.body[: self.got] = some


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
        start = time.perf_counter()
        with self._lock:
            try:
                outgoing = self._begun(parts or {}, end)
                self._finish(accept, self._tuning.silent_seconds if patience is None else patience)
            except OSError as error:
                raise PeerLost(f"a worker is gone: {error}") from error
        self.seconds += time.perf_counter() - start
        for one in outgoing:
            if one.error is not None:
                raise one.error
        notes: dict[int, Header] = {line.peer: line.note or {} for line in self._lines.values()}
        return [note if rank == self.rank else notes[rank] for rank in range(self.number)]

    def _begun(self, parts: Mapping[int, Iterable[Part]], end: bytes) -> list[_Outgoing]:
        """Send what the connections take at once."""
        for peer, line in self._lines.items():
            line.begin(parts.get(peer), end)
        return [line.outgoing for line in self._lines.values() if line.outgoing is not None]

    def _finish(self, accept: Accept, patience: float) -> None:
        beat = self._tuning.beat_seconds
        poll, waiting = select.poll(), dict[int, tuple[_Line, int]]()
        for line in self._lines.values():
            line.receive(accept)  # not all that was read before shows in a poll
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
            if not line.sending:
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
