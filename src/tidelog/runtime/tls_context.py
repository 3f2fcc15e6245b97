"""TLS contexts from settings: certificates in PEM or PKCS#12, protocol versions, ciphers (Kafka: SslFactory)."""

import logging
import os
import ssl
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from tidelog.config.broker import BrokerSettings
from tidelog.config.ssl import SslSettings, split_listener_name
from tidelog.errors import InvalidRequest
from tidelog.runtime.linux_calls import MFD_CLOEXEC, memfd_create

logger = logging.getLogger(__name__)

JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
PEM_MARK = b"-----BEGIN"
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
TLS_1_3_SUITES = "TLS_AES_", "TLS_CHACHA20_POLY1305_SHA256"
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class BadKeyMaterial(OSError):
    """A certificate or key cannot be used. The message is one sentence for the operator."""


class KeyMaterial(NamedTuple):
    """Certificates and key in PEM."""

    chain: bytes
    key: bytes
    password: str | None
    trusted: bytes | None
    """None: the certificates of the system."""


def server_context(settings: SslSettings) -> ssl.SSLContext:
    """Context of a listener. Raises BadKeyMaterial."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _configure(context, settings)
    context.verify_mode = CLIENT_AUTH[settings.ssl_client_auth]
    return context


def client_context(settings: SslSettings) -> ssl.SSLContext:
    """Context of outgoing connections. Raises BadKeyMaterial."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.ssl_endpoint_identification_algorithm.lower() == "https"
    _configure(context, settings)
    return context


def _configure(context: ssl.SSLContext, settings: SslSettings) -> None:
    material = load_key_material(settings)
    versions = _versions(settings)
    context.minimum_version, context.maximum_version = VERSIONS[versions[0]], VERSIONS[versions[-1]]
    suites = [_openssl_name(suite) for suite in settings.ssl_cipher_suites if not suite.startswith(TLS_1_3_SUITES)]
    if suites:  # `set_ciphers` does not apply to those of TLS 1.3
        try:
            context.set_ciphers(":".join(suites))
        except ssl.SSLError as error:
            raise BadKeyMaterial(f"ssl.cipher.suites: OpenSSL knows none of {', '.join(suites)}") from error
    if material.trusted is None:
        context.load_default_certs()
    else:
        _load_trusted(context, material.trusted, settings)
    if material.key:
        _load_key(context, material, settings)


def _versions(settings: SslSettings) -> list[str]:
    """Enabled versions, oldest first, that have a suite in `ssl.cipher.suites`: TLS 1.3 and TLS 1.2 share none."""
    suites = settings.ssl_cipher_suites
    tls_1_3 = [suite for suite in suites if suite.startswith(TLS_1_3_SUITES)]
    possible = {"TLSv1.2": not suites or len(tls_1_3) < len(suites), "TLSv1.3": not suites or bool(tls_1_3)}
    versions = sorted(version for version in settings.ssl_enabled_protocols if possible[version])
    if not versions:
        raise BadKeyMaterial("ssl.cipher.suites has no suite for a version in ssl.enabled.protocols")
    return versions


def _openssl_name(suite: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is `ECDHE-RSA-AES128-GCM-SHA256` to OpenSSL."""
    if not suite.startswith("TLS_"):
        return suite
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_")
    name = name.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC_", "_")
    return name.replace("POLY1305_SHA256", "POLY1305").replace("_", "-")


def _load_trusted(context: ssl.SSLContext, trusted: bytes, settings: SslSettings) -> None:
    try:
        context.load_verify_locations(cadata=trusted.decode("ascii", "replace"))
    except ssl.SSLError as error:
        place = settings.ssl_truststore_location or "ssl.truststore.certificates"
        raise BadKeyMaterial(f"{place}: no trusted certificate can be read: {error.reason or error}") from error


def _load_key(context: ssl.SSLContext, material: KeyMaterial, settings: SslSettings) -> None:
    """Uses a file in memory: OpenSSL reads keys from files only, and no other process can open this one by name."""
    place = settings.ssl_keystore_location or "ssl.keystore.key"
    descriptor = memfd_create("tidelog-key", MFD_CLOEXEC)
    try:
        os.write(descriptor, material.key + b"\n" + material.chain)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: material.password or "")
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        hint = "; is ssl.key.password right?" if reason in ("BAD_DECRYPT", "BAD_PASSWORD_READ", "PEM_LIB") else ""
        raise BadKeyMaterial(f"{place}: the key cannot be used: {reason}{hint}") from error
    finally:
        os.close(descriptor)


def load_key_material(settings: SslSettings) -> KeyMaterial:
    """Read the files that the settings name. Raises BadKeyMaterial."""
    chain = key = b""
    password = settings.ssl_key_password
    trusted: bytes | None = None
    if settings.ssl_keystore_key:
        key, chain = settings.ssl_keystore_key.encode(), (settings.ssl_keystore_certificate_chain or "").encode()
    elif settings.ssl_keystore_location:
        data = _read(settings.ssl_keystore_location)
        if PEM_MARK in data:
            key = data
        else:
            store = _read_pkcs12(settings.ssl_keystore_location, data, settings.ssl_keystore_password)
            key, chain, password = store.key, store.chain, None
    if settings.ssl_truststore_certificates:
        trusted = settings.ssl_truststore_certificates.encode()
    elif settings.ssl_truststore_location:
        trusted = _read(settings.ssl_truststore_location)
        if PEM_MARK not in trusted:
            trusted = _read_pkcs12(settings.ssl_truststore_location, trusted, settings.ssl_truststore_password).trusted
    return KeyMaterial(chain, key, password, trusted)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise BadKeyMaterial(f"cannot read {path}: {error.strerror}") from error
    if data.startswith(JKS_MAGIC):
        raise BadKeyMaterial(
            f"{path} is a JKS key store, which is not supported; convert it: keytool -importkeystore"
            f" -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        )
    return data


def _read_pkcs12(path: str, data: bytes, password: str | None) -> KeyMaterial:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise BadKeyMaterial(
            f"{path} is a PKCS#12 store; install what reads it: pip install 'tidelog[security]',"
            f" or convert it to PEM: openssl pkcs12 -in {path} -out {path}.pem"
        ) from error
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise BadKeyMaterial(f"{path} is neither PEM nor a PKCS#12 store with this password: {error}") from error
    pem = serialization.Encoding.PEM
    others = [each.certificate.public_bytes(pem) for each in store.additional_certs]
    own = [] if store.cert is None else [store.cert.certificate.public_bytes(pem)]
    key = b""
    if store.key is not None:
        key = store.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyMaterial(b"".join(own + others), key, None, b"".join(others + own))


def check_certificates(settings: BrokerSettings, changed: Mapping[str, str]) -> None:
    """Raises InvalidRequest if a listener cannot use its changed `ssl.` settings."""
    split_names = map(split_listener_name, changed)
    listeners = {split[0] for split in split_names if split is not None and split[1].startswith("ssl.")}
    wanted = replace(settings, listener_overrides={**settings.listener_overrides, **changed})
    for listener in sorted(listeners):
        try:
            server_context(wanted.for_listener(listener))
        except BadKeyMaterial as error:
            raise InvalidRequest(f"Invalid dynamic configuration of listener {listener}: {error}") from error


class ClientTls:
    """TLS of the connections of one client, which accepts none."""

    def __init__(self, settings: SslSettings) -> None:
        """Raises BadKeyMaterial."""
        self.client_context = client_context(settings)
        self.server_context = self.client_context


class ListenerTls:
    """TLS of one listener, and of connections to the same listener of other brokers.

    After a change of a file or setting, new connections use a new context. If it cannot be created, this is logged, and
    the previous one stays in use.
    """

    def __init__(self, settings: SslSettings) -> None:
        """Raises BadKeyMaterial."""
        _warn_if_key_is_readable(settings.ssl_keystore_location)
        self._settings = settings
        self._stamps = _stamps(settings)
        self._server = server_context(settings)
        self._client = client_context(settings)

    @property
    def server_context(self) -> ssl.SSLContext:
        self._reload_changed_files()
        return self._server

    @property
    def client_context(self) -> ssl.SSLContext:
        self._reload_changed_files()
        return self._client

    def reconfigure(self, settings: SslSettings) -> None:
        if settings != self._settings:
            self._replace(settings, _stamps(settings))

    def _reload_changed_files(self) -> None:
        stamps = _stamps(self._settings)
        if stamps != self._stamps:
            self._replace(self._settings, stamps)

    def _replace(self, settings: SslSettings, stamps: "_Stamps") -> None:
        self._stamps = stamps  # even if it fails: retrying is useless until the next change
        try:
            server, client = server_context(settings), client_context(settings)
        except BadKeyMaterial as error:
            logger.error("cannot reload certificates, the previous ones stay in use reason=%s", error)
            return
        self._settings, self._server, self._client = settings, server, client
        logger.info("certificates reloaded for new connections key_store=%s", settings.ssl_keystore_location or "-")


def _warn_if_key_is_readable(path: str | None) -> None:
    with suppress(OSError):
        if path and os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH):
            logger.warning("key can be read by others; protect it with chmod 600 file=%s", path)


_Stamps = tuple[tuple[int, int, int] | None, ...]


def _stamps(settings: SslSettings) -> _Stamps:
    """Stamp of each file: modification time, size and inode."""
    return tuple(_stamp(path) for path in (settings.ssl_keystore_location, settings.ssl_truststore_location))


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    if path:
        with suppress(OSError):
            found = os.stat(path)
            return found.st_mtime_ns, found.st_size, found.st_ino
    return None
