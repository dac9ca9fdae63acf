"""What the publication of an output did. Must not import anything heavy: reports of runs have it."""

from __future__ import annotations

from ddcore.base.record import record


@record
class Published:
    """What a publication did. ``plus`` and ``minus`` are rows that came and went; ``files`` were written, of ``of``
    that the table has then. ``made``: why the whole table was written, empty where only files with changes were.
    """

    output: str
    path: str
    run: int
    plus: int
    minus: int
    files: int
    of: int
    made: str = ""

    @property
    def sentence(self) -> str:
        """For people."""
        if self.made:
            return f"published {self.output}: all rows, in {self.of} file{'s' * (self.of != 1)}: {self.made}"
        return f"published {self.output}: +{self.plus}/-{self.minus} in {self.files} of {self.of} files"
