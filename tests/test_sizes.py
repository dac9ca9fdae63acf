"""Sizes of memory, as flags, variables and dd.toml have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from trams import Command

import ddcore as dd
from ddcore.base.errors import ProgramError
from ddcore.io.project.finding import find_project
from ddcore.text.sizes import memory_size, shown_size

SIZES = {"2GiB": 2**31, "512 MiB": 2**29, "1.5GiB": 3 * 2**29, "2gb": 2 * 10**9, "1048576B": 2**20, " 1MiB ": 2**20}
WRONG = [
    "",
    "2",
    "GiB",
    "2 G",
    "-2GiB",
    "2  GiB",
    "1KiB",
    "1e9B",
    "2GiBs",
    "9999999TiB",
    "٢GiB",
    "0GiB",
    "nanGiB",
    2**31,
]


@pytest.mark.parametrize("text", SIZES)
def test_a_size_is_a_number_and_a_unit(text: str) -> None:
    assert memory_size(text) == SIZES[text]


@pytest.mark.parametrize("text", WRONG)
def test_other_texts_are_refused_with_the_text(text: object) -> None:
    with pytest.raises(ValueError, match=r"^is .*not ") as caught:
        memory_size(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("size", [1, 2**20, 3 * 2**29, 2**31, 2**40])
def test_a_size_that_is_shown_is_read_as_the_same(size: int) -> None:
    if size >= 2**20:
        assert memory_size(shown_size(size)) == size
    assert shown_size(1) == "1B"


@pytest.mark.parametrize("text", ["2", "lots", "1KiB"])
def test_each_place_that_takes_a_size_names_it(
    text: str, fresh: Path, dd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = "  for example: 2GiB"
    code, _, err = dd("run", "--memory", text)
    assert (code, err[0].startswith("error: --memory: the memory is "), err[1]) == (2, True, hint)
    monkeypatch.setenv("DDCORE_MEMORY", text)
    code, _, err = dd("run")
    assert (code, err[0].startswith("error: DDCORE_MEMORY: the memory is "), err[1]) == (2, True, hint)
    monkeypatch.delenv("DDCORE_MEMORY")
    file = fresh / "dd.toml"
    file.write_text(file.read_text().replace("[run]\n", f'[run]\nmemory = "{text}"\n'))
    assert "memory" in file.read_text()
    code, _, err = dd("status")
    assert (code, "dd.toml: memory: the memory is " in err[0], err[1]) == (2, True, hint)


def test_a_flag_goes_before_the_environment_and_that_before_the_file(fresh: Path) -> None:
    file = fresh / "dd.toml"
    assert find_project(fresh, {}).memory is None
    file.write_text(file.read_text().replace("[run]\n", '[run]\nmemory = "1GiB"\n'))
    assert find_project(fresh, {}).memory == 2**30
    in_environment = {"DDCORE_MEMORY": "2GiB"}
    assert find_project(fresh, in_environment).memory == 2**31
    project = find_project(fresh, in_environment, {"memory": "3GiB"})
    assert (project.memory, project.origin["memory"]) == (3 * 2**30, "flag")


def test_a_session_refuses_what_is_no_size() -> None:
    with pytest.raises(ProgramError, match=r"^memory is .*not '2'") as caught:
        dd.Session(lambda rows: {"rows": rows}, {"rows": {"a": "int64"}}, memory="2")
    assert caught.value.hint == 'for example memory="2GiB"'
