"""`tidelog partition move`: plan, show, carry out, follow, cancel."""

import argparse
import asyncio
import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from tidelog.cli.client_command import cancel_on_interrupt, no_such_partition, no_such_topic, note
from tidelog.cli.command_error import CommandError
from tidelog.cli.partition_moves.plan_file import parse_plan, plan_json
from tidelog.cli.partition_moves.plan_text import Move, moves_of, plan_lines
from tidelog.cli.partition_moves.progress import Copy, Progress
from tidelog.cli.partition_moves.survey import Survey, survey_cluster
from tidelog.client.admin.reassignment_admin import ReassignmentAdmin
from tidelog.client.admin.replication_throttle import Throttle, ThrottleAdmin, ThrottledMove
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.routing.cluster import Cluster
from tidelog.cluster.move_planner import CannotPlan, Goal, Plan, plan_moves
from tidelog.errors import KafkaError
from tidelog.terminal.live_display import LiveDisplay, supports_live_display
from tidelog.terminal.plurals import plural
from tidelog.types import BrokerId, TopicPartition, ids_text

POLL_S = 1.0
LINE_EVERY_S = 5.0
"""Between lines of progress where it cannot be redrawn."""
ERRORS_SHOWN = 5
METADATA_ATTEMPTS = 5


async def move(cluster: Cluster, options: argparse.Namespace) -> None:
    survey = await survey_cluster(cluster)
    if options.status or options.wait:
        return await _status(cluster, survey, options)
    if options.cancel:
        return await _cancel(cluster, survey, options)
    plan = _plan(survey, options)
    moves = moves_of(plan, survey)
    if options.dry_run and options.json:
        print(plan_json(plan))
        return None
    if not moves:
        _print(options, "nothing to move: the replicas are as wanted already", {"state": "nothing to move"})
        return None
    if not options.json:
        print("\n".join(plan_lines(moves, survey)))
    if options.dry_run or not _is_confirmed(options):
        return None
    return await _carry_out(cluster, moves, options)


# ---- plan


def _plan(survey: Survey, options: argparse.Namespace) -> Plan:
    if survey.ongoing:
        count = plural(len(survey.ongoing), "partition is", "partitions are")
        raise CommandError(
            f"{count} being moved already; `tidelog partition move --status` shows progress, --cancel cancels"
        )
    if options.plan is not None:
        return _plan_from_file(options.plan, survey)
    drained, added = frozenset(options.drain), frozenset(options.add_broker)
    _reject_unknown_brokers(survey, drained, added)
    movable = _selected(survey, options.topics)
    try:
        return plan_moves(survey.load, Goal(options.by), drained=drained, added=added, movable=movable)
    except CannotPlan as error:
        raise CommandError(str(error)) from None


def _plan_from_file(name: str, survey: Survey) -> Plan:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CommandError(f"cannot read the plan {name}: {reason}") from None
    plan = parse_plan(text, "standard input" if name == "-" else name)
    for topic_partition, replicas in plan.items():
        _reject_unknown_partition(survey, topic_partition)
        known = survey.brokers.keys() | set(survey.partitions[topic_partition].replicas)
        for broker in replicas:
            if broker not in known:
                raise CommandError(
                    f"{topic_partition} cannot move to broker {broker}, which is not up; brokers up:"
                    f" {ids_text(sorted(survey.brokers))}"
                )
    return {each: replicas for each, replicas in plan.items() if survey.partitions[each].replicas != replicas}


def _reject_unknown_partition(survey: Survey, topic_partition: TopicPartition) -> None:
    if topic_partition not in survey.partitions:
        topic, partition = topic_partition
        count = sum(each.topic == topic for each in survey.partitions)
        raise no_such_partition(topic, count, partition) if count else no_such_topic(topic)


def _reject_unknown_brokers(survey: Survey, drained: Collection[BrokerId], added: Collection[BrokerId]) -> None:
    hosting = {each for partition in survey.partitions.values() for each in partition.replicas}
    up = ids_text(sorted(survey.brokers))
    for broker in sorted(added):
        if broker not in survey.brokers:
            raise CommandError(f"broker {broker} is not up: start it first (brokers up: {up})")
    for broker in sorted(drained):
        if broker not in survey.brokers and broker not in hosting:
            raise CommandError(f"there is no broker {broker} (brokers up: {up})")


def _selected(survey: Survey, topics: list[str] | None) -> set[TopicPartition]:
    if topics is None:
        return set(survey.partitions)
    known = {each.topic for each in survey.partitions}
    for topic in topics:
        if topic not in known:
            raise no_such_topic(topic)
    return {each for each in survey.partitions if each.topic in topics}


def _is_confirmed(options: argparse.Namespace) -> bool:
    if options.yes:
        return True
    if not sys.stdin.isatty() or options.json:
        raise CommandError("nothing was changed: add --yes to carry out the plan, or --dry-run to only show it")
    print("\nCarry out this plan? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("nothing was changed")
    return False


# ---- carry out


async def _carry_out(cluster: Cluster, moves: list[Move], options: argparse.Namespace) -> None:
    throttle = ThrottleAdmin(cluster)
    throttled = {move.topic_partition: ThrottledMove(move.before, move.added) for move in moves if move.added}
    if options.throttle is not None and throttled:
        await throttle.set(options.throttle, throttled)
    rejected = await ReassignmentAdmin(cluster).alter({move.topic_partition: move.after for move in moves})
    accepted = [move for move in moves if move.topic_partition not in rejected]
    if not accepted:
        await throttle.remove(await throttle.find({each.topic for each in throttled}))
    if rejected:
        _report_rejected(rejected, len(moves))
    progress = Progress(
        [Copy(move.topic_partition, move.before, move.added, move.removed, move.size_bytes) for move in accepted]
    )
    await _follow(cluster, progress, options)
    await _remove_throttles(cluster, {each.topic for each in throttled} if options.throttle is not None else ())
    unmoved = await _unmoved(cluster, progress)
    # The new leaders are those of the plan. One that is not in sync right now takes over later by itself.
    await ReassignmentAdmin(cluster).elect([each.copy.topic_partition for each in progress.states if each.is_done])
    _report_end(options, progress, unmoved)


async def _unmoved(cluster: Cluster, progress: Progress) -> list[str]:
    """Partitions whose replicas are not the new ones. Brokers learn of the end of a move a little later."""
    for _ in range(METADATA_ATTEMPTS):
        metadata = await cluster.ask_topics(None)
        replicas = {
            TopicPartition(topic.name, number): partition.replicas
            for topic in metadata.topics.values()
            for number, partition in topic.partitions.items()
        }
        if all(each.copy.is_made(replicas.get(each.copy.topic_partition)) for each in progress.states):
            break
        await asyncio.sleep(POLL_S)
    return progress.settle(replicas)


def _report_end(options: argparse.Namespace, progress: Progress, unmoved: list[str]) -> None:
    if not unmoved:
        return _print(options, f"moved: {progress.line}", {"state": "completed", **progress.as_json()})
    if options.json:
        print(json.dumps({"state": "interrupted", **progress.as_json()}))
    named = ", ".join(unmoved[:ERRORS_SHOWN]) + (", ..." if len(unmoved) > ERRORS_SHOWN else "")
    raise CommandError(f"{len(unmoved):,} of {plural(len(progress.states), 'partition')} not moved: {named}")


def _report_rejected(rejected: Mapping[TopicPartition, KafkaError], asked: int) -> None:
    for error in list(rejected.values())[:ERRORS_SHOWN]:
        note(f"refused: {error}")
    if len(rejected) == asked:
        raise CommandError("the cluster refused the whole plan; nothing was changed")
    note(f"the cluster refused {plural(len(rejected), 'partition')}; the others are being moved")


async def _follow(cluster: Cluster, progress: Progress, options: argparse.Namespace) -> None:
    """Until all is done. Ctrl-C ends only this: the brokers go on."""
    cancel_on_interrupt()
    display = LiveDisplay(sys.stderr) if supports_live_display(sys.stderr) and not options.json else None
    try:
        await _poll(cluster, progress, display)
    except asyncio.CancelledError:
        note(
            "The brokers go on with the move. `tidelog partition move --status` shows it, --wait waits for it"
            f"{' and removes the throttle' if options.throttle else ''}, --cancel cancels it."
        )
        raise
    finally:
        if display is not None:
            display.show([])


async def _poll(cluster: Cluster, progress: Progress, display: LiveDisplay | None) -> None:
    admin = ReassignmentAdmin(cluster)
    loop = asyncio.get_running_loop()
    next_line_s = loop.time() + LINE_EVERY_S
    while True:
        try:
            progress.update(loop.time(), await admin.ongoing(), await admin.replica_sizes())
        except (ConnectionLost, GaveUp) as error:
            note(f"no answer, trying again: {error}")  # brokers may restart while they move replicas
        if progress.is_done:
            return
        if display is not None:
            display.show(progress.lines())
        elif loop.time() >= next_line_s:
            note(progress.line)
            next_line_s = loop.time() + LINE_EVERY_S
        await asyncio.sleep(POLL_S)


async def _remove_throttles(cluster: Cluster, topics: Collection[str]) -> Throttle:
    admin = ThrottleAdmin(cluster)
    if not topics:
        return Throttle((), ())
    await cluster.refresh()
    found = await admin.find(topics)
    await admin.remove(found)
    return found


# ---- status and cancel


async def _status(cluster: Cluster, survey: Survey, options: argparse.Namespace) -> None:
    if not survey.ongoing:
        return await _report_idle(cluster, survey, options)
    progress = _progress(survey)
    if options.wait:
        await _follow(cluster, progress, options)
        await _remove_throttles(cluster, {each.topic for each in survey.partitions})
        return _report_end(options, progress, await _unmoved(cluster, progress))
    admin, loop = ReassignmentAdmin(cluster), asyncio.get_running_loop()
    progress.update(loop.time(), survey.ongoing.keys(), survey.sizes)
    await asyncio.sleep(POLL_S)  # a rate needs two samples
    progress.update(loop.time(), await admin.ongoing(), await admin.replica_sizes())
    throttle = await ThrottleAdmin(cluster).find({each.topic for each in survey.ongoing})
    lines = progress.lines() + (["  a throttle is set"] if throttle.is_set else [])
    return _print(options, "\n".join(lines), {"state": "moving", "is_throttled": throttle.is_set, **progress.as_json()})


async def _report_idle(cluster: Cluster, survey: Survey, options: argparse.Namespace) -> None:
    """--wait removes a throttle that was left behind. --status changes nothing: a move may be about to begin."""
    topics = {each.topic for each in survey.partitions}
    text = "no partition is being moved"
    if options.wait:
        removed = await _remove_throttles(cluster, topics)
        text += "; removed the throttle of the last move" if removed.is_set else ""
        return _print(options, text, {"state": "idle", "throttle_removed": removed.is_set})
    throttle = await ThrottleAdmin(cluster).find(topics)
    text += "; a throttle is set, `tidelog partition move --wait` removes it" if throttle.is_set else ""
    return _print(options, text, {"state": "idle", "is_throttled": throttle.is_set})


def _progress(survey: Survey) -> Progress:
    return Progress(
        [
            Copy(
                each,
                tuple(broker for broker in found.replicas if broker not in found.adding),
                found.adding,
                found.removing,
                survey.size_of(each),
            )
            for each, found in sorted(survey.ongoing.items())
            if each in survey.partitions
        ]
    )


async def _cancel(cluster: Cluster, survey: Survey, options: argparse.Namespace) -> None:
    chosen = [each for each in survey.ongoing if options.topics is None or each.topic in options.topics]
    if not chosen:
        return _print(options, "no partition is being moved", {"state": "idle"})
    rejected = await ReassignmentAdmin(cluster).alter(dict.fromkeys(chosen))
    for error in list(rejected.values())[:ERRORS_SHOWN]:
        note(f"not cancelled: {error}")
    if len(chosen) == len(survey.ongoing) and not rejected:
        await _remove_throttles(cluster, {each.topic for each in survey.partitions})
    count = len(chosen) - len(rejected)
    text = f"cancelled {plural(count, 'move')}: the replicas stay on their brokers"
    _print(options, text, {"state": "cancelled", "cancelled": count, "refused": [str(each) for each in rejected]})
    if rejected:
        raise CommandError(f"{plural(len(rejected), 'move')} could not be cancelled")
    return None


def _print(options: argparse.Namespace, text: str, found: Mapping[str, object]) -> None:
    print(json.dumps(found) if options.json else text)
