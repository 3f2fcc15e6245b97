"""Login of this broker to others, where the listeners that brokers connect to have SASL."""

from tidelog.client.network.login import ClientLogin, LoginNetwork, inter_broker_credentials
from tidelog.config.broker import BrokerSettings
from tidelog.runtime.network import Network
from tidelog.server.seams import Seams


def with_inter_broker_login(seams: Seams, settings: BrokerSettings) -> Seams:
    network = _with_login(seams.network, seams, settings, settings.inter_broker_listener)
    control_network = seams.control_network
    if settings.control_plane_listener is not None:
        plain = seams.control_network or seams.network
        control_network = _with_login(plain, seams, settings, settings.control_plane_listener)
    return seams._replace(network=network, control_network=control_network)


def _with_login(network: Network, seams: Seams, settings: BrokerSettings, listener: str | None) -> Network:
    if listener is None or listener not in {each.listener_name for each in settings.sasl_endpoints}:
        return network
    mechanism = settings.sasl_mechanism_inter_broker_protocol
    jaas = settings.jaas(listener, mechanism)
    credentials = inter_broker_credentials(
        settings.for_mechanism(listener, mechanism), {} if jaas is None else jaas.options
    )
    return LoginNetwork(network, ClientLogin(credentials, seams.randomness, seams.workers, seams.clock))
