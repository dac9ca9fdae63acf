"""How workers find each other: strangers of all kinds, workers of other folds, networks that let nobody through."""

from __future__ import annotations

import hmac
import os
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from test_peers import BOTH, ENCRYPTED, PLAIN, Gathering, together

from ddcore.base.tuning import Tuning
from ddcore.jobs.engines import meeting, peers
from ddcore.jobs.engines.certificates import context_of, new_certificate
from ddcore.jobs.engines.meeting import _introduced, _Side
from ddcore.jobs.engines.peers import PeerLost, Peers
from ddcore.jobs.engines.protocol import Credentials, Unreachable

ALL = [{"rank": 0}, {"rank": 1}, {"rank": 2}]


def wait_for(connections: Future[Peers], rank: int) -> Any:
    return connections.result().exchange({"rank": rank})


@contextmanager
def bothered(say: Callable[[socket.socket], None], times: int = 3) -> Iterator[Gathering]:
    """Strangers who connect to every worker before the others do."""
    strangers: list[socket.socket] = []

    def change(rank: int, words: dict[str, Any]) -> None:
        for _ in range(times):
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


def random_bytes(stranger: socket.socket) -> None:
    stranger.sendall(os.urandom(random.randrange(1, 5000)))


def a_huge_record_of_tls(stranger: socket.socket) -> None:
    stranger.sendall(b"\x16\x03\x01\xff\xff" + os.urandom(5000))


def half_a_hello_of_tls(stranger: socket.socket) -> None:
    stranger.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


def one_byte_after_the_other(stranger: socket.socket) -> None:
    def drip() -> None:
        with suppress(OSError):
            for _ in range(1000):
                stranger.sendall(b"\x16")
                time.sleep(0.05)

    threading.Thread(target=drip, daemon=True).start()


@pytest.mark.sample(14)
@BOTH
@pytest.mark.parametrize(
    "say",
    [
        lambda stranger: None,
        lambda stranger: stranger.close(),
        lambda stranger: stranger.shutdown(socket.SHUT_WR),
        lambda stranger: stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + os.urandom(5000)),
        half_a_greeting,
        a_greeting_without_the_secret,
        random_bytes,
        a_huge_record_of_tls,
        half_a_hello_of_tls,
        one_byte_after_the_other,
    ],
)
def test_what_a_stranger_sends_ends_nothing(say: Callable[[socket.socket], None], credentials: Credentials) -> None:
    with bothered(say) as gathering:
        assert together(3, wait_for, gathering=gathering, credentials=credentials) == [ALL] * 3


@BOTH
def test_more_strangers_than_may_wait_keep_no_worker_out(credentials: Credentials) -> None:
    """The oldest go. A worker that is taken for one of them calls again."""
    few = Tuning(strangers=2, greeting_seconds=60.0)
    start = time.monotonic()
    with bothered(half_a_greeting, 20) as gathering:
        assert together(3, wait_for, gathering=gathering, credentials=credentials, tuning=few) == [ALL] * 3
    assert time.monotonic() - start < 60, "nobody waits for a stranger to end"


def test_a_stranger_has_seconds_in_all_and_not_for_each_byte() -> None:
    ours, stranger = socket.socketpair()
    one_byte_after_the_other(stranger)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        meeting._received(ours, 1000, time.monotonic() + 0.3)
    assert time.monotonic() - start < 10
    ours.close()
    stranger.close()


OTHER = Credentials(b"t" * 32)


@pytest.mark.parametrize("verdict", [True, False])
def test_a_comparison_in_constant_time_decides_who_is_let_in(verdict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whole proofs, at both ends, and nothing else does: workers with other secrets meet if it says so."""
    compared: list[tuple[int, int]] = []

    def compare(given: bytes, known: bytes) -> bool:
        compared.append((len(given), len(known)))
        return verdict

    monkeypatch.setattr(hmac, "compare_digest", compare)
    within = Tuning(meeting_seconds=30.0 if verdict else 1.0)
    results = together(2, wait_for, credentials=[PLAIN, OTHER if verdict else PLAIN], tuning=within)
    if verdict:
        assert results == [[{"rank": 0}, {"rank": 1}]] * 2
        assert compared == [(32, 32)] * 2
    else:
        assert all(isinstance(result, Unreachable) for result in results), results
        assert {*compared} == {(32, 32)}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PLAIN, OTHER),
        (ENCRYPTED, Credentials(ENCRYPTED.secret, new_certificate(ENCRYPTED.secret))),  # and another certificate
        (ENCRYPTED, Credentials(OTHER.secret, new_certificate(OTHER.secret))),
        (PLAIN, ENCRYPTED),
        (ENCRYPTED, PLAIN),
    ],
)
def test_a_worker_of_another_fold_is_none(first: Credentials, second: Credentials) -> None:
    results = together(2, wait_for, credentials=[first, second], tuning=Tuning(meeting_seconds=0.5))
    assert all(isinstance(result, Unreachable) for result in results), results
    assert "worker 1 cannot reach worker 0 at " in str(results[1])


def test_a_worker_of_another_attempt_is_none() -> None:
    """It has the secret, but not what the workers of this attempt have told each other."""
    refused: list[str] = []

    def change(rank: int, words: dict[str, Any]) -> None:
        if rank == 0:
            connection = socket.create_connection(tuple(words["address"]))
            thread = threading.Thread(target=late, args=(connection,), daemon=True)
            thread.start()

    def late(connection: socket.socket) -> None:
        try:
            _introduced(connection, _Side(1, b"of an attempt before", None), time.monotonic() + 60)
        except OSError as error:
            refused.append(str(error))

    gathering = Gathering(3, change)
    assert together(3, wait_for, gathering=gathering, tuning=Tuning(meeting_seconds=2.0)) == [ALL] * 3
    assert refused == ["what answers there does not know the secret of this fold"]


@BOTH
def test_nothing_of_the_secret_or_of_what_is_sent_can_be_read(credentials: Credentials) -> None:
    """Of plain connections only the secret is kept, of encrypted ones all of it."""
    heard: list[bytes] = []

    def change(rank: int, words: dict[str, Any]) -> None:
        words["address"] = list(relay(tuple(words["address"]), heard))

    def work(connections: Future[Peers], rank: int) -> Any:
        parts = {1 - rank: [({"a": "planted header"}, [memoryview(b"planted body")])]}
        return len(connections.result().exchange({"note": "planted note"}, parts))

    assert together(2, work, gathering=Gathering(2, change), credentials=credentials) == [2, 2]
    said = b"".join(heard)
    assert len(said) > 100
    assert credentials.secret not in said
    assert (b"planted" in said) == (not credentials.certificate)


def relay(to: tuple[str, int], heard: list[bytes]) -> tuple[str, int]:
    """The address of somebody who passes on what it hears, in both directions."""
    server = socket.create_server(("127.0.0.1", 0))

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while some := source.recv(1 << 16):
                heard.append(some)
                target.sendall(some)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        caller, _ = server.accept()
        answering = socket.create_connection(to)
        server.close()
        back = threading.Thread(target=pass_on, args=(answering, caller), daemon=True)
        back.start()
        pass_on(caller, answering)
        back.join()
        caller.close()
        answering.close()

    threading.Thread(target=serve, daemon=True).start()
    host, port = server.getsockname()
    return host, port


def test_the_key_of_a_certificate_is_locked_and_never_shown() -> None:
    text = ENCRYPTED.certificate.decode()
    assert "-----BEGIN ENCRYPTED PRIVATE KEY-----" in text and "-----BEGIN PRIVATE" not in text
    assert "PRIVATE" not in repr(ENCRYPTED) and "sss" not in repr(ENCRYPTED)
    with pytest.raises(ssl.SSLError):
        context_of(Credentials(OTHER.secret, ENCRYPTED.certificate), answers=True)


def test_workers_listen_at_their_own_address_alone() -> None:
    def work(connections: Future[Peers], rank: int) -> Any:
        return [line.socket.getsockname()[0] for line in connections.result()._lines.values()]

    assert together(2, work, hosts=["127.0.0.2", "127.0.0.3"]) == [["127.0.0.2"], ["127.0.0.1"]]
    if socket.has_ipv6:
        assert together(2, work, hosts=["[::1]", "::1"]) == [["::1"], ["::1"]]


def test_nobody_listens_once_all_have_met() -> None:
    addresses: list[tuple[str, int]] = []

    def work(connections: Future[Peers], rank: int) -> Any:
        connections.result().exchange({})
        for address in addresses:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address).close()
        return len(connections.result().exchange({}))

    change = Gathering(2, lambda rank, words: addresses.append(tuple(words["address"])))
    assert together(2, work, gathering=change) == [2, 2]


@pytest.mark.sample(4, of="waits")
@pytest.mark.parametrize(
    "change",
    [
        lambda rank, words: words.update(address=["127.0.0.1", 1]),  # nobody listens there
        lambda rank, words: words.update(address=["192.0.2.1", 80]),  # packets are lost
    ],
)
def test_a_network_that_lets_nobody_through_is_recognised(
    change: Callable[[int, dict[str, Any]], None],
) -> None:
    start = time.monotonic()
    results = together(3, wait_for, gathering=Gathering(3, change), tuning=Tuning(meeting_seconds=1.5))
    assert all(isinstance(result, Unreachable) for result in results), results
    assert "worker 1 cannot reach worker 0 at " in str(results[1])
    assert time.monotonic() - start < 60, "the system gives up after minutes"


@pytest.mark.sample(4, of="waits")
def test_a_worker_that_is_slow_to_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its system takes the connections at once: the network is not what is slow."""
    proved = meeting._Reception._proved

    def slowly(self: Any, connection: socket.socket) -> int | None:
        time.sleep(0.75)
        return proved(self, connection)

    monkeypatch.setattr(meeting._Reception, "_proved", slowly)
    assert together(2, wait_for, tuning=Tuning(reaching_seconds=0.25)) == [ALL[:2]] * 2


@pytest.mark.sample(4, of="waits")
def test_a_network_that_says_nothing_is_recognised_long_before_all_must_have_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patience: list[float] = []

    def lost(address: list[Any], timeout: float) -> socket.socket:
        patience.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(meeting, "_connected", lost)
    results = together(2, wait_for, tuning=Tuning(meeting_seconds=2.0, reaching_seconds=0.25))
    assert patience == [0.25]
    assert "worker 1 cannot reach worker 0 at " in str(results[1])
    assert isinstance(results[0], Unreachable)


@pytest.mark.sample(4, of="waits")
def test_a_worker_that_stops_before_all_have_met_is_missed() -> None:
    """The system takes connections for it, and nobody answers."""
    silent = socket.create_server(("127.0.0.1", 0))

    def change(rank: int, words: dict[str, Any]) -> None:
        if rank == 0:
            words["address"] = list(silent.getsockname())

    waits = Tuning(meeting_seconds=1.5, greeting_seconds=0.5)
    results = together(3, wait_for, gathering=Gathering(3, change), tuning=waits)
    silent.close()
    assert all(isinstance(result, Unreachable) for result in results), results
    assert str(results[1]).startswith("worker 1 cannot reach worker 0 at 127.0.0.1:")


def test_an_address_of_another_machine_is_named() -> None:
    results = together(2, wait_for, hosts=["127.0.0.1", "192.0.2.1"])
    assert {str(result).partition(":")[0] for result in results} == {"worker 1 cannot listen at 192.0.2.1"}


@pytest.mark.parametrize("turn", range(20))
def test_random_bytes_of_a_peer_are_an_error_or_nothing(turn: int, seed: int) -> None:
    """Whatever a connection says that was taken for a worker's: no other error, and little memory."""
    rng = random.Random(seed + turn)
    ours, other = socket.socketpair()
    ours.setblocking(False)
    line = peers._Line(1, ours)
    frames = [peers._FRAME.pack(rng.choice([0, 2, 20, 2**20]), rng.choice([0, 8, 2**31])), rng.randbytes(20), b"{}"]
    other.sendall(b"".join(rng.choice(frames) for _ in range(rng.randrange(1, 40))))
    with suppress(PeerLost):
        line.receive(lambda header, body: None)
    assert len(line.ahead) + len(line.body) <= 1 << 21
    ours.close()
    other.close()
