"""cluster.backup: what is noted of the cluster in every log directory, and who is missing by it."""

import asyncio
import errno
import json
from typing import Any

import pytest

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_client_quotas import alter, describe
from tests.server.test_sasl import SETTINGS as SASL_SETTINGS
from tests.server.test_sasl import authenticate, handshake, log_in
from tidelog.config.authorization import STANDARD_AUTHORIZER
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from tidelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.runtime.memory_disk import Fault
from tidelog.runtime.virtual_time import run_virtually
from tidelog.sasl.plain import plain_message
from tidelog.sasl.scram import SHA_256
from tidelog.server.broker import CannotStart
from tidelog.server.store_marks import StoreMark
from tidelog.store.memory import MemoryStoreState

SETTLED_S = 2.0
TWO_DIRS: tuple[str, ...] = ("/a", "/b")


def noted(harness: Harness, directory: str = "/logs") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(harness.disk.read_file(f"{directory}/cluster.backup"))
    return found


async def new_producer_id(client: Client) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    return (await client.ask(request, 4, InitProducerIdResponse)).producer_id


def test_topics_and_their_settings_are_noted_soon_after_they_change() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("orders", retention_ms="1000")
        await asyncio.sleep(SETTLED_S)
        content = noted(harness)
        assert (content["members"], content["topic_configs"]) == ([0], {"orders": {"retention.ms": "1000"}})

    with_broker(scenario)


def test_producer_ids_are_noted_before_they_are_given() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        assert await new_producer_id(client) == 0
        assert noted(harness)["last_producer_id"] == 999

    with_broker(scenario)


def test_a_stop_leaves_nothing_to_be_noted() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("first")
            await asyncio.sleep(SETTLED_S)
            await client.create_topic("second")
        assert set(noted(harness)["topic_configs"]) == {"first", "second"}

    run_virtually(main())


def test_a_stop_waits_for_a_backup_that_is_being_written() -> None:
    """The store may take a while to count the change: a stop in that time must not leave the backup unwritten."""

    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await client.create_topic("first")
            await asyncio.sleep(SETTLED_S)
            count = broker._backup.increment_change_counter

            async def slowly() -> StoreMark | None:
                await asyncio.sleep(1)
                return await count()

            broker._backup.increment_change_counter = slowly
            await client.create_topic("second")
            await asyncio.sleep(0.5)
            assert not broker._backup._is_stale.is_set()
            assert set(noted(harness)["topic_configs"]) == {"first"}
        assert set(noted(harness)["topic_configs"]) == {"first", "second"}

    run_virtually(main())


def test_every_log_directory_has_it_and_one_that_lacks_it_is_missed() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(log_dirs=TWO_DIRS):
            client = await harness.connect()
            await client.create_topic("orders", partitions=2)
            await client.produce("orders", b"one")
            await asyncio.sleep(SETTLED_S)
            assert noted(harness, "/a") == noted(harness, "/b")
        harness.store_state = MemoryStoreState()
        harness.disk.remove_tree("/b")
        with pytest.raises(CannotStart, match="broker 0 held replicas, and /b is new"):
            await harness.start(log_dirs=TWO_DIRS)
        async with harness.broker(log_dirs=TWO_DIRS, unclean_takeover_enable=True):
            client = await harness.connect()
            response = await client.ask(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
            assert (response.suspension, response.stray_logs) == ("", [])

    run_virtually(main())


def test_a_log_directory_that_was_added_and_has_its_backup_is_no_longer_new() -> None:
    """Seed 172420: a takeover after the loss of the store still took it for one that replaced another."""

    async def main() -> None:
        harness = Harness()
        async with harness.broker(log_dirs=TWO_DIRS[:1]):
            client = await harness.connect()
            await client.create_topic("orders")
            await asyncio.sleep(SETTLED_S)
        async with harness.broker(log_dirs=TWO_DIRS) as broker:
            await asyncio.sleep(SETTLED_S)
            assert broker._backup.directories_without_backup == []

    run_virtually(main())


def test_a_damaged_file_is_rewritten() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("orders")
            await asyncio.sleep(SETTLED_S)
        harness.disk.write_file_atomically("/logs/cluster.backup", b"{")
        async with harness.broker():
            await asyncio.sleep(SETTLED_S)
        assert noted(harness)["members"] == [0]

    run_virtually(main())


def test_a_backup_that_cannot_be_read_for_lack_of_descriptors_is_not_taken_for_missing() -> None:
    """Seed 162667: a takeover took the log directories for new ones, and rewrote the backup without its ids."""

    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("orders")
            await asyncio.sleep(SETTLED_S)
        before = noted(harness)
        harness.disk.faults.append(Fault(errno.EMFILE, "/logs/cluster.backup", ("read_file",)))
        with pytest.raises(CannotStart, match="Too many open files; free some"):
            await harness.start()
        harness.disk.faults.clear()
        assert noted(harness) == before
        async with harness.broker():
            assert noted(harness)["members"] == [0]

    run_virtually(main())


def test_a_log_directory_that_never_got_its_backup_is_not_taken_for_a_new_one() -> None:
    """The broker dies after the first of two writes. The backup of the other directory names both."""

    async def main() -> None:
        harness = Harness()
        async with harness.broker(log_dirs=TWO_DIRS):
            client = await harness.connect()
            await client.create_topic("orders", partitions=2)
            await client.produce("orders", b"one")
            await asyncio.sleep(SETTLED_S)
        harness.store_state = MemoryStoreState()
        harness.disk.remove("/b/cluster.backup")
        async with harness.broker(log_dirs=TWO_DIRS):
            client = await harness.connect()
            assert noted(harness, "/b") == noted(harness, "/a")

    run_virtually(main())


SECURED: dict[str, object] = {
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "super_users": "User:broker;User:ANONYMOUS",
    **SASL_SETTINGS,
}


def test_users_quotas_and_permissions_survive_the_loss_of_the_store() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(**SECURED):
            admin = await logged_in(harness, "broker", "hunter2")
            await admin.create_topic("orders")
            salted = SHA_256.derive("secret", b"salt", 8192)
            added = ScramCredentialUpsertion("al/ice", 1, 8192, b"salt", salted)
            await admin.ask(AlterUserScramCredentialsRequest(upsertions=[added]), 0, AlterUserScramCredentialsResponse)
            creation = AclCreation(2, "orders", 3, "User:alice", "*", 4, 3)
            await admin.ask(CreateAclsRequest(creations=[creation]), 3, CreateAclsResponse)
            entities: list[dict[str, str | None]] = [
                {"user": "al/ice"},
                {"user": "bob", "client-id": None},
                {"ip": "10.0.0.1"},
            ]
            for parts in entities:
                key = "connection_creation_rate" if "ip" in parts else "producer_byte_rate"
                assert await alter(admin, parts, **{key: 1000}) == 0
            quotas, salt = await describe(admin), await salt_of(harness, "nobody")
            await asyncio.sleep(SETTLED_S)
        harness.store_state = MemoryStoreState()
        async with harness.broker(**SECURED):
            admin = await logged_in(harness, "broker", "hunter2")
            await asyncio.sleep(SETTLED_S)
            alice = await logged_in(harness, "alice", "sesame")
            assert (await alice.produce("orders", b"a")).error_code == 0
            assert (await alice.fetch("orders", 0)).error_code == 29
            assert await describe(admin) == quotas
            assert await salt_of(harness, "nobody") == salt
            assert b"i=8192" in await salt_of(harness, "al/ice")
            users = await admin.ask(
                DescribeUserScramCredentialsRequest(users=None), 0, DescribeUserScramCredentialsResponse
            )
            assert [each.user for each in users.results] == ["al/ice"]

    run_virtually(main())


async def logged_in(harness: Harness, user: str, password: str) -> Client:
    client = await harness.connect()
    assert (await log_in(client, plain_message(user, password))).error_code == 0
    return client


async def salt_of(harness: Harness, user: str) -> bytes:
    """Salt and iterations that a client gets who claims to be this user."""
    client = await harness.connect()
    await handshake(client, "SCRAM-SHA-256")
    answer = await authenticate(client, f"n,,n={user},r=abc".encode())
    client.channel.close("seen")
    return bytes(answer.auth_bytes).partition(b",")[2]
