"""The meaning of a program: every operator by its definition, every time computed from nothing.

The engine must give the differences that :func:`replay` gives. This package shares no code with
the engine but what reads Polars' expressions, keeps no state from one time to the next, and is slow. It computes

    output at t        =  program( accumulate(inputs, t) )
    differences at t   =  output at t  -  differences at every earlier time

A collection is a ``Counter`` from row to count, a row is a tuple of Python values. Only the expressions of a
``select``, ``where`` or ``agg`` are evaluated by Polars, on each distinct row by itself. (Integers are computed on
128 bits, so none wraps around, except intermediate ones that a cast or a function makes narrower, such as the length of
a string.)

Counts are Python's integers, so no intermediate count overflows. These must be an int64: an aggregate, a count in the
frame of a ``reduce`` function, and the differences of the collections that operators with state store: the inputs of
``join``, ``distinct``, ``agg`` and ``reduce``, the results of ``reduce``, and the outputs (:mod:`.records`).

Cost: (number of grid times) x (rounds of the loops) x (rows), in Python. Meant for tens of rows and times.
"""

from __future__ import annotations

from ddcore.reference.aggregates import MEANINGS, Meaning
from ddcore.reference.collection import NaiveCollection
from ddcore.reference.groups import NaiveGroups
from ddcore.reference.logs import accumulate, differences, grid, log_of, precedes
from ddcore.reference.programs import evaluate, outputs_of, replay

__all__ = [
    "MEANINGS", "Meaning", "NaiveCollection", "NaiveGroups", "accumulate", "differences", "evaluate", "grid", "log_of",
    "outputs_of", "precedes", "replay",
]  # fmt: skip
