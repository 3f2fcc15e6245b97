"""`tidelog transaction`: list and describe transactions, abort open or hanging ones."""

import argparse
import json
from typing import TYPE_CHECKING

from tidelog.cli.client_command import (
    add_client_options,
    add_json_option,
    name_option,
    no_such_partition,
    no_such_topic,
    number_option,
    run_command,
)
from tidelog.cli.command_error import CommandError
from tidelog.numerals import natural_number
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.transaction_admin import TransactionAdmin
    from tidelog.client.routing.cluster import Cluster

OPEN = "Ongoing"
DECIDED = {"PrepareCommit": "committed", "PrepareAbort": "aborted"}
STATES = ("Empty", OPEN, *DECIDED, "CompleteCommit", "CompleteAbort")
"""Kafka's names of transaction states."""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "transaction",
        help="transactions: list, describe, abort",
        description="Transactions: list and describe transactional ids, abort open or hanging transactions.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_list(actions)
    _add_describe(actions)
    _add_abort(actions)


def _add_list(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "list", help="list transactional ids", description="List transactional ids, with their state."
    )
    parser.add_argument(
        "--state",
        metavar="STATE",
        action="append",
        default=[],
        type=_state_option,
        help=f"only those in this state: {', '.join(STATES)}; may be repeated",
    )
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("transaction list", _list, options))


def _add_describe(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "describe",
        help="show a transactional id",
        description="Show a transactional id: its producer, its state, and the partitions of its open transaction.",
    )
    parser.add_argument("transactional_id", metavar="TRANSACTIONAL_ID", type=name_option)
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("transaction describe", _describe, options))


def _add_abort(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "abort",
        help="abort a transaction",
        description=(
            "Abort the open transaction of a transactional id and fence its producer. With --partition, abort a hanging"
            " transaction that no coordinator knows and that blocks read_committed consumers."
        ),
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("transactional_id", metavar="TRANSACTIONAL_ID", nargs="?", type=name_option)
    what.add_argument(
        "--partition",
        metavar="TOPIC:N",
        type=_partition_option,
        help="partition of a hanging transaction; needs --producer-id",
    )
    parser.add_argument("--producer-id", metavar="N", type=number_option, help="producer of the hanging transaction")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("transaction abort", _abort, options))


def _state_option(text: str) -> str:
    for state in STATES:
        if state.lower() == text.lower():
            return state
    raise argparse.ArgumentTypeError(f"expected one of {', '.join(STATES)}, found {text!r}")


def _partition_option(text: str) -> TopicPartition:
    topic, _, number = text.rpartition(":")
    if not topic or natural_number(number) is None:
        raise argparse.ArgumentTypeError(f"expected TOPIC:N, found {text!r}")
    return TopicPartition(topic, int(number))


async def _list(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.admin.transaction_admin import TransactionAdmin
    from tidelog.terminal.tables import table

    found = await TransactionAdmin(cluster).list_transactions(options.state)
    if options.json:
        print(json.dumps([each._asdict() for each in found]))
        return
    if not found:
        hint = "in this state" if options.state else "yet; a producer with a transactional.id creates one"
        print(f"no transactional ids {hint}")
        return
    rows = [(each.transactional_id, each.producer_id, each.state, each.coordinator) for each in found]
    print("\n".join(table(["TRANSACTIONAL ID", "PRODUCER ID", "STATE", "COORDINATOR"], rows)))


async def _describe(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.admin.transaction_admin import TransactionAdmin
    from tidelog.errors import TransactionalIdNotFound

    try:
        found = await TransactionAdmin(cluster).describe(options.transactional_id)
    except TransactionalIdNotFound:
        raise _no_such_id(options.transactional_id) from None
    if options.json:
        print(json.dumps(found._asdict() | {"partitions": [[*key] for key in found.partitions]}))
        return
    print(f"transactional id  {found.transactional_id}")
    print(f"state             {found.state}")
    print(f"producer          id {found.producer_id}, epoch {found.producer_epoch}")
    print(f"timeout           {found.timeout_ms / 1000:g} s")
    is_open = found.state in (OPEN, *DECIDED)
    print(f"open since        {_time_text(found.start_ms) if is_open and found.start_ms >= 0 else '-'}")
    print(f"partitions        {', '.join(map(str, found.partitions)) or '-'}")


async def _abort(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.admin.transaction_admin import TransactionAdmin
    from tidelog.errors import TransactionalIdNotFound

    admin = TransactionAdmin(cluster)
    if options.partition is not None:
        await _check_partition(cluster, options.partition)
        await _abort_hanging(admin, options.partition, options.producer_id)
        said = f"aborted the transaction of producer {options.producer_id} on {options.partition}"
        print(json.dumps({"producer_id": options.producer_id, "aborted": True}) if options.json else said)
        return
    if options.producer_id is not None:
        raise CommandError("--producer-id needs --partition; a transactional id has only one producer")
    try:
        found = await admin.describe(options.transactional_id)
    except TransactionalIdNotFound:
        raise _no_such_id(options.transactional_id) from None
    await admin.fence(options.transactional_id)
    if options.json:
        print(json.dumps({"transactional_id": found.transactional_id, "state_before": found.state, "fenced": True}))
    else:
        print(f"fenced the producer of {options.transactional_id}; {_fencing_result(found.state)}")


def _fencing_result(state: str) -> str:
    """Effect of fencing on the producer's transaction, by its state before."""
    if state == OPEN:
        return "its open transaction was aborted"
    if state in DECIDED:
        return f"its transaction was already {DECIDED[state]}"
    return "it had no transaction open"


async def _check_partition(cluster: "Cluster", where: TopicPartition) -> None:
    topics = (await cluster.ask_topics([where.topic])).topics
    if where.topic not in topics:
        raise no_such_topic(where.topic)
    known = topics[where.topic].partitions
    if where.partition not in known:
        raise no_such_partition(where.topic, len(known), where.partition)


async def _abort_hanging(admin: "TransactionAdmin", where: TopicPartition, producer_id: int | None) -> None:
    producers = [each for each in await admin.producers(where) if each.current_txn_start_offset >= 0]
    if not producers:
        raise CommandError(f"no producer has an open transaction on {where}")
    ids = ", ".join(str(each.producer_id) for each in producers)
    if producer_id is None:
        raise CommandError(
            f"choose a producer with --producer-id; producers with an open transaction on {where}: {ids}"
        )
    hanging = [each for each in producers if each.producer_id == producer_id]
    if not hanging:
        raise CommandError(f"producer {producer_id} has no open transaction on {where}; producers that have one: {ids}")
    await _reject_if_coordinated(admin, where, producer_id)
    await admin.abort_hanging(where, hanging[0])


async def _reject_if_coordinated(admin: "TransactionAdmin", where: TopicPartition, producer_id: int) -> None:
    """Raises an error if the coordinator will end the transaction itself, perhaps with a commit."""
    for each in await admin.list_transactions([OPEN, *DECIDED]):
        if each.producer_id == producer_id:
            raise CommandError(
                f"the transaction of producer {producer_id} on {where} is not hanging: it belongs to"
                f" {each.transactional_id} ({each.state}); use `tidelog transaction abort {each.transactional_id}`"
            )


def _no_such_id(transactional_id: str) -> CommandError:
    return CommandError(
        f"transactional id {transactional_id} does not exist; `tidelog transaction list` lists the transactional ids"
    )


def _time_text(ms: int) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")
