"""Which services an incident affects, how many steps away they are, and how many services fail with each service."""

from __future__ import annotations

import ddcore as dd
from ddcore import col


def program(dependencies: dd.Collection, incidents: dd.Collection) -> dict[str, dd.Collection]:
    """``dependencies``: a service and one that it needs; ``incidents``: an open incident and its service."""
    users = dependencies.select(service="needs", user="service")
    broken = incidents.select("service", distance=0)

    def spread(reached: dd.Collection) -> dd.Collection:
        further = reached.join(users, on="service").select(service=col("user"), distance=col("distance") + 1)
        return further.concat(broken).group_by("service").agg(distance=dd.min("distance"))

    def through(reach: dd.Collection) -> dd.Collection:
        further = reach.join(users, on={"user": "service"}).select("service", user="user_right")
        return further.concat(users).distinct()

    fails_with = users.iterate(through).where(col("user") != col("service"))
    return {
        "affected": broken.iterate(spread),
        "blast_radius": fails_with.group_by("service").agg(n=dd.count()),
    }
