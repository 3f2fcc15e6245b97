"""Administrator of a secure local cluster: created over the connection between brokers, before anybody can log in."""

import asyncio
import time
from pathlib import Path

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.certificates import AUTHORITY_FILE, broker_file
from tidelog.cli.local_cluster.plan import HOST, Plan
from tidelog.cli.local_cluster.secure_settings import ADMINISTRATOR, MECHANISM, SECRETS_DIRECTORY
from tidelog.client.admin.user_admin import UserAdmin
from tidelog.client.network.bootstrap import Address
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.secured_network import secured_network
from tidelog.client.routing.cluster import Cluster
from tidelog.config.client import client_security, load_client_security
from tidelog.errors import KafkaError
from tidelog.runtime.cluster_choice import CLIENT_PROPERTIES
from tidelog.runtime.randomness import SystemRandomness

MAX_FRAME_BYTES = 64 * 1024 * 1024
POLL_S = 0.1
MAX_START_S = 120.0


async def ensure_administrator(root: Path, plan: Plan) -> None:
    """Create the user of `client.properties` if the cluster does not have it. Waits until a broker answers."""
    deadline = time.monotonic() + MAX_START_S
    while True:
        try:
            await _ensure(root, plan)
            return
        except (ConnectionLost, KafkaError) as error:
            if time.monotonic() > deadline:
                raise CommandError(f"cannot create the administrator of the cluster: {error}") from error
        await asyncio.sleep(POLL_S)


async def _ensure(root: Path, plan: Plan) -> None:
    secrets = root / SECRETS_DIRECTORY
    as_broker = client_security(
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(secrets / broker_file(plan.broker_ids[0])),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(secrets / AUTHORITY_FILE),
        }
    )
    addresses = [Address(HOST, plan.inter_broker_port_of(broker_id)) for broker_id in plan.broker_ids]
    network = secured_network(as_broker, MAX_FRAME_BYTES)
    async with Cluster(network, addresses, SystemRandomness(), client_id="tidelog-up") as cluster:
        users = UserAdmin(cluster)
        if ADMINISTRATOR not in await users.list():
            password = load_client_security(str(root / CLIENT_PROPERTIES)).resolve().options["password"]
            await users.set_password(ADMINISTRATOR, password, [MECHANISM])
