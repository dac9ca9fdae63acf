"""What ``[inputs.NAME]`` of ``dd.toml`` says: the schema of an input, its key, its source, the columns left out, and
what columns were before they were renamed, widened or dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

from ddcore.base.errors import DdError
from ddcore.base.schema import Schema, check_pattern, parse_type
from ddcore.io.project.column_names import NOT_IN_COLUMNS, check_fields
from ddcore.io.project.declared import DeclaredSource, declared_source
from ddcore.io.project.section import Section, quoted
from ddcore.io.project.stored_columns import KEYS, StoredColumns, stored_columns
from ddcore.text.wording import meant


def input_schemas(section: Section, dims: tuple[str, ...]) -> dict[str, Schema]:
    """The schemas of the inputs. Raises UsageError for a section that is no input's."""
    inputs: dict[str, Schema] = {}
    for name, one in section.named():
        section.check_name(name)
        one.only(("schema", "key", "ignore", "source", *KEYS))
        inputs[name] = _schema(one, dims)
    section.check_case(inputs)
    return inputs


def input_ignored(section: Section) -> dict[str, tuple[str, ...]]:
    """The columns of sources that inputs leave out on purpose."""
    return {name: columns for name, one in section.named() if (columns := one.names("ignore"))}


def inputs_stored(section: Section, inputs: Mapping[str, Schema], dims: tuple[str, ...]) -> dict[str, StoredColumns]:
    """How the logs of inputs store their columns, where these were others before."""
    stored = {name: stored_columns(one, inputs[name], dims) for name, one in section.named()}
    return {name: columns for name, columns in stored.items() if columns is not None}


def input_sources(section: Section) -> dict[str, DeclaredSource]:
    """The sources of the inputs that declare one."""
    declared = {name: declared_source(one, section.file.parent) for name, one in section.named()}
    return {name: source for name, source in declared.items() if source is not None}


def input_keys(section: Section) -> dict[str, tuple[str, ...]]:
    """The keys of the inputs that have one, whose schemas are checked."""
    keys: dict[str, tuple[str, ...]] = {}
    for name, one in section.named():
        key, columns = one.names("key"), one.table["schema"]
        if key is None:
            continue
        if not key:
            raise one.wrong("key", "names no column", "leave it out where rows may have anything in common")
        for column in key:
            if column not in columns:
                raise one.wrong("key", f"there is no column {column!r}", meant(column, columns))
            if parse_type(columns[column]).stored.is_nested:
                raise one.wrong("key", f"the column {column!r} is {columns[column]}", "name columns of plain types")
        keys[name] = key
    return keys


def _schema(section: Section, dims: tuple[str, ...]) -> Schema:
    columns = section.table.get("schema")
    if not isinstance(columns, dict) or not columns:
        what = "is missing" if columns is None else f"must be {{ column = type }}, not {quoted(columns)}"
        raise section.wrong("schema", what, 'say schema = { src = "int64", dst = "int64" }')
    schema: Schema = {}
    reserved = {name.casefold() for name in (*dims, "diff")}  # Delta tables ignore case
    for column, kind in columns.items():
        if column.casefold() in reserved or column.startswith("_"):
            raise section.wrong(
                f"schema.{column}",
                "this name is reserved, in capitals too, as are all time columns, diff and names that begin with _",
                "rename it here; ingest reads a column of another name with: --column OURS=THEIRS",
            )
        if not column or NOT_IN_COLUMNS & set(column) or not column.isprintable():
            raise section.wrong(
                f"schema.{column}",
                f"a column's name has none of {' '.join(sorted(NOT_IN_COLUMNS))!r} and no control characters",
                "rename it here; ingest reads a column of another name with: --column OURS=THEIRS",
            )
        try:
            check_pattern(column)
            schema[column] = parse_type(kind)
            check_fields(schema[column])
        except (DdError, TypeError, AttributeError) as error:
            what = error.message if isinstance(error, DdError) else f"must be the name of a type, not {quoted(kind)}"
            hint = error.hint if isinstance(error, DdError) else ""
            raise section.wrong(
                f"schema.{column}", what, hint or "types are int64, string, decimal(10,2), ..."
            ) from None
    section.check_case(schema)
    return schema
