"""Finding sources: the files and tables that the user's paths, globs and URLs name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from ddcore.errors import DataError, UsageError
from ddcore.io.sources.csvfile import CsvFile
from ddcore.io.sources.deltatable import delta_table, delta_versions
from ddcore.io.sources.jsonlines import JsonLines
from ddcore.io.sources.parquetfile import ParquetFile
from ddcore.io.sources.snapshots import Snapshot
from ddcore.io.sources.source import Source

__all__ = ["FILES", "find_snapshots", "find_sources"]

FILES: Mapping[str, type[Source]] = {
    ".parquet": ParquetFile, ".pq": ParquetFile, ".csv": CsvFile, ".csv.gz": CsvFile,
    ".jsonl": JsonLines, ".jsonl.gz": JsonLines, ".ndjson": JsonLines, ".ndjson.gz": JsonLines,
}  # fmt: skip
_GLOB = frozenset("*?[")
_VERSIONS = re.compile(r"(?P<table>.+)@(?:v?(?P<first>[0-9]+))?(?P<range>\.\.(?:v?(?P<last>[0-9]+))?)?")
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def find_sources(places: Sequence[str]) -> list[Source]:
    """The sources that paths, globs and ``file:`` URLs name, in the order of ``places``, then of their names.

    A folder is a Delta table, or stands for all data files under it (not names that begin with ``.`` or ``_``). A file
    with several names is read once. Walks the folders once; opens Delta logs only. Raises UsageError for a place
    that does not exist, DataError for one without data and for a file that belongs to a table, because only the table's
    log says which rows are live.
    """
    sources: dict[str, Source] = {}
    for place in places:
        for _, of in _matches(place):
            for source in of:
                sources.setdefault(source.real, source)
    _check(list(sources.values()))
    return list(sources.values())


def find_snapshots(places: Sequence[str]) -> list[Snapshot]:
    """The snapshots that paths, globs and ``file:`` URLs name, in the order of ``places``, then of their names.

    A file, a folder or a Delta table is one snapshot, so is each match of a glob. ``TABLE@v3`` is a Delta table at
    version 3, ``TABLE@v3..v7`` and ``TABLE@v3..`` are one snapshot for each of these versions. Raises as
    :func:`find_sources`.
    """
    snapshots: dict[tuple[str, str], Snapshot] = {}
    for place in places:
        for name, sources in _versions_at(place) or _matches(place):
            path = sources[0].path if len(sources) == 1 else _absolute(_local_path(name))
            version = sources[0].stamp() if sources[0].by_spark else ""
            snapshots.setdefault((os.path.realpath(path), version), Snapshot(name, path, tuple(sources)))
    _check([source for snapshot in snapshots.values() for source in snapshot.parts])
    return list(snapshots.values())


def _versions_at(place: str) -> list[tuple[str, list[Source]]]:
    """The versions of a Delta table that a place names, each by itself; none for another place."""
    match = _VERSIONS.fullmatch(place)
    if match is None or _local_path(place).exists() or not (_local_path(match["table"]) / "_delta_log").is_dir():
        return []
    first, last = ((int(text) if text else None) for text in (match["first"], match["last"]))
    table = _absolute(_local_path(match["table"]))
    tables = delta_versions(table, match["table"], first, first if match["range"] is None else last)
    return [(each.name, [each]) for each in tables]


def _check(sources: Sequence[Source]) -> None:
    _check_names(sources)
    _check_no_table_files(sources)


def _matches(place: str) -> list[tuple[str, list[Source]]]:
    """What a place names: a file, a folder or a table with its sources, or each match of a glob with its."""
    if not _GLOB & set(place) or os.path.exists(_local_path(place)):
        return [(place, _sources_at(place))]
    return _sources_matching(str(_local_path(place)), place)


def _sources_at(place: str) -> list[Source]:
    if not place.strip():
        raise UsageError("a source's name is empty", "is a variable not set?")
    path = _local_path(place)
    try:
        if (path / "_delta_log").is_dir():
            return [delta_table(_absolute(path), place)]
        if path.is_dir():
            return _sources_under(path, place)
        if path.is_file():
            return [_file_kind(path, place)(place, _absolute(path))]
    except OSError as error:
        raise DataError(f"{place}: cannot be read: {error.strerror}", "make it readable for this user") from error
    raise UsageError(f"{place}: there is no such file or folder", _nearby(path))


def _local_path(place: str) -> Path:
    if "\0" in place:
        raise UsageError(
            f"{place!r}: a path holds no NUL character", "check the script or variable that built the path"
        )
    url = urlparse(place)
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return Path(unquote(url.path))
    if "://" in place:
        raise UsageError(
            f"{place}: only files and folders can be read", "copy or mount it: see docs/limits.md on object stores"
        )
    return _expanded(place)


def _expanded(place: str) -> Path:
    try:
        return Path(place).expanduser()
    except RuntimeError:
        raise UsageError(f"{place}: there is no such user", "write the home folder out, or begin with ./~") from None


def _absolute(path: Path) -> str:
    """An absolute path to the same file without ``..``; in ``link/../file`` the link is resolved first."""
    lexical = os.path.abspath(path)
    return (
        lexical
        if ".." not in path.parts or os.path.realpath(path) == os.path.realpath(lexical)
        else str(path.resolve())
    )


def _sources_matching(pattern: str, place: str) -> list[tuple[str, list[Source]]]:
    import glob

    matches = []
    steps = Path(pattern).parts
    literal = next(number for number, step in enumerate(steps) if _GLOB & set(step))
    for match in sorted(glob.glob(pattern, recursive=True)):
        path = Path(match)
        hidden = any(step[0] in "._" and step not in steps for step in path.parts[literal:])
        if not hidden and (path.is_dir() or _kind_by_suffix(path)):
            matches.append((match, _sources_at(match)))
    if not matches:
        raise DataError(
            f"{place}: matches no data file: these end in {', '.join(FILES)}",
            "quote the pattern, and list what it matches with: ls",
        )
    return matches


def _sources_under(folder: Path, place: str) -> list[Source]:
    sources = []
    for root, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        for name in sorted(files):
            path = Path(root, name)
            kind = _kind_by_suffix(path)
            if kind and name[0] not in "._":
                parts = path.parent.relative_to(folder).parts
                carried = tuple(_folder_column(part) for part in parts if "=" in part)
                shown = str(Path(place, *parts, name))
                sources.append(kind(shown, _absolute(path), carried, member=True))
    if not sources:
        raise DataError(
            f"{place}: no data file in this folder, and it is not a Delta table",
            f"data files end in {', '.join(FILES)}; names that begin with . or _ are ignored",
        )
    return sources


def _raise(error: OSError) -> None:
    raise error


def _check_names(sources: Iterable[Source]) -> None:
    """Raise DataError for a path that is not valid text: the ledger could not store it."""
    for source in sources:
        if not source.path.isprintable() and any("\ud800" <= character <= "\udfff" for character in source.path):
            raise DataError(f"{source.path!a}: the name is not UTF-8", "rename the file")


def _check_no_table_files(sources: Iterable[Source]) -> None:
    """Raise DataError for the first file that belongs to a table: only the table's log says which rows are live."""
    kinds: dict[Path, str] = {}
    for source in sources:
        for folder in Path(source.real).parents if os.path.isfile(source.path) else ():
            if folder not in kinds:
                kinds[folder] = _table_kind(folder)
            if kind := kinds[folder]:
                raise DataError(
                    f"{source.name}: a file of the {kind} table {folder}, whose log may have removed its rows",
                    f"name the table, as a source of its own: {folder}"
                    if kind == "Delta"
                    else f"{kind} tables are not read yet: export the rows to Parquet and ingest that",
                )


def _table_kind(folder: Path) -> str:
    """``Delta``, ``Hudi`` or ``Iceberg``, or the empty text for a folder of plain files."""
    if os.path.isdir(folder / "_delta_log"):
        return "Delta"
    if os.path.isdir(folder / ".hoodie"):
        return "Hudi"
    metadata = folder / "metadata"
    if os.path.isdir(metadata) and next(metadata.glob("*.metadata.json*"), None):
        return "Iceberg"
    return ""


def _folder_column(part: str) -> tuple[str, str | None]:
    name, _, value = part.partition("=")
    return unquote(name), None if value == _HIVE_NULL else unquote(value)


def _kind_by_suffix(path: Path) -> type[Source] | None:
    name = path.name.lower()
    return next((kind for suffix, kind in FILES.items() if name.endswith(suffix)), None)


def _file_kind(path: Path, place: str) -> type[Source]:
    kind = _kind_by_suffix(path)
    if kind is None:
        raise UsageError(
            f"{place}: cannot tell the format from the name", f"name the file with one of {', '.join(FILES)}"
        )
    return kind


def _nearby(path: Path) -> str:
    import difflib

    names = [child.name for child in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / close[0]}?" if close else "check the path; put a pattern in quotes"
