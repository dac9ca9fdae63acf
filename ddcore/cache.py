"""The folder of derived files: jars, compiled kernels, class archives, logs. All of it can be made again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_folder() -> Path:
    """``DDCORE_CACHE`` when it is set, else ``~/.cache/ddcore``. It need not exist yet."""
    return Path(os.environ.get("DDCORE_CACHE") or Path.home() / ".cache" / "ddcore")


def kernel_folder() -> Path:
    """Where compiled kernels lie: a folder per state of their sources.

    numba looks at a kernel's own file when it decides whether what it cached is current, not at the file of a helper
    that was compiled into it.
    """
    sources = sorted((Path(__file__).parent / "kernels").glob("*.py"))
    state = hashlib.blake2b(b"".join(source.read_bytes() for source in sources), digest_size=8)
    return cache_folder() / "kernels" / state.hexdigest()
