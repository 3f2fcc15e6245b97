"""The options of `format("tidelog")`, as a query is to be run with them."""

from dataclasses import dataclass, field

from tidelog.spark.client_settings import ClientSettings
from tidelog.spark.option_values import Edge, OptionError, Place, Subscription, WhenTooYoung
from tidelog.spark.planning import Limits

__all__ = ["OptionError", "ReadOptions", "WriteOptions"]

DRIVER_READ_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class ReadOptions:
    bootstrap: str
    subscription: Subscription
    starting: Place = Edge.EARLIEST
    ending: Place = Edge.LATEST
    """Of a batch; a stream has no end."""
    when_too_young: WhenTooYoung = WhenTooYoung.ERROR
    fail_on_data_loss: bool = True
    include_headers: bool = False
    limits: Limits = field(default_factory=Limits)
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    driver_read_rows: int = DRIVER_READ_ROWS
    """Micro-batches of up to so many rows are read on the driver."""
    client: ClientSettings = field(default_factory=ClientSettings)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    bootstrap: str
    topic: str | None = None
    """For all rows; without it each row names its own."""
    include_headers: bool = False
    client: ClientSettings = field(default_factory=ClientSettings)
