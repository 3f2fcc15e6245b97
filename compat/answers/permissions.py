"""Asks Apache Kafka with StandardAuthorizer and Tidelog the same in the names of many principals, API by API."""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from compat.answers.check import SETTINGS, Comparison, compare, kafka_settings, print_counts, print_outcome
from compat.answers.conversation import Conversation, Line, wait_until
from compat.answers.login_failures import SCRAM_MODULE, ask_logins
from compat.answers.logins import LoggedInLine, can_log_in, jaas_config
from compat.answers.permission_requests import QUESTIONS, Names, versions_of
from compat.answers.requests import is_led
from tests.clients.broker import TidelogProcess
from tidelog.authorization.acls import Operation, PatternType, Permission, ResourceType
from tidelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tools.apache_kafka import KAFKA_4, ApacheKafka, free_port

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN = "admin"
RESOURCES = {
    ResourceType.TOPIC: "*",
    ResourceType.GROUP: "*",
    ResourceType.TRANSACTIONAL_ID: "*",
    ResourceType.CLUSTER: "kafka-cluster",
}
NAMES = ("mine-topic", "mine-missing", "mine-group", "mine-transaction")
SINGLE = tuple(each for each in Operation if Operation.ALL < each < Operation.CREATE_TOKENS)


def rule(
    user: str,
    operation: Operation,
    resource: ResourceType,
    name: str,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
) -> AclCreation:
    return AclCreation(resource, name, pattern, f"User:{user}", "*", operation, permission)


def rules_by_user() -> dict[str, list[AclCreation]]:
    """Everything allowed, nothing, everything but one's own names, names by a prefix, and single operations."""
    everything = list(RESOURCES.items())
    rules = {
        "allowed": [rule("allowed", Operation.ALL, *each) for each in everything],
        "nobody": [],
        "denied": [
            *(rule("denied", Operation.ALL, *each) for each in everything),
            *(
                rule("denied", Operation.ALL, resource, "mine", Permission.DENY, PatternType.PREFIXED)
                for resource in RESOURCES
                if resource is not ResourceType.CLUSTER
            ),
            rule("denied", Operation.ALL, ResourceType.CLUSTER, "kafka-cluster", Permission.DENY),
        ],
        "notseen": [
            *(rule("notseen", Operation.ALL, *each) for each in everything),
            *(rule("notseen", Operation.DESCRIBE, *each, Permission.DENY) for each in everything),
        ],
        "prefix": [
            rule("prefix", Operation.ALL, resource, "mine-", Permission.ALLOW, PatternType.PREFIXED)
            for resource in RESOURCES
            if resource is not ResourceType.CLUSTER
        ],
        "otherprefix": [
            rule("otherprefix", Operation.ALL, resource, "mine-x", Permission.ALLOW, PatternType.PREFIXED)
            for resource in RESOURCES
            if resource is not ResourceType.CLUSTER
        ],
    }
    for operation in SINGLE:
        user = f"only{operation.title.lower()}"
        rules[user] = [rule(user, operation, *each) for each in everything]
    return rules


USERS = rules_by_user()


class Guarded(Conversation):
    """A conversation with a broker that has an authorizer; the main line is that of its administrator."""

    def line(self, client_id: str) -> LoggedInLine:
        line = LoggedInLine(self._bootstrap, client_id, ADMIN)
        self._lines.append(line)
        return line

    def _producer(self, producer_id: int) -> str | int:
        return producer_id if producer_id < 0 else "<a producer>"

    def line_of(self, user: str) -> LoggedInLine:
        line = LoggedInLine(self._bootstrap, user, user)
        self._lines.append(line)
        return line


def prepare(talk: Guarded) -> Names:
    cluster = talk.ask_quietly(DescribeClusterRequest(), 0, DescribeClusterResponse)
    talk.name(cluster.cluster_id, "id of the cluster")
    topic, missing, group, transactional_id = NAMES
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    created = talk.ask_quietly(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7, CreateTopicsResponse)
    assert created.topics[0].error_code == 0, created
    wait_until(lambda: is_led(talk, topic, 1), "the topic has a leader")
    talk.name(created.topics[0].topic_id, "id of the topic")
    for kind in (0, 1):
        wait_until(partial(_has_coordinator, talk, kind), "there is a coordinator")
    wait_until(lambda: _has_producer_ids(talk), "there are producer ids")
    _name_internal_topics(talk)
    _create_rules(talk)
    return Names(topic, created.topics[0].topic_id, missing, group, transactional_id)


def _has_coordinator(talk: Guarded, kind: int) -> bool:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["anything"])
    return talk.ask_quietly(request, 4, FindCoordinatorResponse).coordinators[0].error_code == 0


def _has_producer_ids(talk: Guarded) -> bool:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10_000)
    return talk.ask_quietly(request, 4, InitProducerIdResponse).error_code == 0


def _name_internal_topics(talk: Guarded) -> None:
    for topic in talk.ask_quietly(MetadataRequest(topics=None), 12, MetadataResponse).topics:
        talk.name(topic.topic_id, f"id of {topic.name}")


def _create_rules(talk: Guarded) -> None:
    rules = [each for found in USERS.values() for each in found]
    created = talk.ask_quietly(CreateAclsRequest(creations=rules), 3, CreateAclsResponse)
    assert not any(result.error_code for result in created.results), created
    every = DescribeAclsRequest(1, None, 1, None, None, 1, 1)

    def count() -> int:
        return sum(len(each.acls) for each in talk.ask_quietly(every, 3, DescribeAclsResponse).resources)

    wait_until(lambda: count() == len(rules), "all rules are known")


def ask_all(talk: Guarded, names: Names) -> None:
    lines = {user: talk.line_of(user) for user in USERS}
    for what, (key, make) in QUESTIONS.items():
        for version in versions_of(key):
            for user, line in lines.items():
                talk.ask(f"{what}, v{version}, by {user}", make(names, version), version, line)


def ask_without_login(talk: Guarded, names: Names) -> None:
    """Nothing is answered before the login."""
    for what, (key, make) in QUESTIONS.items():
        for version in versions_of(key):
            line = Line(talk._bootstrap, "stranger")
            try:
                talk.ask(f"{what}, v{version}, without a login", make(names, version), version, line)
            finally:
                line.close()


CHAPTERS = {"permissions": ask_all, "requests without a login": ask_without_login, "failed logins": ask_logins}


def heard(bootstrap: str, titles: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    talk = Guarded(bootstrap)
    try:
        names = prepare(talk)
        for title in titles:
            talk.heard = {}
            CHAPTERS[title](talk, names)
            yield title, talk.transcript()
    finally:
        talk.close()


def compare_brokers(kafka: str, tidelog: str, titles: Sequence[str] = ()) -> list[Comparison]:
    titles = titles or list(CHAPTERS)
    with ThreadPoolExecutor(2) as both:
        theirs, ours = both.map(lambda bootstrap: dict(heard(bootstrap, titles)), (kafka, tidelog))
    return [compare(theirs[title], ours[title], title) for title in titles]


def guarded_settings(mechanism_setting: str) -> dict[str, str]:
    return {
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        mechanism_setting: jaas_config([*USERS, ADMIN], ADMIN),
    }


def start_kafka(directory: Path) -> ApacheKafka:
    port, internal, controller = free_port(), free_port(), free_port()
    listeners = f"SASL_PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal}"
    settings = {
        **kafka_settings(),
        **guarded_settings("listener.name.sasl_plaintext.plain.sasl.jaas.config"),
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }
    kafka = ApacheKafka(KAFKA_4, port, directory, "512m", settings, controller_port=controller)
    kafka.start()
    return kafka


def start_tidelog(directory: Path) -> TidelogProcess:
    port = free_port()
    settings = {
        **SETTINGS,
        **guarded_settings("listener.name.sasl_plaintext.plain.sasl.jaas.config"),
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    tidelog = TidelogProcess(directory, settings, port)
    tidelog.start()
    return tidelog


def check(titles: Sequence[str] = ()) -> list[Comparison]:
    with tempfile.TemporaryDirectory(prefix="compat-permissions-") as scratch:
        kafka, tidelog = start_kafka(Path(scratch) / "kafka"), start_tidelog(Path(scratch) / "tidelog")
        try:
            for broker in (kafka, tidelog):
                wait_until(partial(can_log_in, broker.bootstrap, ADMIN), "the administrator can log in")
            return compare_brokers(kafka.bootstrap, tidelog.bootstrap, titles)
        finally:
            kafka.kill()
            tidelog.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare permissions in Apache Kafka and Tidelog.")
    parser.add_argument("--kafka", help="the address of a running Apache Kafka")
    parser.add_argument("--tidelog", help="the address of a running broker of Tidelog")
    parser.add_argument("--only", action="append", choices=list(CHAPTERS), metavar="CHAPTER")
    options = parser.parse_args()
    started = time.monotonic()
    titles = options.only or ()
    found = compare_brokers(options.kafka, options.tidelog, titles) if options.kafka else check(titles)
    print_counts(found)
    return print_outcome(found, started)


if __name__ == "__main__":
    sys.exit(main())
