"""`tidelog topic`, `produce` and `consume` as a newcomer meets them: real processes, their output and exit codes."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.cli.process import TIME_LIMIT_S, RunningBroker, running_broker, settings, tidelog

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("broker")
    with running_broker(directory / "log", *settings(directory / "data", broker_id="1")) as running:
        yield running


def run(broker: RunningBroker, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """A command that finds its cluster by the environment."""
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        env=os.environ | {"TIDELOG_BOOTSTRAP": broker.address},
        check=False,
    )


def good(broker: RunningBroker, *arguments: str, given: str = "") -> str:
    ended = run(broker, *arguments, given=given)
    assert ended.returncode == 0, ended
    return ended.stdout


def rejection(broker: RunningBroker, *arguments: str, given: str = "") -> str:
    """The last line on standard error of a command that must fail."""
    ended = run(broker, *arguments, given=given)
    assert ended.returncode == 1, ended
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    return ended.stderr.splitlines()[-1]


def test_topic_from_creation_to_deletion(broker: RunningBroker) -> None:
    created = good(broker, "topic", "create", "orders", "--partitions", "2", "--set", "retention.ms=60000")
    assert created == "created topic orders: 2 partitions, replication factor 1\n"
    listed = good(broker, "topic", "list").splitlines()
    assert listed[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS", "STATE"]
    assert ["orders", "2", "1", "healthy"] in [line.split() for line in listed]
    good(broker, "produce", "orders", "--partition", "1", given="a\nb\n")
    described = good(broker, "topic", "describe", "orders").splitlines()
    assert described[0].split() == ["topic", "orders"]
    assert described[5].split() == ["retention.ms", "60000", "set", "on", "the", "topic"]
    assert [line.split() for line in described[-2:]] == [["0", "1", "1", "1", "0", "0"], ["1", "1", "1", "1", "0", "2"]]
    assert good(broker, "topic", "delete", "orders") == "deleted topic orders\n"
    assert "orders" not in good(broker, "topic", "list")


def test_lines_that_were_produced_are_consumed(broker: RunningBroker) -> None:
    written = run(broker, "produce", "greetings", given="hello, tide\nhello again")
    assert (written.returncode, written.stdout) == (0, "")
    assert written.stderr.splitlines()[-1] == "2 records written to greetings"
    ended = run(broker, "consume", "greetings", "--from-beginning", "--max-messages", "2")
    assert (ended.returncode, ended.stdout) == (0, "hello, tide\nhello again\n")
    assert ended.stderr == "2 records read from greetings\n"


def test_keys_are_divided_from_values_by_a_tab(broker: RunningBroker) -> None:
    good(broker, "produce", "tabbed", "--key-separator", r"\t", given="key\tvalue\n")
    look = ["--from-beginning", "--max-messages", "1", "--format", "%k=%v"]
    assert good(broker, "consume", "tabbed", *look) == "key=value\n"


def test_keys_headers_compression_and_formats(broker: RunningBroker) -> None:
    lines = "".join(f"customer-{number}:order {number}\n" for number in range(100))
    flags = ["--key-separator", ":", "--header", "source=web", "--compression", "zstd"]
    good(broker, "topic", "create", "keyed", "--partitions", "3")
    good(broker, "produce", "keyed", *flags, given=lines)
    look = ["--from-beginning", "--max-messages", "100"]
    shown = good(broker, "consume", "keyed", *look, "--format", r"%k\t%v %h %t %%").splitlines()
    expected = [f"customer-{number}\torder {number} source=web keyed %" for number in range(100)]
    assert sorted(shown) == sorted(expected)
    records = [json.loads(line) for line in good(broker, "consume", "keyed", *look, "--json").splitlines()]
    assert {record["partition"] for record in records} == {0, 1, 2}
    first = next(record for record in records if record["key"] == "customer-7")
    assert first["value"] == "order 7"
    assert first["headers"] == [{"key": "source", "value": "web"}]


def test_reading_starts_at_an_offset_or_near_the_end(broker: RunningBroker) -> None:
    good(broker, "produce", "numbers", given="".join(f"{number}\n" for number in range(10)))
    assert good(broker, "consume", "numbers", "--offset", "7", "--max-messages", "3") == "7\n8\n9\n"
    assert good(broker, "consume", "numbers", "--offset", "-2", "--timeout", "1") == "8\n9\n"
    assert good(broker, "consume", "numbers", "--timeout", "0.2") == ""
    beyond = run(broker, "consume", "numbers", "--offset", "50", "--timeout", "1")
    assert (beyond.returncode, beyond.stdout) == (0, "")
    assert beyond.stderr.splitlines()[0] == "numbers-0 has offsets 0 to 9: reading starts at offset 10"


def test_consume_follows_until_interrupted(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "followed", "--partitions", "1")
    command = [
        sys.executable,
        "-m",
        "tidelog",
        "consume",
        "followed",
        "--from-beginning",
        "--bootstrap",
        broker.address,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for value in ("one", "two"):
            good(broker, "produce", "followed", given=f"{value}\n")
            assert process.stdout.readline() == f"{value}\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIME_LIMIT_S) == 0
        assert process.stderr.read() == "2 records read from followed\n"


def test_produce_that_is_interrupted_writes_what_it_has_read(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "interrupted", "--partitions", "1")
    command = [sys.executable, "-m", "tidelog", "produce", "interrupted", "--bootstrap", broker.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("early\n")
        process.stdin.flush()
        assert good(broker, "consume", "interrupted", "--from-beginning", "--max-messages", "1") == "early\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIME_LIMIT_S) == 0
        assert process.stderr.read().splitlines()[-1] == "1 record written to interrupted"


def test_reader_that_leaves_is_met_with_silence(broker: RunningBroker) -> None:
    good(broker, "produce", "long", given="".join(f"{number:0200d}\n" for number in range(20_000)))
    tidelog = f"{sys.executable} -m tidelog consume long --from-beginning --bootstrap {broker.address}"
    ended = subprocess.run(
        f"{tidelog} | head -1", shell=True, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
    )
    assert ended.stdout == f"{0:0200d}\n"
    assert ended.stderr == ""


@pytest.mark.parametrize("command", ["topic list", "consume full --from-beginning", "produce full"])
@pytest.mark.parametrize("where", [">/dev/full", ">&-", "<&-"])
def test_standard_output_or_input_that_cannot_be_used_is_reported(
    broker: RunningBroker, command: str, where: str
) -> None:
    good(broker, "produce", "full", given="something\n")
    ended = subprocess.run(
        f"{sys.executable} -m tidelog {command} --bootstrap {broker.address} {where}",
        shell=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    if (command, where) == ("produce full", ">/dev/full"):
        assert ended.returncode == 0
    else:
        assert ended.returncode == 1
        (said,) = ended.stderr.splitlines()
        assert ("No space left on device" if where == ">/dev/full" else "/dev/null") in said


def test_names_are_shown_also_where_the_terminal_lacks_their_letters(broker: RunningBroker) -> None:
    good(broker, "group", "reset-offsets", "größe", "--topic", "numbers", "--to-latest", "--execute")
    listed = subprocess.run(
        [sys.executable, "-m", "tidelog", "group", "list", "--bootstrap", broker.address],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "gr\\xf6\\xdfe" in listed.stdout


def test_what_cannot_be_done_is_reported_in_one_sentence(broker: RunningBroker) -> None:
    good(broker, "topic", "create", "taken", "--partitions", "2")
    assert "already exists" in rejection(broker, "topic", "create", "taken")
    assert "foo" in rejection(broker, "topic", "create", "t", "--set", "foo=bar")
    for command in (["topic", "describe"], ["topic", "delete"], ["consume"]):
        assert f"tidelog {' '.join(command)}: topic nowhere does not exist; `tidelog" in rejection(
            broker, *command, "nowhere"
        )
    said = "topic taken has no partition 2; it has 2 partitions, numbered from 0"
    assert rejection(broker, "consume", "taken", "--partition", "2") == f"tidelog consume: {said}"
    assert "partition 2 does not exist" in rejection(broker, "produce", "taken", "--partition", "2", given="x\n")
    assert "letters, digits, dots, underscores and hyphens" in rejection(broker, "consume", "a topic")
    assert "expected HOST:PORT" in rejection(broker, "topic", "list", "--bootstrap", "nonsense")
    assert rejection(broker, "topic", "list", "--bootstrap", NOBODY) == (
        f"tidelog topic list: no broker answers at {NOBODY} (Connection refused);"
        " start a cluster with `tidelog up`, or give the address of yours with --bootstrap HOST:PORT"
    )


def test_line_without_key_ends_the_writing_after_those_before_it(broker: RunningBroker) -> None:
    said = rejection(broker, "produce", "half", "--key-separator", ":", given="a:1\nb:2\nc3\n")
    assert said == "tidelog produce: line 3 has no ':' between key and value; the lines before it were written"
    assert good(broker, "consume", "half", "--from-beginning", "--max-messages", "2") == "1\n2\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "t", "--format", "%q"],
        ["consume", "t", "--max-messages", "0"],
        ["consume", "t", "--timeout", "soon"],
        ["consume", "t", "--partition", "x"],
        ["consume", ""],
        ["produce", "t", "--partition", "-1"],
        ["produce", "t", "--key-separator", ""],
        ["produce", "t", "--header", "nothing"],
        ["produce", "t", "--acks", "2"],
        ["topic", "create", "t", "--partitions", "many"],
        ["topic"],
    ],
)
def test_mistake_in_a_flag_is_refused_before_anybody_is_asked(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "tidelog", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert "invalid int value" not in ended.stderr


def answered_with(data: bytes, *command: str) -> "tuple[str, subprocess.CompletedProcess[str]]":
    """The command, and a server that answers every connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1024)
                        connection.sendall(data)

        answering = threading.Thread(target=answer)
        answering.start()
        ended = tidelog(*command, "--bootstrap", address)
        server.shutdown(socket.SHUT_RDWR)
        answering.join()
    return address, ended


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", "a TLS listener answers there; set security.protocol=SSL, or SASL_SSL"),
        (b"SSH-2.0-OpenSSH_9\r\n", "perhaps what answers there does not speak Kafka's protocol"),
    ],
)
def test_servers_of_other_protocols(data: bytes, said: str) -> None:
    for command in (["topic", "list"], ["status"], ["doctor"]):
        _, ended = answered_with(data, *command)
        assert ended.returncode in (1, 2)
        assert said in (ended.stdout if command == ["doctor"] else ended.stderr)


def test_numbers_that_the_protocol_cannot_hold_are_refused() -> None:
    for number, said in ((str(2**31), "at most 2147483647"), ("9" * 5000, "at most 2147483647")):
        ended = tidelog("topic", "create", "t", "--partitions", number)
        assert ended.returncode == 2
        assert f"argument --partitions: expected a number of {said}, found" in ended.stderr


def test_metrics_port_is_recognised() -> None:
    address, ended = answered_with(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "topic", "list")
    assert ended.returncode == 1
    assert ended.stderr == (
        f"tidelog topic list: no broker answers at {address} (the connection to {address} is closed: an HTTP server"
        " answers there, probably the metrics port of a broker); start a cluster with `tidelog up`, or give the address"
        " of yours with --bootstrap HOST:PORT\n"
    )


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense", "tidelog topic list: TIDELOG_BOOTSTRAP: expected HOST:PORT (or [IPV6]:PORT), found 'nonsense'\n"),
        (
            NOBODY,
            f"tidelog topic list: no broker answers at {NOBODY} (Connection refused); start a cluster with `tidelog"
            " up`, or give the address of yours with TIDELOG_BOOTSTRAP=HOST:PORT\n",
        ),
    ],
)
def test_wrong_address_in_the_environment_is_not_blamed_on_the_flag(
    address: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", address)
    assert tidelog("topic", "list").stderr == said
    assert "--bootstrap: expected" in tidelog("topic", "list", "--bootstrap", "garbage").stderr
