"""The shop's views by Spark: ``python -m bench.peers.shop_spark PROJECT RESULTS`` computes all of them from scratch.

It reads the Bronze tables of a copy of ``examples/shop`` and runs the same SQL, but for three words that Spark spells
otherwise. Each view that is a published table is written as a Delta table. The session has the settings that ``dd``
gives its own. The last line of stdout is a JSON object with the seconds from the session's start.
"""

from __future__ import annotations

import json
import re
import sys
import time
import tomllib
from pathlib import Path

from ddcore.jobs.spark import session


def main(project: Path, results: Path) -> None:
    """Compute all views and write them."""
    settings = tomllib.loads((project / "dd.toml").read_text(encoding="utf-8"))
    with session.spark({}) as spark:
        start = time.perf_counter()
        for name in settings["inputs"]:
            spark.read.format("delta").load(str(project / "bronze" / name)).createOrReplaceTempView(name)
        for file in ("silver", "gold"):
            for statement in spoken((project / "views" / f"{file}.sql").read_text(encoding="utf-8")).split(";"):
                if statement.strip():
                    spark.sql(statement)
        for name in settings["outputs"]:
            spark.table(name).write.format("delta").mode("overwrite").save(str(results / name))
        print(json.dumps({"computing_s": time.perf_counter() - start}))


def spoken(text: str) -> str:
    """The views in Spark's words."""
    text = re.sub(r"--.*", "", text)
    text = re.sub(r"CREATE (TEMPORARY )?VIEW", "CREATE OR REPLACE TEMPORARY VIEW", text)
    return text.replace("grouping(category, region)", "grouping_id(category, region)")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
