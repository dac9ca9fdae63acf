"""Which rows the result of a window function depends on, and which functions one operator computes together."""

from __future__ import annotations

from collections.abc import Sequence

from ddcore.base.schema import Schema, Type
from ddcore.operators.aggregates import AGGREGATES
from ddcore.operators.frame import Frame
from ddcore.operators.nearby import Reach
from ddcore.operators.window import LISTS, SHARES, Window
from ddcore.operators.window_picks import BITS, ENDS, PICKED
from ddcore.operators.window_statistics import is_statistic

_BY_RESULT = ("COUNT", "MIN", "MAX")  # whose result at a row is all that those behind it need to know
_FARTHEST = 4096  # rows that a function looks away: beyond, groups are evaluated as wholes


def kernel_kind(window: Window, types: Schema) -> str:
    """The kind of the kernel for an aggregate; nothing for another function."""
    if window.kind not in AGGREGATES:
        return ""
    return AGGREGATES[window.kind].kind(Type("int64") if window.argument is None else types[window.argument])


def goes_on(window: Window, types: Schema, results: Schema) -> bool:
    """Whether a result is known from that of the row before, or the state beside it, and the rows from there on; a
    share of the rows where their number stays.
    """
    if window.kind in ("row_number", "rank", "dense_rank", *SHARES):
        return True
    frame = window.frame
    if frame.start is not None or frame.end is None or frame.end or frame.exclude != "nothing":
        return False
    if window.distinct or window.is_sorted or window.kind in (*PICKED, *ENDS):
        return False
    if window.kind in ("first_value", "last_value", "nth_value", *LISTS, *BITS) or is_statistic(window):
        return True
    kind = kernel_kind(window, types)
    pooled = window.argument is not None and (types[window.argument].is_pooled or results[window.name].is_pooled)
    return kind in _BY_RESULT or (kind in ("SUM", "MEAN", "FLOAT_SUM", "FLOAT_MEAN") and not pooled)


def reach_beside(windows: Sequence[Window], types: Schema, results: Schema, order: Type) -> Reach | None:
    """How far the functions look that do not go on from a row, beside some that do; None: they depend on more rows."""
    onwards = [goes_on(window, types, results) for window in windows]
    reach = reach_of([window for window, is_onward in zip(windows, onwards, strict=True) if not is_onward], order)
    is_far = reach is None or (any(onwards) and (reach.groups or reach.distance))
    return None if is_far else reach


def reach_of(windows: Sequence[Window], order: Type) -> Reach | None:
    """How far the functions look from a row; None: as far as the group goes, or the order is not looked up."""
    rows, groups, distance, beyond = 0, 0, 0, False
    for window in windows:
        frame, has_frame = _seen(window), window.argument is not None or window.kind in AGGREGATES
        if window.kind in ("lag", "lead"):
            if window.ignore_nulls:
                return None
            rows = max(rows, window.number)
        elif has_frame and order.name != "float64" and _is_beyond(window):
            ends = [abs(int(end)) for end in frame.words(order) if end is not None]
            distance, beyond = max(distance, *ends), True
        elif not has_frame or frame.start is None or frame.end is None:
            return None
        elif frame.has_distance:
            if order.name == "float64":
                return None
            distance = max(distance, *(abs(int(end)) for end in frame.words(order)))
        elif frame.unit == "rows":
            rows = max(rows, abs(frame.start), abs(frame.end))
        elif frame.unit == "groups":
            groups = max(groups, abs(frame.start), abs(frame.end))
    is_near = max(rows, groups) <= _FARTHEST and distance < 2**61 and not order.is_pooled
    return Reach(rows, groups, distance, beyond) if is_near else None


def _is_beyond(window: Window) -> bool:
    """Whether it is the last value of a range that ends a distance before the row, or the first of one that begins
    behind it: that of the next row there, however far away it is.
    """
    frame, is_last = window.frame, window.kind == "last_value"
    if window.kind not in ("first_value", "last_value") or window.ignore_nulls or frame.exclude != "nothing":
        return False
    at, other = (frame.end, frame.start) if is_last else (frame.start, frame.end)
    if frame.unit != "range" or other is not None or not at:
        return False
    return bool(at < type(at)(0)) is is_last


def _seen(window: Window) -> Frame:
    """A frame with two ends in which all rows are that decide a value at the one end of a frame that has no other."""
    frame = window.frame
    is_last = window.kind == "last_value" and frame.start is None
    is_first = window.kind in ("first_value", "nth_value") and frame.end is None
    if not (is_first or is_last) or frame.exclude != "nothing" or window.ignore_nulls:
        return frame
    at = frame.end if is_last else frame.start
    if at is None:
        return frame
    nothing, unit = type(at)(0), frame.unit
    low, high = min(at, nothing), max(at, nothing)
    if window.number > 1:  # rows behind the first one of the frame
        if unit != "rows" and at:
            return frame
        return Frame("rows", low, high + window.number - 1)
    is_found = unit != "range" or (at >= nothing if is_last else at <= nothing)
    return Frame(unit, low, high) if is_found else frame


def together(
    windows: Sequence[Window], types: Schema, results: Schema, order: Type
) -> tuple[list[list[Window]], list[Window]] | None:
    """The functions in groups, one for each operator, and those that an operator computes in the reversed order; None
    where one of them depends on the whole partition in any case.

    What adds up from the first row on and what looks some values or peers away would together cost the partition, and
    so would a frame without end beside either: each costs only its rows where it is alone. ``results``: the types of
    the results; ``order``: of its first column.
    """
    onwards, near, away, cut, backwards = (list[Window]() for _ in range(5))
    for window in windows:
        reach, mirrored = reach_of([window], order), window.mirrored
        if order.is_pooled:
            return None
        if goes_on(window, types, results):
            onwards.append(window)
        elif window.kind == "ntile":
            cut.append(window)
        elif reach is not None:
            (away if reach.groups or reach.distance else near).append(window)
        elif mirrored is not None and goes_on(mirrored, types, results):
            backwards.append(window)
        else:
            return None
    groups = [away, [*onwards, *near]] if onwards else [[*near, *away]]
    return [group for group in (*groups, *([window] for window in cut)) if group], backwards
