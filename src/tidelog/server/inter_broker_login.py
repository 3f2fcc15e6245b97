"""Login of this broker to others, if the listener between brokers has SASL."""

from tidelog.client.network.login import ClientLogin, LoginNetwork, inter_broker_credentials
from tidelog.config.broker import BrokerSettings
from tidelog.server.seams import Seams


def with_inter_broker_login(seams: Seams, settings: BrokerSettings) -> Seams:
    listener = settings.inter_broker_listener
    if listener is None or listener not in {each.listener_name for each in settings.sasl_endpoints}:
        return seams
    mechanism = settings.sasl_mechanism_inter_broker_protocol
    jaas = settings.jaas(listener, mechanism)
    credentials = inter_broker_credentials(
        settings.for_mechanism(listener, mechanism), {} if jaas is None else jaas.options
    )
    login = ClientLogin(credentials, seams.randomness, seams.workers, seams.clock)
    return seams._replace(network=LoginNetwork(seams.network, login))
