"""What the publication of an output did. Must not import anything heavy: reports of runs have it."""

from __future__ import annotations

from ddcore.base.record import record
from ddcore.text.wording import counted


@record
class Published:
    """What a publication did. ``plus`` and ``minus`` are rows that came and went; ``files`` were written, of ``of``
    that the table has then. ``made``: why the whole table was written, empty where only files with changes were.
    ``tasks``: so many tasks of Spark wrote them, 0: the command did.
    """

    output: str
    path: str
    run: int
    plus: int
    minus: int
    files: int
    of: int
    made: str = ""
    tasks: int = 0

    @property
    def sentence(self) -> str:
        """For people."""
        by = f", by {counted(self.tasks, 'task')}" if self.tasks else ""
        if self.made:
            return f"published {self.output}: all rows, in {counted(self.of, 'file')}{by}: {self.made}"
        return f"published {self.output}: +{self.plus}/-{self.minus} in {self.files} of {self.of} files{by}"
