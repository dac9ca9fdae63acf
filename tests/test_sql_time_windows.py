"""Windows of time in SQL: the forms of FROM and GROUP BY mean the same, and what is refused. DuckDB: test_nexmark."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from folding import by_reference, whole

import ddcore as dd
from ddcore.base.errors import ProgramError
from ddcore.sql import program


def second(number: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, number, tzinfo=UTC)


T = pl.DataFrame(
    [("a", second(1), 1, 0, 1), ("a", second(4), 4, 0, 1), ("a", second(9), 9, 0, 1), (None, second(3), 3, 0, 1),
     ("a", second(7), 7, 1, 1), ("a", second(4), 4, 2, -1), ("b", None, None, 0, 1)],
    schema=["k", "ts", "n", "version", "diff"], orient="row",
)  # fmt: skip
SAME = {
    "tumble": [
        """SELECT k, window_start AS s, window_end AS e, count(*) AS c
           FROM TUMBLE(t, ts, INTERVAL '5' SECOND) GROUP BY 1, 2, 3""",
        """SELECT w.k, window_start AS s, w.window_end AS e, count(*) AS c
           FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5 seconds')) AS w
           GROUP BY w.k, window_start, window_end""",
        """SELECT k, TUMBLE_START(ts, INTERVAL '5' SECOND) AS s, TUMBLE_END(ts, INTERVAL '5' SECOND) AS e, count(*) AS c
           FROM t GROUP BY k, TUMBLE(ts, INTERVAL '5' SECOND) HAVING count(*) > 0""",
        "SELECT k, window.start AS s, window.end AS e, count(*) AS c FROM t GROUP BY window(ts, '5 seconds'), k",
        """SELECT k, date_bin('5 seconds', ts, '1970-01-01'::timestamp) AS s,
           date_bin('5 seconds', ts, '1970-01-01'::timestamp) + INTERVAL '5 seconds' AS e, count(*) AS c
           FROM t WHERE ts IS NOT NULL GROUP BY 1, 2, 3""",
    ],
    "hop": [
        """SELECT window_start AS s, count(*) AS c
           FROM HOP(t, ts, INTERVAL '2' SECOND, INTERVAL '5' SECOND) GROUP BY window_start""",
        """SELECT HOP_START(ts, INTERVAL '2' SECOND, INTERVAL '5' SECOND) AS s, count(*) AS c
           FROM t GROUP BY HOP(ts, INTERVAL '2' SECOND, INTERVAL '5' SECOND)""",
        "SELECT window.start AS s, count(*) AS c FROM t GROUP BY window(ts, '5 seconds', '2 seconds')",
    ],
    "session": [
        """SELECT k, window_end AS e, count(*) AS c
           FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3 seconds')) GROUP BY k, window_end""",
        """SELECT k, SESSION_END(ts, INTERVAL '3' SECOND) AS e, count(*) AS c
           FROM t GROUP BY k, SESSION(ts, INTERVAL '3' SECOND)""",
        "SELECT k, session_window.end AS e, count(*) AS c FROM t GROUP BY k, session_window(ts, '3 seconds')",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", SAME)
def test_all_forms_of_a_window_mean_the_same(kind: str) -> None:
    first, *others = [program(f"CREATE VIEW o AS {query}") for query in SAME[kind]]
    expected = by_reference(first, t=T)
    assert len(expected["o"]) > 5
    for other in (first, *others):
        assert whole(other, t=T) == expected


def test_windows_of_whole_numbers_of_a_view_and_in_a_subquery() -> None:
    log = dd.replay(program("CREATE VIEW o AS SELECT k FROM v; CREATE VIEW v AS SELECT k, n FROM TUMBLE(u, n, 5) WHERE"
                            " window_start = 5; CREATE TEMPORARY VIEW u AS SELECT k, n FROM t"), t=T)["o"]  # fmt: skip
    assert log.rows() == [("a", 0, 1), ("a", 1, 1)]
    text = """CREATE VIEW o AS SELECT k, n FROM t WHERE EXISTS
        (SELECT 1 FROM SESSION(t, ts, INTERVAL '3 seconds') AS w WHERE w.n = t.n + 3 AND w.window_start = t.ts)"""
    assert whole(program(text), t=T) == by_reference(program(text), t=T) != {"o": {}}


REFUSED = {
    "SELECT * FROM TUMBLE(t, ts)": "TUMBLE(t, ts) is not the form of TUMBLE",
    "SELECT * FROM HOP(t, ts, INTERVAL '5' SECOND)": "is not the form of HOP",
    "SELECT * FROM TUMBLE(t, k, INTERVAL '5' SECOND)": "a window by string is not supported",
    "SELECT * FROM TUMBLE(t, ts, INTERVAL '5' MONTH)": "a window whose length is no literal interval",
    "SELECT * FROM TUMBLE(t, n, INTERVAL '5' DAY)": "a window of whole numbers whose length is none",
    "SELECT * FROM TUMBLE(t, ts, INTERVAL '0' SECOND)": "tumble: every is 0:00:00",
    "SELECT * FROM TUMBLE(q, ts, INTERVAL '1' SECOND)": "there is no table q; there are: t",
    "SELECT * FROM TUMBLE(1, ts, INTERVAL '1' SECOND)": "a function in FROM is not supported",
    "SELECT count(*) AS c FROM t GROUP BY HOP(ts, INTERVAL '5' SECOND)": "is not the form",
    "SELECT count(*) AS c FROM t GROUP BY TUMBLE(n, 5), TUMBLE(n, 6)": "a second window in GROUP BY is not supported",
    "SELECT TUMBLE_END(n, 6) AS e FROM t GROUP BY TUMBLE(n, 5)": "the function tumble_end is not supported",
}


@pytest.mark.parametrize("query", REFUSED)
def test_windows_that_are_refused(query: str) -> None:
    with pytest.raises(ProgramError) as caught:
        dd.replay(program(f"CREATE VIEW o AS {query}"), t=T)
    assert (
        REFUSED[query] in str(caught.value) and caught.value.message.startswith("program.sql:1:") and caught.value.hint
    )
