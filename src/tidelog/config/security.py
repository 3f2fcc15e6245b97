"""Security settings of Kafka that Tidelog does not support: a broker that relies on them must not start."""

from collections.abc import Mapping

GUARDING_PREFIXES = (
    "ssl.",
    "sasl.",
    "security.",
    "listener.name.",
    "delegation.token.",
    "password.encoder.",
    "zookeeper.ssl.",
)
GUARDING_NAMES = frozenset(
    {
        "alter.config.policy.class.name",
        "create.topic.policy.class.name",
        "principal.builder.class",
    }
)
HARMLESS_VALUES: Mapping[str, frozenset[str]] = {
    "ssl.keymanager.algorithm": frozenset({"sunx509", "pkix"}),
    "ssl.protocol": frozenset({"tls", "tlsv1.2", "tlsv1.3"}),
    "ssl.trustmanager.algorithm": frozenset({"pkix"}),
    "zookeeper.ssl.crl.enable": frozenset({"false"}),
    "zookeeper.ssl.ocsp.enable": frozenset({"false"}),
    "zookeeper.ssl.protocol": frozenset({"tls", "tlsv1.2", "tlsv1.3"}),
}
"""Values that request no protection, in any case of letters: a broker without security satisfies them."""


def guards(name: str, value: str) -> bool:
    """True if the setting would protect an Apache Kafka broker. It has no effect here, so the broker must not start."""
    if not value or value.lower() in HARMLESS_VALUES.get(name, ()):
        return False
    return name in GUARDING_NAMES or name.startswith(GUARDING_PREFIXES)
