"""`tidelog profile`, and the cluster that commands choose."""

import json
from pathlib import Path

import pytest

from tests.cli.process import tidelog

NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_PROFILES", str(tmp_path / "config" / "profiles.json"))
    monkeypatch.delenv("TIDELOG_BOOTSTRAP", raising=False)


def good(*arguments: str) -> str:
    ended = tidelog(*arguments)
    assert ended.returncode == 0, ended
    return ended.stdout


def rejection(*arguments: str) -> str:
    ended = tidelog(*arguments)
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    (line,) = ended.stderr.splitlines()
    return line


def test_profiles_from_addition_to_removal() -> None:
    assert "no profiles yet" in good("profile", "list")
    assert "`tidelog profile use prod`" in good("profile", "add", "prod", "--bootstrap", NOBODY)
    assert good("profile", "use", "prod") == f"commands now use profile prod: {NOBODY}\n"
    assert good("profile", "list").splitlines()[1].split() == ["prod", NOBODY, "in", "use"]
    assert json.loads(good("profile", "list", "--json"))[0]["is_used"]
    said = rejection("topic", "list")
    assert f"no broker answers at {NOBODY}" in said
    assert "profile prod names this cluster" in said
    assert "no profile is in use" in good("profile", "use", "--none")
    assert good("profile", "remove", "prod") == "removed profile prod\n"


def test_mistakes_are_one_sentence() -> None:
    assert "expected HOST:PORT" in rejection("profile", "add", "x", "--bootstrap", "nonsense")
    assert "there is no profile x (there are none yet)" in rejection("profile", "use", "x")
    assert "there is no profile x" in rejection("topic", "list", "--profile", "x")
    assert rejection("topic", "list", "--bootstrap", "").startswith("tidelog topic list: --bootstrap is empty")
    assert "no cluster is named, and there is none in" in rejection("topic", "list")
