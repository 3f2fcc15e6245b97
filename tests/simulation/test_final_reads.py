"""Final reads of a simulation, before the judges are asked."""

from tests.simulation.scenario import simulate
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.history import Decision, History, Write
from tidelog.simulation.work.base import WorkContext
from tidelog.simulation.work.reading import FinalReads
from tidelog.simulation.work.transacting import COORDINATOR_SETTINGS


def test_what_comes_after_an_abandoned_transaction_is_read_as_committed() -> None:
    """The last stable offset stands before it until it times out: what is committed behind it is not lost."""

    async def scenario(cluster: SimulatedCluster) -> None:
        history = History()
        bench = WorkContext(cluster, history, SeededRandomness(1), lambda _: None, {}, 1000, 10.0)
        (place,) = await bench.topic("payments", 1)

        def producer(name: str) -> TransactionalProducer:
            return TransactionalProducer(bench.client(name), cluster.clock, name, transaction_timeout_ms=4000)

        async with producer("abandoning") as abandoning, producer("committing") as committing:
            abandoning.begin()
            await abandoning.send(place.topic, b"abandoned", partition=0)
            transaction = history.begin_transaction("committing")
            write = history.begin(Write(place, b"committed", "committing", transaction=transaction))
            committing.begin()
            history.acknowledge(write, (await committing.send(place.topic, write.value, partition=0)).offset)
            transaction.decision = Decision.COMMITTING
            await committing.commit()
            transaction.decision = Decision.COMMITTED
            await FinalReads(bench).settle()
            assert write.value in history.seen_committed

    simulate(scenario, **COORDINATOR_SETTINGS)
