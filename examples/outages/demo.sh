#!/usr/bin/env bash
# The sample data through the commands a person would type. Usage: demo.sh FOLDER (made anew).
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:?usage: demo.sh FOLDER}
[ ! -e "$folder" ] || [ -e "$folder/dd.toml" ] || { echo "$folder is there and is no project: not touched" >&2; exit 2; }
rm -rf "$folder" && mkdir -p "$folder/data"
cp "$top"/examples/outages/{dd.toml,program.py} "$folder"
cp "$top"/sample_data/*.parquet "$folder/data"
cd "$folder"
PATH="$top/.venv/bin:$PATH"

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; else bold='' dim='' plain=''; fi
tell() { printf '\n%s%s%s\n' "$dim" "$*" "$plain"; }
typed() { printf '%s$ dd %s%s\n' "$bold" "$*" "$plain"; }
show() { typed "$@"; dd "$@"; }
work() { typed "$@"; dd "$@" >/dev/null; } # what is left out: the result for machines, a line of JSON on stdout

tell "# A shop's service map and its incidents: twenty-three versions. Spark reads them in."
work ingest dependencies data/dependencies-1.parquet
work ingest incidents data/incidents-1.parquet
tell "# Fold them all, on Spark: which services does an incident reach, and how many does each take down?"
work run
tell "# The data lake is slow. What is affected now that was not before?"
show diff affected 12 13
tell "# Nobody can log in? The map is wrong, and version 24 corrects it. Few rows: this time without Spark, in one process."
work ingest dependencies data/dependencies-2.parquet --engine inline
work ingest incidents data/incidents-2.parquet --engine inline
work run --engine inline
tell "# What the correction changed: how many services each one takes down with it."
show diff blast_radius 23 24
tell "# The lake is slow again."
show diff affected 24 25
tell "# And what is broken at the end: the cache."
show show affected
tell "# It is all in $folder/, to play with: cd $folder; source $top/.venv/bin/activate; dd log; dd diff affected 17 18"
