"""SASL settings of a listener that can be changed while the broker runs.

New connections use them; open ones stay. Kafka accepts more of them, and also those with a mistake.
"""

# Core: no clock, no I/O, no await.

from collections.abc import Mapping

from tidelog.config.jaas import parse_jaas
from tidelog.config.sasl import JAAS_CONFIG, LISTENER_PREFIX, SaslOverride, check_override, split_sasl_name
from tidelog.config.setting import BadValue
from tidelog.errors import InvalidRequest

CHANGEABLE = frozenset(
    {"connections.max.reauth.ms", JAAS_CONFIG, "sasl.enabled.mechanisms", "sasl.server.max.receive.size"}
)


def sasl_changes(stored: Mapping[str, str]) -> dict[str, SaslOverride]:
    """SASL settings of listeners among stored ones, by name."""
    return {name: found for name in stored if (found := split_sasl_name(name)) is not None}


def usable_sasl_changes(stored: Mapping[str, str]) -> dict[str, str]:
    """Without those that this broker does not change at run time, or cannot read: Apache Kafka may have stored them."""
    usable = {}
    for name, override in sasl_changes(stored).items():
        try:
            if override.setting in CHANGEABLE:
                check_override(override, stored[name])
                usable[name] = stored[name]
        except BadValue:
            continue
    return usable


def validate_sasl_changes(wanted: Mapping[str, str], *, for_one_broker: bool) -> None:
    """Raises InvalidRequest if AlterConfigs must not store these settings."""
    for name in wanted:
        if name.startswith(LISTENER_PREFIX) and name.endswith(f".{JAAS_CONFIG}") and split_sasl_name(name) is None:
            raise InvalidRequest(f"{name} needs a supported mechanism, as in listener.name.NAME.plain.{JAAS_CONFIG}")
    for name, override in sasl_changes(wanted).items():
        if override.setting not in CHANGEABLE:
            raise InvalidRequest(
                f"Configs cannot be updated dynamically for existing listener {override.listener}, restart broker for"
                f" update: {name}"
            )
        if not for_one_broker:
            raise InvalidRequest(
                f"Cannot update these configs at default cluster level, broker id must be specified: {name}"
            )
        try:
            check_override(override, wanted[name])
        except BadValue as error:
            raise InvalidRequest(f"Invalid value for configuration {name}: {error}") from error
        if override.setting == JAAS_CONFIG and parse_jaas(wanted[name]).options:
            raise InvalidRequest(
                "Passwords and keys cannot be stored, because password.encoder.secret is not supported; write options"
                f" of a login module into the settings file, or use SCRAM: {name}"
            )
