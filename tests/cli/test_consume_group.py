"""`tidelog consume --group`: members share a topic, commit what they have printed, and leave in order."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.process import TIME_LIMIT_SECONDS, RunningBroker, running_broker, settings
from tests.cli.test_topic_commands import good, refusal


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("broker")
    with running_broker(directory / "log", *settings(directory / "data", broker_id="1")) as running:
        yield running


def test_a_group_goes_on_after_what_was_printed(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "numbers", "--partitions", "1")
    good(broker, "produce", "numbers", given="".join(f"{number}\n" for number in range(10)))
    read = ["consume", "numbers", "--group", "counters", "--from-beginning"]
    assert good(broker, *read, "--max-messages", "3") == "0\n1\n2\n"
    assert good(broker, *read, "--max-messages", "4") == "3\n4\n5\n6\n"
    assert good(broker, *read, "--max-messages", "3", "--format", "%o") == "7\n8\n9\n"
    assert "Empty" in good(broker, "group", "describe", "counters")


def test_an_interrupt_commits_and_leaves(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "waves", "--partitions", "1")
    good(broker, "produce", "waves", given="one\ntwo\n")
    command = [sys.executable, "-m", "tidelog", "consume", "waves", "--group", "watchers", "--from-beginning"]
    environment = os.environ | {"TIDELOG_BOOTSTRAP": broker.address}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert [process.stdout.readline(), process.stdout.readline()] == ["one\n", "two\n"]
        process.send_signal(signal.SIGINT)
        assert process.wait(TIME_LIMIT_SECONDS) == 0
    assert "Empty" in good(broker, "group", "describe", "watchers")
    good(broker, "produce", "waves", given="three\n")
    assert good(broker, "consume", "waves", "--group", "watchers", "--max-messages", "1") == "three\n"


def test_a_group_chooses_partitions_and_offsets_itself(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "tides", "--partitions", "1")
    for flags in (["--partition", "0"], ["--offset", "3"]):
        assert "--group decides" in refusal(broker, "consume", "tides", "--group", "watchers", *flags)
