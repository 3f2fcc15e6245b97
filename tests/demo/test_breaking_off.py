"""A tour that is broken off leaves no process and no data behind."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.runtime.process_identity import identity_of

ROOT = Path(__file__).parents[2]
TIME_LIMIT_S = 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tour_that_is_broken_off_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "demo.run", "--output", str(tmp_path / "output")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as tour:
        try:
            said = _read_until_the_shop(tour)
            brokers = [identity_of(int(pid)) for pid in re.findall(r"is ready: .* \(pid (\d+)\)", said)]
            assert len(brokers) == 3
            assert None not in brokers
            tour.send_signal(number)
            rest = tour.communicate(timeout=TIME_LIMIT_S)[0]
        finally:
            tour.kill()
    assert tour.returncode == 130, said + rest
    assert rest.rstrip().endswith("Broken off; nothing is left running.")
    assert [identity_of(broker.pid) for broker in brokers if broker is not None] == [None] * 3
    data = re.search(r"export TIDELOG_DATA=(\S+)", said)
    assert data is not None
    assert not Path(data[1]).exists()
    assert (tmp_path / "output" / "logs" / "broker-1.log").exists()


def _read_until_the_shop(tour: "subprocess.Popen[str]") -> str:
    assert tour.stdout is not None
    said = ""
    for line in tour.stdout:
        said += line
        if "2. A shop" in line:
            return said
    raise AssertionError(f"the tour ended early:\n{said}")
