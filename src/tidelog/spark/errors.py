"""Errors of `format("tidelog")` that come from the cluster; each message is one sentence for the user."""


class SourceError(Exception):
    """Base class: the cause is in the cluster, not in an option."""


class UnknownTopic(SourceError):
    """A requested topic does not exist."""


class UnknownPartition(SourceError):
    """A requested partition does not exist."""


class NoRecordAfterTime(SourceError):
    """A partition has no record at or after the starting time."""


class DataLost(SourceError):
    """Records that the query has not read yet are gone."""


class TopicRecreated(DataLost):
    """A topic was deleted and created again: the offsets of the query are not valid for it."""


class BrokersUnavailable(SourceError):
    """No broker answered within the timeout of the query."""
