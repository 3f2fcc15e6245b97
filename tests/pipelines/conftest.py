"""Pipelines without an address of their own need a cluster that the environment names."""

import pytest


@pytest.fixture(autouse=True)
def _cluster_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "localhost:29092")
