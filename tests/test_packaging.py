"""Files for systemd, containers and Kubernetes: their settings, options and paths exist."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.cli.command_tree import command_tree
from tidelog.cli.main import full_parser
from tidelog.config.broker import BrokerSettings
from tidelog.config.setting import settings_of

ROOT = Path(__file__).parent.parent
PACKAGING = ROOT / "packaging"
FILES = sorted(path for path in PACKAGING.rglob("*") if path.is_file())
SET = re.compile(r"--set[=\s\",]+([a-z.]+)=")
HELM_VALUE = re.compile(r"\.Values\.([\w.]+)")


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
    chart = PACKAGING / "helm" / "tidelog"
    declared = (chart / "values.yaml").read_text()
    for path in (chart / "templates").iterdir():
        text = path.read_text()
        assert text.count("{{") == text.count("}}")
        for value in HELM_VALUE.findall(text):
            assert re.search(rf"^\s*{value.rpartition('.')[2]}:", declared, re.MULTILINE), value


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
