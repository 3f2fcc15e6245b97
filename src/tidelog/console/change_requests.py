"""Requests of the page for changes: their fields, checked, and the change that each asks for."""

from collections.abc import Mapping
from typing import Any

from tidelog.console.changes import Changes


class Mistake(Exception):
    """A request that cannot be answered; the message says why."""


def text_of(wanted: Mapping[str, Any], name: str) -> str:
    value = wanted.get(name)
    if not isinstance(value, str):
        raise Mistake(f"{name} must be a text")
    return value


def optional_text_of(wanted: Mapping[str, Any], name: str) -> str | None:
    return None if wanted.get(name) is None else text_of(wanted, name)


def number_of(wanted: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = wanted.get(name, default)
    text = str(value).strip()
    if isinstance(value, bool) or not text.removeprefix("-").isdecimal() or not text.isascii():
        raise Mistake(f"{name} must be a number")
    return int(text)


def numbers_of(wanted: Mapping[str, Any], name: str) -> list[int]:
    values = wanted.get(name)
    if not isinstance(values, list):
        raise Mistake(f"{name} must be a list of numbers")
    return [number_of({name: value}, name) for value in values]


def _object_of(wanted: Mapping[str, Any], name: str) -> dict[str, str]:
    found = wanted.get(name) or {}
    if not isinstance(found, dict):
        raise Mistake(f"{name} must be an object")
    return {str(key): str(value) for key, value in found.items()}


async def carry_out(changes: Changes, change: str, wanted: Mapping[str, Any]) -> str:
    """Returns a sentence about what was done. Raises Mistake."""
    match change:
        case "create-topic":
            partitions, factor = number_of(wanted, "partitions", -1), number_of(wanted, "factor", -1)
            return await changes.create_topic(
                text_of(wanted, "topic"), partitions, factor, _object_of(wanted, "settings")
            )
        case "delete-topic":
            return await changes.delete_topic(text_of(wanted, "topic"))
        case "add-partitions":
            return await changes.add_partitions(text_of(wanted, "topic"), number_of(wanted, "count"))
        case "set":
            kind, name, key = (text_of(wanted, field) for field in ("kind", "name", "key"))
            return await changes.alter_config(kind, name, key, optional_text_of(wanted, "value"))
        case "elect":
            return await changes.elect(text_of(wanted, "topic"), numbers_of(wanted, "partitions"))
        case "move":
            replicas = None if wanted.get("replicas") is None else numbers_of(wanted, "replicas")
            return await changes.move(text_of(wanted, "topic"), number_of(wanted, "partition"), replicas)
        case "produce":
            partition = None if wanted.get("partition") is None else number_of(wanted, "partition")
            record = optional_text_of(wanted, "key"), optional_text_of(wanted, "value")
            return await changes.produce(text_of(wanted, "topic"), *record, partition, _object_of(wanted, "headers"))
        case "abort-transaction":
            return await changes.abort_transaction(text_of(wanted, "id"))
        case "abort-hanging":
            partition, producer_id = number_of(wanted, "partition"), number_of(wanted, "producer_id")
            return await changes.abort_hanging(text_of(wanted, "topic"), partition, producer_id)
        case "kill-broker":
            return await changes.kill_broker(number_of(wanted, "broker"))
        case "start-broker":
            return await changes.start_broker(number_of(wanted, "broker"))
    raise Mistake(f"unknown change {change}")
