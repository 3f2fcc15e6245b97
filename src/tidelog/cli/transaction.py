"""`tidelog transaction`: which transactions are open, since when, where; and ending one that hangs."""

import argparse
from typing import TYPE_CHECKING

from tidelog.cli.client_session import Refused, add_client_options, carry_out
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.transaction_admin import TransactionAdmin


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "transaction",
        help="transactions: list, describe, abort",
        description="Transactions: which are known, what they hold up, and how to end one by hand.",
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
        "--state", metavar="STATE", action="append", default=[], help="only those in this state, such as Ongoing"
    )
    add_client_options(parser)
    parser.set_defaults(run=lambda options: carry_out("transaction list", _list, options))


def _add_describe(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "describe",
        help="show a transactional id",
        description="Show a transactional id: its producer, its state, and the partitions of its open transaction.",
    )
    parser.add_argument("transactional_id", metavar="TRANSACTIONAL_ID")
    add_client_options(parser)
    parser.set_defaults(run=lambda options: carry_out("transaction describe", _describe, options))


def _add_abort(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "abort",
        help="end a transaction by hand",
        description=(
            "Abort the open transaction of a transactional id and fence its producer; or, with --partition, one that"
            " no coordinator knows of and that keeps readers of committed records from going on."
        ),
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("transactional_id", metavar="TRANSACTIONAL_ID", nargs="?")
    what.add_argument(
        "--partition", metavar="TOPIC:N", type=_partition_option, help="where a transaction hangs; with --producer-id"
    )
    parser.add_argument("--producer-id", metavar="N", type=int, help="whose transaction hangs there")
    add_client_options(parser)
    parser.set_defaults(run=lambda options: carry_out("transaction abort", _abort, options))


def _partition_option(text: str) -> TopicPartition:
    topic, _, number = text.rpartition(":")
    if not topic or not number.isascii() or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"expected TOPIC:N, found {text!r}")
    return TopicPartition(topic, int(number))


async def _list(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.transaction_admin import TransactionAdmin
    from tidelog.terminal.tables import table

    found = await TransactionAdmin(cluster).list_transactions(options.state)
    if not found:
        print("no transactional ids" + (" in this state" if options.state else " yet"))
        return
    rows = [(each.transactional_id, each.producer_id, each.state, each.coordinator) for each in found]
    print("\n".join(table(["TRANSACTIONAL ID", "PRODUCER ID", "STATE", "COORDINATOR"], rows)))


async def _describe(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.transaction_admin import TransactionAdmin
    from tidelog.errors import TransactionalIdNotFound

    try:
        found = await TransactionAdmin(cluster).describe(options.transactional_id)
    except TransactionalIdNotFound:
        raise _no_such_id(options.transactional_id) from None
    print(f"transactional id  {found.transactional_id}")
    print(f"state             {found.state}")
    print(f"producer          id {found.producer_id}, epoch {found.producer_epoch}")
    print(f"timeout           {found.timeout_ms / 1000:g} s")
    print(f"open since        {_time_text(found.start_ms) if found.start_ms >= 0 else '-'}")
    print(f"partitions        {', '.join(map(str, found.partitions)) or '-'}")


async def _abort(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.transaction_admin import TransactionAdmin
    from tidelog.errors import TransactionalIdNotFound

    admin = TransactionAdmin(cluster)
    if options.partition is not None:
        await _abort_hanging(admin, options.partition, options.producer_id)
        return
    try:
        found = await admin.describe(options.transactional_id)
    except TransactionalIdNotFound:
        raise _no_such_id(options.transactional_id) from None
    await admin.fence(options.transactional_id)
    what = "its open transaction is aborted" if found.state == "Ongoing" else "it had none open"
    print(f"fenced the producer of {options.transactional_id}; {what}")


async def _abort_hanging(admin: "TransactionAdmin", where: TopicPartition, producer_id: int | None) -> None:
    producers = [each for each in await admin.producers(where) if each.current_txn_start_offset >= 0]
    if producer_id is None:
        ids = ", ".join(str(each.producer_id) for each in producers) or "nobody"
        raise Refused(f"say whose with --producer-id; {ids} has a transaction open on {where}")
    hanging = [each for each in producers if each.producer_id == producer_id]
    if not hanging:
        raise Refused(f"producer {producer_id} has no transaction open on {where}")
    await admin.abort_hanging(where, hanging[0])
    print(f"aborted the transaction of producer {producer_id} on {where}")


def _no_such_id(transactional_id: str) -> Refused:
    return Refused(
        f"there is no transactional id {transactional_id}; `tidelog transaction list` shows those that are known"
    )


def _time_text(ms: int) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")
