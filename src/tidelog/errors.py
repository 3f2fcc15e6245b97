"""Kafka's error codes as exception classes. They become numbers only where a response is built."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

MAX_MESSAGE_LENGTH = 4_000


class KafkaError(Exception):
    """Base class of all errors with a code on the wire; `str(error)` is the message for people."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls, code: int | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code
            ERRORS_BY_CODE[code] = cls

    @property
    def message(self) -> str:
        """Limited in length, so that it can be sent."""
        text = str(self) or (type(self).__doc__ or "").strip()
        return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]}..."

    def as_value(self) -> Self:
        """Without traceback: a large number of stored errors would keep all frames alive, in cycles."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


ERRORS_BY_CODE: dict[int, type[KafkaError]] = {}
NO_ERROR = 0


class RetriableError(KafkaError):
    """The request may succeed later, or on another broker."""

    retriable = True


class RecordError(NamedTuple):
    """Why one record of a batch was rejected (KIP-467)."""

    batch_index: int
    message: str


class RecordsRejected(KafkaError):
    """A batch was rejected; `record_errors` lists the records that caused it, if any."""

    def __init__(self, message: str = "", record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class UnknownServerError(KafkaError, code=-1):
    """The broker failed unexpectedly; its log has the reason."""


class OffsetOutOfRange(KafkaError, code=1):
    """The offset is outside the range of the partition."""


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


class ReplicaNotAvailable(RetriableError, code=9):
    """The broker has no replica of the partition, or not yet."""


class MessageTooLarge(KafkaError, code=10):
    """The batch is larger than max.message.bytes."""


class StaleControllerEpoch(KafkaError, code=11):
    """A newer controller has taken over."""


class OffsetMetadataTooLarge(KafkaError, code=12):
    """The metadata of a committed offset is longer than offset.metadata.max.bytes."""


class CoordinatorLoadInProgress(RetriableError, code=14):
    """The coordinator is not ready yet."""


class CoordinatorNotAvailable(RetriableError, code=15):
    """The coordinator of this group or transaction is not available."""


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
    """The client is not authorized for this topic."""


class InvalidTimestamp(RecordsRejected, code=32):
    """A record's timestamp is outside the allowed range."""


class UnsupportedSaslMechanism(KafkaError, code=33):
    """The listener does not enable this SASL mechanism."""


class IllegalSaslState(KafkaError, code=34):
    """The request does not belong to this stage of the login."""


class UnsupportedVersion(KafkaError, code=35):
    """The broker does not support this version of the API."""


class TopicAlreadyExists(KafkaError, code=36):
    """A topic of this name exists."""


class InvalidPartitions(KafkaError, code=37):
    """The number of partitions is not allowed."""


class ThrottlingQuotaExceeded(RetriableError, code=89):
    """The quota of changes to partitions is exhausted; the response has the time until it is available again."""


class GroupAuthorizationFailed(KafkaError, code=30):
    """The client is not authorized for this group."""


class ClusterAuthorizationFailed(KafkaError, code=31):
    """The request is reserved for brokers, or for principals with permissions on the cluster."""


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
    """The transaction is in a state that does not allow this."""


class InvalidProducerIdMapping(KafkaError, code=49):
    """The producer id does not belong to this transactional id."""


class InvalidTransactionTimeout(KafkaError, code=50):
    """The transaction timeout is longer than transaction.max.timeout.ms."""


class ConcurrentTransactions(RetriableError, code=51):
    """The previous transaction of this producer is still ending."""


class TransactionCoordinatorFenced(KafkaError, code=52):
    """A newer transaction coordinator has taken over."""


class TransactionalIdAuthorizationFailed(KafkaError, code=53):
    """The producer is not authorized for this transactional id, or did not send one."""


class SecurityDisabled(KafkaError, code=54):
    """No authorizer is configured: there is no access control."""


class OperationNotAttempted(KafkaError, code=55):
    """Other partitions of the request failed, so this one was not tried."""


class KafkaStorageError(RetriableError, code=56):
    """The log directory of the partition is offline."""


class LogDirNotFound(KafkaError, code=57):
    """The path is not one of the broker's log directories."""


class SaslAuthenticationFailed(KafkaError, code=58):
    """The login failed."""


class UnknownProducerId(KafkaError, code=59):
    """The broker has no state of this producer: its records were deleted."""


class NonEmptyGroup(KafkaError, code=68):
    """The group has members."""


class GroupIdNotFound(KafkaError, code=69):
    """The group does not exist."""


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
    """The new leader does not know its high watermark yet."""


class MemberIdRequired(KafkaError, code=79):
    """Join again with the member id that was given."""


class PreferredLeaderNotAvailable(RetriableError, code=80):
    """The preferred leader of the partition is not available, or not in sync."""


class GroupMaxSizeReached(KafkaError, code=81):
    """The group has reached its maximum size."""


class FencedInstanceId(KafkaError, code=82):
    """Another member uses this group.instance.id now."""


class EligibleLeadersNotAvailable(RetriableError, code=83):
    """No replica of the partition is available as leader."""


class ElectionNotNeeded(RetriableError, code=84):
    """The partition already has the right leader."""


class NoReassignmentInProgress(KafkaError, code=85):
    """The partition is not being reassigned."""


class GroupSubscribedToTopic(KafkaError, code=86):
    """Members of the group are subscribed to the topic."""


class InvalidRecord(RecordsRejected, code=87):
    """A record breaks the rules of its topic or of the format."""


class UnstableOffsetCommit(RetriableError, code=88):
    """Offsets of open transactions are pending; retry."""


class ProducerFenced(KafkaError, code=90):
    """A newer producer uses this transactional id."""


class ResourceNotFound(KafkaError, code=91):
    """The resource does not exist."""


class DuplicateResource(KafkaError, code=92):
    """The request names a resource twice."""


class UnacceptableCredential(KafkaError, code=93):
    """The credential does not meet the requirements."""


class InvalidUpdateVersion(KafkaError, code=95):
    """The state of the partition has changed since the request was made."""


class UnknownTopicId(RetriableError, code=100):
    """No topic has this id."""


class BrokerIdNotRegistered(KafkaError, code=102):
    """No broker has registered under this id."""


class InconsistentTopicId(RetriableError, code=103):
    """The partition belongs to another topic with the same name."""


class TransactionalIdNotFound(KafkaError, code=105):
    """The transactional id does not exist."""


class FetchSessionTopicIdError(RetriableError, code=106):
    """The fetch session and the request disagree on topic names or topic ids."""


class IneligibleReplica(KafkaError, code=107):
    """A new in-sync replica is on a broker that is down, shutting down or restarted."""


class NewLeaderElected(KafkaError, code=108):
    """The change has completed a reassignment; another broker leads now."""


class FencedMemberEpoch(KafkaError, code=110):
    """The member epoch is not the current one; join again."""


class UnreleasedInstanceId(KafkaError, code=111):
    """The group.instance.id still belongs to another member."""


class UnsupportedAssignor(KafkaError, code=112):
    """No server-side assignor has this name."""


class StaleMemberEpoch(KafkaError, code=113):
    """The member epoch is old; retry with the new epoch from the heartbeat."""


class MismatchedEndpointType(KafkaError, code=114):
    """The request was sent to an endpoint of the wrong type."""


class UnsupportedEndpointType(KafkaError, code=115):
    """This endpoint type is not supported."""


class TransactionAbortable(KafkaError, code=120):
    """The transaction cannot go on; abort it."""


class InvalidRegularExpression(KafkaError, code=128):
    """The regular expression is not valid."""


def error_of(code: int, context: str = "", message: str | None = None) -> KafkaError:
    """The error for the code of a response, with context and the broker's message."""
    found = ERRORS_BY_CODE.get(code)
    said = message or (f"error code {code}" if found is None else (found.__doc__ or "").strip())
    return (found or UnknownServerError)(f"{context}: {said}" if context else said)


def raise_error(code: int, context: str = "", message: str | None = None) -> None:
    """Returns if the code means success."""
    if code != NO_ERROR:
        raise error_of(code, context, message)
