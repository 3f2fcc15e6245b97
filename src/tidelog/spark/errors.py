"""Why a query cannot be read or go on, each in one sentence for whoever runs it."""


class SourceError(Exception):
    """Base of the errors of `format("tidelog")` that come from the cluster rather than from an option."""


class UnknownTopic(SourceError):
    """A topic that was asked for does not exist."""


class UnknownPartition(SourceError):
    """A partition that was asked for does not exist."""


class NoRecordSoYoung(SourceError):
    """A partition has no record at or after the time to start at."""


class DataLost(SourceError):
    """Records that the query has yet to read are gone."""


class TopicRecreated(DataLost):
    """A topic was deleted and made again, so that the offsets of the query mean nothing in it."""


class BrokersAway(SourceError):
    """The brokers could not be asked for as long as the query was willing to wait."""
