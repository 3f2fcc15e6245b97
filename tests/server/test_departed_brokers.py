"""Brokers that left a moment ago: who is remembered, and for how long."""

from dataclasses import dataclass

from tidelog.cluster.image import BrokerRegistration, ClusterImage
from tidelog.server.departed_brokers import REMEMBERED_S, DepartedBrokers


@dataclass
class SetClock:
    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)


def image_of(*broker_ids: int) -> ClusterImage:
    return ClusterImage("cluster", {each: BrokerRegistration(each, ()) for each in broker_ids})


def test_broker_that_left_is_remembered_for_a_while() -> None:
    clock = SetClock()
    departed = DepartedBrokers(clock, image_of(1, 2, 3))
    assert departed.among([1, 2, 3]) == []
    departed.on_image(image_of(2, 3))
    assert [each.id for each in departed.among([1, 2, 3])] == [1]
    assert departed.among([2, 3]) == []
    clock.seconds += REMEMBERED_S
    assert departed.among([1, 2, 3]) == []


def test_broker_that_came_back_is_not_listed_twice() -> None:
    departed = DepartedBrokers(SetClock(), image_of(1, 2))
    departed.on_image(image_of(2))
    departed.on_image(image_of(1, 2))
    assert departed.among([1, 2]) == []
