"""Texts as Polars holds them, in views: their hashes, their bounds and their files are those of texts anywhere else."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from ddcore.base.schema import Type
from ddcore.io.delta import new_files
from ddcore.io.logs.digests import row_hashes
from ddcore.io.parquet import column_bounds

_VIEWS = pl.CompatLevel.newest()


def _values(rng: random.Random, least: int = 0) -> list[str]:
    """Texts that begin alike: shorter than a view, longer, of a length around the limit, with zeros at the end."""
    letters = rng.sample(["a", "b", "\0", "é", "\U0001f600", "\x7f"], rng.randint(1, 6))
    begin = "".join(rng.choices(letters, k=rng.randint(0, 14)))
    return [begin + "".join(rng.choices(letters, k=rng.randint(0, 6))) for _ in range(rng.randint(least, 12))]


def _of_one_buffer(values: list[str | None]) -> pl.Series:
    frame = pl.from_arrow(pa.table({"t": pa.array(values, pa.large_string())}))
    assert isinstance(frame, pl.DataFrame)
    return frame["t"]


def _hashes(series: pl.Series) -> list[list[int]]:
    hashes: list[list[int]] = row_hashes(pl.DataFrame([series]), (), bytes(range(16))).T.tolist()
    return hashes


def _buffers(series: pl.Series) -> int:
    return len(series.to_arrow(compat_level=_VIEWS).buffers()) - 2


@pytest.mark.parametrize("seed", range(20))
def test_hashes_do_not_depend_on_how_texts_lie(seed: int) -> None:
    rng = random.Random(seed)
    values: list[str | None] = [*_values(rng, 1), None, "", "twelve bytes", "thirteen byte", "a" * 40]
    rng.shuffle(values)
    one = _of_one_buffer(values)
    long = pl.Series("t", ["x" * 9000, *values, "y" * 9000] * 3)
    several = pl.concat([long, one]).rechunk()
    assert _buffers(one) <= 1 < _buffers(several)
    for series in (one, one[3:-2], several, several[1:40]):
        hashes = _hashes(series)
        assert hashes == _hashes(_of_one_buffer(series.to_list()))
        assert hashes == [_hashes(series[location : location + 1])[0] for location in range(len(series))]


@pytest.mark.parametrize("seed", range(50))
def test_bounds_are_those_of_the_bytes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        parts = [_values(rng, 1) for _ in range(rng.randint(1, 3))]
        chunks = [_of_one_buffer([*part]).to_arrow(compat_level=_VIEWS) for part in parts]
        cut = rng.randint(0, len(parts[0]) - 1)
        chunks[0], parts[0] = chunks[0].slice(cut), parts[0][cut:]
        texts = [text for part in parts for text in part]
        ends = min(texts, key=str.encode), max(texts, key=str.encode)
        assert column_bounds._ends(pa.chunked_array(chunks), 0) == ends
        with_null = [*chunks, pa.array([None], pa.string_view())]
        assert column_bounds._ends(pa.chunked_array(with_null), 0) == ends


def test_bounds_of_texts_in_several_buffers() -> None:
    several = pl.Series("t", ["m" * 9000, "z" * 9000, "a" * 9000, "n"] * 3)
    assert _buffers(several) > 1
    column = pa.chunked_array([several.to_arrow(compat_level=_VIEWS)])
    assert column_bounds._ends(column, 0) == ("a" * 9000, "z" * 9000)


@pytest.mark.parametrize("kind", [pl.String, pl.Binary])
def test_a_file_of_views_is_the_file_of_texts(kind: pl.DataType, tmp_path: Path) -> None:
    series = pl.Series("t", ["b", None, "a" * 50, "", "twelve bytes", "ab"] * 700).cast(kind)
    schema = {"t": Type("string" if kind == pl.String else "binary")}
    files = []
    for name, column in (("views", series.to_arrow(compat_level=_VIEWS)), ("texts", series.to_arrow())):
        table = new_files.arrow_table({"t": column}, schema)
        assert (table["t"].type in (pa.string_view(), pa.binary_view())) is (name == "views")
        files.append(new_files.write_file(tmp_path / name, "f", table, bounded=["t"]))
    assert files[0] == files[1]  # also the digest of the content, which is in the name
    assert pl.read_parquet(tmp_path / "views" / files[0].path)["t"].to_list() == series.to_list()
