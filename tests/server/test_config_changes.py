"""Changes of settings that other brokers made: each is taken over, in order, and none is missed."""

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tidelog.cluster import znodes
from tidelog.cluster.image import DEFAULT_ENTITY_NAME, ClusterImage, Topic
from tidelog.config.broker import BrokerSettings
from tidelog.config.topic import TopicSettings
from tidelog.controller.registration import prepare_store
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.server.cluster_state import ClusterState
from tidelog.server.config_changes import NOTIFICATION_AGE_S, ConfigChanges
from tidelog.store.interface import Store
from tidelog.store.memory import MemoryStore, MemoryStoreState


class SettingsSeen:
    """Stands where the hosted partitions are: notes the settings they get."""

    def __init__(self) -> None:
        self.retention_ms: dict[str, list[int]] = {}

    def configure(self, topic: str, partition_count: int, settings: TopicSettings) -> None:
        self.retention_ms.setdefault(topic, []).append(settings.retention_ms)

    def on_brokers_changed(self, broker_epochs: Mapping[int, int]) -> None: ...


class Following:
    """A broker's part that follows the settings, and another session to change them with."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.state = MemoryStoreState()
        self.own = MemoryStore(self.state)
        self.other = MemoryStore(self.state)
        image = ClusterImage("c").with_topics(Topic("orders", b"o" * 16, ()), Topic("other", b"x" * 16, ()))
        self.cluster = ClusterState(1, BrokerSettings(broker_id=1), image)
        self.seen = SettingsSeen()
        self.cluster.start(self.seen)  # type: ignore[arg-type]
        self.changes = ConfigChanges(self.cluster, lambda: self.own, VirtualClock(loop))

    async def write(self, entity: str, **configs: str) -> None:
        path, data = f"/config/{entity}", znodes.encode_config({k.replace("_", "."): v for k, v in configs.items()})
        if await self.other.exists(path) is None:
            await self.other.create(path, data)
        else:
            await self.other.set(path, data)

    async def notify(self, data: bytes) -> None:
        await self.other.create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True)

    async def change(self, entity: str, **configs: str) -> None:
        await self.write(entity, **configs)
        await self.notify(znodes.encode_config_change(entity))

    def configs(self, topic: str = "orders") -> dict[str, str]:
        return dict(self.cluster.topic_configs(topic))


def while_following(scenario: Callable[[Following], Awaitable[None]]) -> None:
    async def main() -> None:
        following = Following()
        await prepare_store(following.other)
        await following.change("topics/orders", retention_ms="1")
        running = asyncio.ensure_future(following.changes.run())
        await asyncio.sleep(0.1)
        await scenario(following)
        running.cancel()

    run_virtually(main())


def test_settings_of_topics_and_brokers_are_read_at_the_start() -> None:
    async def scenario(following: Following) -> None:
        assert following.configs() == {"retention.ms": "1"}
        assert following.seen.retention_ms["orders"] == [1]

    while_following(scenario)


def test_a_change_of_a_topic_made_elsewhere_acts_here() -> None:
    async def scenario(following: Following) -> None:
        await following.change("topics/orders", retention_ms="7")
        await asyncio.sleep(0.1)
        assert following.configs() == {"retention.ms": "7"}
        assert following.seen.retention_ms == {"orders": [1, 7]}
        await following.change("topics/orders")
        await asyncio.sleep(0.1)
        assert following.configs() == {}

    while_following(scenario)


def test_changes_of_this_broker_and_of_all_brokers_act_here() -> None:
    async def scenario(following: Following) -> None:
        await following.change("brokers/<default>", log_cleaner_backoff_ms="5")
        await following.change("brokers/1", log_cleaner_backoff_ms="6")
        await following.change("brokers/2", log_cleaner_backoff_ms="7")
        await asyncio.sleep(0.1)
        assert following.cluster.settings.log_cleaner_backoff_ms == 6
        assert set(following.cluster.image.broker_configs) == {DEFAULT_ENTITY_NAME, "1", "2"}

    while_following(scenario)


def test_changes_of_groups_act_here_whatever_their_names() -> None:
    async def scenario(following: Following) -> None:
        await following.change("groups/odd%2Fname", consumer_session_timeout_ms="50000")
        await asyncio.sleep(0.1)
        assert following.cluster.image.group_configs == {"odd/name": {"consumer.session.timeout.ms": "50000"}}
        await following.other.delete("/config/groups/odd%2Fname")
        await following.notify(znodes.encode_config_change("groups/odd%2Fname"))
        await asyncio.sleep(0.1)
        assert following.cluster.image.group_configs == {}

    while_following(scenario)


def test_changes_of_groups_are_found_where_their_notifications_are_gone() -> None:
    async def scenario(following: Following) -> None:
        await following.change("groups/gone", consumer_session_timeout_ms="50000")
        await asyncio.sleep(0.1)
        await following.other.delete("/config/groups/gone")
        await following.write("groups/readers", consumer_session_timeout_ms="51000")
        await following.other.create(znodes.CONFIG_CHANGE_PREFIX, b"{}", sequential=True)
        for name in await following.other.children(znodes.CONFIG_CHANGES):
            await following.other.delete(f"{znodes.CONFIG_CHANGES}/{name}")
        await following.change("topics/orders", retention_ms="3")
        await asyncio.sleep(0.1)
        assert following.cluster.image.group_configs == {"readers": {"consumer.session.timeout.ms": "51000"}}

    while_following(scenario)


def test_the_older_form_of_notifications_is_understood_and_nonsense_is_skipped() -> None:
    async def scenario(following: Following) -> None:
        await following.write("topics/orders", retention_ms="8")
        await following.notify(b"nonsense")
        await following.notify(json.dumps({"version": 2, "entity_path": "users/alice/clients/x"}).encode())
        await following.notify(json.dumps({"version": 1, "entity_type": "topics", "entity_name": "orders"}).encode())
        await asyncio.sleep(0.1)
        assert following.configs() == {"retention.ms": "8"}
        await following.change("topics/orders", retention_ms="9")
        await asyncio.sleep(0.1)
        assert following.configs() == {"retention.ms": "9"}

    while_following(scenario)


def test_settings_that_are_not_understood_leave_the_earlier_ones_and_do_not_stop_others() -> None:
    async def scenario(following: Following) -> None:
        await following.other.set("/config/topics/orders", b"{")
        await following.notify(znodes.encode_config_change("topics/orders"))
        await following.change("topics/other", retention_ms="3")
        await asyncio.sleep(0.1)
        assert following.configs() == {"retention.ms": "1"}
        assert following.configs("other") == {"retention.ms": "3"}

    while_following(scenario)


def test_each_notification_is_acted_on_once() -> None:
    async def scenario(following: Following) -> None:
        for value in range(2, 6):
            await following.change("topics/orders", retention_ms=str(value))
            await asyncio.sleep(0.1)
        assert following.seen.retention_ms == {"orders": [1, 2, 3, 4, 5]}

    while_following(scenario)


def test_a_notification_that_was_removed_before_it_was_read_is_not_missed() -> None:
    async def scenario(following: Following) -> None:
        await following.write("topics/orders", retention_ms="2")
        removed = await following.other.create(
            znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("topics/orders"), sequential=True
        )
        following.state.remove(removed)
        await following.change("topics/other", retention_ms="3")
        await asyncio.sleep(0.1)
        assert following.configs() == {"retention.ms": "2"}

    while_following(scenario)


def test_changes_during_a_lost_session_are_seen_with_the_next() -> None:
    async def scenario(following: Following) -> None:
        following.state.expire(following.own.session_id)
        await asyncio.sleep(0.1)
        await following.write("topics/orders", retention_ms="2")
        await asyncio.sleep(5)
        assert following.configs() == {"retention.ms": "1"}
        following.own = MemoryStore(following.state)
        await asyncio.sleep(2)
        assert following.configs() == {"retention.ms": "2"}
        await following.change("topics/orders", retention_ms="3")
        await asyncio.sleep(0.1)
        assert following.configs() == {"retention.ms": "3"}

    while_following(scenario)


def test_an_empty_store_takes_no_settings_of_topics_and_brokers_away() -> None:
    """They say how long records are kept (R44)."""

    async def scenario(following: Following) -> None:
        await following.change("brokers/<default>", log_retention_ms="-1")
        await asyncio.sleep(0.1)
        following.state.expire(following.own.session_id)
        following.state = MemoryStoreState()
        following.own, following.other = MemoryStore(following.state), MemoryStore(following.state)
        await prepare_store(following.other)
        await asyncio.sleep(3)
        assert following.configs() == {"retention.ms": "1"}
        assert following.cluster.topic_settings("other").retention_ms == -1

    while_following(scenario)


def test_a_rebuilt_store_is_read_although_nobody_notifies_of_it() -> None:
    async def scenario(following: Following) -> None:
        await following.write("topics/orders", retention_ms="2")
        await asyncio.sleep(5)
        assert following.configs() == {"retention.ms": "1"}
        following.changes.on_store_rebuilt()
        await asyncio.sleep(0.1)
        assert following.configs() == {"retention.ms": "2"}

    while_following(scenario)


def test_a_store_rebuilt_while_it_is_read_is_read_once_more() -> None:
    async def scenario(following: Following) -> None:
        async def rebuild_after_topics(store: Store, changed: Sequence[str] | None) -> None:
            following.changes.on_entities.remove(rebuild_after_topics)
            await following.write("topics/orders", retention_ms="2")
            following.changes.on_store_rebuilt()

        following.changes.on_entities.append(rebuild_after_topics)
        following.changes.on_store_rebuilt()
        await asyncio.sleep(0.1)
        assert following.configs() == {"retention.ms": "2"}

    while_following(scenario)


def test_the_broker_that_made_a_change_need_not_wait_for_the_notification() -> None:
    async def scenario(following: Following) -> None:
        await following.change("topics/orders", retention_ms="2")
        await following.changes.catch_up()
        assert following.configs() == {"retention.ms": "2"}

    while_following(scenario)


def test_settings_of_a_topic_that_no_image_has_yet_are_kept_for_it() -> None:
    async def scenario(following: Following) -> None:
        await following.write("topics/new", retention_ms="4")
        await following.changes.load_topics(["new"])
        assert following.cluster.topic_settings("new").retention_ms == 4
        await following.change("topics/new", retention_ms="5")
        await asyncio.sleep(0.1)
        assert following.cluster.topic_settings("new").retention_ms == 5
        topic = Topic("new", b"n" * 16, (), following.cluster.topic_configs("new"))
        following.cluster.apply(following.cluster.image.with_topics(topic))
        assert following.cluster.topic_settings("new").retention_ms == 5
        following.cluster.apply(following.cluster.image.with_topics(dataclasses.replace(topic, configs={})))
        assert following.configs("new") == {}

    while_following(scenario)


def test_old_notifications_are_removed() -> None:
    async def scenario(following: Following) -> None:
        await asyncio.sleep(NOTIFICATION_AGE_S / 2)
        await following.change("topics/orders", retention_ms="2")
        await asyncio.sleep(NOTIFICATION_AGE_S / 2 + 61)
        assert len(await following.other.children(znodes.CONFIG_CHANGES)) == 1
        await asyncio.sleep(NOTIFICATION_AGE_S)
        assert await following.other.children(znodes.CONFIG_CHANGES) == []
        await following.change("topics/orders", retention_ms="3")
        await asyncio.sleep(0.1)
        assert following.configs() == {"retention.ms": "3"}

    while_following(scenario)
