"""SASL settings of listeners and of connections between brokers, with Kafka's names (SaslConfigs)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from tidelog.config.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE, JaasEntry, parse_jaas
from tidelog.config.setting import BadValue, ConfigType, setting, settings_of
from tidelog.config.ssl import SslSettings

S = TypeVar("S", bound="SaslSettings")

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
MODULES = {
    PLAIN: PLAIN_MODULE,
    SCRAM_SHA_256: SCRAM_MODULE,
    SCRAM_SHA_512: SCRAM_MODULE,
    OAUTHBEARER: OAUTHBEARER_MODULE,
}
MECHANISMS = tuple(MODULES)
DEFAULT_MECHANISMS = ("GSSAPI",)
"""Kafka's default, which is not supported: a listener with SASL must name its mechanisms."""
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")

JAAS_CONFIG = "sasl.jaas.config"
LISTENER_PREFIX = "listener.name."
UNSECURED_VALIDATOR_PREFIX = "unsecuredValidator"
_OAUTH_PACKAGES = (
    "org.apache.kafka.common.security.oauthbearer.",
    "org.apache.kafka.common.security.oauthbearer.secured.",
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.",
    "org.apache.kafka.common.security.oauthbearer.internals.secured.",
)
_SERVER_HANDLERS = ("OAuthBearerValidatorCallbackHandler", "OAuthBearerUnsecuredValidatorCallbackHandler")
_LOGIN_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")


def _check_handler(name: str, value: str | None) -> None:
    handlers = _SERVER_HANDLERS if "server" in name else _LOGIN_HANDLERS
    if value and value not in {package + handler for package in _OAUTH_PACKAGES for handler in handlers}:
        raise BadValue(f"classes of Java cannot be loaded; known are only {' and '.join(handlers)} of Kafka")


@dataclass(frozen=True, kw_only=True, slots=True, init=False, eq=False, repr=False)
class SaslSettings(SslSettings):
    """Part of the broker settings. `listener.name.<listener>.[<mechanism>.]...` overrides a value."""

    connection_failed_authentication_delay_ms: int = setting(
        default=100, at_least=0, doc="How long the response to a failed login is held back."
    )
    connections_max_reauth_ms: int = setting(
        default=0,
        kind=ConfigType.LONG,
        doc="If positive: clients must log in again on their connection within this time (KIP-368). A connection that"
        " sends something else afterwards is closed.",
    )
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        default=DEFAULT_MECHANISMS,
        doc=f"Mechanisms by which clients can log in: {', '.join(MECHANISMS)}. Kafka's default is not supported.",
    )
    sasl_login_callback_handler_class: str | None = setting(
        default=None,
        kind=ConfigType.CLASS,
        check=_check_handler,
        doc="Where OAUTHBEARER gets its token for connections between brokers; only Kafka's own classes.",
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        default="GSSAPI",
        doc="The mechanism by which brokers log in to each other, if the listener between brokers has SASL.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        default=None, doc="Who a broker is for `sasl.oauthbearer.token.endpoint.url` (in the login module: `clientId`)."
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        default=None, kind=ConfigType.PASSWORD, doc="Its secret (in the login module: `clientSecret`)."
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        default=30,
        at_least=0,
        doc="Difference between the clocks of the token's issuer and the broker that is tolerated.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] | None = setting(
        default=None, doc="If set: a token must be for one of these audiences."
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(default=None, doc="If set: the issuer of a token.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        default=3_600_000, at_least=1, kind=ConfigType.LONG, doc="How often the keys of the issuer are read again."
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        default=None,
        doc="Keys of the issuer (JWKS), as `https://...` or `file:///...`. Without it tokens are not verified, which"
        " must be allowed by the options `unsecuredValidator...` of the login module.",
    )
    sasl_oauthbearer_scope: str | None = setting(
        default=None, doc="The scope that a broker asks for with its own token (in the login module: `scope`)."
    )
    sasl_oauthbearer_scope_claim_name: str = setting(default="scope", doc="The claim with the scopes of a token.")
    sasl_oauthbearer_sub_claim_name: str = setting(default="sub", doc="The claim with the name of the principal.")
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        default=None,
        doc="Where brokers get their own token: `file:///...`, or an address for the grant `client_credentials`.",
    )
    sasl_server_callback_handler_class: str | None = setting(
        default=None,
        kind=ConfigType.CLASS,
        check=_check_handler,
        doc="What verifies tokens of OAUTHBEARER; only Kafka's own classes. The address of the keys decides.",
    )
    sasl_server_max_receive_size: int = setting(
        default=524_288, at_least=1, doc="The largest request before a login is complete."
    )


def sasl_setting_names() -> frozenset[str]:
    return frozenset(settings_of(SaslSettings)) - frozenset(settings_of(SslSettings))


OVERRIDABLE = ("connections.max.reauth.ms", "sasl.")


class SaslOverride(NamedTuple):
    """`listener.name.<listener>.<setting>` or `listener.name.<listener>.<mechanism>.<setting>`."""

    listener: str
    mechanism: str | None
    setting: str


def split_sasl_name(name: str) -> SaslOverride | None:
    """None if it is something else."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    rest = name.removeprefix(LISTENER_PREFIX)
    names = [each for each in sasl_setting_names() if each.startswith(OVERRIDABLE)]
    found = next((each for each in (*names, JAAS_CONFIG) if rest.endswith(f".{each}")), None)
    if found is None:
        return None
    listener = rest.removesuffix(f".{found}")
    front, _, last = listener.rpartition(".")
    if front and last.upper() in MECHANISMS:
        return SaslOverride(front.upper(), last.upper(), found)
    return SaslOverride(listener.upper(), None, found) if listener and found != JAAS_CONFIG else None


def check_override(override: SaslOverride, text: str) -> None:
    """Raises BadValue."""
    if override.setting == JAAS_CONFIG:
        parse_jaas(text)
    else:
        settings_of(SaslSettings)[override.setting].parse(text)


def with_sasl_overrides(settings: S, listener: str, mechanism: str | None, overrides: Mapping[str, str]) -> S:
    """The settings of one listener, and of one of its mechanisms if it is given. Raises BadValue."""
    declared, values = settings_of(SaslSettings), dict[str, Any]()
    found = [(split_sasl_name(name), text) for name, text in overrides.items()]
    for wanted in (None, mechanism):  # the mechanism's own value comes last, and wins
        for override, text in found:
            if override is None or override.setting == JAAS_CONFIG:
                continue
            if (override.listener, override.mechanism) == (listener.upper(), wanted):
                values[declared[override.setting].attribute] = declared[override.setting].parse(text)
    return replace(settings, **values) if values else settings


def jaas_of(listener: str, mechanism: str, overrides: Mapping[str, str]) -> JaasEntry | None:
    """The login module of a mechanism on a listener; None if there is none. Raises BadValue."""
    wanted = SaslOverride(listener.upper(), mechanism, JAAS_CONFIG)
    text = next((text for name, text in overrides.items() if split_sasl_name(name) == wanted), None)
    return None if text is None else parse_jaas(text)


def check_mechanism(mechanism: str, settings: SaslSettings, jaas: JaasEntry | None) -> None:
    """What a mechanism of a listener needs. Raises BadValue."""
    if mechanism not in MODULES:
        raise BadValue(f"has mechanism {mechanism} in sasl.enabled.mechanisms; supported: {', '.join(MECHANISMS)}")
    if jaas is not None and jaas.module_name != MODULES[mechanism]:
        raise BadValue(f"needs {MODULES[mechanism]} in its JAAS configuration of {mechanism}, not {jaas.module_name}")
    if mechanism == PLAIN and (jaas is None or not jaas.users):
        raise BadValue(
            'needs users of PLAIN: PlainLoginModule required user_NAME="PASSWORD"; in plain.sasl.jaas.config'
        )
    if mechanism == OAUTHBEARER and not settings.sasl_oauthbearer_jwks_endpoint_url:
        options = () if jaas is None else jaas.options
        if not any(name.startswith(UNSECURED_VALIDATOR_PREFIX) for name in options):
            raise BadValue(
                "needs sasl.oauthbearer.jwks.endpoint.url to verify tokens of OAUTHBEARER; tokens without a signature"
                ' are accepted only with an option such as unsecuredValidatorAllowableClockSkewMs="0"'
            )


def check_login(mechanism: str, settings: SaslSettings, jaas: JaasEntry | None) -> None:
    """What a broker needs to log in to others. Raises BadValue."""
    if mechanism not in MODULES:
        raise BadValue(f"mechanism {mechanism} is not supported; supported: {', '.join(MECHANISMS)}")
    options = {} if jaas is None else jaas.options
    if mechanism == OAUTHBEARER:
        if settings.sasl_oauthbearer_token_endpoint_url or "unsecuredLoginStringClaim_sub" in options:
            return
        raise BadValue("brokers need sasl.oauthbearer.token.endpoint.url to log in to each other by OAUTHBEARER")
    if not options.get("username") or "password" not in options:
        raise BadValue(
            f'brokers need username="..." password="..." in {mechanism.lower()}.sasl.jaas.config of the listener'
            " between brokers to log in to each other"
        )
