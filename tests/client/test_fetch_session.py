"""Next requests of a fetch session."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.consumer.fetch_session import LAST_EPOCH, FetchSessionHandler, SessionRequest
from tidelog.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from tidelog.protocol.messages.fetch import FetchPartition, FetchResponse
from tidelog.types import TopicPartition, Uuid

OLD_ID, NEW_ID = bytes([1] * 16), bytes([2] * 16)
ORDERS_0, ORDERS_1, CLICKS_0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 0)


def wanted(key: TopicPartition, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition=key.partition, fetch_offset=offset)


def id_of(key: TopicPartition) -> Uuid:
    return key.topic.encode().ljust(16)


def session_with(*keys: TopicPartition) -> FetchSessionHandler:
    session = FetchSessionHandler()
    for key in keys:
        session.set(key, id_of(key), wanted(key))
    return session


def open_session(*keys: TopicPartition, use_topic_ids: bool = True) -> FetchSessionHandler:
    session = session_with(*keys)
    session.build(use_topic_ids=use_topic_ids)
    assert session.on_response(FetchResponse(session_id=77))
    return session


def named(request: SessionRequest) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.topic, partition.partition): partition.fetch_offset
        for topic in request.topics
        for partition in topic.partitions
    }


def forgotten(request: SessionRequest) -> set[TopicPartition]:
    return {TopicPartition(topic.topic, partition) for topic in request.forgotten for partition in topic.partitions}


def test_the_first_request_names_everything_and_asks_for_a_session() -> None:
    request = session_with(ORDERS_0, CLICKS_0, ORDERS_1).build(use_topic_ids=True)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert [(topic.topic, topic.topic_id) for topic in request.topics] == [
        ("orders", id_of(ORDERS_0)),
        ("clicks", id_of(CLICKS_0)),
    ]
    assert named(request) == {ORDERS_0: 0, ORDERS_1: 0, CLICKS_0: 0}
    assert request.forgotten == []


def test_later_requests_name_only_what_changed() -> None:
    session = open_session(ORDERS_0, ORDERS_1, CLICKS_0)
    session.set(ORDERS_1, id_of(ORDERS_1), wanted(ORDERS_1, 5))
    request = session.build(use_topic_ids=True)
    assert (request.session_id, request.session_epoch) == (77, 1)
    assert named(request) == {ORDERS_1: 5}
    session.on_response(FetchResponse(session_id=77))
    assert session.build(use_topic_ids=True) == SessionRequest(77, 2, [], [])


def test_what_is_removed_is_forgotten_once() -> None:
    session = open_session(ORDERS_0, ORDERS_1, CLICKS_0)
    session.remove(ORDERS_1)
    session.remove(TopicPartition("never wanted", 0))
    request = session.build(use_topic_ids=True)
    assert named(request) == {}
    assert forgotten(request) == {ORDERS_1}
    session.on_response(FetchResponse(session_id=77))
    assert session.build(use_topic_ids=True) == SessionRequest(77, 2, [], [])


def test_what_is_removed_before_the_broker_heard_of_it_is_not_forgotten() -> None:
    session = open_session(ORDERS_0)
    session.set(CLICKS_0, id_of(CLICKS_0), wanted(CLICKS_0))
    session.remove(CLICKS_0)
    assert session.build(use_topic_ids=True) == SessionRequest(77, 1, [], [])


def test_what_is_removed_and_set_again_is_named_and_not_forgotten() -> None:
    for use_topic_ids in (True, False):
        session = open_session(ORDERS_0, use_topic_ids=use_topic_ids)
        session.remove(ORDERS_0)
        session.set(ORDERS_0, id_of(ORDERS_0), wanted(ORDERS_0, 9))
        request = session.build(use_topic_ids=use_topic_ids)
        assert named(request) == {ORDERS_0: 9}
        assert request.forgotten == []


def test_a_recreated_topic_replaces_the_old_one() -> None:
    session = FetchSessionHandler()
    session.set(ORDERS_0, OLD_ID, wanted(ORDERS_0, 5))
    session.build(use_topic_ids=True)
    session.on_response(FetchResponse(session_id=77))
    session.set(ORDERS_0, NEW_ID, wanted(ORDERS_0))
    request = session.build(use_topic_ids=True)
    assert [topic.topic_id for topic in request.topics] == [NEW_ID]
    assert [topic.topic_id for topic in request.forgotten] == [OLD_ID]


def test_an_unknown_session_is_replaced_by_a_new_one() -> None:
    session = open_session(ORDERS_0, ORDERS_1)
    session.build(use_topic_ids=True)
    assert not session.on_response(FetchResponse(error_code=FetchSessionIdNotFound.code))
    request = session.build(use_topic_ids=True)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == {ORDERS_0: 0, ORDERS_1: 0}


def test_a_session_out_of_step_is_closed_by_the_full_request_that_replaces_it() -> None:
    for error in (InvalidFetchSessionEpoch, FetchSessionTopicIdError):
        session = open_session(ORDERS_0, ORDERS_1)
        session.build(use_topic_ids=True)
        assert not session.on_response(FetchResponse(error_code=error.code))
        request = session.build(use_topic_ids=True)
        assert (request.session_id, request.session_epoch) == (77, 0)
        assert named(request) == {ORDERS_0: 0, ORDERS_1: 0}


def test_after_a_lost_request_everything_is_named_again() -> None:
    session = open_session(ORDERS_0, ORDERS_1)
    session.set(ORDERS_0, id_of(ORDERS_0), wanted(ORDERS_0, 3))
    session.build(use_topic_ids=True)
    session.on_lost()
    request = session.build(use_topic_ids=True)
    assert (request.session_id, request.session_epoch) == (77, 0)
    assert named(request) == {ORDERS_0: 3, ORDERS_1: 0}


def test_a_broker_without_room_for_sessions_gets_full_requests() -> None:
    session = session_with(ORDERS_0, ORDERS_1)
    for _ in range(3):
        request = session.build(use_topic_ids=True)
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert named(request) == {ORDERS_0: 0, ORDERS_1: 0}
        assert session.on_response(FetchResponse(session_id=0))


def test_a_session_speaks_of_topics_in_one_way() -> None:
    session = open_session(ORDERS_0, ORDERS_1)
    request = session.build(use_topic_ids=False)
    assert (request.session_id, request.session_epoch) == (77, 0)
    assert named(request) == {ORDERS_0: 0, ORDERS_1: 0}


def test_epochs_go_round_without_the_two_that_mean_something_else() -> None:
    session = open_session(ORDERS_0)
    session._epoch = LAST_EPOCH
    assert session.build(use_topic_ids=True).session_epoch == LAST_EPOCH
    session.on_response(FetchResponse(session_id=77))
    assert session.build(use_topic_ids=True).session_epoch == 1


class BrokerView:
    """What a broker that serves the session by KIP-227 believes is wanted."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, Uuid, int], int] = {}
        self.epoch = 0

    def take(self, request: SessionRequest) -> FetchResponse:
        if request.session_epoch == 0:
            self.partitions, self.epoch = {}, 0
        assert request.session_epoch == self.epoch
        self.epoch += 1
        for topic in request.topics:
            for partition in topic.partitions:
                self.partitions[topic.topic, topic.topic_id, partition.partition] = partition.fetch_offset
        for gone in request.forgotten:
            for index in gone.partitions:
                del self.partitions[gone.topic, gone.topic_id, index]
        return FetchResponse(session_id=77)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 3), st.sampled_from([OLD_ID, NEW_ID]), st.integers(0, 9)),
        st.tuples(st.just("remove"), st.integers(0, 3)),
        st.sampled_from([("fetch",), ("fetch",), ("lose",), ("refuse",)]),
    ),
    max_size=40,
)


@given(steps)
def test_the_broker_always_knows_what_is_wanted(steps: list[tuple[object, ...]]) -> None:
    session, broker = FetchSessionHandler(), BrokerView()
    expected: dict[tuple[str, Uuid, int], int] = {}
    for step in [*steps, ("fetch",)]:
        match step:
            case ("set", int(index), bytes(topic_id), int(offset)):
                expected = {key: value for key, value in expected.items() if key[2] != index}
                expected["orders", topic_id, index] = offset
                session.set(TopicPartition("orders", index), topic_id, FetchPartition(index, fetch_offset=offset))
            case ("remove", int(index)):
                expected = {key: value for key, value in expected.items() if key[2] != index}
                session.remove(TopicPartition("orders", index))
            case ("fetch",):
                assert session.on_response(broker.take(session.build(use_topic_ids=True)))
                assert broker.partitions == expected
            case ("lose",):
                session.build(use_topic_ids=True)
                session.on_lost()
            case ("refuse",):
                session.build(use_topic_ids=True)
                assert not session.on_response(FetchResponse(error_code=InvalidFetchSessionEpoch.code))
