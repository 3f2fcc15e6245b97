"""A real ZooKeeper for tests, and ways to trouble it."""

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tools.apache_kafka import NotAvailable
from tools.zookeeper import ZooKeeper, class_path

USERS = {"kafka": "hunter2", "other": 'sésame, \\"open\\"'}
"""As a JAAS file has them, with escapes."""


class ZooKeeperWithLogin(ZooKeeper):
    """Serves only those that log in by SASL."""

    def __init__(self, port: int, data_dir: Path | str) -> None:
        super().__init__(port, data_dir)
        jaas_file = self.data_dir / "jaas.conf"
        users = " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
        jaas_file.write_text(f"Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required {users}; }};")
        self.jvm_flags = (
            *self.jvm_flags,
            f"-Djava.security.auth.login.config={jaas_file}",
            "-Dfile.encoding=UTF-8",
            "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "-Dzookeeper.sessionRequireClientSASLAuth=true",
        )


@contextmanager
def running_zookeeper(directory: Path, server_class: type[ZooKeeper] = ZooKeeper) -> Iterator[ZooKeeper]:
    """On a free port, with its data in the directory. Where there is no ZooKeeper, tests are skipped, but not in CI."""
    try:
        class_path()
    except NotAvailable as missing:
        if os.environ.get("CI"):
            pytest.fail(f"skipped in CI: {missing}")
        pytest.skip(str(missing))
    server = server_class(0, directory)
    server.start()
    try:
        yield server
    finally:
        server.kill()


class Proxy:
    """Stands between one client and the server: cut off, it is silent to old connections and refuses new ones."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._is_cut = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: of connections of the client; the server is reached without."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=tls)

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        self._is_cut = True

    def mend(self) -> None:
        """Connections from before the cut are gone."""
        self._is_cut = False
        self.drop()

    def drop(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.close()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, server_writer}
        for source, target in ((reader, server_writer), (server_reader, writer)):
            pump = asyncio.create_task(self._pump(source, target))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                if not self._is_cut:
                    target.write(data)
        target.close()
