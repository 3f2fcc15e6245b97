import asyncio

from tidelog.controller.event_queue import EventQueue
from tidelog.controller.events import (
    BrokerChange,
    ControlledShutdown,
    ElectLeaders,
    Event,
    Expire,
    PartitionModifications,
    TopicChange,
)
from tidelog.runtime.virtual_time import run_virtually


def test_events_are_taken_one_at_a_time_in_order_and_equal_ones_once() -> None:
    async def scenario() -> None:
        queue = EventQueue()
        events: list[Event] = [TopicChange(), BrokerChange(), PartitionModifications("a"), PartitionModifications("b")]
        for event in [*events, BrokerChange(), PartitionModifications("a")]:
            queue.put(event)
        assert len(queue) == 4
        assert [await queue.next() for _ in range(4)] == events
        queue.put(BrokerChange())
        assert await queue.next() == BrokerChange(), "one that was taken does not count as waiting"

    run_virtually(scenario())


def test_two_questions_are_two_events() -> None:
    async def scenario() -> None:
        queue = EventQueue()
        loop = asyncio.get_running_loop()
        for _ in range(2):
            queue.put(ControlledShutdown(1, 5, loop.create_future()))
            queue.put(ElectLeaders(None, False, loop.create_future()))
        assert len(queue) == 4

    run_virtually(scenario())


def test_who_waits_for_an_event_is_woken_by_the_first() -> None:
    async def scenario() -> None:
        queue = EventQueue()
        waiting = asyncio.ensure_future(queue.next())
        await asyncio.sleep(1)
        assert not waiting.done()
        queue.put(TopicChange())
        assert await waiting == TopicChange()

    run_virtually(scenario())


def test_clear_and_put_drops_what_waited_and_returns_what_that_was() -> None:
    async def scenario() -> None:
        queue = EventQueue()
        queue.put(TopicChange())
        queue.put(BrokerChange())
        assert queue.clear_and_put(Expire()) == [TopicChange(), BrokerChange()]
        assert await queue.next() == Expire()
        assert len(queue) == 0

    run_virtually(scenario())
