"""TLS with real certificates: who gets a connection, who is named, and what happens to the others."""

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority, Certificate
from tests.runtime.test_network_contract import MAX_FRAME_BYTES, Recorder
from tests.siege.tls_fuzz import besiege
from tidelog.config.broker import BrokerSettings
from tidelog.errors import InvalidRequest
from tidelog.runtime import socket_network, tls_channel
from tidelog.runtime.network import Channel, FrameReceiver
from tidelog.runtime.open_handshakes import OpenHandshakes
from tidelog.runtime.socket_network import SocketListener, SocketNetwork
from tidelog.runtime.tls_context import BadKeyMaterial, ListenerTls, check_certificates, client_context, server_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Certificate:
    return authority.sign("broker", "/C=DE/O=Tidelog, Inc./OU=Brokers/CN=localhost")


def settings(certificate: Certificate, **others: object) -> BrokerSettings:
    return BrokerSettings(**{**certificate.ssl_settings, **others})  # type: ignore[arg-type]


class Server:
    """A listener with TLS that records whom it accepted."""

    def __init__(self, tls: ListenerTls) -> None:
        self.tls = tls
        self.network = SocketNetwork(MAX_FRAME_BYTES, send_buffer_bytes=32 * 1024)
        self.accepted: list[Recorder] = []

    async def __aenter__(self) -> "Server":
        def accept(channel: Channel) -> FrameReceiver:
            self.accepted.append(Recorder(channel, lambda frame: [frame]))
            return self.accepted[-1]

        self.listener: SocketListener = await self.network.listen("127.0.0.1", 0, accept, self.tls)
        self.listener.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.listener.close()
        for each in self.accepted:
            each.channel.close("test over")

    async def connect(self, tls: ListenerTls, host: str = "127.0.0.1") -> Recorder:
        clients: list[Recorder] = []

        def attach(channel: Channel) -> FrameReceiver:
            clients.append(Recorder(channel))
            return clients[0]

        await SocketNetwork(MAX_FRAME_BYTES, tls=tls).connect(host, self.listener.port, attach)
        return clients[0]


async def echo(client: Recorder, content: bytes = b"hello") -> None:
    client.channel.send([content])
    client.channel.flush()
    await client.until(lambda recorder: bool(recorder.frames) or recorder.closed_because is not None)
    assert client.frames == [content], client.closed_because
    client.channel.close("done")


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_a_client_with_a_certificate_is_named_by_it(authority: Authority, certificate: Certificate) -> None:
    tls = ListenerTls(settings(certificate, ssl_client_auth="requested"))
    alice = ListenerTls(settings(authority.sign("alice", "/O=Users/OU=a\\+b/CN=alice")))
    anonymous = ListenerTls(settings(certificate, ssl_keystore_location=None))

    async def scenario() -> None:
        async with Server(tls) as server:
            await echo(await server.connect(alice))
            await echo(await server.connect(anonymous))
            subjects = [each.channel.peer_subject for each in server.accepted]
            assert subjects == ["CN=alice,OU=a\\+b,O=Users", None]

    run(scenario)


def test_who_must_show_a_certificate_and_has_none_is_not_served(certificate: Certificate) -> None:
    tls = ListenerTls(settings(certificate, ssl_client_auth="required"))
    anonymous = ListenerTls(settings(certificate, ssl_keystore_location=None))

    async def scenario() -> None:
        async with Server(tls) as server:
            with pytest.raises((OSError, AssertionError)):
                await echo(await server.connect(anonymous))
            assert server.accepted[0].frames == []

    run(scenario)


def test_certificates_of_others_are_not_trusted(tmp_path: Path, certificate: Certificate) -> None:
    tls = ListenerTls(settings(certificate, ssl_client_auth="required"))
    foreign = Authority(tmp_path, "foreign").sign("mallory")
    trusting = settings(foreign, ssl_truststore_location=str(certificate.authority))

    async def scenario() -> None:
        async with Server(tls) as server:
            with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                await server.connect(ListenerTls(settings(foreign)))
            with pytest.raises((OSError, AssertionError)):
                await echo(await server.connect(ListenerTls(trusting)))
            assert all(each.frames == [] for each in server.accepted)

    run(scenario)


def test_expired_certificates_are_not_trusted(authority: Authority, certificate: Certificate) -> None:
    """Neither that of a client nor that of a server."""
    expired = ListenerTls(settings(authority.sign("expired", days=-1), ssl_client_auth="required"))
    valid = ListenerTls(settings(certificate, ssl_client_auth="required"))

    async def scenario() -> None:
        async with Server(valid) as server:
            with pytest.raises((OSError, AssertionError)):
                await echo(await server.connect(expired))
            assert server.accepted[0].frames == []
        async with Server(expired) as server:
            with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                await server.connect(valid)

    run(scenario)


def test_nobody_renegotiates(certificate: Certificate) -> None:
    """TLS 1.2: each renegotiation would cost the broker a handshake. The connection ends, and others are served."""
    tls = ListenerTls(settings(certificate))

    async def scenario() -> None:
        async with Server(tls) as server:
            client = await asyncio.create_subprocess_exec(
                *("openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{server.listener.port}"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            assert client.stdin is not None
            assert client.stdout is not None
            shown = await client.stdout.readuntil(b"Verify return code")
            client.stdin.write(b"R\n")
            shown += await client.stdout.read()
            await client.wait()
            assert b"RENEGOTIATING" in shown
            assert b"no renegotiation" in shown
            await echo(await server.connect(tls))

    run(scenario)


def test_the_certificate_must_be_for_the_host(certificate: Certificate) -> None:
    tls = ListenerTls(settings(certificate))
    lax = ListenerTls(settings(certificate, ssl_endpoint_identification_algorithm=""))

    async def scenario() -> None:
        async with Server(tls) as server:
            with pytest.raises(OSError, match="IP address mismatch"):
                await server.connect(tls, "127.0.0.2")
            await echo(await server.connect(lax, "127.0.0.2"))

    asyncio.run(_on_every_address(scenario))


async def _on_every_address(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    listen = SocketNetwork.listen

    async def everywhere(self: SocketNetwork, host: str, *rest: Any) -> SocketListener:
        return await listen(self, "0.0.0.0", *rest)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SocketNetwork, "listen", everywhere)
        await scenario()


@pytest.mark.parametrize(("algorithm", "is_checked"), [("https", True), ("HTTPS", True), ("", False)])
def test_names_of_hosts_are_checked_unless_it_is_empty(
    certificate: Certificate, algorithm: str, is_checked: bool
) -> None:
    context = client_context(settings(certificate, ssl_endpoint_identification_algorithm=algorithm))
    assert context.check_hostname is is_checked


def test_a_changed_file_is_used_for_new_connections(tmp_path: Path) -> None:
    old, new = (Authority(tmp_path, name).sign(f"broker-{name}") for name in ("old", "new"))
    location = tmp_path / "keystore.pem"
    location.write_bytes(old.location.read_bytes())
    tls = ListenerTls(settings(old, ssl_keystore_location=str(location)))

    async def scenario() -> None:
        async with Server(tls) as server:
            first = await server.connect(ListenerTls(settings(old)))
            location.write_bytes(b"-----BEGIN nonsense")
            await echo(await server.connect(ListenerTls(settings(old))))
            location.write_bytes(new.location.read_bytes())
            await echo(await server.connect(ListenerTls(settings(new))))
            await echo(first)

    run(scenario)


def test_a_changed_setting_is_used_for_new_connections(tmp_path: Path) -> None:
    old, new = (Authority(tmp_path, name).sign(f"broker-{name}") for name in ("old", "new"))
    tls = ListenerTls(settings(old))

    async def scenario() -> None:
        async with Server(tls) as server:
            tls.reconfigure(settings(old, ssl_keystore_location=str(tmp_path / "missing")))
            await echo(await server.connect(ListenerTls(settings(old))))
            tls.reconfigure(settings(new))
            await echo(await server.connect(ListenerTls(settings(new))))

    run(scenario)


def test_who_does_not_speak_tls_or_never_ends_the_handshake_is_closed(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_channel, "HANDSHAKE_TIMEOUT_S", 0.05)
    tls = ListenerTls(settings(certificate))

    async def scenario() -> None:
        async with Server(tls) as server:
            for greeting in (b"\0\0\0\x0a plaintext", b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x02\0", b""):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
                writer.write(greeting)
                async with asyncio.timeout(60):
                    with suppress(ConnectionResetError):
                        await reader.read()
                writer.close()
            await asyncio.sleep(0)
            assert [each.closed_because is None for each in server.accepted] == [False] * 4
            assert server.accepted[-1].closed_because == "TLS handshake failed: not complete after 0.05 s"
            assert all(each.frames == [] for each in server.accepted)

    run(scenario)


def test_only_the_versions_and_ciphers_of_the_settings(certificate: Certificate) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    context = server_context(settings(certificate, ssl_cipher_suites=(suite,)))
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    assert "ECDHE-ECDSA-AES256-GCM-SHA384" in {each["name"] for each in context.get_ciphers()}
    assert "ECDHE-ECDSA-AES128-GCM-SHA256" not in {each["name"] for each in context.get_ciphers()}
    context = client_context(settings(certificate, ssl_enabled_protocols=("TLSv1.3",)))
    assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_3
    with pytest.raises(BadKeyMaterial, match="no suite for a version"):
        server_context(settings(certificate, ssl_cipher_suites=(suite,), ssl_enabled_protocols=("TLSv1.3",)))
    with pytest.raises(BadKeyMaterial, match="OpenSSL knows none"):
        server_context(settings(certificate, ssl_cipher_suites=("TLS_OF_MY_OWN",)))


def test_inline_pem(certificate: Certificate) -> None:
    text = certificate.location.read_text()
    key, chain = text[: text.index("-----BEGIN CERTIFICATE")], text[text.index("-----BEGIN CERTIFICATE") :]
    inline = BrokerSettings(
        ssl_keystore_key=key,
        ssl_keystore_certificate_chain=chain,
        ssl_truststore_certificates=certificate.authority.read_text(),
    )
    assert key not in repr(inline)

    async def scenario() -> None:
        async with Server(ListenerTls(inline)) as server:
            await echo(await server.connect(ListenerTls(inline)))

    run(scenario)


def test_what_cannot_be_used_is_named_in_one_sentence(tmp_path: Path, certificate: Certificate) -> None:
    jks, garbage = tmp_path / "store.jks", tmp_path / "garbage.pem"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\x02")
    garbage.write_bytes(b"-----BEGIN PRIVATE KEY-----\nx")
    for path, message in (
        (jks, "keytool -importkeystore"),
        (garbage, "cannot be used"),
        (tmp_path / "no", "cannot read"),
    ):
        with pytest.raises(BadKeyMaterial, match=message):
            server_context(settings(certificate, ssl_keystore_location=str(path)))
    with pytest.raises(BadKeyMaterial, match="no trusted certificate"):
        server_context(settings(certificate, ssl_truststore_location=str(garbage)))


def test_a_change_to_what_cannot_be_used_is_refused(tmp_path: Path, certificate: Certificate) -> None:
    listener = "listener.name.ssl.ssl.keystore.location"
    check_certificates(settings(certificate), {listener: str(certificate.location)})
    with pytest.raises(InvalidRequest, match="cannot read"):
        check_certificates(settings(certificate), {listener: str(tmp_path / "missing")})


def test_a_large_response_of_a_slow_reader_arrives_whole(certificate: Certificate) -> None:
    """Records that the socket did not take are sent again with the same bytes, as OpenSSL demands."""
    tls = ListenerTls(settings(certificate))
    content = bytes(range(256)) * 8_000

    async def scenario() -> None:
        async with Server(tls) as server:
            plain = socket.create_connection(("127.0.0.1", server.listener.port))
            loop = asyncio.get_running_loop()
            received = await loop.run_in_executor(None, _ask_slowly, plain, tls.client_context, content)
            assert received == content

    run(scenario)


def _ask_slowly(plain: socket.socket, context: ssl.SSLContext, content: bytes) -> bytes:
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
        client.sendall(len(content).to_bytes(4, "big") + content)
        file = client.makefile("rb")
        size = int.from_bytes(file.read(4), "big")
        return file.read(size)


def pkcs12(certificate: Certificate, path: Path, password: str) -> Path:
    command = ["openssl", "pkcs12", "-export", "-in", str(certificate.location), "-passout", f"pass:{password}"]
    subprocess.run([*command, "-certfile", str(certificate.authority), "-out", str(path)], check=True)
    return path


def test_pkcs12(tmp_path: Path, certificate: Certificate) -> None:
    pytest.importorskip("cryptography")
    store = str(pkcs12(certificate, tmp_path / "store.p12", "hunter2"))
    found = BrokerSettings(
        ssl_keystore_location=store,
        ssl_keystore_password="hunter2",
        ssl_truststore_location=store,
        ssl_truststore_password="hunter2",
    )

    async def scenario() -> None:
        async with Server(ListenerTls(found)) as server:
            await echo(await server.connect(ListenerTls(found)))

    run(scenario)
    with pytest.raises(BadKeyMaterial, match="with this password"):
        ListenerTls(replace(found, ssl_keystore_password="wrong"))


def test_pkcs12_without_its_library_is_one_sentence(
    tmp_path: Path, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    store = pkcs12(certificate, tmp_path / "store.p12", "x")
    with pytest.raises(BadKeyMaterial, match=r"pip install 'tidelog\[security\]'"):
        ListenerTls(settings(certificate, ssl_keystore_location=str(store)))


def test_a_key_that_others_can_read_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate = Authority(tmp_path).sign("broker")
    certificate.location.chmod(0o600)
    ListenerTls(settings(certificate))
    assert not caplog.records
    certificate.location.chmod(0o640)
    ListenerTls(settings(certificate))
    assert [record.getMessage() for record in caplog.records] == [
        f"key can be read by others; protect it with chmod 600 file={certificate.location}"
    ]


def test_handshakes_that_nobody_completes_give_way(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_network, "OpenHandshakes", partial(OpenHandshakes, 3))
    tls = ListenerTls(settings(certificate))

    async def scenario() -> None:
        async with Server(tls) as server:
            silent = [socket.create_connection(("127.0.0.1", server.listener.port)) for _ in range(5)]
            await echo(await server.connect(tls))
            closed = [each.closed_because for each in server.accepted]
            assert closed[:3] == ["TLS handshake failed: 3 handshakes are open"] * 3
            assert closed[3:5] == [None, None]
            for each in silent:
                each.close()

    run(scenario)


def test_mutated_handshakes_break_nothing(tmp_path: Path, certificate: Certificate) -> None:
    """The long form is `python -m tests.siege.tls_fuzz`."""
    verdict = asyncio.run(besiege(tmp_path, certificate, 150))
    assert (verdict.failures, verdict.left_open) == ([], 0)
    assert verdict.tolerated < 15
