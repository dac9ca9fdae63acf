"""Secrets in settings: planted everywhere, and in no message, traceback, log, JSON, record or file of the warehouse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from seeds import nightly
from trams import Command

from ddcore.base.cache import cache_folder
from ddcore.cli.main import run_command
from ddcore.io.project.finding import find_project
from ddcore.jobs.spark.gateway import _Output
from ddcore.jobs.spark.settings import settings
from ddcore.text import redaction
from ddcore.text.redaction import MASK, is_secret, keep_secret, masked

# In dd.toml; the last two are spelt differently by messages that quote them.
PLANTED = {
    "spark.hadoop.fs.s3a.secret.key": "Planted1TomlSecret",
    "spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net": "Planted2AccountKey",
    "spark.ssl.keyPassword": "Planted3 with blanks",
    "spark.hadoop.my.token": "Planted4'quoted\\\\twice",
    "spark.my.credential": "Planted5/with+signs=",
}
SECRETS = [*PLANTED.values(), "Planted6Environment", "planted7user", "planted8pass", "Planted9Defaults"]
MARK = "lanted"  # of every one, also of a part
NAMES_OF_SECRETS = [
    *PLANTED, "spark.hadoop.fs.s3a.access.key", "AWS_SESSION_TOKEN", "GOOGLE_CREDENTIALS", "API_KEY",
    "spark.hadoop.javax.jdo.option.ConnectionPassword", "spark.x.encryption.key",
]  # fmt: skip
OTHER_NAMES = ["spark.executor.memory", "spark.sql.shuffle.partitions", "spark.io.encryption.keySizeBits",
               "spark.master", "DDCORE_WAREHOUSE"]  # fmt: skip

PROGRAM = """
import os
from pathlib import Path

import polars as pl

SECRETS = {secrets!r}


def told(frame):
    if Path(__file__).with_name("cause").exists():
        raise ValueError("x" * 250 + " ".join(map(repr, SECRETS)) + " " + " ".join(SECRETS))
    return frame


def program(links, starts):
    print(SECRETS[0], "is printed by the program itself")
    return {{"journeys": links.flat_map(told, schema={{"src": "string", "dst": "string", "minutes": "int64"}})}}
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No test leaves secrets or --debug to the others."""
    kept = set(redaction._secrets)
    redaction._secrets.clear()
    yield
    redaction._secrets.clear()
    redaction._secrets.update(kept)
    os.environ.pop("DDCORE_DEBUG", None)  # --debug sets it


@pytest.mark.parametrize("name", NAMES_OF_SECRETS)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_settings_are_none(name: str) -> None:
    assert not is_secret(name)


def test_a_secret_is_masked_however_it_is_spelt() -> None:
    keep_secret({"a.password": "it's\\x/y", "b": {"token": ["one1", "two22"]}, "c.secret": "ab", "d.token": "true"})
    said = f"{'it' + chr(39) + 's' + chr(92) + 'x/y'!r} {json.dumps(chr(39) + 'one1')} it%27s%5Cx%2Fy two22 ab true"
    assert masked(said) == f'"{MASK}" "\'{MASK}" {MASK} {MASK} ab true'


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("jdbc:postgresql://joe:pw@host/db", f"jdbc:postgresql://{MASK}@host/db"),
        ("spark://tok%40en@host:7077 failed", f"spark://{MASK}@host:7077 failed"),
        ("https://host/a@b", "https://host/a@b"),
        ("joe@example.org", "joe@example.org"),
    ],
)
def test_users_and_passwords_in_urls_are_masked(text: str, clean: str) -> None:
    assert masked(text) == clean


@pytest.mark.parametrize("shown", [False, True])
def test_what_a_jvm_prints_is_masked_line_by_line(shown: bool, tmp_path: Path, capfd: Any) -> None:
    """In the log, and on stderr with --debug. Bytes that are not UTF-8 stay as they are."""
    keep_secret({"x.secret": "Planted"})
    output = _Output(None if shown else tmp_path / "log")
    with output.open() as stream:
        os.write(stream, b"one Planted\ntwo \xff\nno end of Planted")
    output.finish()
    expected = f"one {MASK}\ntwo ".encode() + b"\xff\n" + f"no end of {MASK}".encode()
    if shown:
        assert capfd.readouterr().err == expected.decode("utf-8", "replace")
    else:
        assert (tmp_path / "log").read_bytes() == expected


def test_a_project_does_not_print_its_settings(copied: Path, secrets: None) -> None:
    assert MARK not in repr(find_project(copied))


def test_spark_masks_what_it_prints_itself() -> None:
    chosen = settings("local", {}, jars=[], log4j=Path("l"))
    assert chosen["spark.redaction.regex"] == redaction.PATTERN


@pytest.fixture
def secrets(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project with secrets in dd.toml and in the environment, and a program that quotes them all."""
    lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in PLANTED.items()]
    toml = (copied / "dd.toml").read_text()
    (copied / "dd.toml").write_text(toml + "\n[spark]\n[spark.conf]\n" + "\n".join(lines) + "\n")
    (copied / "program.py").write_text(PROGRAM.format(secrets=SECRETS[:6]))
    monkeypatch.setenv("MY_SECRET_KEY", "Planted6Environment")
    (copied / "more.csv").write_text("version,diff,src,dst,minutes\n6,1,Harbour,Mill,1\n")


def leaks(*lines: str) -> list[str]:
    return [line for line in lines if MARK in line.lower()]


COMMANDS = [["run"], ["run", "--full-refresh"], ["run", "--full-refresh", "--json"],
            ["run", "--full-refresh", "--debug"],
            ["status"], ["status", "--json"], ["log"], ["log", "--json"], ["plan"], ["doctor"], ["doctor", "--json"],
            ["ingest", "links", "more.csv", "--json"], ["ingest", "links", "https://planted7user:planted8pass@h/x.csv"],
            ["run", "--master", "spark://planted7user:planted8pass@h:1", "--engine", "nope"],
            ["run", "--warehouse", "s3://planted7user:planted8pass@bucket"],
            ["show", "journeys"], ["diff", "journeys", "1..2"]]  # fmt: skip


def test_no_command_prints_a_secret(copied: Path, secrets: None, dd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of the program quote all secrets, cut in the middle too; what the program itself prints is its own."""
    monkeypatch.setenv("MY_SECRET_KEY", "Planted6Environment")  # after dd, which clears the environment
    Path("cause").write_text("")
    said = []
    for command in COMMANDS:
        code, out, err = dd(*command)
        lines = [line for line in (*out, *err) if "is printed by the program itself" not in line]
        assert leaks(*lines) == [], command
        said += lines
        assert code in (0, 1, 2)
    assert sum(MASK in line for line in said) > 3
    assert any("Traceback" in line for line in said)
    for file in copied.joinpath("warehouse").rglob("*"):
        if file.is_file():
            assert MARK.encode() not in file.read_bytes().lower(), file


@pytest.mark.parametrize("command", ["run", "compact"])
def test_a_secret_of_an_address_is_not_printed(command: str, copied: Path, capsys: Any) -> None:
    assert run_command([command, "--project", str(copied), "--warehouse", "s3://planted7user:planted8pass@bucket"]) == 2
    said = capsys.readouterr().err
    assert leaks(said) == [] and f"s3://{MASK}@bucket" in said


WRONG = ['conf = "x.secret=Planted"', 'conf = ["Planted"]', 'conf = { "x.secret" = ["Planted"] }',
         'conf = { spark.secret.key = "Planted" }', 'password = "Planted"',
         'conf = { "x.secret" = 1979-05-27 }']  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_in_the_settings_shows_no_value(line: str, copied: Path, dd: Command) -> None:
    (copied / "dd.toml").write_text((copied / "dd.toml").read_text() + f"\n[spark]\n{line}\n")
    for option in ([], ["--debug"]):
        code, out, err = dd("run", *option)
        assert code == 2 and out == [] and err[0].startswith("error: ")
        assert leaks(*err) == []


HELD = """
import glob
from ddcore.jobs.spark.session import log_file, spark
from ddcore.text.redaction import is_secret, keep_secret

conf = {conf!r}
keep_secret(conf)
with spark(conf, "local[1]") as session:
    given = session.sparkContext.getConf()
    assert all(given.get(name) == value for name, value in conf.items())
    assert all(session.sparkContext._jsc.hadoopConfiguration().get(name[13:]) == value
               for name, value in conf.items() if name.startswith("spark.hadoop."))
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            line = open(path, "rb").read()
        except OSError:
            continue
        assert b"Planted" not in line, (path, line)
    log = log_file()
    session._jvm.java.lang.System.err.println("a line with Planted1TomlSecret in it")
    session._jvm.java.lang.System.out.println("and one with Planted3 with blanks")
    print(log)
"""


@pytest.mark.spark
@pytest.mark.parametrize("debug", nightly([True, False], 1))
def test_spark_gets_the_secrets_and_nobody_sees_them(debug: bool, tmp_path: Path) -> None:
    """They are settings of the session, but no arguments of its process; and its output is masked, in its log and
    where it is shown.
    """
    (tmp_path / "held.py").write_text(HELD.format(conf=PLANTED))  # a file: no argument of this process has a secret
    environment = {**os.environ, "DDCORE_DEBUG": "1" if debug else ""}
    command = [sys.executable, str(tmp_path / "held.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    if debug:
        said = done.stderr
        assert done.stdout == "None\n"
    else:
        log = Path(done.stdout.strip())
        assert (log.parent, done.stderr) == (cache_folder() / "logs", "")
        said = log.read_text()
    assert f"a line with {MASK} in it\n" in said and f"and one with {MASK}\n" in said
    assert MARK not in said.lower()


@pytest.mark.spark
@pytest.mark.parametrize(
    "broken", nightly([{}, {"spark.driver.memory": "Planted3 with blanks"}, {"spark.master": "nope://x"}], 1)
)
def test_errors_of_spark_are_masked(broken: dict[str, str], copied: Path, secrets: None) -> None:
    """Of a task, of a JVM that does not start, and of a session that does not."""
    with (copied / "dd.toml").open("a") as file:
        file.writelines(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in broken.items())
    (copied / "cause").write_text("")
    command = [str(Path(sys.executable).with_name("ddcore")), "run", "--full-refresh", "--engine", "spark"]
    if "spark.master" in broken:
        command += ["--master", "nope://planted7user:planted8pass@host:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=dict(os.environ))
    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 1
    assert [line for line in leaks(*lines) if "is printed by the program itself" not in line] == []
    logs = sorted((cache_folder() / "logs").glob("spark-*.log"))
    assert logs and leaks(logs[-1].read_text()) == []
