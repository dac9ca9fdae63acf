"""Which services an incident affects, how many steps away they are, and how many services fail with each service."""

from __future__ import annotations

import ddcore as dd
from ddcore import algorithms, col


def program(dependencies: dd.Collection, incidents: dd.Collection) -> dict[str, dd.Collection]:
    """``dependencies``: a service and one that it needs; ``incidents``: an open incident and its service."""
    users = dependencies.select(service="needs", user="service")
    affected = algorithms.bfs(dependencies, incidents, src="needs", dst="service", node="service")

    def through(reach: dd.Collection) -> dd.Collection:
        further = reach.join(users, on={"user": "service"}).select("service", user="user_right")
        return further.concat(users).distinct()

    fails_with = users.iterate(through).where(col("user") != col("service"))
    return {
        "affected": affected.select(service="node", distance="dist"),
        "blast_radius": fails_with.group_by("service").agg(n=dd.count()),
    }
