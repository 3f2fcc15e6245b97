"""The example of docs/three-hosts.md, with its three files and three processes, on one machine."""

import json
import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.cli.client import consume, produce
from tests.cli.process import TIME_LIMIT_S, RunningBroker, running_broker, tidelog
from tests.store.zookeeper import running_zookeeper
from tidelog.config.loading import load_broker_settings
from tools.ports import free_ports

PAGE = Path(__file__).parents[2] / "docs" / "three-hosts.md"
PAUSE_S = 0.1


def files_of_the_page() -> dict[int, str]:
    blocks = re.findall(r"```properties\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {int(re.findall(r"broker\.id=(\d)", block)[0]): block for block in blocks}


def on_this_machine(text: str, broker_id: int, port: int, connect: str, directory: Path) -> str:
    """The same file where the three hosts are one: other addresses, and a directory for each."""
    for wanted, instead in (
        (r"^listeners=.*$", f"listeners=PLAINTEXT://127.0.0.1:{port}"),
        (r"^advertised.listeners=.*$", f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}"),
        (r"^log.dirs=.*$", f"log.dirs={directory / f'tide{broker_id}'}"),
        (r"^zookeeper.connect=[^/]*", f"zookeeper.connect={connect}"),
    ):
        text, count = re.subn(wanted, instead, text, flags=re.MULTILINE)
        assert count == 1, wanted
    return text


def status(bootstrap: str) -> dict[str, Any]:
    ended = tidelog("status", "--json", "--bootstrap", bootstrap)
    assert ended.returncode in (0, 1, 2), ended
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def wait_for_in_sync(bootstrap: str, count: int) -> dict[str, Any]:
    deadline = time.monotonic() + TIME_LIMIT_S
    while True:
        (partition,) = status(bootstrap)["partitions"]
        if partition["leader"] is not None and len(partition["isr"]) == count:
            return dict(partition)
        assert time.monotonic() < deadline, partition
        time.sleep(PAUSE_S)


def test_settings_of_the_page_have_no_mistakes(tmp_path: Path) -> None:
    files = files_of_the_page()
    assert sorted(files) == [1, 2, 3]
    for broker_id, text in files.items():
        (tmp_path / "server.properties").write_text(text)
        assert load_broker_settings(str(tmp_path / "server.properties")).broker_id == broker_id


def test_three_brokers_form_a_cluster_hand_over_and_fail_over(tmp_path: Path) -> None:
    first_port = free_ports(3)
    ports = {broker_id: first_port + broker_id - 1 for broker_id in (1, 2, 3)}
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
    with running_zookeeper(tmp_path / "zookeeper") as server, ExitStack() as processes:

        def start(broker_id: int) -> RunningBroker:
            text = files_of_the_page()[broker_id]
            file = tmp_path / f"tide{broker_id}.properties"
            file.write_text(on_this_machine(text, broker_id, ports[broker_id], server.connect_string, tmp_path))
            log = tmp_path / f"tide{broker_id}.log"
            return processes.enter_context(running_broker(log, "--config", str(file)))

        brokers = {broker_id: start(broker_id) for broker_id in (1, 2, 3)}
        produce(bootstrap, "tides", "low tide")
        leader = wait_for_in_sync(bootstrap, 3)["leader"]

        assert brokers[leader].stop() == 0
        assert "controlled shutdown: all leaders have moved" in brokers[leader].log
        produce(bootstrap, "tides", "rising tide")
        brokers[leader] = start(leader)
        leader = wait_for_in_sync(bootstrap, 3)["leader"]

        brokers[leader].kill()
        produce(bootstrap, "tides", "high tide")
        assert wait_for_in_sync(bootstrap, 2)["leader"] != leader
        start(leader)
        wait_for_in_sync(bootstrap, 3)
        assert consume(bootstrap, "tides", 3) == ["low tide", "rising tide", "high tide"]
