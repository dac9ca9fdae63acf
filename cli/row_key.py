"""A row named by the values of some of its columns, as words of a command line: ``stop=Zoo``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddcore.base.errors import UsageError
from ddcore.cli.text import cell
from ddcore.text.wording import listed, meant

if TYPE_CHECKING:
    import polars as pl

    from ddcore.base.schema import Schema, Type


def divided(words: Sequence[str], schema: Schema, output: str) -> tuple[list[str], dict[str, str]]:
    """The versions and the columns with their values; UsageError for a word that is neither."""
    versions: list[str] = []
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in schema:
            if name in values:
                raise UsageError(f"{name} has two values: {values[name]!r} and {value!r}", "give one")
            values[name] = value
        elif values:
            what = f"{output} has no column {name!r}; it has: {', '.join(schema)}"
            hint = meant(name, schema) or ("" if equals else "two versions are written before the row")
            raise UsageError(what if equals else f"{word!r} is no COLUMN=VALUE", hint)
        else:
            versions.append(word)
    if not values:
        column = versions[0].partition("=")[0] if versions and "=" in versions[0] else ""
        if column:
            raise UsageError(f"{output} has no column {column!r}; it has: {', '.join(schema)}", meant(column, schema))
        said = f": {versions[0]!r} is no COLUMN=VALUE" if len(versions) == 1 and ".." not in versions[0] else ""
        value = versions[0] if said else "VALUE"
        hint = f"say which one by values of its columns, which are {listed(schema)}: "
        word = shlex.quote(f"{next(iter(schema))}={value}")
        raise UsageError(f"explain {output} names no row{said}", f"{hint}ddcore explain {output} {word}")
    return versions, values


def key_of(values: Mapping[str, str], schema: Schema, output: str) -> pl.DataFrame:
    """One row of the values; UsageError for one that its column cannot have."""
    import polars as pl

    columns = []
    for name, text in values.items():
        kind = schema[name]
        if kind.stored.is_nested:
            raise UsageError(f"{output}: {name} is {kind}: a row is named by other columns", f"of {listed(schema)}")
        try:
            columns.append(pl.Series(name, [_value(text, kind)], dtype=kind.polars))
        except (ValueError, ArithmeticError, pl.exceptions.PolarsError):
            raise UsageError(
                f"{name}={text}: {text!r:.60} is no {kind}", f"as `ddcore show {output}` prints it"
            ) from None
    return pl.DataFrame(columns)


def _value(text: str, kind: Type) -> Any:
    """The value that a text spells. Raises ValueError or a Polars error."""
    import polars as pl

    if text == "null":
        return None
    if kind.name == "string":
        quoted = len(text) > 1 and text[0] == text[-1] == '"'
        return json.loads(text) if quoted else text
    if kind.name == "bool":
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    if kind.name in ("date", "time", "timestamp"):
        return _moment(text, kind)
    if kind.name == "uuid":
        return _uuid(text)
    return pl.Series([text]).cast(kind.polars, strict=True)[0]


def _moment(text: str, kind: Type) -> Any:
    """A date, a time of day or a timestamp."""
    from datetime import UTC, date, datetime, time

    if kind.name != "timestamp":
        return (date if kind.name == "date" else time).fromisoformat(text)
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _uuid(text: str) -> str:
    """A UUID in its usual form."""
    import polars as pl

    from ddcore.data.forms import canonical_uuids

    usual: str | None = canonical_uuids(pl.Series([text]))[0]
    if usual is None:
        raise ValueError(text)
    return usual


def key_text(key: pl.DataFrame) -> str:
    """A key for messages: ``stop=Zoo, total=14``."""
    return ", ".join(f"{name}={cell(key[name][0])}" for name in key.columns)
