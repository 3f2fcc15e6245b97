"""AlterPartition requests of leaders: check them, write the ISR, and advance reassignments that wait for it."""

from tidelog.cluster.image import PartitionRegistration
from tidelog.controller.alter_partition import altered
from tidelog.controller.broker_changes import on_broker_change
from tidelog.controller.events import AlterPartition, BrokerChange
from tidelog.controller.leader_rebalance import schedule_check_after_join
from tidelog.controller.partition_state_machine import reload
from tidelog.controller.reassignment_events import advance_reassignments
from tidelog.controller.state_writes import write_states
from tidelog.controller.term import ControllerTerm
from tidelog.errors import InvalidUpdateVersion, KafkaError, NewLeaderElected, StaleBrokerEpoch, UnknownTopicOrPartition
from tidelog.types import BrokerId, TopicPartition


async def on_alter_partition(term: ControllerTerm, event: AlterPartition) -> str | None:
    if not await _is_current_incarnation(term, event.broker_id, event.broker_epoch):
        if not event.answer.done():
            event.answer.set_exception(StaleBrokerEpoch(f"broker {event.broker_id} is registered with another epoch"))
        return None
    context = term.context
    outcomes: dict[TopicPartition, PartitionRegistration | KafkaError] = {}
    await reload(term, [each for each, _ in event.proposals if context.find(each) is not None])
    wanted: dict[TopicPartition, PartitionRegistration] = {}
    for topic_partition, proposed in event.proposals:
        if context.find(topic_partition) is None or context.is_being_deleted(topic_partition):
            outcomes[topic_partition] = UnknownTopicOrPartition("The partition does not exist.")
            continue
        partition = context.partition(topic_partition)
        try:
            decision = altered(partition, event.broker_id, proposed, context.health(topic_partition))
        except KafkaError as error:
            outcomes[topic_partition] = error.as_value()
            continue
        outcomes[topic_partition] = partition
        if decision is not None:
            wanted[topic_partition] = decision.partition.stamped(controller_epoch=term.fence.epoch)
    written = await _write(term, wanted, outcomes)
    await advance_reassignments(term, written)
    for each in written:
        if context.partition(each).leader != event.broker_id:
            outcomes[each] = NewLeaderElected()
        elif context.partition(each).version != written[each].version:
            # A completed reassignment has raised the leader epoch: the leader learns it from LeaderAndIsr.
            outcomes[each] = InvalidUpdateVersion()
    if not event.answer.done():
        event.answer.set_result(outcomes)
    schedule_check_after_join(term, written)
    return f"in-sync replicas changed by request broker_id={event.broker_id} partitions={len(written)}"


async def _is_current_incarnation(term: ControllerTerm, broker_id: BrokerId, broker_epoch: int) -> bool:
    registered = term.context.brokers.get(broker_id)
    if registered is None or registered.epoch < broker_epoch:
        # The broker registered after the last broker change: process that change first.
        await on_broker_change(term, BrokerChange())
        registered = term.context.brokers.get(broker_id)
    return registered is not None and registered.epoch == broker_epoch


async def _write(
    term: ControllerTerm,
    wanted: dict[TopicPartition, PartitionRegistration],
    outcomes: dict[TopicPartition, PartitionRegistration | KafkaError],
) -> dict[TopicPartition, PartitionRegistration]:
    """Write the states and send UpdateMetadata, but no LeaderAndIsr: the leader gets the ISR in its response."""
    outcome = await write_states(term.store, wanted)
    for each, partition in outcome.written.items():
        term.context.put(each, partition)
        outcomes[each] = partition
    for each in outcome.lost:
        outcomes[each] = InvalidUpdateVersion()
    term.enqueue_update_metadata(outcome.written)
    return outcome.written
