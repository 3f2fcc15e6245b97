"""The kernels as the product uses them, compiled and interpreted."""

import pytest

from tidelog import kernels as loader
from tidelog.kernels import records as interpreted

USERS = ("tidelog.storage.record_checks", "tidelog.storage.compaction", "tidelog.protocol.records")
MODES = ["compiled", "interpreted"]


@pytest.fixture(params=MODES)
def both_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For `pytestmark = pytest.mark.usefixtures("both_kernels")`: every test of the module runs both ways."""
    kernels = loader.load_compiled() if request.param == "compiled" else interpreted
    if kernels is None:
        pytest.skip("no compiled kernels here: there was no C compiler when Tidelog was installed")
    for user in USERS:
        monkeypatch.setattr(f"{user}.kernels", kernels)
