"""`tidelog broker` as a user meets it: a process, its output, its exit code and its files."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.client import consume, create_topic, produce, topic_ids
from tests.cli.process import running_broker, settings

CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"


def test_broker_says_where_it_listens_how_to_try_it_and_how_to_stop_it(tmp_path: Path) -> None:
    with running_broker(tmp_path / "log", *settings(tmp_path / "data", broker_id="0")) as broker:
        host, _, port = broker.address.partition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
        assert f"kcat -P -b {broker.address} -t greetings" in broker.greeting
        assert f"kcat -C -b {broker.address} -t greetings" in broker.greeting
        assert str(tmp_path / "data") in broker.greeting
        assert "Stop it with Ctrl-C" in broker.greeting


def test_examples_of_the_greeting_work_when_pasted(tmp_path: Path) -> None:
    if shutil.which("kcat") is None and not os.environ.get("CI"):
        pytest.skip("kcat is not installed")
    with running_broker(tmp_path / "log", *settings(tmp_path / "data")) as broker:
        lines = [line.strip() for line in broker.greeting.splitlines() if line.startswith("  ")]
        write, read, install, write_from_python = lines
        assert install == f"{sys.executable} -m pip install -q kafka-python"
        for line in (write, write_from_python):
            subprocess.run(line, shell=True, check=True, timeout=60)
        seen = subprocess.run(read, shell=True, check=True, timeout=60, capture_output=True, text=True)
        assert seen.stdout == "hello, tide\nhello, Python\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_broker_and_leaves_its_log_dir_clean(tmp_path: Path, number: signal.Signals) -> None:
    marker = tmp_path / "data" / CLEAN_SHUTDOWN_MARKER
    with running_broker(tmp_path / "log", *settings(tmp_path / "data")) as broker:
        produce(broker.address, "orders", "one")
        assert not marker.exists()
        assert broker.stop(number) == 0
        assert marker.exists()
        assert "Traceback" not in broker.log


def test_the_audit_log_goes_to_a_file_of_its_own(tmp_path: Path) -> None:
    """For its owner only."""
    file = tmp_path / "audit.log"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    flags = settings(
        tmp_path / "data",
        listeners="SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        sasl_enabled_mechanisms="PLAIN",
    )
    flags += ["--set", f'listener.name.sasl_plaintext.plain.sasl.jaas.config={module} required user_alice="sesame";']
    with running_broker(tmp_path / "log", "--log-level", "error", "--audit-log", str(file), *flags) as broker:
        host, _, port = broker.address.partition(",")[0].partition(":")
        with socket.create_connection((host, int(port)), timeout=30) as stranger:
            stranger.sendall(bytes.fromhex("0000000a" + "00030009" + "00000001" + "ffff"))  # Metadata, before any login
            assert stranger.recv(1) == b""
        assert "login failed peer=127.0.0.1" in file.read_text()
        assert "login failed" not in broker.log
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_audit_log_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidelog", "broker", "--audit-log", str(tmp_path / "none" / "audit.log")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == f"tidelog broker: cannot write to {tmp_path}/none/audit.log: No such file or directory\n"


def test_second_start_finds_topics_ids_and_records_again(tmp_path: Path) -> None:
    flags = settings(tmp_path / "data")
    with running_broker(tmp_path / "log", *flags) as broker:
        create_topic(broker.address, "orders", 3)
        produce(broker.address, "greetings", "hello", "tide")
        ids = topic_ids(broker.address, "orders", "greetings")
        name = broker.greeting.splitlines()[1]
        assert broker.stop() == 0
    with running_broker(tmp_path / "log", *flags) as broker:
        assert broker.greeting.splitlines()[1] == name
        assert topic_ids(broker.address, "orders", "greetings") == ids
        assert consume(broker.address, "greetings", 2) == ["hello", "tide"]
        assert broker.log.count("last_stop=clean") == 1


def test_killed_broker_starts_again_with_everything_acknowledged(tmp_path: Path) -> None:
    flags = settings(tmp_path / "data")
    with running_broker(tmp_path / "log", *flags) as broker:
        produce(broker.address, "greetings", "hello", "tide")
        ids = topic_ids(broker.address, "greetings")
        broker.kill()
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN_MARKER).exists()
    with running_broker(tmp_path / "log", *flags) as broker:
        produce(broker.address, "greetings", "again")
        assert consume(broker.address, "greetings", 3) == ["hello", "tide", "again"]
        assert topic_ids(broker.address, "greetings") == ids
        assert broker.stop() == 0
        assert "Traceback" not in broker.log


def test_two_log_dirs_share_the_partitions(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    flags = settings(first, second)
    with running_broker(tmp_path / "log", *flags) as broker:
        create_topic(broker.address, "orders", 4)
        assert broker.stop() == 0
    assert len(list(first.glob("orders-*"))) == 2
    assert len(list(second.glob("orders-*"))) == 2
    texts = [(each / "meta.properties").read_text() for each in (first, second)]
    meta = [dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#")) for text in texts]
    assert meta[0].pop("directory.id") != meta[1].pop("directory.id")
    assert meta[0] == meta[1]
    assert (second / CLEAN_SHUTDOWN_MARKER).exists()
    with running_broker(tmp_path / "log", *flags) as broker:
        produce(broker.address, "orders", "one")
        assert broker.stop() == 0


def test_settings_come_from_a_file_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=4\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'from-file'}\n")
    flags = ["--config", str(file), "--set", f"log.dirs={tmp_path / 'from-flag'}"]
    with running_broker(tmp_path / "log", *flags) as broker:
        assert "broker 4 of cluster" in broker.greeting
        assert broker.stop() == 0
    assert "broker.id=4" in (tmp_path / "from-flag" / "meta.properties").read_text()
    assert not (tmp_path / "from-file").exists()
