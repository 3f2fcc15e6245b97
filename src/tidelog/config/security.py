"""Security settings of Kafka that Tidelog does not support: a broker that relies on them must not start."""

from collections.abc import Mapping

GUARDING_PREFIXES = (
    "ssl.",
    "sasl.",
    "security.",
    "listener.name.",
    "delegation.token.",
    "zookeeper.ssl.",
)
GUARDING_NAMES = frozenset(
    {
        "alter.config.policy.class.name",
        "client.quota.callback.class",
        "create.topic.policy.class.name",
        "principal.builder.class",
    }
)
_SECURITY = "org.apache.kafka.common.security"
_TOKENS = f"{_SECURITY}.oauthbearer"
HARMLESS_VALUES: Mapping[str, frozenset[str]] = {
    "principal.builder.class": frozenset({f"{_SECURITY}.authenticator.DefaultKafkaPrincipalBuilder"}),
    "sasl.oauthbearer.header.urlencode": frozenset({"false"}),
    "sasl.oauthbearer.jwt.retriever.class": frozenset(
        f"{_TOKENS}.{name}" for name in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
    ),
    "sasl.oauthbearer.jwt.validator.class": frozenset(
        f"{_TOKENS}.{name}" for name in ("DefaultJwtValidator", "BrokerJwtValidator")
    ),
    "ssl.allow.dn.changes": frozenset({"true"}),
    "ssl.allow.san.changes": frozenset({"true"}),
    "ssl.engine.factory.class": frozenset({f"{_SECURITY}.ssl.DefaultSslEngineFactory"}),
    "ssl.keymanager.algorithm": frozenset({"sunx509", "pkix"}),
    "ssl.protocol": frozenset({"tls", "tlsv1.2", "tlsv1.3"}),
    "ssl.trustmanager.algorithm": frozenset({"pkix"}),
    "zookeeper.ssl.crl.enable": frozenset({"false"}),
    "zookeeper.ssl.ocsp.enable": frozenset({"false"}),
    "zookeeper.ssl.protocol": frozenset({"tls", "tlsv1.2", "tlsv1.3"}),
}
"""Values that request no more than a broker does here anyway; algorithms and versions in any case of letters."""
HARMLESS_NAMES = frozenset(
    {
        "delegation.token.expiry.check.interval.ms",
        "delegation.token.expiry.time.ms",
        "delegation.token.max.lifetime.ms",
        "num.network.threads",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.mechanism.controller.protocol",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "ssl.secure.random.implementation",
    }
)
"""They tune what others switch on: Kerberos as a mechanism, delegation tokens by their key."""


def guards(name: str, value: str) -> bool:
    """True if the setting would protect an Apache Kafka broker. It has no effect here, so the broker must not start."""
    harmless = {each: HARMLESS_VALUES.get(each, frozenset()) for each in _meanings(name)}
    if not value or any(value in values or value.lower() in values for values in harmless.values()):
        return False
    if not HARMLESS_NAMES.isdisjoint(harmless):
        return False
    return name in GUARDING_NAMES or name.startswith(GUARDING_PREFIXES)


def _meanings(name: str) -> list[str]:
    """The name, and what it may be without `listener.name.<listener>.` and `<mechanism>.` before it."""
    if not name.startswith("listener.name."):
        return [name]
    parts = name.split(".")
    return [name, *(".".join(parts[start:]) for start in range(3, len(parts)))]
