"""Expectations: rows that do not meet a condition are counted, and dropped, sent to dead letters or refused."""

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from tidelog.pipelines.definition.model import Expectation, OnViolation, Quality
from tidelog.pipelines.running.failures import BAD_RECORD, StepFailed
from tidelog.pipelines.running.progress import EXPECT_PREFIX
from tidelog.pipelines.running.topic_sink import with_rows_counted, written_to

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

MAX_ROW_LENGTH = 300
REMOVING = (OnViolation.DROP, OnViolation.DEAD_LETTER)


def counted_and_kept(frame: "DataFrame", quality: Quality, where: str) -> "DataFrame":
    """The rows to go on with; violations are counted per micro-batch. `where` is the name of the view or sink."""
    from pyspark.sql import functions as F  # noqa: N812

    if not quality.expectations:
        return frame
    for expectation in quality.expectations:
        _check_type(frame, expectation)
    counts = [F.count(F.when(~_is_met(each), F.lit(1))).alias(each.name) for each in quality.expectations]
    counted = frame.observe(f"{EXPECT_PREFIX}{where}", *counts)
    kept = [_or_fail(each, where) for each in quality.expectations if each.on_violation is OnViolation.FAIL]
    kept += [_is_met(each) for each in quality.expectations if each.on_violation in REMOVING]
    return counted.where(reduce(and_, kept)) if kept else counted


def violation_writer(frame: "DataFrame", quality: Quality) -> "DataStreamWriter":
    """Writes rows that must become dead letters; `frame` as before `counted_and_kept`."""
    assert quality.dead_letter_topic is not None
    assert quality.dead_letter_bootstrap is not None
    letters = with_rows_counted(violations(frame, quality))
    return written_to(letters, quality.dead_letter_bootstrap, quality.dead_letter_topic)


def violations(frame: "DataFrame", quality: Quality) -> "DataFrame":
    """One column, `value`: `{"error": "violates positive (amount > 0)", "row": {...}}`."""
    from pyspark.sql import functions as F  # noqa: N812

    wanted = [each for each in quality.expectations if each.on_violation is OnViolation.DEAD_LETTER]
    texts = [F.when(~_is_met(each), F.lit(f"{each.name} ({each.condition})")) for each in wanted]
    error = F.concat(F.lit("violates "), F.concat_ws(", ", *texts))
    letter = F.struct(error.alias("error"), F.struct("*").alias("row"))
    is_bad = ~reduce(and_, map(_is_met, wanted))
    return frame.where(is_bad).select(F.to_json(letter).alias("value"))


def _is_met(expectation: Expectation) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(F.expr(expectation.condition), F.lit(False))


def _or_fail(expectation: Expectation, where: str) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    reason = f"{BAD_RECORD}a row of {where} violates {expectation.name} ({expectation.condition}): "
    row = F.substring(F.to_json(F.struct("*")), 1, MAX_ROW_LENGTH)
    failed = F.raise_error(F.concat(F.lit(reason), row)).cast("boolean")
    return F.when(_is_met(expectation), F.lit(True)).otherwise(failed)


def _check_type(frame: "DataFrame", expectation: Expectation) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    kind = frame.select(F.expr(expectation.condition).alias("condition")).dtypes[0][1]
    if kind != "boolean":
        raise StepFailed(f"expectation {expectation.name}: {expectation.condition} is {kind}, not a condition")
