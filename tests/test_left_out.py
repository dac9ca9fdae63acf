"""A new column upstream: it is no error, and is named by ingest, run and status until someone decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trams import Command, records

LINE = "left out   links: region  (in dd.toml: declare them, or ignore = [...])"
PLAIN, WIDE = "src,dst,minutes\nA,B,1\n", "src,region,dst,minutes\nA,north,B,1\nB,south,C,2\n"
FORMS: dict[str, tuple[str, ...]] = {
    "log": ("--version", "8", "--diff", "1"), "append": ("--append",), "snapshot": ("--snapshot",),
    "upsert": ("--upsert", "--key", "src"),
}  # fmt: skip


def status(dd: Command) -> tuple[dict[str, Any], str]:
    return records(dd("status", "--json")[1])[0]["left_out"], "\n".join(dd("status")[1])


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", FORMS)
def test_a_new_column_is_named_until_someone_decides(form: str, fresh: Path, dd: Command) -> None:
    Path("plain.csv").write_text(PLAIN)
    Path("wide.csv").write_text(WIDE)
    options = FORMS[form]
    assert dd("ingest", "links", "plain.csv", *options, "-q")[0] == 0
    assert status(dd)[0] == {} and "left out" not in status(dd)[1]
    code, out, err = dd("ingest", "links", "wide.csv", *options, "--json", "-q")
    assert (code, err) == (0, []) and records(out)[-1]["left_out"] == ["region"]
    assert status(dd)[0] == {"links": ["region"]} and LINE in status(dd)[1]
    assert dd("ingest", "starts", "data/starts.csv", "-q")[0] == 0
    code, out, err = dd("run", "--json", "-q")
    assert code == 0, err
    assert (code, records(out)[-1]["left_out"]) == (0, {"links": ["region"]})
    toml, text = Path("dd.toml"), Path("dd.toml").read_text()
    schema = 'schema = { src = "string", dst = "string", minutes = "int64"'
    toml.write_text(text.replace(f"{schema} }}", f'{schema} }}\nignore = ["region"]'))
    assert status(dd)[0] == {} and "left out" not in status(dd)[1]
    toml.write_text(text.replace(schema, f'{schema}, region = "string"'))
    assert status(dd)[0] == {} and "left out" not in status(dd)[1]


def test_a_column_that_is_ignored_gets_no_note(fresh: Path, dd: Command) -> None:
    Path("wide.csv").write_text(WIDE)
    toml = Path("dd.toml")
    toml.write_text(toml.read_text().replace('minutes = "int64" }', 'minutes = "int64" }\nignore = ["region"]'))
    code, out, err = dd("ingest", "links", "wide.csv", "--snapshot", "--json")
    assert (code, records(out)[-1]["left_out"]) == (0, []) and not any("left out" in line for line in err)
    assert not any("left out" in note for note in records(out)[-1]["notes"])


def test_a_source_that_lacks_the_column_again_ends_it(fresh: Path, dd: Command) -> None:
    for name, text in (("a", WIDE), ("b", PLAIN)):
        Path(f"{name}.csv").write_text(text)
        assert dd("ingest", "links", f"{name}.csv", "--snapshot", "-q")[0] == 0
    assert status(dd)[0] == {}
