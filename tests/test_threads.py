"""Threads: parts of a step side by side, with results in the order of the parts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

import ddcore as dd
from ddcore.base import threads
from ddcore.base.errors import ProgramError


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("parts", [0, 1, 2, 3, 40])
def test_results_are_in_the_order_of_the_parts(number: int, parts: int) -> None:
    def slower_first(part: int) -> int:
        time.sleep(0.002 * (parts - part) / 10)
        return part

    assert list(threads.parallel_map(slower_first, range(parts), number)) == list(range(parts))
    assert threads.beside() == 1


def test_parts_run_at_the_same_time_and_one_inside_of_another_does_not() -> None:
    both = threading.Barrier(2, timeout=600)

    def meet(_: int) -> int:
        both.wait()
        assert threads.free(2) == 1
        return len({*threads.parallel_map(lambda _: threading.get_ident(), range(4), 2)})

    assert list(threads.parallel_map(meet, range(2), 2)) == [1, 1]
    assert threads.free(2) == 2


@pytest.mark.parametrize("number", [1, 3])
def test_the_error_of_the_first_part_that_fails_is_raised(number: int) -> None:
    def fails(part: int) -> int:
        time.sleep(0.01 if part == 3 else 0)
        if part >= 3:
            raise ValueError(str(part))
        return part

    with pytest.raises(ValueError, match="3"):
        list(threads.parallel_map(fails, range(9), number))


class Panic(BaseException):
    """What some libraries raise for their own mistakes."""


def test_the_thread_of_the_caller_works_too_and_errors_of_any_kind_arrive_from_each() -> None:
    both = threading.Barrier(2, timeout=600)

    def fails_elsewhere(part: int) -> int:
        both.wait()
        if threading.current_thread() is not threading.main_thread():
            raise Panic(str(part))
        return threading.get_ident()

    first, second = threads.parallel_map(lambda _: (both.wait(), threading.get_ident())[1], range(2), 2)
    assert {first, second} > {threading.get_ident()}
    with pytest.raises(Panic):
        list(threads.parallel_map(fails_elsewhere, range(2), 2))


def test_no_part_is_left_at_work_when_the_caller_is_interrupted() -> None:
    at_work, begun = [0], threading.Event()

    def part(number: int) -> None:
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(30)
            raise KeyboardInterrupt
        at_work[0] += 1
        begun.set()
        time.sleep(0.05)
        at_work[0] -= 1

    with pytest.raises(KeyboardInterrupt):
        list(threads.parallel_map(part, range(40), 2))
    assert at_work == [0]


def test_a_step_counts_the_threads_that_work_side_by_side() -> None:
    assert list(threads.parallel_map(lambda _: threads.beside(), range(4), 3)) == [3] * 4
    assert threads.beside() == 1


@pytest.mark.parametrize(("number", "rows", "sizes"), [(1, 90_000, 30_000), (2, 90_000, 22_500), (2, 9_000, 4_500)])
def test_parts_are_equally_many_for_all_threads(number: int, rows: int, sizes: int) -> None:
    assert threads.share(rows, 1 << 15, number, 1 << 12) == sizes
    assert threads.share(5_000, 1 << 15, number, 1 << 12) == 5_000
    assert threads.share(0, 1 << 15, number, 1 << 12) == 1


def test_few_parts_are_ahead_of_the_result_that_is_taken() -> None:
    begun = []

    def parts() -> Iterator[int]:
        for part in range(100):
            begun.append(part)
            yield part

    results = threads.parallel_map(lambda part: part, parts(), 2)
    assert next(results) == 0
    assert len(begun) <= 4


def test_a_forked_process_has_threads_of_its_own() -> None:
    assert list(threads.parallel_map(abs, range(3), 2)) == [0, 1, 2]
    child = os.fork()
    if child == 0:
        os._exit(sum(threads.parallel_map(abs, range(4), 2)))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 6


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "2"])
def test_a_number_of_threads_that_is_none(number: object) -> None:
    with pytest.raises(ProgramError, match="threads is"):
        dd.Session(lambda rows: {"rows": rows}, {"rows": {"a": "int64"}}, threads=number)  # type: ignore[arg-type]
