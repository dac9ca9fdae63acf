"""Memory of large folds: the allocator is set back, whatever happens inside."""

from __future__ import annotations

import pytest

from ddcore.base import memory
from ddcore.traces import spilling
from ddcore.traces.budget import Budget


class Library:
    """What was asked of the C library."""

    def __init__(self) -> None:
        self.settings: dict[int, int] = {}
        self.trims = 0

    def mallopt(self, parameter: int, value: int) -> None:
        self.settings[parameter] = value

    def malloc_trim(self, pad: int) -> None:
        self.trims += 1


def test_the_defaults_are_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(memory, "_glibc", lambda: library)
    with pytest.raises(ZeroDivisionError), memory.reused_memory():
        assert library.settings[memory._MMAP_MAX] == 0
        assert library.trims == 0
        raise ZeroDivisionError
    assert library.settings == memory._DEFAULTS
    assert library.trims == 1


def test_without_glibc_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    with memory.reused_memory():
        pass


def test_where_memory_is_limited_freed_blocks_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(memory, "_glibc", lambda: library)
    with pytest.raises(ZeroDivisionError), Budget(spilling.Spilling(2**30)).held():
        assert library.settings[memory._MMAP_THRESHOLD] == memory._RETURNED
        assert library.trims == 1
        raise ZeroDivisionError
    assert library.settings[memory._ARENA_MAX] == 0
    with Budget().held():
        assert library.trims == 1
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    with Budget(spilling.Spilling(2**30)).held():
        pass
