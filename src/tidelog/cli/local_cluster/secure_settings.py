"""Settings of a secure local cluster: TLS everywhere, users with SCRAM, and nothing allowed without a permission.

Clients log in on the port of a broker. Brokers connect to each other on a port of their own, with certificates that
only they have, so that they need no user in the coordination store.
"""

import secrets
from pathlib import Path

from tidelog.cli.local_cluster.certificates import AUTHORITY_FILE, broker_file, broker_name, write_secret
from tidelog.cli.local_cluster.plan import HOST, Plan
from tidelog.runtime.cluster_choice import CLIENT_PROPERTIES

SECRETS_DIRECTORY = "secrets"
LIBRDKAFKA_PROPERTIES = "librdkafka.properties"
ADMINISTRATOR = "admin"
MECHANISM = "SCRAM-SHA-512"
PASSWORD_BYTES = 24
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def cluster_settings(root: Path, plan: Plan) -> dict[str, str]:
    """Of all brokers."""
    brokers = [f"User:{broker_name(broker_id)}" for broker_id in plan.broker_ids]
    return {
        "authorizer.class.name": AUTHORIZER,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.location": str(root / SECRETS_DIRECTORY / AUTHORITY_FILE),
        "ssl.truststore.type": "PEM",
        "super.users": ";".join([f"User:{ADMINISTRATOR}", *brokers]),
    }


def broker_settings(root: Path, plan: Plan, broker_id: int) -> dict[str, str]:
    """Of one broker."""
    clients, brokers = plan.port_of(broker_id), plan.inter_broker_port_of(broker_id)
    return {
        "listeners": f"SASL_SSL://{HOST}:{clients},SSL://{HOST}:{brokers}",
        "ssl.keystore.location": str(root / SECRETS_DIRECTORY / broker_file(broker_id)),
    }


def write_client_files(root: Path, plan: Plan) -> None:
    """Files of the administrator, unless they exist: `client.properties` for Kafka's tools and ours, and the same for
    tools that use librdkafka."""
    file = root / CLIENT_PROPERTIES
    if file.exists():
        return
    password, authority = secrets.token_urlsafe(PASSWORD_BYTES), root / SECRETS_DIRECTORY / AUTHORITY_FILE
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    common = {
        "bootstrap.servers": plan.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
    }
    write_secret(
        root / LIBRDKAFKA_PROPERTIES,
        _text(common | {"sasl.username": ADMINISTRATOR, "sasl.password": password, "ssl.ca.location": str(authority)}),
    )
    own = {
        "sasl.jaas.config": f'{module} required username="{ADMINISTRATOR}" password="{password}";',
        "ssl.truststore.location": str(authority),
        "ssl.truststore.type": "PEM",
    }
    write_secret(file, _text(common | own))


def _text(properties: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())
