"""Why a row is there: the input rows it rests on, and how the program makes it of them.

:class:`~ddcore.explaining.needs.Needs` says on which rows of the inputs a row can depend,
:class:`~ddcore.explaining.fetching.Fetch` reads these, also across joins,
:class:`~ddcore.explaining.watching.Watch` computes every collection of a program on some inputs,
:class:`~ddcore.explaining.derivation.Derivation` goes backwards from rows through these,
:class:`~ddcore.explaining.trials.Trials` removes input rows and sees whether the rows stay.
:class:`~ddcore.explaining.causes.Question` puts them together.
"""

from __future__ import annotations

from ddcore.explaining.causes import Causes, Explanation, Inputs, Question, held, rows_with

__all__ = ["Causes", "Explanation", "Inputs", "Question", "held", "rows_with"]
