"""Writes the sample data: two change logs that tell a story, in two parts each.

    python sample_data/make.py [FOLDER]

The story is the table below. A line has a version, what happened, and the edges and incidents added (+) or removed (-).
``a -> b`` says that service ``a`` needs service ``b``; ``! id a`` says that incident ``id`` affects service ``a``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

Row = tuple[str, str]
Change = tuple[Row, int, int]  # row, version, diff

# Version 12 brings a mistake into the map. Version 24 corrects it, and part 2 begins there.
SECOND_PART_FROM = 24
STORY = """
1  the shop opens          + web -> gateway, gateway -> auth, auth -> accounts_db, gateway -> catalog
1  the shop opens          + catalog -> catalog_db, gateway -> cart, cart -> sessions, gateway -> checkout
1  the shop opens          + checkout -> payments, payments -> bank_link, checkout -> orders, orders -> orders_db
2  search                  + gateway -> search, search -> search_index, search_index -> catalog_db
3  the bank is down        + ! INC-1 bank_link
4  the bank is up          - ! INC-1 bank_link
5  the app                 + app -> gateway
6  stock is counted        + catalog -> stock, orders -> stock, stock -> stock_db
7  orders go by queue      + orders -> queue, mail -> queue, shipping -> queue, shipping -> carrier_link
8  the queue is full       + ! INC-2 queue
9  it is empty again       - ! INC-2 queue
10 fraud checks            + checkout -> fraud, fraud -> features, features -> orders_db
11 recommendations         + web -> recommend, recommend -> catalog, recommend -> data_lake, data_lake -> orders_db
12 reports, drawn wrongly  + reports -> data_lake, auth -> reports
13 the lake is slow        + ! INC-3 data_lake
14 the lake is quick       - ! INC-3 data_lake
15 a cache                 + cart -> cache, catalog -> cache, sessions -> cache
15 a cache                 - cart -> sessions
16 a second bank           + payments -> acquirer, acquirer -> bank_link, acquirer -> second_bank
16 a second bank           - payments -> bank_link
17 reservations: a cycle   + stock -> orders
18 orders are lost         + ! INC-4 orders_db
19 and mail is late        + ! INC-5 mail
20 orders are found        - ! INC-4 orders_db
21 mail is on time         - ! INC-5 mail
22 the cycle is cut        + stock -> queue
22 the cycle is cut        - stock -> orders
23 the app's own back end  + app -> app_backend, app_backend -> gateway, app_backend -> auth
23 the app's own back end  - app -> gateway
24 the map is corrected    + reports -> auth
24 the map is corrected    - auth -> reports
25 the lake is slow again  + ! INC-6 data_lake
26 search by meaning       + search -> vector_index, vector_index -> catalog_db
26 search by meaning       - search -> search_index, search_index -> catalog_db
27 the lake is quick       - ! INC-6 data_lake
28 mail by a provider      + mail -> mail_provider, orders -> mail
29 nobody can log in       + ! INC-7 auth
30 everybody can           - ! INC-7 auth
30 everybody can           + checkout -> loyalty, loyalty -> accounts_db
31 the first bank leaves   - acquirer -> bank_link
32 the cache is cold       + ! INC-8 cache
"""


def changes() -> tuple[list[Change], list[Change]]:
    """The two logs, dependencies and incidents, in the order of the story."""
    dependencies: list[Change] = []
    incidents: list[Change] = []
    for line in STORY.strip().splitlines():
        head, sign, facts = line[:27].strip(), line[27], line[29:]
        version, diff = int(head.split()[0]), {"+": 1, "-": -1}[sign]
        for fact in facts.split(", "):
            if fact.startswith("! "):
                incident, service = fact[2:].split()
                incidents.append(((incident, service), version, diff))
            else:
                service, needed = fact.split(" -> ")
                dependencies.append(((service, needed), version, diff))
    return dependencies, incidents


def table(log: list[Change], names: Row) -> pa.Table:
    """A change log as a table: the row's columns, ``version``, ``diff``."""
    return pa.table({
        names[0]: pa.array([row[0] for row, _, _ in log], pa.string()),
        names[1]: pa.array([row[1] for row, _, _ in log], pa.string()),
        "version": pa.array([version for _, version, _ in log], pa.int64()),
        "diff": pa.array([diff for _, _, diff in log], pa.int64()),
    })  # fmt: skip


def files() -> dict[str, pa.Table]:
    """Every file of the sample, by name."""
    tables = {}
    for name, names, log in zip(
        ("dependencies", "incidents"), (("service", "needs"), ("incident", "service")), changes(), strict=True
    ):
        tables[f"{name}-1.parquet"] = table([change for change in log if change[1] < SECOND_PART_FROM], names)
        tables[f"{name}-2.parquet"] = table([change for change in log if change[1] >= SECOND_PART_FROM], names)
    return tables


def main(folder: Path) -> None:
    """Write the files into ``folder``."""
    for name, content in files().items():
        pq.write_table(content, folder / name, compression="zstd")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
