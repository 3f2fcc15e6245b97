"""Kafka's errors as classes. An error becomes its number only where a response is built."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

MAX_MESSAGE_LENGTH = 4_000


class KafkaError(Exception):
    """Base of all errors that have a code on the wire; `str(error)` is the message for people."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls, code: int | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code
            ERRORS_BY_CODE[code] = cls

    @property
    def message(self) -> str:
        """Short enough to be sent, whatever it quotes."""
        text = str(self) or (type(self).__doc__ or "").strip()
        return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]}..."

    def as_value(self) -> Self:
        """Without the frames it came through: whoever keeps thousands of errors would keep these, in cycles."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


ERRORS_BY_CODE: dict[int, type[KafkaError]] = {}
NO_ERROR = 0


class RetriableError(KafkaError):
    """The same request may succeed later, or at another broker."""

    retriable = True


class RecordError(NamedTuple):
    """Why one record of a batch was refused (KIP-467)."""

    batch_index: int
    message: str


class RecordsRefused(KafkaError):
    """A batch was refused; where single records are to blame, `record_errors` names them."""

    def __init__(self, message: str = "", record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class UnknownServerError(KafkaError, code=-1):
    """The broker failed unexpectedly; its log has the reason."""


class OffsetOutOfRange(KafkaError, code=1):
    """The offset is outside what the partition holds."""


class CorruptMessage(RetriableError, code=2):
    """The batch fails its CRC or is malformed."""


class UnknownTopicOrPartition(RetriableError, code=3):
    """This broker does not host this topic or partition."""


class LeaderNotAvailable(RetriableError, code=5):
    """The partition has no leader yet."""


class NotLeaderOrFollower(RetriableError, code=6):
    """This broker does not host a current replica of the partition."""


class RequestTimedOut(RetriableError, code=7):
    """The request was not completed within its own time limit."""


class BrokerNotAvailable(KafkaError, code=8):
    """The broker is not registered."""


class MessageTooLarge(KafkaError, code=10):
    """The batch is larger than max.message.bytes."""


class StaleControllerEpoch(KafkaError, code=11):
    """A newer controller has taken over."""


class OffsetMetadataTooLarge(KafkaError, code=12):
    """The metadata of a committed offset is longer than offset.metadata.max.bytes."""


class CoordinatorLoadInProgress(RetriableError, code=14):
    """The coordinator is not ready yet."""


class CoordinatorNotAvailable(RetriableError, code=15):
    """No broker coordinates this group or transaction now."""


class NotCoordinator(RetriableError, code=16):
    """This broker does not coordinate the group or transaction."""


class InvalidTopic(KafkaError, code=17):
    """The topic name is not allowed: up to 249 letters, digits, dots, underscores and hyphens."""


class RecordListTooLarge(KafkaError, code=18):
    """The batch is larger than a segment."""


class NotEnoughReplicas(RetriableError, code=19):
    """Fewer replicas are in sync than min.insync.replicas asks for."""


class NotEnoughReplicasAfterAppend(RetriableError, code=20):
    """The records were written, but the in-sync replicas shrank below min.insync.replicas."""


class InvalidRequiredAcks(KafkaError, code=21):
    """acks must be 0, 1 or -1."""


class IllegalGeneration(KafkaError, code=22):
    """The generation of the group is not the current one."""


class InconsistentGroupProtocol(KafkaError, code=23):
    """The member shares no assignment protocol with the group, or has another kind."""


class InvalidGroupId(KafkaError, code=24):
    """The id of a group is missing or not allowed."""


class UnknownMemberId(KafkaError, code=25):
    """The coordinator does not know this member."""


class InvalidSessionTimeout(KafkaError, code=26):
    """The session timeout is outside what the broker allows."""


class RebalanceInProgress(KafkaError, code=27):
    """The group is rebalancing; join again."""


class InvalidCommitOffsetSize(KafkaError, code=28):
    """The committed offsets do not fit into one message."""


class TopicAuthorizationFailed(KafkaError, code=29):
    """The topic is not for this client."""


class InvalidTimestamp(RecordsRefused, code=32):
    """A record's timestamp is outside the allowed range."""


class UnsupportedVersion(KafkaError, code=35):
    """The broker does not support this version of the API."""


class TopicAlreadyExists(KafkaError, code=36):
    """A topic of this name exists."""


class InvalidPartitions(KafkaError, code=37):
    """The number of partitions is not allowed."""


class InvalidReplicationFactor(KafkaError, code=38):
    """The replication factor is below 1 or above the number of live brokers."""


class InvalidReplicaAssignment(KafkaError, code=39):
    """The replica assignment is not allowed."""


class InvalidConfig(KafkaError, code=40):
    """A setting is unknown or its value is not allowed."""


class NotController(RetriableError, code=41):
    """This broker is not the controller."""


class InvalidRequest(KafkaError, code=42):
    """The request contradicts itself or the protocol."""


class PolicyViolation(KafkaError, code=44):
    """The request breaks a policy of this cluster."""


class OutOfOrderSequenceNumber(KafkaError, code=45):
    """The batch does not follow the last one of this producer."""


class DuplicateSequenceNumber(KafkaError, code=46):
    """The batch was written before, so long ago that its offset is no longer known."""


class InvalidProducerEpoch(KafkaError, code=47):
    """A newer instance of this producer has taken over."""


class InvalidTxnState(KafkaError, code=48):
    """The transaction is not in a state that allows this."""


class InvalidProducerIdMapping(KafkaError, code=49):
    """The producer id is not the one of this transactional id."""


class InvalidTransactionTimeout(KafkaError, code=50):
    """The transaction timeout is longer than transaction.max.timeout.ms."""


class ConcurrentTransactions(RetriableError, code=51):
    """The end of the transaction before is still under way."""


class TransactionCoordinatorFenced(KafkaError, code=52):
    """A newer transaction coordinator has taken over."""


class TransactionalIdAuthorizationFailed(KafkaError, code=53):
    """The producer may not use this transactional id, or has not said which one it means."""


class SecurityDisabled(KafkaError, code=54):
    """No authorizer is configured: everybody may do everything."""


class OperationNotAttempted(KafkaError, code=55):
    """Other partitions of the request failed, so this one was not tried."""


class KafkaStorageError(RetriableError, code=56):
    """The log directory of the partition is offline."""


class UnknownProducerId(KafkaError, code=59):
    """The broker no longer knows this producer: what it wrote was deleted."""


class NonEmptyGroup(KafkaError, code=68):
    """The group has members."""


class GroupIdNotFound(KafkaError, code=69):
    """There is no such group."""


class FetchSessionIdNotFound(RetriableError, code=70):
    """The broker does not know this fetch session: fetch without one."""


class InvalidFetchSessionEpoch(RetriableError, code=71):
    """The request does not follow the last one of its fetch session."""


class TopicDeletionDisabled(KafkaError, code=73):
    """Topics cannot be deleted: delete.topic.enable is false."""


class FencedLeaderEpoch(RetriableError, code=74):
    """The leader epoch in the request is older than the broker's."""


class UnknownLeaderEpoch(RetriableError, code=75):
    """The leader epoch in the request is newer than the broker's."""


class UnsupportedCompressionType(KafkaError, code=76):
    """This version of the API does not carry this compression type."""


class StaleBrokerEpoch(KafkaError, code=77):
    """The request is from or about an earlier life of the broker."""


class OffsetNotAvailable(RetriableError, code=78):
    """The new leader does not know yet how far the log is committed."""


class MemberIdRequired(KafkaError, code=79):
    """Join again with the member id that was given."""


class PreferredLeaderNotAvailable(RetriableError, code=80):
    """The preferred leader of the partition is away, or not in sync."""


class GroupMaxSizeReached(KafkaError, code=81):
    """The group has as many members as it may have."""


class FencedInstanceId(KafkaError, code=82):
    """Another member has taken this group.instance.id over."""


class EligibleLeadersNotAvailable(RetriableError, code=83):
    """None of the replicas of the partition is there to lead it."""


class ElectionNotNeeded(RetriableError, code=84):
    """The partition is led as it should be."""


class GroupSubscribedToTopic(KafkaError, code=86):
    """Members of the group are subscribed to the topic."""


class InvalidRecord(RecordsRefused, code=87):
    """A record breaks the rules of its topic or of the format."""


class UnstableOffsetCommit(RetriableError, code=88):
    """Offsets of transactions that are not decided yet stand in the way."""


class ProducerFenced(KafkaError, code=90):
    """A newer producer has taken this transactional id over."""


class UnknownTopicId(RetriableError, code=100):
    """No topic has this id."""


class BrokerIdNotRegistered(KafkaError, code=102):
    """No broker has registered under this id."""


class InconsistentTopicId(RetriableError, code=103):
    """The partition here belongs to another topic of the same name."""


class TransactionalIdNotFound(KafkaError, code=105):
    """There is no such transactional id."""


class FetchSessionTopicIdError(RetriableError, code=106):
    """The fetch session names topics in the other way: by name, or by id."""


class FencedMemberEpoch(KafkaError, code=110):
    """The member epoch is not the current one; join again."""


class UnreleasedInstanceId(KafkaError, code=111):
    """The group.instance.id still belongs to another member."""


class UnsupportedAssignor(KafkaError, code=112):
    """No server-side assignor has this name."""


class StaleMemberEpoch(KafkaError, code=113):
    """The member epoch is old; look again when the heartbeat has brought the new one."""


class MismatchedEndpointType(KafkaError, code=114):
    """The request was sent to an endpoint of the wrong type."""


class UnsupportedEndpointType(KafkaError, code=115):
    """This endpoint type is not supported."""


class TransactionAbortable(KafkaError, code=120):
    """The transaction cannot go on; abort it."""


class InvalidRegularExpression(KafkaError, code=128):
    """The regular expression is not valid."""


def error_of(code: int, context: str = "", message: str | None = None) -> KafkaError:
    """The error that a response names by its code, with the context and what the broker said of it."""
    found = ERRORS_BY_CODE.get(code)
    said = message or (f"error code {code}" if found is None else (found.__doc__ or "").strip())
    return (found or UnknownServerError)(f"{context}: {said}" if context else said)


def raise_error(code: int, context: str = "", message: str | None = None) -> None:
    """Nothing, if the code is that of success."""
    if code != NO_ERROR:
        raise error_of(code, context, message)
