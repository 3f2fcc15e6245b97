"""What becomes of a query that finds records gone: it fails, or goes on if it was told to."""

import logging

from tidelog.spark.errors import DataLost
from tidelog.spark.options.query import ReadOptions

log = logging.getLogger(__name__)

HINT = "set failOnDataLoss to false to go on with what is there"


def report_loss(options: ReadOptions, loss: DataLost) -> None:
    if options.fail_on_data_loss:
        raise type(loss)(f"{loss}; {HINT}")
    log.warning("going on after a loss of data: reason=%s", loss)
