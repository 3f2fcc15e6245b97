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


def test_changes_of_profiles_in_json() -> None:
    added = json.loads(good("profile", "add", "prod", "--bootstrap", NOBODY, "--json"))
    assert added == {"name": "prod", "bootstrap": NOBODY, "command_config": None, "is_used": False}
    assert json.loads(good("profile", "use", "prod", "--json")) == {"is_used": "prod"}
    asked = tidelog("status")
    assert asked.returncode == 2
    assert f"no broker answers at {NOBODY} (Connection refused); profile prod names this cluster" in asked.stderr
    assert json.loads(good("profile", "remove", "prod", "--json")) == {"removed": "prod"}


def test_a_common_reason_is_given_once() -> None:
    said = rejection("topic", "list", "--bootstrap", f"{NOBODY},127.0.0.1:2")
    assert said.startswith("tidelog topic list: no broker answers at 127.0.0.1:1, 127.0.0.1:2 (Connection refused); ")


def test_a_client_file_may_name_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, default = tmp_path / "given.properties", tmp_path / "default.properties"
    given.write_text("bootstrap.servers=127.0.0.1:3\n")
    default.write_text("bootstrap.servers=127.0.0.1:4\n")

    def asked(*arguments: str) -> str:
        return rejection("topic", "list", *arguments).split("answers at ")[1].split(" (")[0]

    monkeypatch.setenv("TIDELOG_CLIENT_CONFIG", str(default))
    assert asked() == "127.0.0.1:4"
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "127.0.0.1:5")
    assert asked() == "127.0.0.1:5"
    good("profile", "add", "prod", "--bootstrap", NOBODY)
    good("profile", "use", "prod")
    assert asked() == NOBODY
    assert asked("--command-config", str(given)) == "127.0.0.1:3"
    assert asked("--command-config", str(given), "--profile", "prod") == NOBODY
    assert asked("--command-config", str(given), "--bootstrap", "127.0.0.1:6") == "127.0.0.1:6"
    for command in (["user", "add", "x"], ["console"], ["doctor"], ["status"], ["console", "--login"]):
        ended = tidelog(*command, "--command-config", str(given))
        assert "127.0.0.1:3" in ended.stdout + ended.stderr or "PLAINTEXT" in ended.stderr, ended


def test_mistakes_in_client_files_are_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    assert rejection("topic", "list", "--command-config", str(file)).endswith(
        f"cannot read {file}: No such file or directory"
    )
    file.write_text("bootstrap.servers=\n")
    assert f"bootstrap.servers in {file} is empty" in rejection("topic", "list", "--command-config", str(file))
    file.write_text("bootstrap.servers=nonsense\n")
    said = rejection("topic", "list", "--command-config", str(file))
    assert said.startswith(f"tidelog topic list: bootstrap.servers in {file}: ")
    file.write_bytes(b"\xff\xfe")
    assert "is not a text file in UTF-8" in rejection("topic", "list", "--command-config", str(file))


def test_mistakes_are_one_sentence() -> None:
    assert "expected HOST:PORT" in rejection("profile", "add", "x", "--bootstrap", "nonsense")
    assert "there is no profile x (there are none yet)" in rejection("profile", "use", "x")
    assert "there is no profile x" in rejection("topic", "list", "--profile", "x")
    assert rejection("topic", "list", "--bootstrap", "").startswith("tidelog topic list: --bootstrap is empty")
    assert "no cluster is named, and there is none in" in rejection("topic", "list")
