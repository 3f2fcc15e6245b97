"""Nodes that somebody else wrote: what is in them is understood as a whole, or refused as malformed."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration, PartitionRegistration
from tidelog.cluster.znodes import MalformedNode
from tidelog.controller.request_batch import RequestBatch
from tidelog.protocol.codec import encode

EMPTY = PartitionRegistration(0, (1, 2), -1, 0, ())
LIVE = {1: BrokerRegistration(1, (), None, 1)}

DECODERS: dict[str, tuple[Callable[[bytes], object], dict[str, Any]]] = {
    "registration": (
        lambda data: znodes.decode_broker(1, data, 1),
        {
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "endpoints": ["PLAINTEXT://host:9092"],
            "rack": "r",
            "version": 5,
        },
    ),
    "topic": (
        lambda data: znodes.decode_topic("t", data, 0, [None] * znodes.partition_count("t", data), {}),
        {
            "partitions": {"0": [1, 2], "1": [2, 1]},
            "adding_replicas": {"0": [3]},
            "removing_replicas": {},
            "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "version": 3,
        },
    ),
    "state": (
        lambda data: znodes.decode_state("t", EMPTY, data, 0),
        {"leader": 1, "leader_epoch": 2, "isr": [1, 2], "controller_epoch": 3, "version": 1},
    ),
    "config": (lambda data: znodes.decode_config(data, "/x"), {"version": 1, "config": {"retention.ms": "1"}}),
    "config change": (
        lambda data: znodes.decode_config_change(data, "/x"),
        {"version": 2, "entity_path": "topics/t"},
    ),
    "partition list": (
        lambda data: znodes.decode_partition_list(data, "/x"),
        {"version": 1, "partitions": [{"topic": "t", "partition": 0}]},
    ),
    "log directory event": (
        lambda data: znodes.decode_log_directory_event(data, "/x"),
        {"version": 1, "broker": 1, "event": 1},
    ),
    "reassignment": (
        znodes.decode_reassignment,
        {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]},
    ),
    "cluster id": (znodes.decode_cluster_id, {"version": "1", "id": "c"}),
    "controller": (znodes.decode_controller, {"version": 2, "brokerid": 1}),
    "controller epoch": (znodes.decode_controller_epoch, {}),
    "producer id block": (
        znodes.decode_producer_id_block,
        {"version": 1, "broker": 1, "block_start": "0", "block_end": "999"},
    ),
}

NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def understood(decode: Callable[[bytes], object], data: bytes) -> object | None:
    try:
        return decode(data)
    except MalformedNode:
        return None


@pytest.mark.parametrize("kind", [kind for kind in DECODERS if kind != "controller epoch"])
def test_what_is_well_formed_is_understood(kind: str) -> None:
    decode, content = DECODERS[kind]
    assert decode(json.dumps(content).encode()) is not None


@pytest.mark.parametrize("kind", DECODERS)
@example(data=b"[" * 100_000)
@given(data=st.binary(max_size=20) | NONSENSE.map(lambda content: json.dumps(content).encode()))
def test_nonsense_is_malformed_and_nothing_worse(kind: str, data: bytes) -> None:
    understood(DECODERS[kind][0], data)


@pytest.mark.parametrize("kind", DECODERS)
@given(data=st.data())
def test_nonsense_in_one_field_is_malformed_and_nothing_worse(kind: str, data: st.DataObject) -> None:
    decode, content = DECODERS[kind]
    changed = json.loads(json.dumps(content))
    _spoil(changed, data)
    understood(decode, json.dumps(changed).encode())


@pytest.mark.parametrize("kind", ["registration", "topic", "state"])
@given(data=st.data())
def test_what_is_understood_can_be_sent_to_brokers(kind: str, data: st.DataObject) -> None:
    decode, content = DECODERS[kind]
    changed = json.loads(json.dumps(content))
    _spoil(changed, data)
    found = understood(decode, json.dumps(changed).encode())
    if found is not None:
        _print(found)


def _spoil(content: Any, data: st.DataObject) -> None:
    """Put nonsense in the place of something, at any depth."""
    keys = sorted(content) if isinstance(content, dict) else list(range(len(content)))
    if not keys:
        return
    key = data.draw(st.sampled_from(keys))
    if isinstance(content[key], dict | list) and content[key] and data.draw(st.booleans()):
        _spoil(content[key], data)
    else:
        content[key] = data.draw(NONSENSE)


def _print(found: object) -> None:
    batch = RequestBatch(1, 1)
    partitions = (
        found.partitions
        if hasattr(found, "partitions")
        else [found]
        if isinstance(found, PartitionRegistration)
        else []
    )
    for partition in partitions:
        batch.add_leader_and_isr([1], "t", bytes(16), partition, is_new=False)
        batch.add_metadata([1], [("t", bytes(16), partition)])
    batch.add_metadata([1])
    live = {1: found} if isinstance(found, BrokerRegistration) else LIVE
    for _, request in batch.build(live):
        encode(request, type(request).__versions__.last)
