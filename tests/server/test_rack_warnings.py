"""Topics of which replicas share a rack."""

import pytest

from tidelog.cluster.image import PartitionRegistration, Topic
from tidelog.server.rack_warnings import share_a_rack, warn_of_shared_racks
from tidelog.types import ZERO_UUID

RACKS = {1: "east", 2: "east", 3: "west", 4: None, 5: None}


@pytest.mark.parametrize(
    ("replicas", "is_shared"),
    [([1, 3], False), ([1, 2, 3], True), ([1], False), ([4, 5], False), ([1, 4, 9], False), ([], False)],
)
def test_brokers_without_a_rack_share_none(replicas: list[int], is_shared: bool) -> None:
    assert share_a_rack(replicas, RACKS) == is_shared


def test_warning_names_the_topic_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    places = [(1, 2), (1, 3), (2, 1)]
    partitions = tuple(PartitionRegistration(index, place, 1, 0, place) for index, place in enumerate(places))
    warn_of_shared_racks([Topic("orders", ZERO_UUID, partitions)], RACKS)
    (line,) = caplog.messages
    assert line.endswith("topic=orders partitions=2 replication_factor=2 racks=2")
