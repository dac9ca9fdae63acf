"""Finding sources: the files and tables that the user's paths, globs and URLs name."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from ddcore.base.errors import DataError, StorageError, UsageError
from ddcore.io.sources.csvfile import CsvFile
from ddcore.io.sources.deltatable import delta_table, delta_versions
from ddcore.io.sources.jsonlines import JsonLines
from ddcore.io.sources.parquetfile import ParquetFile
from ddcore.io.sources.remote import GLOB, address_at, matching
from ddcore.io.sources.snapshots import Snapshot
from ddcore.io.sources.source import Source
from ddcore.io.storage import store
from ddcore.io.storage.address import SCHEMES, Address, Location
from ddcore.io.storage.foreign_files import check_file

FILES: Mapping[str, type[Source]] = {
    ".parquet": ParquetFile, ".pq": ParquetFile, ".csv": CsvFile, ".csv.gz": CsvFile,
    ".jsonl": JsonLines, ".jsonl.gz": JsonLines, ".ndjson": JsonLines, ".ndjson.gz": JsonLines,
}  # fmt: skip
_OTHERS = {  # what to do with files whose names say that they are something else
    (".xlsx", ".xls", ".xlsm", ".ods"): "save the sheet as a CSV file, and ingest that",
    (".json", ".json.gz"): "JSON is read with one object per line, from a file .jsonl; of one array of objects: "
    "jq -c '.[]' FILE.json > FILE.jsonl",
    (".zip", ".tar", ".tgz", ".tar.gz", ".bz2", ".xz", ".zst", ".7z"): "unpack it, and ingest the files in it",
}
_VERSIONS = re.compile(r"(?P<table>.+)@(?:v?(?P<first>[0-9]+))?(?P<range>\.\.(?:v?(?P<last>[0-9]+))?)?")
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def find_sources(paths: Sequence[str]) -> list[Source]:
    """The sources that paths, globs and ``file:`` URLs name, in the order of ``paths``, then of their names.

    A folder is a Delta table, or stands for all data files under it (not names that begin with ``.`` or ``_``). A file
    with several names is read once. Walks the folders once; opens Delta logs only. Raises UsageError for a place
    that does not exist, DataError for one without data and for a file that belongs to a table, because only the table's
    log says which rows are live.
    """
    sources: dict[str, Source] = {}
    for path in paths:
        for _, of in _matches(path):
            for source in of:
                sources.setdefault(source.real, source)
    _check(list(sources.values()))
    return list(sources.values())


def find_snapshots(paths: Sequence[str]) -> list[Snapshot]:
    """The snapshots that paths, globs and ``file:`` URLs name, in the order of ``paths``, then of their names.

    A file, a folder or a Delta table is one snapshot, so is each match of a glob. ``TABLE@v3`` is a Delta table at
    version 3, ``TABLE@v3..v7`` and ``TABLE@v3..`` are one snapshot for each of these versions. Raises as
    :func:`find_sources`.
    """
    snapshots: dict[tuple[str, str], Snapshot] = {}
    for given in paths:
        for name, sources in _versions_at(given) or _matches(given):
            path = sources[0].path if len(sources) == 1 else _path_of(name)
            version = sources[0].stamp() if sources[0].is_table else ""
            snapshot = Snapshot(name, path, tuple(sources))
            snapshots.setdefault((snapshot.real, version), snapshot)
    _check([source for snapshot in snapshots.values() for source in snapshot.parts])
    return list(snapshots.values())


def _versions_at(path: str) -> list[tuple[str, list[Source]]]:
    """The versions of a Delta table that a place names, each by itself; none for another place."""
    match = _VERSIONS.fullmatch(path)
    if match is None or store.exists(_address(path)) or not store.is_folder(_address(match["table"]) / "_delta_log"):
        return []
    first, last = ((int(text) if text else None) for text in (match["first"], match["last"]))
    table = _path_of(match["table"])
    tables = delta_versions(table, match["table"], first, first if match["range"] is None else last)
    return [(source.name, [source]) for source in tables]


def _check(sources: Sequence[Source]) -> None:
    _check_names(sources)
    _check_no_table_files(sources)


def _matches(given: str) -> list[tuple[str, list[Source]]]:
    """What a place names: a file, a folder or a table with its sources, or each match of a pattern with its."""
    at = _address(given)
    if not GLOB & set(given) or (os.path.exists(at) if isinstance(at, Path) else store.exists(at)):
        return [(given, _sources_at(given))]
    found = matching(given) if _is_remote(given) else _matching_paths(_local_path(given))
    matches = [(str(path), _sources_at(str(path))) for path in found if _kind_by_suffix(path) or store.is_folder(path)]
    if not matches:
        raise DataError(
            f"{given}: matches no data file: these end in {', '.join(FILES)}",
            "quote the pattern, and list what it matches with: ls; of a URL check the bucket and the folder",
        )
    return matches


def _is_remote(path: str) -> bool:
    return path.partition("://")[0].lower() in SCHEMES and "://" in path


def _address(path: str) -> Location:
    """A path, or an address in an object store."""
    return address_at(path) if _is_remote(path) else _local_path(path)


def _path_of(path: str) -> str:
    """The absolute path, or the URL, that a source at this place has."""
    return str(address_at(path)) if _is_remote(path) else _absolute(_local_path(path))


def _sources_at(path: str) -> list[Source]:
    """The sources at a path or a URL: a Delta table, a file, or all data files below a folder."""
    if not path.strip():
        raise UsageError("a source's name is empty", "is a variable not set?")
    at = _address(path)
    if isinstance(at, Path):
        check_file(at, path)
    try:
        if store.is_folder(at / "_delta_log"):
            return [delta_table(_path_of(path), path)]
        if at.name and store.is_file(at):
            return [_file_kind(at, path)(path, _path_of(path))]
        if store.is_folder(at):
            return _sources_under(at, path)
    except StorageError as error:
        if isinstance(at, Path) and isinstance(error.__cause__, OSError):
            raise _unreadable(path, error.__cause__) from error
        raise
    raise UsageError(f"{path}: there is no such file or folder", _nearby(at))


def _sources_under(folder: Location, given: str) -> list[Source]:
    """All data files below a folder, in the order of their paths."""
    sources = []
    for entry in sorted(store.entries(folder, hidden=False)):
        kind, steps = _kind_by_suffix(entry.address), entry.below(folder).split("/")
        if kind is None or entry.address.name[0] in "._":
            continue
        carried = tuple(_folder_column(step) for step in steps[:-1] if "=" in step)
        name = path = str(entry.address)
        if isinstance(entry.address, Path):
            name, path = str(Path(given, *steps)), _absolute(entry.address)
            check_file(entry.address, name)
        sources.append(kind(name, path, carried, member=True))
    if not sources:
        raise DataError(
            f"{given}: no data file in this folder, and it is not a Delta table",
            f"data files end in {', '.join(FILES)}; names that begin with . or _ are ignored",
        )
    return sources


def _local_path(path: str) -> Path:
    if "\0" in path:
        raise UsageError(f"{path!r}: a path holds no NUL character", "check the script or variable that built the path")
    url = urlparse(path)
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return Path(unquote(url.path))
    if "://" in path:
        raise UsageError(
            f"{path}: only files and folders can be read", "copy or mount it: see docs/limits.md on object stores"
        )
    return _expanded(path)


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: there is no such user", "write the home folder out, or begin with ./~") from None


def _absolute(path: Path) -> str:
    """An absolute path to the same file without ``..``; in ``link/../file`` the link is resolved first."""
    lexical = os.path.abspath(path)
    return (
        lexical
        if ".." not in path.parts or os.path.realpath(path) == os.path.realpath(lexical)
        else str(path.resolve())
    )


def _matching_paths(pattern: Path) -> Iterator[Path]:
    """The files and folders that a pattern matches, sorted; hidden ones only where it names them."""
    import glob

    steps = pattern.parts
    literal = next(number for number, step in enumerate(steps) if GLOB & set(step))
    _check_listable(steps, literal)
    for path in map(Path, sorted(glob.glob(str(pattern), recursive=True))):
        if not any(step[0] in "._" and step not in steps for step in path.parts[literal:]):
            yield path


def _check_listable(steps: Sequence[str], literal: int) -> None:
    """Raise DataError for a folder of a pattern that cannot be read: what is in it would be left out unsaid."""
    import glob

    for number in range(literal, len(steps) + (steps[-1] == "**")):
        step = steps[number] if number < len(steps) else "**"
        for folder in glob.iglob(str(Path(*steps[:number])), recursive=True):
            try:
                if not GLOB & set(step):
                    os.lstat(Path(folder, step))
                elif os.path.isdir(folder):
                    os.scandir(folder).close()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _unreadable(folder, error) from error


def _unreadable(path: str, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read: {error.strerror}", "make it readable for this user")


def _check_names(sources: Iterable[Source]) -> None:
    """Raise DataError for a path that is not valid text: the ledger could not store it."""
    for source in sources:
        if not source.path.isprintable() and any("\ud800" <= character <= "\udfff" for character in source.path):
            raise DataError(f"{source.path!a}: the name is not UTF-8", "rename the file")


def _check_no_table_files(sources: Iterable[Source]) -> None:
    """Raise DataError for the first file that belongs to a table: only the table's log says which rows are live."""
    kinds: dict[Location, str] = {}
    for source in sources:
        for folder in _folders_above(source):
            if folder not in kinds:
                kinds[folder] = _table_kind(folder)
            if kind := kinds[folder]:
                raise DataError(
                    f"{source.name}: a file of the {kind} table {folder}, whose log may have removed its rows",
                    f"name the table, as a source of its own: {folder}"
                    if kind == "Delta"
                    else f"{kind} tables are not read yet: export the rows to Parquet and ingest that",
                )


def _folders_above(source: Source) -> Sequence[Location]:
    """The folders that a source is in, if it is a file."""
    if _is_remote(source.path):
        address = address_at(source.path)
        return () if source.is_table else [Address(address.root, parent) for parent in address.path.parents]
    return list(Path(source.real).parents) if os.path.isfile(source.path) else ()


def _table_kind(folder: Location) -> str:
    """``Delta``, ``Hudi`` or ``Iceberg``, or the empty text for a folder of plain files."""
    if store.is_folder(folder / "_delta_log"):
        return "Delta"
    if store.is_folder(folder / ".hoodie"):
        return "Hudi"
    if any(".metadata.json" in name for name in store.names(folder / "metadata")):
        return "Iceberg"
    return ""


def _folder_column(part: str) -> tuple[str, str | None]:
    name, _, value = part.partition("=")
    return unquote(name), None if value == _HIVE_NULL else unquote(value)


def _kind_by_suffix(path: Location) -> type[Source] | None:
    name = path.name.lower()
    return next((kind for suffix, kind in FILES.items() if name.endswith(suffix)), None)


def _file_kind(path: Location, given: str) -> type[Source]:
    kind = _kind_by_suffix(path)
    if kind is None:
        instead = next((hint for suffixes, hint in _OTHERS.items() if path.name.lower().endswith(suffixes)), "")
        raise UsageError(
            f"{given}: {'files of this format are not read' if instead else 'cannot tell the format from the name'}",
            instead or f"name the file with one of {', '.join(FILES)}",
        )
    return kind


def _nearby(address: Location) -> str:
    if not isinstance(address, Path):
        return "check the URL; put a pattern in quotes"
    names = [child.name for child in address.parent.iterdir()] if address.parent.is_dir() else []
    close = difflib.get_close_matches(address.name, names, n=1)
    return f"did you mean {address.parent / close[0]}?" if close else "check the path; put a pattern in quotes"
