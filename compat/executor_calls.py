"""The calls that Cruise Control makes of a cluster, by Java's Admin client, with a throttled move under way."""

import subprocess
import tempfile
from pathlib import Path

from compat.command_line import ToolBox, tool
from tests.clients.broker import TidelogCluster, running
from tools.apache_kafka import java_command

SOURCE = Path(__file__).resolve().parent / "java" / "CruiseControlCalls.java"
FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dkafka.log.level=OFF", "-Dlog4j2.level=OFF")
SMALL_FETCHES = {"replica.fetch.max.bytes": "65536"}
"""However low the rate, one fetch every 11 s passes: with small ones a move lasts until the rate is raised."""
TIME_LIMIT_S = 600
LAST_WORDS = 800


@tool("the calls of Cruise Control's executor and monitor, made with Java's Admin client (not Cruise Control itself)")
def serves_the_calls_of_an_executor(box: ToolBox, cluster: TidelogCluster) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="compat-executor-") as scratch,
        running(TidelogCluster(Path(scratch), SMALL_FETCHES, disks=2)) as own,
    ):
        make_calls(box.version, own.bootstrap)


def make_calls(version: str, bootstrap: str) -> None:
    """Of three brokers, 1 to 3, each with two log directories; a wrong result is an AssertionError."""
    command = java_command(version, str(SOURCE), bootstrap, flags=FLAGS)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-LAST_WORDS:]
