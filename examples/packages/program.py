"""What every package of a package set transitively needs, at every version of the set."""

from __future__ import annotations

import ddcore as dd


def program(dependencies: dd.Collection) -> dict[str, dd.Collection]:
    """``dependencies``: package and dependency, as each package's manifest names them; repeated rows are ignored."""
    direct = dependencies.distinct()

    def through(depends: dd.Collection) -> dd.Collection:
        further = direct.join(depends, on={"dependency": "package"})
        return further.select("package", dependency="dependency_right").concat(direct).distinct()

    depends = direct.iterate(through)
    return {
        "depends": depends,
        "dependents": depends.group_by("dependency").agg(n=dd.count()).select(package="dependency", n="n"),
        "cyclic": depends.where("package = dependency").select("package"),
    }
