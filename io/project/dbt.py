"""A dbt project as a program: what dbt compiled, from its ``manifest.json``.

Models are views, sources and seeds are inputs, and tests are data tests: dbt compiles each of them to a query of the
rows that must not be there. What has no exact meaning here is refused by its name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddcore.base.errors import ProgramError
from ddcore.io.project.section import IDENTIFIER
from ddcore.program.data_tests import ERROR, WARN, DataTest, Empty
from ddcore.sql.dialect_names import DIALECTS
from ddcore.text.wording import listed, meant, shown

_COMPILE = "compile the dbt project: dbt compile"
_VIEWS = {"table": False, "incremental": False, "materialized_view": False, "view": True}
"""The materialisations that are kept exactly, and whether such a view is temporary."""
_IGNORED = ("pre-hook", "post-hook", "grants")
_INPUTS = ("source", "seed")
_TEST_SETTINGS = {"fail_calc": "count(*)", "warn_if": "!= 0", "error_if": "!= 0"}
"""The settings of a test that say when it is broken, with the only values that are taken."""


@dataclass(frozen=True)
class DbtProject:
    """What is in a manifest. ``texts``: the views, by the name of their file, each behind a ``heads``; ``comments`` and
    ``tags``: those of models, by view.
    """

    dialect: str
    texts: Mapping[str, str]
    heads: Mapping[str, str]
    comments: Mapping[str, str]
    tags: Mapping[str, tuple[str, ...]]
    tests: tuple[DataTest, ...]
    notes: tuple[str, ...]


def sources_of(manifest: Path) -> Iterator[Path]:
    """The files that decide the program: the manifest, and the models from which it was compiled that are there."""
    yield manifest
    for node in _compiled(_read(manifest)):
        if (file := manifest.parent.parent / node["original_file_path"]).is_file():
            yield file


def read_dbt(manifest: Path, inputs: Iterable[str]) -> DbtProject:
    """The views and tests of a manifest, for a project with these inputs. Raises ProgramError."""
    return _Reading(manifest, _read(manifest), list(inputs)).project()


def _read(manifest: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProgramError(f"{shown(manifest)}: cannot be read: {error.strerror}", _COMPILE) from None
    except ValueError as error:
        raise ProgramError(f"{shown(manifest)}: is not JSON: {error}", _COMPILE) from None
    if not isinstance(content, dict) or not {"nodes", "sources", "metadata"} <= {*content}:
        raise ProgramError(f"{shown(manifest)}: is no manifest of dbt", _COMPILE)
    return content


def _compiled(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The models and the tests."""
    return [node for node in manifest["nodes"].values() if node["resource_type"] in ("model", "test")]


class _Reading:
    """One reading of a manifest."""

    def __init__(self, file: Path, manifest: Mapping[str, Any], inputs: Sequence[str]) -> None:
        self.file, self.manifest, self.inputs = file, manifest, inputs
        nodes = manifest["nodes"].values()
        self.models = [node for node in nodes if node["resource_type"] == "model" and not _is_ephemeral(node)]
        self.tables = [node for node in (*manifest["sources"].values(), *nodes) if node["resource_type"] in _INPUTS]
        self.names = self._names()
        self.notes: list[str] = []

    def project(self) -> DbtProject:
        """All of it."""
        self._check_current()
        texts, heads, comments = dict[str, str](), dict[str, str](), dict[str, str]()
        tags = dict[str, tuple[str, ...]]()
        for model in self.models:
            name = self._checked(model)
            file = model["original_file_path"]
            heads[file] = f'CREATE {"TEMPORARY " * _VIEWS[model["config"]["materialized"]]}VIEW "{name}" AS '
            texts[file] = heads[file] + self._query(model)
            if model.get("tags"):
                tags[name] = tuple(map(str, model["tags"]))
            if model.get("description"):
                comments[name] = model["description"].strip()
        tests = []
        for node in _compiled(self.manifest):
            if node["resource_type"] == "test":
                test = self._test(node)
                file = f"{node['original_file_path']} ({node['name']})"
                heads[file] = f'CREATE TEMPORARY VIEW "{_view_of(test.name)}" AS '
                texts[file] = heads[file] + self._query(node)
                tests.append(test)
        return DbtProject(self._dialect(), texts, heads, comments, tags, tuple(tests), tuple(self.notes))

    def _dialect(self) -> str:
        """That of dbt's adapter."""
        adapter = self.manifest["metadata"].get("adapter_type", DIALECTS[0])
        if adapter not in DIALECTS:
            raise ProgramError(
                f"{shown(self.file)}: was compiled for {adapter}, which is no dialect here",
                f"there are: {listed(DIALECTS)}",
            )
        return str(adapter)

    # --- names --------------------------------------------------------------------------------------------------------

    def _names(self) -> Mapping[str, str]:
        """The names of views and inputs by what dbt calls them."""
        names, first = dict[str, str](), dict[str, Mapping[str, Any]]()
        for model in self.models:
            name = model["alias"]
            if not IDENTIFIER.fullmatch(name):
                raise self._wrong(model, f"the name {name!r}", "a name has letters, digits and _ only")
            if name.casefold() in first:
                other = first[name.casefold()]["original_file_path"]
                raise ProgramError(
                    f"{model['original_file_path']}: {other} has the name {name}, too",
                    "give one of the two another alias",
                )
            first[name.casefold()] = model
            names[model["unique_id"]] = name
        plain = [_table_name(table).casefold() for table in self.tables]
        for table in self.tables:
            name = _table_name(table)
            if plain.count(name.casefold()) > 1 or name.casefold() in first:
                name = f"{table.get('source_name', 'seed')}_{name}"
            names[table["unique_id"]] = name
        return names

    def _query(self, node: Mapping[str, Any]) -> str:
        """The compiled query, with our names in place of those of the database. Every character stays at its place."""
        code = node.get("compiled_code")
        if not code:
            raise ProgramError(f"{shown(self.file)}: {node['name']} is not compiled", _COMPILE)
        for number, known in self._read_by(node):
            if number not in self.names:
                what = number.replace(".", " ", 1)  # such as: snapshot library.customers
                raise self._wrong(node, f"reading the {what}", "models, sources and seeds can be read")
            self._check_input(node, number, known)
            code = _renamed(code, known["relation_name"], self.names[number])
        if node.get("relation_name") and _renamed(code, node["relation_name"], "") != code:
            raise ProgramError(
                f"{node['original_file_path']}: reads itself: it was compiled to add to the table that is there",
                "compile what it is from scratch: dbt compile --full-refresh",
            )
        return str(code)

    def _read_by(self, node: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What a query reads. Of ephemeral models dbt has put the queries inside."""
        for number in node["depends_on"]["nodes"]:
            known = self.manifest["nodes"].get(number) or self.manifest["sources"].get(number) or {}
            if known.get("resource_type") == "model" and _is_ephemeral(known):
                yield from self._read_by(known)
            else:
                yield number, known

    def _check_input(self, node: Mapping[str, Any], number: str, known: Mapping[str, Any]) -> None:
        name = self.names[number]
        if known["resource_type"] in _INPUTS and name not in self.inputs:
            what = f"the {known['resource_type']} {known.get('source_name', '')}.{known['name']}".replace(" .", " ")
            raise ProgramError(
                f"{node['original_file_path']}: reads {what}, and dd.toml has no input {name}",
                meant(name, self.inputs) or f"add [inputs.{name}] with its schema",
            )

    # --- checks -------------------------------------------------------------------------------------------------------

    def _checked(self, model: Mapping[str, Any]) -> str:
        """The name of a model's view. ProgramError for what has no exact meaning."""
        config = model["config"]
        if model.get("language", "sql") != "sql":
            raise self._wrong(model, f"the language {model['language']}", "a model is a query in SQL")
        if config["materialized"] not in _VIEWS:
            raise self._wrong(
                model, f"materialized: {config['materialized']}", f"there are: {listed((*_VIEWS, 'ephemeral'))}"
            )
        self.notes += [
            f"{model['original_file_path']}: {key} means nothing here, and is left out"
            for key in _IGNORED
            if config.get(key)
        ]
        return self.names[str(model["unique_id"])]

    def _test(self, node: Mapping[str, Any]) -> DataTest:
        config = node["config"]
        for key, value in _TEST_SETTINGS.items():
            if config.get(key, value) != value:
                raise self._wrong(node, f"the test {node['name']} with {key}: {config[key]}", "leave it out")
        severity = WARN if str(config.get("severity", ERROR)).lower() == WARN else ERROR
        name = re.sub(r"\W", "_", node["name"])
        return DataTest(name, Empty(_view_of(name)), severity, source_line=node["original_file_path"])

    def _check_current(self) -> None:
        """Raise ProgramError where a model has changed since dbt compiled it: what is folded would be the old one."""
        for node in _compiled(self.manifest):
            file, checksum = self.file.parent.parent / node["original_file_path"], node.get("checksum") or {}
            if node["resource_type"] == "model" and checksum.get("name") == "sha256" and file.is_file():
                text = file.read_text(encoding="utf-8").strip()
                if hashlib.sha256(text.encode()).hexdigest() != checksum["checksum"]:
                    raise ProgramError(f"{shown(file)}: has changed since dbt compiled it", _COMPILE)

    def _wrong(self, node: Mapping[str, Any], what: str, hint: str) -> ProgramError:
        return ProgramError(f"{node['original_file_path']}: {what} is not supported", hint)


def _is_ephemeral(node: Mapping[str, Any]) -> bool:
    return bool(node["config"].get("materialized") == "ephemeral")


def _table_name(table: Mapping[str, Any]) -> str:
    return str(table.get("identifier") or table.get("alias") or table["name"])


def _view_of(test: str) -> str:
    return f"test_{test}"


def _renamed(code: str, relation: str, name: str) -> str:
    """The text with one relation's name in place of another, and blanks up to the same length."""
    written = f'"{name}"'.ljust(len(relation))
    return re.sub(rf'(?<![\w."`]){re.escape(relation)}(?![\w"`])', lambda _: written, code)
