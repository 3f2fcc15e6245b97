"""Data loss handling of a query: fail, or continue if `failOnDataLoss` is false."""

import logging

from tidelog.spark.errors import DataLost
from tidelog.spark.options.query import ReadOptions

logger = logging.getLogger(__name__)

HINT = "set failOnDataLoss to false to continue with the remaining records"


def report_loss(options: ReadOptions, loss: DataLost) -> None:
    if options.fail_on_data_loss:
        raise type(loss)(f"{loss}; {HINT}")
    logger.warning("continuing after data loss reason=%s", loss)
