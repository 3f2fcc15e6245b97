"""The short form of `make siege`: small attacks of half a second each on three real brokers.

How long others wait depends on what else the machine does, so that here only a multiple of the goals is held: before,
others waited for many seconds, leaders moved, and memory grew by gigabytes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.siege.catalogue import ATTACKS
from tests.siege.trial import MAX_GROWTH_BYTES, BesiegedCluster, carry_out

pytestmark = pytest.mark.processes

SECONDS = 0.5
SCALE = 0.2
REST_S = 0.3
MAX_WAIT_S = 5.0
MAX_STEP_MS = 250
"""Of processor time, which depends less on what else the machine does."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BesiegedCluster]:
    directory: Path = tmp_path_factory.mktemp("siege")
    cluster = BesiegedCluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.mark.parametrize("name", [attack.name for attack in ATTACKS.values() if attack.is_short])
def test_an_attack_harms_nobody_else(name: str, cluster: BesiegedCluster) -> None:
    outcome = carry_out(name, cluster, SECONDS, SCALE, REST_S)
    assert outcome.failures == []
    assert (outcome.leaders_moved, outcome.sessions_lost) == (0, 0)
    assert outcome.longest_s < MAX_WAIT_S, outcome.longest
    assert outcome.step_ms < MAX_STEP_MS, outcome.step
    assert outcome.peak_bytes - outcome.before_bytes < MAX_GROWTH_BYTES
