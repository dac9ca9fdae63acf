"""A project: the settings of ``dd.toml``, of the environment and of the flags.

A setting comes from a flag, else from an environment variable ``DDCORE_...``, else from ``dd.toml``, else from the
default; ``Project.origin`` says which. This module reads no file, runs no program and starts no process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from ddcore.base.errors import UsageError
from ddcore.base.record import record
from ddcore.base.schema import Schema
from ddcore.base.tuning import DEFAULT, Tuning
from ddcore.io.project.declared import DeclaredSource
from ddcore.io.project.output_tables import TableSettings
from ddcore.io.project.sql_inputs import files_of
from ddcore.io.project.stored_columns import StoredColumns
from ddcore.io.storage.address import Location
from ddcore.io.storage.warehouse import Warehouse
from ddcore.program.data_tests import DataTest
from ddcore.sql.dialect_names import DIALECTS
from ddcore.text.wording import listed, meant, shown

FILE_NAME = "dd.toml"
MANIFEST = "target/manifest.json"  # of a dbt project


@record
class OutputSettings:
    """The settings in ``[outputs.NAME]``: ``key`` names the columns by which ``diff`` pairs a delete with an insert;
    ``table`` says where its present contents are published; ``tags`` name it for ``--select``.
    """

    key: tuple[str, ...] = ()
    table: TableSettings | None = None
    tags: tuple[str, ...] = ()


@record
class RetentionSettings:
    """The settings of ``[compaction]`` and ``[retention]``; :mod:`ddcore.io.upkeep.retention` acts on them.

    Whether runs compact by themselves; from how many versions back a run can be continued (None: from the runs of a
    week); for how many days files of inputs and outputs stay after they were replaced; how many versions of history can
    be read (None: all).
    """

    auto: bool = True
    versions: int | None = None
    days: float = 7
    history: int | None = None


@record
class Upstream:
    """The project whose ``inputs`` another one reads: ``root`` is its folder, ``warehouse`` that of its tables."""

    root: Path
    warehouse: Location
    inputs: frozenset[str]


@record
class Project:
    """One project, every setting resolved. Paths are absolute.

    ``stored``: for inputs whose columns were others before, how their logs store them.
    ``keys``: for inputs that have a key, the columns in which no two rows may be equal. ``ignored``: columns of sources
    that are left out on purpose, by input. ``tests``: those of the file;
    a program may have more. ``dialect``: that of a program of SQL.
    ``memory``: the bytes that each process that folds should stay below; None for no limit. ``verify_every``: a run
    verifies the versions it divides; 0 for none.

    ``hook``: the words of the command that gets the JSON object of each run.

    ``branch``: the branch of the warehouse that commands work on, and ``warehouse`` is its folder then; empty for none.

    ``upstream``: the project that ingests inputs for this one; None without one. Its ``dd.toml`` says what ``inputs``,
    ``stored``, ``keys`` and ``ignored`` have of these, and the ``dims``; the others are own ones.

    ``tuning``: what no setting changes; tests give others.

    ``origin`` maps a setting's name to where its value came from: ``"flag"``, the name of an environment variable,
    ``"dd.toml"`` or ``"default"``.
    """

    root: Path
    program: str
    warehouse: Location
    dims: tuple[str, ...] = ("version",)
    inputs: Mapping[str, Schema] = field(default_factory=dict)
    stored: Mapping[str, StoredColumns] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: Mapping[str, DeclaredSource] = field(default_factory=dict)
    outputs: Mapping[str, OutputSettings] = field(default_factory=dict)
    tests: tuple[DataTest, ...] = ()
    dialect: str = DIALECTS[0]
    engine: str = "spark"
    parallelism: int | None = None
    memory: int | None = None
    verify_every: int = 0
    spark_master: str = field(default="local[*]", repr=False)
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    retention: RetentionSettings = RetentionSettings()
    hook: tuple[str, ...] = ()
    branch: str = ""
    upstream: Upstream | None = None
    origin: Mapping[str, str] = field(default_factory=dict)
    tuning: Tuning = field(default=DEFAULT, repr=False)

    @property
    def file(self) -> Path:
        """The project's ``dd.toml``."""
        return self.root / FILE_NAME

    @property
    def tables(self) -> Warehouse:
        """The warehouse that commands work on, with the inputs of another one where they are read from there."""
        if self.upstream is None:
            return Warehouse(self.warehouse)
        return Warehouse(self.warehouse, self.upstream.warehouse, frozenset(self.inputs) - self.upstream.inputs)

    @property
    def published(self) -> dict[str, TableSettings]:
        """The outputs whose present contents are published, and how."""
        return {name: one.table for name, one in self.outputs.items() if one.table is not None}

    @property
    def home(self) -> Location:
        """The warehouse whose branches there are: the one that the project names, also where it works on a branch."""
        return self.warehouse.parent.parent if self.branch else self.warehouse

    @property
    def program_file(self) -> Path:
        """The file part of ``program``."""
        return self.root / (self.program if self.is_sql or self.is_dbt else self.program.rpartition(":")[0])

    @property
    def program_files(self) -> tuple[Path, ...]:
        """``program_file``, or the files that it stands for: ``views/*.sql``."""
        return files_of(self.root, self.program) if self.is_sql else (self.program_file,)

    @property
    def is_sql(self) -> bool:
        """Whether the program is SQL, which has no function."""
        return self.program.endswith(".sql")

    @property
    def is_dbt(self) -> bool:
        """Whether the program is a dbt project: the manifest of what dbt compiled."""
        return self.program.endswith(".json")

    @property
    def program_function(self) -> str:
        """The function part of ``program``."""
        return self.program.rpartition(":")[2]

    def check_own_input(self, what: str, name: str) -> None:
        """Raise UsageError for what only the project that ingests an input does, where that is another one."""
        if self.upstream is not None and name in self.upstream.inputs:
            raise UsageError(
                f"{what}: the input {name} is that of {self.upstream.root}",
                f"do it there: --project {self.upstream.root}",
            )

    def input_schema(self, name: str) -> Schema:
        """The schema of input ``name``. UsageError, with the names of all inputs, for an unknown one."""
        if name not in self.inputs:
            raise UsageError(
                f"no input {name!r} in {shown(self.file)}; there are: {listed(self.inputs)}",
                meant(name, self.inputs) or f"add an [inputs.{name}] section with its schema",
            )
        return self.inputs[name]
