"""Files for systemd, containers and Kubernetes: their settings, options and paths exist."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hatch_build import without_relative_links
from tidelog.cli.command_tree import command_tree
from tidelog.cli.main import full_parser
from tidelog.config.broker import BrokerSettings
from tidelog.config.setting import settings_of

ROOT = Path(__file__).parent.parent
PACKAGING = ROOT / "packaging"
CHART = PACKAGING / "helm" / "tidelog"
FILES = sorted(path for path in PACKAGING.rglob("*") if path.is_file())
SET = re.compile(r"--set[=\s\",]+([a-z.]+)=")
HELM_VALUE = re.compile(r"\.Values\.([\w.]+)")
needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed: the chart is not rendered")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGING)))
def test_settings_and_options_exist(path: Path) -> None:
    text = path.read_text()
    assert set(SET.findall(text)) <= settings_of(BrokerSettings).keys()
    broker = next(each for each in command_tree(full_parser()).all() if each.path == ("broker",))
    known = {name for option in broker.options for name in option.names}
    if "tidelog broker" in text or '"tidelog", "broker"' in text:
        assert set(re.findall(r"(?<![\w-])--(?:log-format|config|set|log-file)\b", text)) <= known


def test_container_copies_files_that_are_there() -> None:
    text = (PACKAGING / "Containerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name


def test_helm_values_are_declared() -> None:
    declared = (CHART / "values.yaml").read_text()
    for path in (CHART / "templates").iterdir():
        text = path.read_text()
        assert text.count("{{") == text.count("}}")
        for value in HELM_VALUE.findall(text):
            assert re.search(rf"^\s*{value.rpartition('.')[2]}:", declared, re.MULTILINE), value


def render(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["helm", "template", "tides", str(CHART), "--namespace", "sea", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def rendered(*arguments: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Objects of the chart by kind and name."""
    done = render("--set", "zookeeper.connect=zookeeper:2181/tides", *arguments)
    assert done.returncode == 0, done.stderr
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout)}


@needs_helm
def test_helm_renders_the_chart(tmp_path: Path) -> None:
    found = rendered()
    brokers = found["StatefulSet", "tides"]["spec"]
    pod = brokers["template"]
    labels = pod["metadata"]["labels"]
    assert found["Service", brokers["serviceName"]]["spec"]["clusterIP"] == "None"
    selectors = [found["Service", name]["spec"]["selector"] for name in ("tides", "tides-brokers")]
    matched = [brokers["selector"], found["PodDisruptionBudget", "tides"]["spec"]["selector"]]
    assert [*selectors, *(each["matchLabels"] for each in matched)] == [labels] * 4
    (container,) = pod["spec"]["containers"]
    assert "--set=default.replication.factor=3" in container["args"]
    assert "--set=advertised.listeners=PLAINTEXT://$(POD_NAME).tides-brokers.sea.svc:9092" in container["args"]
    assert [each["name"] for each in container["volumeMounts"]] == ["data"]
    assert [each["metadata"]["name"] for each in brokers["volumeClaimTemplates"]] == ["data"]


@needs_helm
def test_values_reach_the_broker_as_they_are(tmp_path: Path) -> None:
    values = {
        "brokers": 5,
        "image": {"repository": "example/tidelog", "tag": "1.2"},
        "settings": {"log.retention.ms": 604800000, "log.preallocate": False, "broker.rack": 'it\'s "$HOME" #1: x'},
        "storage": {"size": "1Ti", "storageClass": "fast"},
        "resources": {},
    }
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    brokers = rendered("--values", str(file))["StatefulSet", "tides"]["spec"]
    (container,) = brokers["template"]["spec"]["containers"]
    assert (brokers["replicas"], container["image"]) == (5, "example/tidelog:1.2")
    assert brokers["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    pairs = [each.removeprefix("--set=").partition("=")[::2] for each in container["args"]]
    assert (
        dict(pairs).items()
        >= {
            "zookeeper.connect": "zookeeper:2181/tides",
            "log.retention.ms": "604800000",
            "log.preallocate": "false",
            "broker.rack": 'it\'s "$HOME" #1: x',
        }.items()
    )


def test_the_shell_of_a_pod_passes_settings_on(tmp_path: Path) -> None:
    """The command of the chart, with a `tidelog` that prints its arguments."""
    (command,) = re.findall(r"command: \[sh, -c, '(.*)', broker\]", (CHART / "templates" / "brokers.yaml").read_text())
    program = tmp_path / "tidelog"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    given = ['--set=broker.rack=it\'s "$HOME"', "--set=log.dirs=/data/log"]
    done = subprocess.run(
        ["sh", "-c", command, "broker", *given],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "POD_NAME": "tides-sea-12"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["broker", "--log-format", "json", "--set", "broker.id=12", *given]


@needs_helm
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("zookeeper.connect=", "zookeeper.connect is required: --set zookeeper.connect=HOST:PORT/PATH"),
        ("brokers=0", "brokers"),
        ("broker=3", "broker"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
    ],
)
def test_helm_refuses_wrong_values(given: str, said: str) -> None:
    done = render("--set", f"zookeeper.connect=zookeeper:2181,{given}")
    assert done.returncode != 0
    assert said in done.stderr


@needs_helm
def test_helm_lint_has_nothing_to_say() -> None:
    command = ["helm", "lint", "--strict", str(CHART), "--set", "zookeeper.connect=zookeeper:2181"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def test_package_readme_has_no_links_that_only_a_checkout_can_follow() -> None:
    text = without_relative_links((ROOT / "README.md").read_text())
    assert not re.findall(r"\]\((?!https?:)", text)
    assert "compatibility (`docs/compatibility.md`) lists" in " ".join(text.split())
    assert without_relative_links("[a](https://a.example) [b](b.md)") == "[a](https://a.example) b (`b.md`)"
    for path in re.findall(r"\(`([^`]+)`\)", text):
        assert (ROOT / path).exists(), path


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "tidelog.service"
    text = (PACKAGING / "systemd" / "tidelog.service").read_text()
    unit.write_text(text.replace("/opt/tidelog/bin/tidelog", sys.executable))
    ended = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in ended.stderr.splitlines() if "tidelog.service" in line]
    assert (ended.returncode, complaints) == (0, []), ended.stderr
