"""What members are told when the record of their group cannot be written."""

from tidelog.errors import KafkaError, MessageTooLarge, RecordListTooLarge, UnknownServerError


def answer_for(error: KafkaError) -> KafkaError:
    """The other errors of an append are told as those of a coordinator already."""
    if isinstance(error, (MessageTooLarge, RecordListTooLarge)):
        return UnknownServerError(f"the group's metadata is too large: {error}")
    return error
