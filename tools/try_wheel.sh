#!/usr/bin/env bash
# try_wheel.sh WHEEL: install it into a new environment with nothing else, and run a new project of each kind with it.
set -euo pipefail
[ $# -eq 1 ] && [ -f "$1" ] || { echo "usage: tools/try_wheel.sh WHEEL, for example dist/ddcore-*.whl" >&2; exit 2; }
wheel=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel[sql]"
export PATH="$scratch/venv/bin:$PATH" DDCORE_CACHE="$scratch/cache"
cd "$scratch"
ddcore --version
ddcore init trams
cd trams
ddcore ingest links data/links.csv
ddcore ingest starts data/starts.csv
ddcore run
ddcore diff journeys 3 4
ddcore verify
