"""Client network with TLS and SASL, built from security settings."""

from tidelog.client.network.login import ClientLogin, Credentials, LoginNetwork
from tidelog.config.client import BadClientSettings, ClientSecurity, ResolvedSecurity
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.network import Network
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.runtime.tls_context import BadKeyMaterial, ClientTls
from tidelog.runtime.workers import ThreadWorkers


def secured_network(security: ClientSecurity, max_frame_bytes: int) -> Network:
    """Raises BadClientSettings."""
    return resolved_network(security.resolve(), max_frame_bytes)


def resolved_network(resolved: ResolvedSecurity, max_frame_bytes: int) -> Network:
    """Raises BadClientSettings."""
    try:
        tls = ClientTls(resolved.ssl) if resolved.has_tls else None
    except BadKeyMaterial as error:
        raise BadClientSettings(str(error)) from error
    network = SocketNetwork(max_frame_bytes, tls=tls)
    if not resolved.has_login:
        return network
    credentials = Credentials(resolved.mechanism, resolved.options, resolved.token_url)
    workers = ThreadWorkers("tidelog-login", 1)
    return LoginNetwork(network, ClientLogin(credentials, SystemRandomness(), workers, SystemClock()))
