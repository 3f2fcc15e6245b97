"""Tables, files and checkpoints on an object store: moto's stand-in for S3, where it is installed.

Files and checkpoints need hadoop-aws and the jars that it names, in the directory TIDELOG_S3A_JARS."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pipelines.table_writing import (
    COMPACTION,
    Crash,
    CrashAt,
    expected_ids,
    ids_of,
    opened,
    sink_of,
    write_batch,
)
from tidelog.pipelines.definition.model import TableKind, TableSink

pytest.importorskip("moto.server", reason="needs pip install 'moto[s3]' flask flask-cors")
BUCKET = "shop"
START_LIMIT_S = 120.0


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """In a process of its own: the table library of Delta waits for its answers without releasing Python's lock."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (tmp_path_factory.mktemp("moto") / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            make_bucket(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def make_bucket(url: str) -> None:
    limit = time.monotonic() + START_LIMIT_S
    while True:
        try:
            request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request, timeout=20).close()
            return
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.2)


@pytest.fixture
def on_s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """As a user sets it: the table library and Arrow read the same variables."""
    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return endpoint


def sinks(kind: TableKind, directory: Path, endpoint: str) -> TableSink:
    sink = replace(sink_of(kind, directory), compaction=COMPACTION)
    if kind is TableKind.DELTA:
        return replace(sink, location=f"s3://{BUCKET}/{directory.name}/orders")
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"s3://{BUCKET}/{directory.name}",
        "s3.endpoint": endpoint,
    }
    return replace(sink, catalog=catalog)


@pytest.mark.parametrize("kind", [TableKind.DELTA, TableKind.ICEBERG])
def test_batches_are_there_once_after_crashes_at_every_step(kind: TableKind, on_s3: str, tmp_path: Path) -> None:
    if kind is TableKind.ICEBERG:
        pytest.importorskip("pyiceberg")
    sink = sinks(kind, tmp_path, on_s3)
    table = opened(sink, tmp_path)
    assert write_batch(table, 0)
    assert not write_batch(table, 0)
    table.close()
    batch_id, step = 1, 1
    while True:
        crash = CrashAt(step)
        table = opened(sink, tmp_path, crash)
        try:
            write_batch(table, batch_id)
            assert step > 1
            break
        except Crash:
            again = opened(sink, tmp_path)
            write_batch(again, batch_id)
            assert ids_of(again) == expected_ids(*range(batch_id + 1))
            again.close()
            batch_id, step = batch_id + 1, step + 1
        finally:
            table.close()
    final = opened(sink, tmp_path)
    assert ids_of(final) == expected_ids(*range(batch_id + 1))
    final.close()


@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.skipif("TIDELOG_S3A_JARS" not in os.environ, reason="TIDELOG_S3A_JARS names no jars of hadoop-aws")
def test_files_and_checkpoints_on_the_store(on_s3: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.pipelines.s3a_program", on_s3, os.environ["TIDELOG_S3A_JARS"]]
    run = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=1100, check=False)
    assert run.stdout.splitlines() == ["[1]", "[1, 2]"], run.stderr[-3000:]
