#!/usr/bin/env bash
# What `make setup` does: .venv with pinned packages, then what is prepared once per machine. Fast when all is done.
# Without Java it prepares what the inline engine needs, says what to install, and exits with 1.
# `tools/setup.sh packages` ends after the packages, which is enough for `make -o .venv/ready check`.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

java_major() { # prints the major version of the Java that Spark would start, or nothing
    local java=java
    [ -z "${JAVA_HOME:-}" ] || java="$JAVA_HOME/bin/java"
    "$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

find_python() { # prints the first Python of 3.11 to 3.13
    local python
    for python in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
        if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            printf '%s\n' "$python"
            return
        fi
    done
}

major=$(java_major || true)
if [ "${major:-0}" -lt 17 ]; then
    if [ -n "$major" ]; then say "Spark needs Java 17 or newer; this is Java $major."; else say "Spark needs Java 17 or newer; none was found."; fi
    say "  Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless"
    say "  macOS            brew install openjdk@17   (and set JAVA_HOME as it says)"
    say "  elsewhere        any full Java 17 or 21, with JAVA_HOME set to its folder"
fi

python=$(find_python)
if [ -z "$python" ]; then
    say "Python 3.11, 3.12 or 3.13 is needed; none of ${PYTHON:-python3.11, python3.12, python3.13, python3} is one that runs."
    say "  Debian, Ubuntu   sudo apt-get install python3 python3-venv   (Debian 12, Ubuntu 24.04 or newer)"
    say "  macOS            brew install python@3.12"
    say "  elsewhere        any CPython of these versions: make setup PYTHON=/path/to/python3.12"
    exit 1
fi

installed=.venv/installed
if [ ! -e "$installed" ] || [ pyproject.toml -nt "$installed" ] || [ constraints.txt -nt "$installed" ]; then
    [ -x .venv/bin/python ] || "$python" -m venv .venv
    say "Environment in .venv, of $(.venv/bin/python --version); a minute or two the first time ..."
    mkdir -p build
    pip() { .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
    # What is pinned for all needs no resolver: two at once, which pip itself does not. It then adds what is missing.
    grep '==' constraints.txt | awk '{ print > "build/pinned-" NR % 2 ".txt" }'
    pip --no-deps -r build/pinned-0.txt >build/pip-0.log 2>&1 &
    pip --no-deps -r build/pinned-1.txt >build/pip-1.log 2>&1 || :
    wait "$!" || :
    if ! pip -c constraints.txt -e '.[dev]' >build/pip.log 2>&1; then
        tail -n 20 build/pip.log >&2
        say "The packages could not be installed; the whole output of pip is in build/pip.log."
        exit 1
    fi
    # By all cores at once, which pip does not; with PYTHONDONTWRITEBYTECODE each process would compile all anew. Not
    # what is never imported here: tests of the packages, and what moto has besides S3.
    unused='/(tests|pip|mypyc)/|/moto/(?!cloudwatch|core|events|iam|kms|moto_|s3|sts|utilities)[^/]+/'
    .venv/bin/python -m compileall -q -j 0 -x "$unused" .venv/lib >/dev/null 2>&1 || : # some have files for other Pythons
    .venv/bin/python -m compileall -q -j 0 ddcore io jobs cli tools tests/support
    touch "$installed"
fi
[ "${1:-}" != packages ] || exit 0
say "Once per machine, in ${DDCORE_CACHE:-~/.cache/ddcore}:"
.venv/bin/python -m ddcore.jobs.setup ${SETUP_FLAGS:-}
touch .venv/ready
