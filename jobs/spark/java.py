"""The Java that Spark would start: its path, its version, and what to install if there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from ddcore.base.errors import StorageError

LEAST = 17
INSTALL = (
    "Debian, Ubuntu: apt-get install openjdk-17-jre-headless | macOS: brew install openjdk@17 | "
    "elsewhere: a full Java 17 or newer, with JAVA_HOME set to it"
)


@dataclass(frozen=True)
class Java:
    """One Java: the path of its launcher, and the output of ``java -version``."""

    path: str
    banner: str


def java_path() -> str:
    """The path of the ``java`` that Spark's launcher uses: that of ``JAVA_HOME``, else the first on ``PATH``.

    It is not started. Raises StorageError, with the commands that install Java, if there is none.
    """
    home = os.environ.get("JAVA_HOME")
    path = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if path is None or not os.access(path, os.X_OK):
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on PATH and JAVA_HOME is not set"
        raise StorageError(f"Spark needs Java {LEAST} or newer: {where}", INSTALL)
    return path


def find_java() -> Java:
    """The Java at :func:`java_path`, from its ``-version``; about 50 ms. Raises StorageError where it is too old."""
    path = java_path()
    process = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    banner = (process.stderr or process.stdout).strip()
    number = re.search(r'version "(?:1\.)?(\d+)', banner)
    if process.returncode != 0 or number is None:
        raise StorageError(f"Spark needs Java {LEAST} or newer: {path} -version failed: {banner[:200]}", INSTALL)
    if int(number[1]) < LEAST:
        raise StorageError(f"Spark needs Java {LEAST} or newer: {path} is version {number[1]}", INSTALL)
    return Java(path, banner)
