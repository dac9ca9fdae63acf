"""Random programs over random histories: the engine's logs are the reference's, diff for diff, whole and cut anywhere.

``DDCORE_SEEDS=2000`` runs that many, ``DDCORE_SEEDS=731-732`` a range. A failure prints a program one can paste.
"""

from __future__ import annotations

import os
from typing import Any

import folding
import pytest
from notation import spell
from programs import Case, case

from ddcore.errors import DdError, Diverged


def seeds() -> range:
    first, _, last = os.environ.get("DDCORE_SEEDS", "150").rpartition("-")
    return range(int(first or 0), int(last))


@pytest.mark.parametrize("seed", seeds())
def test_same_logs(seed: int) -> None:
    drawn = case(seed)
    expected = outcome(folding.by_reference, drawn)
    compare(drawn, "whole", expected, outcome(folding.whole, drawn))
    compare(drawn, "cut at random", expected, outcome(folding.randomly_cut, drawn, seed=seed))
    compare(drawn, "fed early", expected, outcome(folding.fed_early, drawn, seed=seed))


def outcome(fold: folding.Fold, drawn: Case, **how: Any) -> Any:
    """The logs, or the error the fold ended with. What the program must not raise comes with the program."""
    try:
        return fold(drawn.program, **drawn.frames, **how)
    except Diverged as error:
        return error
    except Exception as error:
        error.add_note(str(drawn))
        raise


def compare(drawn: Case, how: str, expected: Any, found: Any) -> None:
    if isinstance(expected, DdError) or isinstance(found, DdError):
        assert type(found) is type(expected), f"{how}: engine {found!r}, reference {expected!r}\n{drawn}"
        return
    assert found.keys() == expected.keys()
    wrong = []
    for name, log in expected.items():
        only_engine = {key: diff for key, diff in found[name].items() if log.get(key) != diff}
        only_reference = {key: diff for key, diff in log.items() if found[name].get(key) != diff}
        if only_engine or only_reference:
            wrong.append(f"{name}: in engine, not in reference\n{spell(only_engine)}")
            wrong.append(f"{name}: in reference, not in engine\n{spell(only_reference)}")
    assert not wrong, "\n".join([f"{how}:", *wrong, str(drawn)])
