"""`tidelog up --secure` and `tidelog user` as a user meets them; secrets appear nowhere."""

import json
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.cli.local_cluster import LocalCluster, local_cluster
from tests.cli.process import tidelog
from tidelog.config.properties import parse_properties


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("secure") / "data", brokers=2) as found:
        found.up("--secure")
        yield found


def properties(cluster: LocalCluster) -> Path:
    return cluster.data / "client.properties"


def run(cluster: LocalCluster, *arguments: str, config: Path | None = None, stdin: str = "") -> str:
    ended = attempt(cluster, *arguments, config=config, stdin=stdin)
    assert ended.returncode == 0, ended
    return ended.stdout


def attempt(
    cluster: LocalCluster, *arguments: str, config: Path | None = None, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    flags = ("--bootstrap", cluster.bootstrap, "--command-config", str(config or properties(cluster)))
    return tidelog(*arguments, *flags, stdin=stdin)


def password_of(path: Path) -> str:
    found = {each.key: each.value for each in parse_properties(path.read_text())}
    return found["sasl.password"]


def as_user(cluster: LocalCluster, user: str, password: str) -> Path:
    path = cluster.data.parent / f"{user}.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
        f"sasl.username={user}\nsasl.password={password}\n"
        f"ssl.truststore.location={cluster.data / 'secrets' / 'authority.pem'}\n"
    )
    return path


def test_everything_is_for_the_owner_only(cluster: LocalCluster) -> None:
    readable = [
        str(path.relative_to(cluster.data))
        for path in (cluster.data, *cluster.data.rglob("*"))
        if path.lstat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    ]
    assert readable == []


def test_nobody_gets_in_uninvited(cluster: LocalCluster) -> None:
    authority = str(cluster.data / "secrets" / "authority.pem")
    for settings in (
        {},
        {"security.protocol": "SSL", "ssl.ca.location": authority},
        {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": authority,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": "guess",
        },
    ):
        client = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **settings})
        with pytest.raises(KafkaException):
            client.list_topics(timeout=2)
    between_brokers = {
        "bootstrap.servers": f"127.0.0.1:{cluster.port + 200}",
        "security.protocol": "SSL",
        "ssl.ca.location": authority,
        "log_level": "0",
    }
    with pytest.raises(KafkaException):
        AdminClient(dict(between_brokers)).list_topics(timeout=2)


def test_doctor_and_status_log_in(cluster: LocalCluster) -> None:
    for command in ("status", "doctor"):
        shown = attempt(cluster, command, "--json").stdout
        assert "no broker answers" not in shown
        assert "cluster" in shown
    assert "no broker answers" in tidelog("doctor", "--bootstrap", cluster.bootstrap).stdout


def test_tools_of_librdkafka_take_their_file(cluster: LocalCluster) -> None:
    settings = {each.key: each.value for each in parse_properties((cluster.data / "librdkafka.properties").read_text())}
    assert len(AdminClient(dict(settings)).list_topics(timeout=20).brokers) == 2


def test_users_and_what_they_may_do(cluster: LocalCluster) -> None:
    run(cluster, "topic", "create", "orders", "--partitions", "2")
    added = run(cluster, "user", "add", "alice")
    password = added.partition("password: ")[2].strip()
    alice = as_user(cluster, "alice", password)
    assert json.loads(run(cluster, "user", "list", "--json")) == [
        {"user": "admin", "mechanisms": {"SCRAM-SHA-512": 4096}},
        {"user": "alice", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}},
    ]
    denied = attempt(cluster, "produce", "orders", config=alice, stdin="x\n")
    assert denied.returncode == 1
    assert "not authorized" in denied.stderr
    assert "exists" in attempt(cluster, "user", "add", "alice").stderr
    run(cluster, "user", "passwd", "alice", "--password-file", "-", stdin="new password\n")
    failed = attempt(cluster, "topic", "list", config=alice)
    assert failed.returncode == 1
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256; see --command-config" in failed.stderr
    run(cluster, "topic", "list", config=as_user(cluster, "alice", "new password"))
    run(cluster, "user", "remove", "alice")
    assert "does not exist" in attempt(cluster, "user", "remove", "alice").stderr


def test_secrets_appear_nowhere(cluster: LocalCluster) -> None:
    """In logs, status, settings that brokers report, metadata, or files of the cluster that are not secret."""
    password = password_of(cluster.data / "librdkafka.properties")
    key = (cluster.data / "secrets" / "broker-1.pem").read_text().splitlines()[1]
    attempt(cluster, "topic", "list", config=as_user(cluster, "admin", "a wrong password"))
    shown = [
        cluster.run("status"),
        cluster.run("status", "--json"),
        run(cluster, "config", "get", "broker", "1", "--all"),
        run(cluster, "broker", "describe", "1"),
        cluster.log(1),
        cluster.log(2),
    ]
    assert "login failed" in cluster.log(1) + cluster.log(2)
    for text in shown:
        assert password not in text
        assert key not in text
        assert "a wrong password" not in text
    secret = {"client.properties", "librdkafka.properties", "broker-1.pem", "broker-2.pem"}
    for path in cluster.data.rglob("*"):
        if path.is_file() and path.name not in secret:
            assert password.encode() not in path.read_bytes(), path
            assert key.encode() not in path.read_bytes(), path


def test_a_secure_cluster_stays_secure_and_survives_a_kill(cluster: LocalCluster) -> None:
    run(cluster, "topic", "create", "kept")
    run(cluster, "produce", "kept", stdin="one\ntwo\n")
    cluster.run("kill", "1")
    cluster.run("start", "1")
    assert "cluster without logins" not in cluster.up()
    assert run(cluster, "consume", "kept", "--from-beginning", "--max-messages", "2").split() == ["one", "two"]


def test_a_cluster_without_logins_does_not_become_secure(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "data", brokers=1) as found:
        found.up()
        ended = tidelog(*found.up_arguments("--detach", "--secure"))
        assert (ended.returncode, "holds a cluster without logins" in ended.stderr) == (1, True), ended
