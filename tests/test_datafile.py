"""Data files: every byte is covered by a digest."""

from __future__ import annotations

import json
import random
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ddcore.base.errors import StorageError
from ddcore.io.parquet import datafile


def store(folder: Path, rows: int = 500, row_group: int = 100) -> Path:
    table = pa.table(
        {"n": pa.array(range(rows), pa.int64()), "s": [f"ddcore.base.digests[{n % 7}" for n in range(rows)]}
    )
    size, digest = datafile.write([table], table.schema, table.num_rows, folder / "new", row_group)
    path = (folder / "new").rename(folder / f"f-{digest}.parquet")
    assert path.stat().st_size == size
    return path


def flip(path: Path, location: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[location] ^= 1 << bit
    path.write_bytes(content)


def test_a_file_is_as_others_read_it(tmp_path: Path) -> None:
    path = store(tmp_path)
    datafile.verify(path, "")
    assert datafile.rows_of(path, "") == 500
    assert pl.read_parquet(path)["n"].to_list() == list(range(500)), "as others read it"
    assert pq.read_table(path, page_checksum_verification=True).num_rows == 500


@pytest.mark.parametrize("rows", [0, 1, 40])
def test_small_files_are_covered_too(rows: int, tmp_path: Path) -> None:
    path = store(tmp_path, rows)
    datafile.verify(path, "")
    assert datafile.rows_of(path, "") == rows


def test_the_list_of_digests_may_have_any_length(tmp_path: Path) -> None:
    """Its length stands before it: with 91 characters as the byte of a bracket, with 128 and more as two bytes."""
    lengths = set()
    for groups in range(1, 9):
        for rows in (1, 9, 90, 150, 200, 300, 520, 900):
            rng = random.Random(rows)
            numbers = pa.array([rng.randrange(-(2**62), 2**62) for _ in range(rows * groups)], pa.int64())
            table = pa.table({"n": numbers})
            _, digest = datafile.write([table], table.schema, table.num_rows, tmp_path / "new", rows)
            path = (tmp_path / "new").rename(tmp_path / f"f-{digest}.parquet")
            content = path.read_bytes()
            lengths.add(content.rindex(b"]") - content.rindex(b"[") + 1)
            datafile.verify(path, "")
            assert pq.read_table(path)["n"].to_pylist() == numbers.to_pylist()
    assert ord("[") in lengths and {length > 127 for length in lengths} == {True, False}, sorted(lengths)


def test_any_flipped_bit_is_noticed(tmp_path: Path, seed: int) -> None:
    """By whoever reads the whole file; and by whoever reads the footer, where the bit is in it."""
    whole = store(tmp_path)
    content = whole.read_bytes()
    ends = [int(end) for end in (block.partition(":")[0] for block in _list(content))]
    rng = random.Random(seed)
    for location in [0, 3, *(end - 1 for end in ends), *ends, len(content) - 1, *rng.sample(range(len(content)), 200)]:
        flip(whole, location, rng.randrange(8))
        with pytest.raises(StorageError, match=r"is damaged|cannot read") as caught:
            datafile.verify(whole, "a hint")
        assert str(whole) in caught.value.message and caught.value.hint == "a hint"
        if location >= ends[-1]:
            with pytest.raises(StorageError):
                datafile.rows_of(whole, "")
        else:
            assert datafile.rows_of(whole, "") == 500
        whole.write_bytes(content)


def _list(content: bytes) -> list[str]:
    start = content.rindex(b"ddcore.digests")
    text = content[content.index(b"[", start) + 1 : content.index(b"]", start)]
    return text.decode().split(",")


@pytest.mark.parametrize("cut", [0, 4, 12, 300])
def test_a_file_that_was_cut_short_is_noticed(cut: int, tmp_path: Path) -> None:
    path = store(tmp_path)
    path.write_bytes(path.read_bytes()[:cut])
    for read in (lambda: datafile.verify(path, ""), lambda: datafile.rows_of(path, "")):
        with pytest.raises(StorageError, match="is damaged"):
            read()


def test_another_file_under_the_name_is_noticed(tmp_path: Path) -> None:
    one, two = store(tmp_path), store(tmp_path, 501)
    one.write_bytes(two.read_bytes())
    with pytest.raises(StorageError, match="is damaged"):
        datafile.verify(one, "")


def test_files_of_other_programs_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "part-00000-0a1b2c3d4e5f-c000.snappy.parquet"
    pq.write_table(pa.table({"n": [1, 2]}), path)
    datafile.verify(path, "")
    assert datafile.rows_of(path, "") == 2


def test_notes_are_those_that_parquet_has(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(40):
        length = rng.choice([0, 1, 127, 128, 16_383, 16_384, 200_000])
        texts = [json.dumps("".join(rng.choice("ab\\x18é\x18") for _ in range(length))) for _ in range(2)]
        given = {"ddcore.one": texts[0], "ddcore.two": texts[1]} if number % 5 else {"ddcore.two": texts[1]}
        table = pa.table({"text": ["ddcore.one", "ddcore.two\x18", "ddcore.two\x18\x03abc"], "n": [1, 2, 3]})
        path = tmp_path / f"{number}.tmp"
        _, digest = datafile.write([table], table.schema, 3, path, 2, notes=given)
        path = path.rename(tmp_path / f"{number}-{digest}.parquet")
        inside = pq.read_metadata(path).metadata
        expected = {name: inside[name.encode()].decode() for name in given}
        assert datafile.notes(path, "", ["ddcore.one", "ddcore.two", "ddcore.three"]) == expected
        assert datafile.glance(path, "ddcore.two") == texts[1]
        assert datafile.glance(path, "ddcore.three") is None
