"""The exchange between workers: encrypted or not, with peers that are gone, hang, fail or send what no worker sends."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.jobs.engines import peers
from ddcore.jobs.engines.certificates import new_certificate
from ddcore.jobs.engines.meeting import meeting
from ddcore.jobs.engines.peers import PeerLost, Peers
from ddcore.jobs.engines.protocol import Credentials

PLAIN = Credentials(b"s" * 32)
ENCRYPTED = Credentials(PLAIN.secret, new_certificate(PLAIN.secret))
BOTH = pytest.mark.parametrize("credentials", [PLAIN, ENCRYPTED], ids=["plain", "encrypted"])


class Gathering:
    """Gives each of several threads the words of all; ``change`` may change what one says."""

    def __init__(self, number: int, change: Callable[[int, dict[str, Any]], None] = lambda rank, words: None) -> None:
        self.barrier, self.words, self.change = threading.Barrier(number, timeout=600), [""] * number, change

    def of(self, rank: int) -> Callable[[str], list[str]]:
        def gather(word: str) -> list[str]:
            words = json.loads(word)
            self.change(rank, words)
            self.words[rank] = json.dumps(words)
            self.barrier.wait()
            return list(self.words)

        return gather


def together(number: int, work: Callable[[Future[Peers], int], Any], **how: Any) -> list[Any]:
    """What ``work`` returns or raises for each of several workers, in threads."""
    gathering = how.pop("gathering", None) or Gathering(number)
    credentials = how.pop("credentials", PLAIN)
    known = credentials if isinstance(credentials, list) else [credentials] * number
    hosts = how.pop("hosts", ["127.0.0.1"] * number)
    tuning = how.pop("tuning", DEFAULT)

    def one(rank: int) -> Any:
        try:
            with meeting(rank, hosts[rank], known[rank], gathering.of(rank), tuning) as connections:
                return work(connections, rank)
        except Exception as error:
            return error

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(one, range(number)))


def part(sender: int, size: int) -> peers.Part:
    return {"from": sender}, [memoryview(bytes([sender]) * size), memoryview(b""), memoryview(b"x" * 3)]


@pytest.mark.sample(3)
@BOTH
@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_everybody_gets_what_is_meant_for_them(number: int, credentials: Credentials) -> None:
    """Many parts, larger than what a connection holds, several times; those who go on first disturb nobody."""

    def work(connections: Future[Peers], rank: int) -> Any:
        got = []
        for turn in range(4):
            sizes = {peer: [(rank * 31 + peer * 7 + k) * 1000 * turn for k in range(20)] for peer in range(number)}
            parts = {peer: (part(rank, size) for size in sizes[peer]) for peer in range(number) if peer != rank}
            some: list[Any] = []

            def accept(header: dict[str, Any], body: bytearray, some: list[Any] = some) -> None:
                size = header["sizes"][0]
                assert bytes(body[:size]) == bytes([header["from"]]) * size
                assert bytes(body[-8:]) == b"xxx" + bytes(5)
                some.append((header["from"], size))

            notes = connections.result().exchange({"turn": turn, "rank": rank}, parts, accept)
            assert notes == [{"turn": turn, "rank": other} for other in range(number)]
            got.append(sorted(some))
        connections.result().exchange({})  # who leaves after an exchange with parts may take their last bytes along
        return got

    results = together(number, work, credentials=credentials)
    for rank, got in enumerate(results):
        for turn in range(4):
            sizes = [(p, (p * 31 + rank * 7 + k) * 1000 * turn) for p in range(number) if p != rank for k in range(20)]
            assert got[turn] == sorted(sizes)


def wait_for(connections: Future[Peers], rank: int) -> Any:
    return connections.result().exchange({"rank": rank})


@BOTH
def test_a_worker_that_is_gone_ends_all_others_at_once(credentials: Credentials) -> None:

    def work(connections: Future[Peers], rank: int) -> Any:
        connections.result().exchange({})
        if rank == 1:
            raise RuntimeError("killed")
        # who hears of it second may hear of it by the end of the first
        with pytest.raises(PeerLost, match=r"worker \d closed its connection|a worker is gone"):
            connections.result().exchange({}, {1: (part(0, 1 << 20) for _ in range(100))})
        return "told"

    first, _, last = together(3, work, credentials=credentials, tuning=Tuning(silent_seconds=600.0))
    assert (first, last) == ("told", "told")


@pytest.mark.sample(1)
@pytest.mark.parametrize("beats", [True, False])
def test_a_worker_that_computes_is_told_from_one_that_hangs(beats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not beats:
        monkeypatch.setattr(Peers, "_beat", lambda self: None)
    ended = threading.Event()

    def work(connections: Future[Peers], rank: int) -> Any:
        if rank == 1:
            connections.result()
            ended.wait(2.5 if beats else 600.0)
        try:
            return connections.result().exchange({"rank": rank})
        finally:
            ended.set()

    patient = 2.0 if beats else 1.0  # seconds without a beat where the machine is busy
    first, _ = together(2, work, tuning=Tuning(silent_seconds=patient, beat_seconds=0.05))
    if beats:
        assert first == [{"rank": 0}, {"rank": 1}]
    else:
        assert isinstance(first, PeerLost)
        assert "worker 1 has been silent for 1 s" in str(first)


def test_a_worker_that_was_busy_does_not_take_the_others_for_lost() -> None:
    """What they said meanwhile has waited for it."""

    def work(connections: Future[Peers], rank: int) -> Any:
        def busy(header: dict[str, Any], body: bytearray) -> None:
            threading.Event().wait(1.5 if header["from"] == 1 else 0.0)

        if rank == 2:
            connections.result()
            threading.Event().wait(0.5)  # so that its note comes while worker 0 is busy
        parts = {0: [part(rank, 8)]} if rank else {}
        return len(connections.result().exchange({}, parts, busy, patience=1.0 if rank == 0 else 60.0))

    assert together(3, work, credentials=ENCRYPTED, tuning=Tuning(beat_seconds=0.05)) == [3, 3, 3]


@BOTH
def test_an_error_in_the_middle_of_an_exchange_leaves_all_in_step(credentials: Credentials) -> None:
    """The frames stay whole: the one for which the parts were is told at once, the others with the next exchange."""

    def broken() -> Iterator[peers.Part]:
        yield part(0, 1 << 20)
        raise MemoryError("of the test")

    def work(connections: Future[Peers], rank: int) -> Any:
        exchange = connections.result().exchange
        if rank == 0:
            with pytest.raises(MemoryError, match="of the test"):
                exchange({"rank": 0}, {1: broken(), 2: [part(0, 1 << 20)]})
        else:
            expected = {"failing": True} if rank == 1 else {"rank": 0}
            assert exchange({"rank": rank})[0] == expected
        return exchange({"rank": rank, "again": True})

    expected = [{"rank": rank, "again": True} for rank in range(3)]
    assert together(3, work, credentials=credentials) == [expected] * 3


FRAME = struct.Struct("<IQ")


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (FRAME.pack(2**31, 0), "sent a part of"),
        (FRAME.pack(20, 2**60), "sent a part of 1152921504606846976 bytes"),
        (FRAME.pack(10, 8) + b"no json!!!", "sent a header that is none"),
        (FRAME.pack(2, 8) + b"[]", "sent a header that is none"),
        (FRAME.pack(16, 8) + b'{"sizes":[2000]}', "sent 8 bytes where its header says 2000"),
        (FRAME.pack(15, 8) + b'{"sizes":["8"]}', "sent a header that is none"),
        (FRAME.pack(14, 0) + b'{"sizes":[-8]}', "sent a header that is none"),
        (FRAME.pack(100_000, 0) + b"[" * 100_000, "sent a header that is none"),
    ],
)
def test_sizes_are_checked_before_memory_is_taken(sent: bytes, says: str) -> None:
    told = threading.Event()

    def work(connections: Future[Peers], rank: int) -> Any:
        line = next(iter(connections.result()._lines.values()))
        if rank == 1:
            line.socket.sendall(sent)
            told.wait(600)
            return None
        try:
            with pytest.raises(PeerLost, match=says):
                connections.result().exchange({})
        finally:
            told.set()
        assert len(line.ahead) + len(line.body) < 100 + len(sent)
        return True

    assert together(2, work) == [True, None]


def test_no_module_of_the_exchange_unpickles_what_arrives() -> None:
    folder = Path(peers.__file__).parent
    assert "pickle" not in (folder / "messages.py").read_text()
    assert "import pickle" not in (folder / "peers.py").read_text()
