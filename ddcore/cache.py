"""The folder of derived files: jars, compiled kernels, class archives, logs. All of it can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``DDCORE_CACHE`` when it is set, else ``~/.cache/ddcore``. It need not exist yet."""
    return Path(os.environ.get("DDCORE_CACHE") or Path.home() / ".cache" / "ddcore")
