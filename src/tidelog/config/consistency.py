"""Consistency checks between broker settings."""

from collections.abc import Callable, Iterator

from tidelog.config.broker import GENERATED_ID, BrokerSettings
from tidelog.config.listeners import EVERY_INTERFACE, TLS_PROTOCOLS, Endpoint, is_loopback, parse_address
from tidelog.config.principal_mapping import PrincipalMapper
from tidelog.config.resolution import topic_defaults
from tidelog.config.sasl import DEFAULT_MECHANISMS, check_login, check_mechanism, split_sasl_name
from tidelog.config.setting import INT_MAX, LONG_MAX, BadValue
from tidelog.config.ssl import check_key, split_listener_name
from tidelog.config.zookeeper_login import JAAS_FILE, check_zookeeper_login

MAX_REPLICA_FETCHERS = 1000
"""Every fetcher opens a connection to every leader."""

MIN_DEDUPE_BUFFER_BYTES = 1 << 20
"""Kafka's minimum per cleaner thread; there is one here."""


def contradictions(settings: BrokerSettings) -> Iterator[tuple[str, str]]:
    """Mistakes that involve several settings, each with the name of the setting to change."""
    for name, check in _CHECKS:
        try:
            check(settings)
        except BadValue as error:
            yield name, str(error)


def rejected_at_start(settings: BrokerSettings) -> Iterator[tuple[str, str]]:
    """Values that Kafka allows, but with which a broker would lock out clients or other brokers, or never be idle.

    `dynamic_changes` checks changes at run time.
    """
    yield from contradictions(settings)
    for attribute, least, most, reason in _BOUNDS_AT_START:
        value = getattr(settings, attribute)
        if value is None or least <= value <= most:
            continue
        bound = f"must be at least {least}" if value < least else f"must be at most {most}"
        yield attribute.replace("_", "."), f"is {value}, and {bound}: {reason}"
    if settings.connections_max_idle_ms == 0:
        yield "connections.max.idle.ms", "is 0, and every connection would be closed; a negative number is no limit"
    if settings.zookeeper_connect:
        try:
            check_zookeeper_login(settings)
        except BadValue as error:
            yield _place_of_zookeeper_login(settings), str(error)
    wait_ms = settings.replica_fetch_wait_max_ms
    if wait_ms > settings.replica_socket_timeout_ms:
        yield "replica.socket.timeout.ms", "should always be at least replica.fetch.wait.max.ms"
    if wait_ms > settings.replica_lag_time_max_ms:
        yield "replica.fetch.wait.max.ms", "should be at most replica.lag.time.max.ms, or followers fall out of sync"


def _place_of_zookeeper_login(settings: BrokerSettings) -> str:
    """The setting to change."""
    if settings.zookeeper_sasl_jaas_config:
        return "zookeeper.sasl.jaas.config"
    return JAAS_FILE if settings.java_security_auth_login_config else "zookeeper.set.acl"


_BOUNDS_AT_START: tuple[tuple[str, int, int, str], ...] = (
    ("max_connections", 1, INT_MAX, "nobody could connect"),
    ("max_connection_creation_rate", 1, INT_MAX, "nobody could connect"),
    ("num_replica_fetchers", 1, MAX_REPLICA_FETCHERS, "each is a connection to every leader"),
    ("offset_metadata_max_bytes", 0, INT_MAX, "no offset could be committed"),
    ("group_initial_rebalance_delay_ms", 0, INT_MAX, "it is a time to wait"),
    ("group_min_session_timeout_ms", 1, INT_MAX, "members would lose their sessions at once"),
    ("leader_imbalance_per_broker_percentage", 0, INT_MAX, "leaders would be elected without end"),
    ("replica_fetch_wait_max_ms", 0, INT_MAX, "it is a time to wait"),
    ("replica_fetch_min_bytes", 0, INT_MAX, "it is a number of bytes"),
    ("log_flush_scheduler_interval_ms", 1, LONG_MAX, "the broker would do nothing else"),
    ("log_flush_interval_ms", 0, LONG_MAX, "it is a time to wait"),
    ("controlled_shutdown_max_retries", 0, INT_MAX, "it is a number of attempts"),
    ("controlled_shutdown_retry_backoff_ms", 0, LONG_MAX, "it is a time to wait"),
    ("zookeeper_session_timeout_ms", 1, INT_MAX, "the broker would lose its session at once"),
    ("zookeeper_connection_timeout_ms", 1, INT_MAX, "ZooKeeper could not be reached"),
)


def _check_ids(settings: BrokerSettings) -> None:
    if GENERATED_ID not in (settings.broker_id, settings.node_id) and settings.broker_id != settings.node_id:
        raise BadValue(f"broker.id is {settings.broker_id}, but node.id, which means the same, is {settings.node_id}")


def _check_log_directories(settings: BrokerSettings) -> None:
    if not settings.log_directories:
        raise BadValue("at least one log directory must be given")


def _check_retention(settings: BrokerSettings) -> None:
    if topic_defaults(settings).retention_ms == 0:
        raise BadValue("must be unlimited (-1) or at least 1")


def _check_roll(settings: BrokerSettings) -> None:
    if topic_defaults(settings).segment_ms < 1:
        raise BadValue("must be at least 1")


def _check_roll_jitter(settings: BrokerSettings) -> None:
    if topic_defaults(settings).segment_jitter_ms < 0:
        raise BadValue("must be at least 0")


def _check_queued_bytes(settings: BrokerSettings) -> None:
    if 0 < settings.queued_max_request_bytes < settings.socket_request_max_bytes:
        raise BadValue("must be at least socket.request.max.bytes, or the largest request could never be read")


def _check_lease(settings: BrokerSettings) -> None:
    if settings.broker_heartbeat_interval_ms >= settings.broker_session_timeout_ms:
        raise BadValue("must be less than broker.session.timeout.ms, or the broker would lose its session")


def _check_connections_per_ip(settings: BrokerSettings) -> None:
    if settings.max_connections_per_ip == 0 and not settings.max_connections_per_ip_overrides:
        raise BadValue("can be set to zero only if max.connections.per.ip.overrides is set")


def _check_cleaner_memory(settings: BrokerSettings) -> None:
    if settings.log_cleaner_dedupe_buffer_size <= MIN_DEDUPE_BUFFER_BYTES:
        raise BadValue(f"must be more than {MIN_DEDUPE_BUFFER_BYTES}")


def _check_cleaner_rate(settings: BrokerSettings) -> None:
    if settings.log_cleaner_io_max_bytes_per_second <= 0:
        raise BadValue("must be more than 0, or nothing would be compacted; for that set log.cleaner.enable=false")


def _check_listeners(settings: BrokerSettings) -> None:
    if not settings.endpoints:
        raise BadValue("at least one listener must be given")


def _check_advertised_listeners(settings: BrokerSettings) -> None:
    advertised = settings.advertised_listeners
    if advertised is None:
        return
    if any(endpoint.host in EVERY_INTERFACE for endpoint in settings.advertised_endpoints):
        raise BadValue("clients cannot connect to 0.0.0.0; use the name or address of the machine")
    names = {text.partition(":")[0].upper() for text in settings.listeners}
    unknown = [
        endpoint.listener_name for endpoint in settings.advertised_endpoints if endpoint.listener_name not in names
    ]
    if unknown:
        raise BadValue(f"{', '.join(unknown)} is not among the listeners")
    for name, host, *_ in settings.advertised_endpoints:
        if name in settings.listeners_without_host and not is_loopback(host):
            raise BadValue(
                f"{host or 'the machine'} cannot be reached by others: listener {name} has no host and listens only on"
                f" the loopback interface; for every interface set listeners={name}://0.0.0.0:PORT"
            )


def _check_inter_broker_listener(settings: BrokerSettings) -> None:
    if not _valid_endpoints(settings):
        return
    name = settings.inter_broker_listener
    if name is None:
        raise BadValue(
            "no listener is unencrypted: name the listener that brokers connect to, or set"
            " security.inter.broker.protocol to its protocol"
        )
    if name not in {endpoint.listener_name for endpoint in settings.advertised_endpoints}:
        raise BadValue(f"{name} is not among the listeners that this broker advertises")


def _check_control_plane_listener(settings: BrokerSettings) -> None:
    name = settings.control_plane_listener
    if name is None or not _valid_endpoints(settings):
        return
    if name not in {endpoint.listener_name for endpoint in settings.advertised_endpoints}:
        raise BadValue(f"{name} is not among the listeners that this broker advertises")
    if name == settings.inter_broker_listener:
        raise BadValue(f"{name} is the listener between brokers: name another one")


def _valid_endpoints(settings: BrokerSettings) -> tuple[Endpoint, ...]:
    """None if there is a mistake in them, which another check reports."""
    try:
        return settings.endpoints if settings.advertised_endpoints else ()
    except BadValue:
        return ()


def _check_ssl(settings: BrokerSettings) -> None:
    for endpoint in _valid_endpoints(settings):
        if endpoint.security_protocol in TLS_PROTOCOLS:
            of_listener = settings.for_listener(endpoint.listener_name)
            try:
                check_key(of_listener)
                PrincipalMapper(of_listener.ssl_principal_mapping_rules)
            except BadValue as error:
                raise BadValue(f"listener {endpoint.listener_name} {error}") from error


def _check_sasl_is_used(settings: BrokerSettings) -> None:
    """Settings of logins without a listener that has them are a mistake: everybody could connect."""
    asked = settings.sasl_enabled_mechanisms != DEFAULT_MECHANISMS or settings.connections_max_reauth_ms > 0
    if asked and _valid_endpoints(settings) and not settings.sasl_endpoints:
        raise BadValue("no listener has SASL, and everybody could connect without a login")


def _check_sasl(settings: BrokerSettings) -> None:
    for endpoint in settings.sasl_endpoints if _valid_endpoints(settings) else ():
        listener = endpoint.listener_name
        of_listener = settings.for_listener(listener)
        if not of_listener.sasl_enabled_mechanisms:
            raise BadValue(f"listener {listener} needs a mechanism in sasl.enabled.mechanisms")
        for mechanism in of_listener.sasl_enabled_mechanisms:
            try:
                check_mechanism(
                    mechanism, settings.for_mechanism(listener, mechanism), settings.jaas(listener, mechanism)
                )
            except BadValue as error:
                raise BadValue(f"listener {listener} {error}") from error


def _check_inter_broker_login(settings: BrokerSettings) -> None:
    listener = settings.inter_broker_listener if _valid_endpoints(settings) else None
    if listener is None or listener not in {each.listener_name for each in settings.sasl_endpoints}:
        return
    mechanism = settings.sasl_mechanism_inter_broker_protocol
    check_login(mechanism, settings.for_mechanism(listener, mechanism), settings.jaas(listener, mechanism))
    if mechanism not in settings.for_listener(listener).sasl_enabled_mechanisms:
        raise BadValue(
            f"{mechanism} is not in sasl.enabled.mechanisms of listener {listener}, to which brokers connect"
        )


def _check_listener_overrides(settings: BrokerSettings) -> None:
    names = {endpoint.listener_name for endpoint in _valid_endpoints(settings)}
    for name in settings.listener_overrides:
        found = split_listener_name(name) or split_sasl_name(name)
        if found is not None and names and found[0] not in names:
            raise BadValue(f"{name} is for listener {found[0]}, which is not among the listeners")


def _check_metrics_listener(settings: BrokerSettings) -> None:
    if settings.metrics_listener:
        parse_address(settings.metrics_listener)
    if settings.metrics_basic_auth is not None and not all(settings.metrics_basic_auth.partition(":")[::2]):
        raise BadValue("metrics.basic.auth must be NAME:PASSWORD")
    if settings.metrics_ssl_enable and not settings.has_key:
        raise BadValue("metrics.ssl.enable needs a certificate: set ssl.keystore.location")


def _check_group_sessions(settings: BrokerSettings) -> None:
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        raise BadValue("must not be less than group.min.session.timeout.ms")


def _check_consumer_sessions(settings: BrokerSettings) -> None:
    shortest, longest = settings.group_consumer_min_session_timeout_ms, settings.group_consumer_max_session_timeout_ms
    if not shortest <= settings.group_consumer_session_timeout_ms <= longest:
        raise BadValue(f"must be between {shortest} and {longest}")


def _check_consumer_heartbeats(settings: BrokerSettings) -> None:
    shortest = settings.group_consumer_min_heartbeat_interval_ms
    longest = settings.group_consumer_max_heartbeat_interval_ms
    if not shortest <= settings.group_consumer_heartbeat_interval_ms <= longest:
        raise BadValue(f"must be between {shortest} and {longest}")
    if settings.group_consumer_heartbeat_interval_ms >= settings.group_consumer_session_timeout_ms:
        raise BadValue("must be less than group.consumer.session.timeout.ms, or members would lose their sessions")


def _check_assignors(settings: BrokerSettings) -> None:
    if not settings.group_consumer_assignors:
        raise BadValue("at least one assignor must be given")


_CHECKS: tuple[tuple[str, Callable[[BrokerSettings], None]], ...] = (
    ("node.id", _check_ids),
    ("log.dirs", _check_log_directories),
    ("log.retention.ms", _check_retention),
    ("log.roll.ms", _check_roll),
    ("log.roll.jitter.ms", _check_roll_jitter),
    ("log.cleaner.dedupe.buffer.size", _check_cleaner_memory),
    ("log.cleaner.io.max.bytes.per.second", _check_cleaner_rate),
    ("max.connections.per.ip", _check_connections_per_ip),
    ("queued.max.request.bytes", _check_queued_bytes),
    ("broker.heartbeat.interval.ms", _check_lease),
    ("listeners", _check_listeners),
    ("advertised.listeners", _check_advertised_listeners),
    ("inter.broker.listener.name", _check_inter_broker_listener),
    ("control.plane.listener.name", _check_control_plane_listener),
    ("listeners", _check_ssl),
    ("sasl.enabled.mechanisms", _check_sasl_is_used),
    ("listeners", _check_sasl),
    ("sasl.mechanism.inter.broker.protocol", _check_inter_broker_login),
    ("listeners", _check_listener_overrides),
    ("metrics.listener", _check_metrics_listener),
    ("group.max.session.timeout.ms", _check_group_sessions),
    ("group.consumer.session.timeout.ms", _check_consumer_sessions),
    ("group.consumer.heartbeat.interval.ms", _check_consumer_heartbeats),
    ("group.consumer.assignors", _check_assignors),
)
