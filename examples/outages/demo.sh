#!/usr/bin/env bash
# Runs the sample data through the commands that a person would type. Usage: demo.sh FOLDER (removed and created anew).
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:?usage: demo.sh FOLDER}
[ ! -e "$folder" ] || [ -e "$folder/dd.toml" ] || { echo "$folder exists and is not a project: nothing was changed" >&2; exit 2; }
rm -rf "$folder" && mkdir -p "$folder/data"
cp "$top"/examples/outages/{dd.toml,program.py} "$folder"
cp "$top"/sample_data/*.parquet "$folder/data"
cd "$folder"
PATH="$top/.venv/bin:$PATH"

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; else bold='' dim='' plain=''; fi
tell() { printf '\n%s%s%s\n' "$dim" "$*" "$plain"; }
typed() { printf '%s$ dd %s%s\n' "$bold" "$*" "$plain"; }
show() { typed "$@"; dd "$@"; }
work() { typed "$@"; dd "$@" >/dev/null; } # without the line of JSON on stdout, which is for programs

tell "# A shop's service map and its incidents: twenty-three versions. Spark ingests them."
work ingest dependencies data/dependencies-1.parquet
work ingest incidents data/incidents-1.parquet
tell "# Fold them all, on Spark: which services does an incident affect, and how many depend on each service?"
work run
tell "# The data lake is slow. What is affected now that was not before?"
show diff affected 12 13
tell "# Nobody can log in? The map is wrong, and version 24 corrects it. These are few rows: fold them in one process, without Spark."
work ingest dependencies data/dependencies-2.parquet --engine inline
work ingest incidents data/incidents-2.parquet --engine inline
work run --engine inline
tell "# What the correction changed: how many services fail if this one fails."
show diff blast_radius 23 24
tell "# The lake is slow again."
show diff affected 24 25
tell "# At the end the cache is broken."
show show affected
tell "# The project is in $folder/. To try more: cd $folder; source $top/.venv/bin/activate; dd log; dd diff affected 17 18"
