"""Publications side by side: of all tables that are due, the files are written by several threads, and synced together;
then their commits are made, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddcore.base.errors import DdError, StorageError
from ddcore.base.threads import parallel_map
from ddcore.io.delta.new_files import Unsynced
from ddcore.io.publishing.commits import commit
from ddcore.io.publishing.publication import Prepared, Publication
from ddcore.io.publishing.published import Published


def publish_all(publications: Sequence[Publication], threads: int) -> list[Published]:
    """Give tables that are due their contents; what was done, in order. An error of one does not keep the others from
    theirs: the first is raised in the end. UsageError, StorageError.
    """
    found = _prepared(publications, threads)
    ready = {one: prepared for one, prepared in found.items() if isinstance(prepared, Prepared)}
    made = {id(one) for one in commit([prepared.next for prepared in ready.values()])}
    for one, prepared in ready.items():
        if id(prepared.next) in made:
            one.end(prepared)
    for one in (one for one, prepared in ready.items() if id(prepared.next) not in made):
        found[one] = _again(one)
    for outcome in found.values():
        if isinstance(outcome, DdError):
            raise outcome
    return [prepared.done for prepared in found.values() if isinstance(prepared, Prepared)]


def _prepared(publications: Sequence[Publication], threads: int) -> dict[Publication, Prepared | DdError]:
    """The commits of tables, or the errors, with all files synced to the disk."""
    shared = [one for one in publications if one.may_be_shared]
    others = [one for one in publications if one not in shared]
    with Unsynced() as unsynced:
        for one in publications:
            one.unsynced = unsynced
        found = dict(zip(others, parallel_map(_attempt, others, threads), strict=True))
        found |= {one: _attempt(one) for one in shared}  # by tasks, which this thread starts
        return {one: found[one] for one in publications}


def _attempt(publication: Publication) -> Prepared | DdError:
    try:
        return publication.prepared()
    except DdError as error:
        return error


def _again(publication: Publication) -> Prepared | DdError:
    """A table to which another program has committed in between, made again; or the error, where that comes twice."""
    with Unsynced() as unsynced:
        publication.unsynced = unsynced
        prepared = publication.again("another program has written to it")
    if not commit([prepared.next]):
        return StorageError(
            f"another program has committed to {publication.folder} just now", "run the same command again"
        )
    publication.end(prepared)
    return prepared
