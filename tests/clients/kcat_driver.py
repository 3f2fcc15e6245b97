"""kcat, the command line client, behind the common interface: each call is a process."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from itertools import groupby

from tests.clients.driver import (
    MAX_REQUEST_BYTES,
    TIMEOUT_S,
    ClientDriver,
    Consumed,
    Headers,
    Isolation,
    NamedOffset,
    PartitionDescription,
    ProducerOptions,
    Record,
    Rejected,
    Writer,
    WriterReport,
)

RECORD_END = "\x1e\x1d"
RECORD_FORMAT = "%o %T %K %S %h\n%k%s\n"
KEY_END = "\x1f\x1d"
QUERIES = {"earliest": -2, "latest": -1}
# librdkafka's words for the codes that the suite asks about.
CODES = {
    "Broker: Message size too large": 10,
    "Broker: Unknown topic or partition": 3,
}


class KcatDriver(ClientDriver):
    def _command(self, mode: str, *arguments: str) -> list[str]:
        return ["kcat", mode, "-b", self.bootstrap, "-m", "20", *arguments]

    def _run(self, mode: str, *arguments: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            self._command(mode, *arguments), input=given, capture_output=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise rejected(done.stderr.decode(errors="replace"))
        return done.stdout

    def produce(
        self, topic: str, records: Sequence[Record], options: ProducerOptions, partition: int = 0
    ) -> list[int | None]:
        for headers, group in groupby(records, key=lambda record: record.headers):
            for has_key, same_kind in groupby(group, key=lambda record: record.key is not None):
                self._produce_alike(topic, list(same_kind), headers, has_key, options, partition)
        return [None] * len(records)

    def _produce_alike(
        self,
        topic: str,
        records: Sequence[Record],
        headers: Headers,
        has_key: bool,
        options: ProducerOptions,
        partition: int,
    ) -> None:
        arguments = ["-t", topic, "-p", str(partition), "-D", RECORD_END, *producer_arguments(options)]
        if has_key:
            arguments += ["-K", KEY_END]
        if any(record.value is None for record in records):
            assert not any(record.value == b"" for record in records), "kcat takes empty values for null or not"
            arguments.append("-Z")
        for name, value in headers:
            arguments += ["-H", f"{name}={(value or b'').decode()}"]
        self._run("-P", *arguments, given=b"".join(line(record) for record in records))

    def consume(
        self, topic: str, partition: int, offset: int, count: int, isolation: Isolation = "read_committed"
    ) -> list[Consumed]:
        return self._consume(topic, partition, offset, count, f"isolation.level={isolation}")

    def consume_in_rack(self, topic: str, partition: int, count: int, rack: str) -> list[Consumed]:
        return self._consume(topic, partition, 0, count, f"client.rack={rack}")

    def _consume(self, topic: str, partition: int, offset: int, count: int, setting: str) -> list[Consumed]:
        arguments = ["-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count)]
        arguments += ["-X", setting, "-X", "auto.offset.reset=earliest"]
        return list(parse(self._run("-C", *arguments, "-f", RECORD_FORMAT)))

    def read_in_group(self, group: str, topic: str, count: int) -> list[Consumed]:
        """It commits by itself, the last time when it leaves."""
        settings = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=10000"]
        return list(parse(self._run("-q", "-c", str(count), *settings, "-f", RECORD_FORMAT, "-G", group, topic)))

    def list_offset(self, topic: str, partition: int, at: NamedOffset | int) -> int | None:
        timestamp = at if isinstance(at, int) else QUERIES[at]
        output = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp}").decode()
        found = re.search(r"offset (-?\d+)", output)
        assert found, output
        return int(found[1]) if int(found[1]) >= 0 else None

    def _metadata(self, *arguments: str) -> list[dict[str, object]]:
        topics: list[dict[str, object]] = json.loads(self._run("-L", "-J", *arguments))["topics"]
        return topics

    def list_topics(self) -> set[str]:
        return {str(topic["topic"]) for topic in self._metadata()}

    def describe_topic(self, topic: str) -> dict[int, PartitionDescription]:
        (description,) = self._metadata("-t", topic)
        if "error" in description:
            raise rejected(str(description["error"]))
        partitions = description["partitions"]
        assert isinstance(partitions, list)
        return {
            partition["partition"]: PartitionDescription(
                partition["leader"],
                tuple(replica["id"] for replica in partition["replicas"]),
                tuple(replica["id"] for replica in partition["isrs"]),
            )
            for partition in partitions
        }

    def open_writer(self, topic: str, *, idempotent: bool) -> Writer:
        arguments = ["-t", topic, "-p", "0", "-E", *producer_arguments(ProducerOptions(idempotent=idempotent))]
        return KcatWriter(self._command("-P", *arguments))


class KcatWriter(Writer):
    """kcat reports no offsets: where it ends well, everything it was given was acknowledged."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self._sent: list[bytes] = []

    def send(self, value: bytes) -> None:
        assert self._process.stdin is not None
        self._sent.append(value)
        self._process.stdin.write(value + b"\n")
        self._process.stdin.flush()

    def close(self) -> WriterReport:
        _, complaint = self._process.communicate(timeout=TIMEOUT_S)
        text = complaint.decode(errors="replace")
        if self._process.returncode == 0 and "Delivery failed" not in text:
            return WriterReport(sent=self._sent, acknowledged=self._sent)
        return WriterReport(sent=self._sent, failed=[text])


def producer_arguments(options: ProducerOptions) -> list[str]:
    settings = {
        "acks": options.acks,
        "enable.idempotence": str(options.idempotent).lower(),
        "message.max.bytes": str(MAX_REQUEST_BYTES),
        "linger.ms": "2",
        "message.timeout.ms": str(int(TIMEOUT_S * 1000)),
        "retry.backoff.ms": "50",
        "reconnect.backoff.max.ms": "200",
        "compression.codec": options.compression,
    }
    return [argument for key, value in settings.items() for argument in ("-X", f"{key}={value}")]


def line(record: Record) -> bytes:
    key = b"" if record.key is None else record.key + KEY_END.encode()
    return key + (record.value or b"") + RECORD_END.encode()


def rejected(complaint: str) -> Rejected:
    codes = [code for words, code in CODES.items() if words in complaint]
    return Rejected(codes[0] if codes else -1, complaint)


def parse(output: bytes) -> Iterator[Consumed]:
    """Reads records back: a line of offset, timestamp, lengths and headers, then key and value as they are."""
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        offset, timestamp_ms, key_length, value_length, headers = output[position:end].split(b" ", 4)
        key, position = take(output, end + 1, int(key_length))
        value, position = take(output, position, int(value_length))
        yield Consumed(int(offset), int(timestamp_ms), key, value, parse_headers(headers))
        position += 1


def take(output: bytes, position: int, length: int) -> tuple[bytes | None, int]:
    if length < 0:
        return None, position
    return output[position : position + length], position + length


def parse_headers(text: bytes) -> Headers:
    pairs = [pair.split(b"=", 1) for pair in text.split(b",") if pair]
    return tuple((name.decode(), value) for name, value in pairs)
