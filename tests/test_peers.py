"""The connections between workers: strangers, peers that are gone or hang, networks that let nobody through."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ddcore.jobs.engines import peers
from ddcore.jobs.engines.peers import PeerLost, Peers, Unreachable, meeting

SECRET = b"s" * 32


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
    secrets = how.pop("secrets", [SECRET] * number)
    hosts = how.pop("hosts", ["127.0.0.1"] * number)

    def one(rank: int) -> Any:
        try:
            with meeting(rank, hosts[rank], secrets[rank], gathering.of(rank)) as connections:
                return work(connections, rank)
        except Exception as error:
            return error

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(one, range(number)))


def part(sender: int, size: int) -> peers.Part:
    return {"from": sender}, [memoryview(bytes([sender]) * size), memoryview(b""), memoryview(b"x" * 3)]


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_everybody_gets_what_is_meant_for_them(number: int) -> None:
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
        return got

    results = together(number, work)
    for rank, got in enumerate(results):
        for turn in range(4):
            sizes = [(p, (p * 31 + rank * 7 + k) * 1000 * turn) for p in range(number) if p != rank for k in range(20)]
            assert got[turn] == sorted(sizes)


def wait_for(connections: Future[Peers], rank: int) -> Any:
    return connections.result().exchange({"rank": rank})


@contextmanager
def bothered(say: Callable[[socket.socket], None]) -> Iterator[Gathering]:
    """Strangers who connect to every worker before the others do."""
    strangers: list[socket.socket] = []

    def change(rank: int, words: dict[str, Any]) -> None:
        for _ in range(3):
            stranger = socket.create_connection(tuple(words["address"]))
            strangers.append(stranger)
            say(stranger)

    yield Gathering(3, change)
    for stranger in strangers:
        stranger.close()


def half_a_greeting(stranger: socket.socket) -> None:
    stranger.sendall(struct.pack("<I", 1))


def a_greeting_without_the_secret(stranger: socket.socket) -> None:
    stranger.sendall(struct.pack("<I32s", 2, bytes(32)) + bytes(32))


@pytest.mark.parametrize(
    "say",
    [
        lambda stranger: None,
        lambda stranger: stranger.close(),
        lambda stranger: stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + os.urandom(5000)),
        half_a_greeting,
        a_greeting_without_the_secret,
    ],
)
def test_what_a_stranger_sends_ends_nothing(say: Callable[[socket.socket], None]) -> None:
    with bothered(say) as gathering:
        results = together(3, wait_for, gathering=gathering)
    assert results == [[{"rank": 0}, {"rank": 1}, {"rank": 2}]] * 3


def test_who_does_not_know_the_secret_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MEETING", 2.0)
    results = together(2, wait_for, secrets=[SECRET, b"t" * 32])
    assert all(isinstance(result, Unreachable) for result in results), results
    assert "is not worker 0" in str(results[1])


def test_workers_listen_at_their_own_address_alone() -> None:
    def work(connections: Future[Peers], rank: int) -> Any:
        return [line.socket.getsockname()[0] for line in connections.result()._lines.values()]

    assert together(2, work, hosts=["127.0.0.2", "127.0.0.3"]) == [["127.0.0.2"], ["127.0.0.1"]]


@pytest.mark.parametrize(
    "change",
    [
        lambda rank, words: words.update(address=["127.0.0.1", 1]),  # nobody listens there
        lambda rank, words: words.update(address=["192.0.2.1", 80]),  # packets are lost
    ],
)
def test_a_network_that_lets_nobody_through_is_recognised(
    change: Callable[[int, dict[str, Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "MEETING", 1.5)
    start = time.monotonic()
    results = together(3, wait_for, gathering=Gathering(3, change))
    assert all(isinstance(result, Unreachable) for result in results), results
    assert "worker 1 cannot reach worker 0 at " in str(results[1])
    assert time.monotonic() - start < 60, "the system gives up after minutes"


def test_an_address_of_another_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    results = together(2, wait_for, hosts=["127.0.0.1", "192.0.2.1"])
    assert {str(result).partition(":")[0] for result in results} == {"worker 1 cannot listen at 192.0.2.1"}


def test_a_worker_that_is_gone_ends_all_others_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SILENCE", 600.0)

    def work(connections: Future[Peers], rank: int) -> Any:
        connections.result().exchange({})
        if rank == 1:
            raise RuntimeError("killed")
        # who hears of it second may hear of it by the end of the first
        with pytest.raises(PeerLost, match=r"worker \d closed its connection|a worker is gone"):
            connections.result().exchange({}, {1: (part(0, 1 << 20) for _ in range(100))})
        return "told"

    first, _, last = together(3, work)
    assert (first, last) == ("told", "told")


@pytest.mark.parametrize("beats", [True, False])
def test_a_worker_that_computes_is_told_from_one_that_hangs(beats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SILENCE", 2.0 if beats else 1.0)  # seconds without a beat where the machine is busy
    monkeypatch.setattr(peers, "_BEAT", 0.05)
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

    first, _ = together(2, work)
    if beats:
        assert first == [{"rank": 0}, {"rank": 1}]
    else:
        assert isinstance(first, PeerLost)
        assert "worker 1 has been silent for 1 s" in str(first)


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
        assert len(line.buffer) < 100
        return True

    assert together(2, work) == [True, None]


def test_no_module_of_the_exchange_unpickles_what_arrives() -> None:
    folder = Path(peers.__file__).parent
    assert "pickle" not in (folder / "messages.py").read_text()
    assert "import pickle" not in (folder / "peers.py").read_text()
