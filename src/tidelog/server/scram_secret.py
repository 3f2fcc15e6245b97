"""Secret of the cluster from which all brokers derive the same salts for users who do not exist.

Salts that differ between brokers, or after a restart, would show which users exist.
"""

import base64

from tidelog.runtime.randomness import Randomness
from tidelog.store.interface import NodeExists, NoNode, Store

SECRET_PATH = "/config/tidelog-scram-secret"
SECRET_BYTES = 32


async def ensure_scram_secret(store: Store, randomness: Randomness) -> bytes:
    """The secret as it is stored; the first broker creates it. Raises StoreError."""
    while True:
        try:
            return (await store.get(SECRET_PATH)).data
        except NoNode:
            pass
        try:
            await store.create(SECRET_PATH, base64.b64encode(randomness.bytes(SECRET_BYTES)))
        except NodeExists:  # another broker was faster
            continue
