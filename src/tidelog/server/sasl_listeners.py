"""SASL mechanisms of the listeners, made of settings."""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from tidelog.config.broker import BrokerSettings
from tidelog.config.sasl import OAUTHBEARER, PLAIN, check_mechanism
from tidelog.config.setting import BadValue
from tidelog.runtime.randomness import Randomness
from tidelog.sasl.exchange import ServerExchange
from tidelog.sasl.oauthbearer import ClaimRules, OAuthBearerServer, TokenValidator, UnsecuredValidator, unsecured_rules
from tidelog.sasl.plain import PlainServer
from tidelog.sasl.scram import NONCE_BYTES, SCRAM_MECHANISMS, ScramServer, decoy_credential, nonce_of
from tidelog.sasl.server_login import Mechanism
from tidelog.sasl.signed_tokens import SignedTokenValidator
from tidelog.server.login import SaslListener
from tidelog.server.token_keys import TokenKeys
from tidelog.server.user_credentials import UserCredentials

logger = logging.getLogger(__name__)


class SaslListeners:
    """By listener name. `credentials` are those of SCRAM, which change while the broker runs."""

    def __init__(self, settings: BrokerSettings, credentials: UserCredentials, randomness: Randomness) -> None:
        self._settings = settings
        self._credentials = credentials
        self._randomness = randomness
        self.scram_secret = b""
        """Of the cluster. Set before the first login."""
        self.token_keys: list[TokenKeys] = []
        self._bearers: dict[str, Callable[[], ServerExchange]] = {}
        """Exchanges of OAUTHBEARER by listener: those of the start, whose keys are known."""
        names = [each.listener_name for each in settings.sasl_endpoints]
        for name in names:
            if OAUTHBEARER in settings.for_listener(name).sasl_enabled_mechanisms:
                self._bearers[name] = self._bearer(name)
        self._listeners = {name: self._make(name) for name in names}

    def get(self, name: str) -> SaslListener | None:
        return self._listeners.get(name)

    def reconfigure(self, settings: BrokerSettings) -> None:
        """New connections get what the new settings say."""
        previous, self._settings = self._settings, settings
        try:
            self._listeners = {name: self._make(name) for name in self._listeners}
        except BadValue as error:
            self._settings = previous
            logger.error("cannot use changed SASL settings, keeping previous ones reason=%s", error)

    def _make(self, name: str) -> SaslListener:
        settings = self._settings.for_listener(name)
        return SaslListener(
            name=name,
            mechanisms={each: self._mechanism(name, each) for each in settings.sasl_enabled_mechanisms},
            max_receive_bytes=settings.sasl_server_max_receive_size,
            max_frame_bytes=settings.socket_request_max_bytes,
            failure_delay_s=settings.connection_failed_authentication_delay_ms / 1000,
        )

    def _mechanism(self, listener: str, mechanism: str) -> Mechanism:
        settings = self._settings.for_mechanism(listener, mechanism)
        check_mechanism(mechanism, settings, self._settings.jaas(listener, mechanism))
        return Mechanism(self._begin(listener, mechanism), settings.connections_max_reauth_ms)

    def _begin(self, listener: str, mechanism: str) -> Callable[[], ServerExchange]:
        if mechanism == PLAIN:
            jaas = self._settings.jaas(listener, mechanism)
            return partial(PlainServer, {} if jaas is None else jaas.users)
        if mechanism == OAUTHBEARER:
            if listener not in self._bearers:
                raise BadValue(f"{OAUTHBEARER} was not enabled for listener {listener} at the start")
            return self._bearers[listener]
        return partial(self._begin_scram, mechanism)

    def _bearer(self, listener: str) -> Callable[[], ServerExchange]:
        jaas = self._settings.jaas(listener, OAUTHBEARER)
        options: Mapping[str, str] = {} if jaas is None else jaas.options
        return partial(OAuthBearerServer, self._validator(self._settings.for_mechanism(listener, OAUTHBEARER), options))

    def _begin_scram(self, name: str) -> ScramServer:
        mechanism = SCRAM_MECHANISMS[name]
        iterations = self._credentials.usual_iterations(name)
        return ScramServer(
            mechanism,
            partial(self._credentials.get, name),
            partial(decoy_credential, mechanism, self.scram_secret, iterations=iterations),
            nonce_of(self._randomness.bytes(NONCE_BYTES)),
        )

    def _validator(self, settings: BrokerSettings, options: Mapping[str, str]) -> TokenValidator:
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        if not url:
            return UnsecuredValidator(unsecured_rules(options))
        validator = SignedTokenValidator(
            ClaimRules(
                principal_claim=settings.sasl_oauthbearer_sub_claim_name,
                scope_claim=settings.sasl_oauthbearer_scope_claim_name,
                clock_skew_ms=settings.sasl_oauthbearer_clock_skew_seconds * 1000,
                audiences=settings.sasl_oauthbearer_expected_audience or (),
                issuer=settings.sasl_oauthbearer_expected_issuer,
                needs_issue_time=True,
            )
        )
        self.token_keys.append(TokenKeys(validator, url, settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000))
        return validator
