"""Choice of the cluster of a command: a given address, else a profile, else TIDELOG_BOOTSTRAP, else the cluster of the
data directory. There is no further default: a command never connects to a cluster that nobody named.

A file with client settings may name a cluster, too (`bootstrap.servers`): one that was given comes before the profile
in use, the one of TIDELOG_CLIENT_CONFIG after TIDELOG_BOOTSTRAP.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog.config.client import CLIENT_CONFIG_VARIABLE, BadClientSettings, load_client_properties
from tidelog.runtime.profiles import BadProfiles, load_profiles
from tidelog.runtime.user_directories import data_home

BOOTSTRAP_VARIABLE = "TIDELOG_BOOTSTRAP"
BOOTSTRAP_SETTING = "bootstrap.servers"
DATA_VARIABLE = "TIDELOG_DATA"
LOCAL_HOST = "127.0.0.1"
PLAN_FILE = "cluster.json"
CLIENT_PROPERTIES = "client.properties"
"""TLS and login of the administrator of a cluster that `tidelog up --secure` made."""


class NoCluster(ValueError):
    """Nothing names a cluster, or something names it wrongly. The message says what to do."""


class ClusterChoice(NamedTuple):
    bootstrap: str
    """Not parsed yet."""
    origin: str
    """What the user has to change if the address is wrong: `--bootstrap`, `profile prod`."""
    hint: str
    """What to do if no broker answers there."""
    command_config: str | None = None
    data_directory: str | None = None
    """Of a cluster on this machine."""


def choose_cluster(
    bootstrap: str | None = None,
    profile: str | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    command_config: str | None = None,
    option: str = "--bootstrap",
) -> ClusterChoice:
    """Raises NoCluster. `option` is what the caller calls an address that was given."""
    if bootstrap is not None:
        if not bootstrap.strip():
            raise NoCluster(f"{option} is empty; expected HOST:PORT, or leave it out")
        return ClusterChoice(bootstrap, option, _how_to_choose(f"{option} HOST:PORT"))
    if profile is not None:
        return _of_profile(profile, environment)
    if command_config is not None and (named := _of_file(command_config)) is not None:
        return named
    if (current := _current_profile(environment)) is not None:
        return _of_profile(current, environment)
    if (found := environment.get(BOOTSTRAP_VARIABLE)) is not None:
        if not found.strip():
            raise NoCluster(f"{BOOTSTRAP_VARIABLE} is empty; set it to HOST:PORT, or unset it")
        return ClusterChoice(found, BOOTSTRAP_VARIABLE, _how_to_choose(f"{BOOTSTRAP_VARIABLE}=HOST:PORT"))
    file = environment.get(CLIENT_CONFIG_VARIABLE)
    return (file and _of_file(file)) or _of_data_directory(environment, option)


def _of_file(path: str) -> ClusterChoice | None:
    """The cluster that a file with client settings names, if it does."""
    try:
        found = load_client_properties(path).get(BOOTSTRAP_SETTING)
    except BadClientSettings as error:
        raise NoCluster(str(error)) from None
    if found is None:
        return None
    origin = f"{BOOTSTRAP_SETTING} in {path}"
    if not found.strip():
        raise NoCluster(f"{origin} is empty; expected HOST:PORT, or leave it out")
    return ClusterChoice(found, origin, f"{origin} names this cluster", path)


def _how_to_choose(form: str) -> str:
    return f"start a cluster with `tidelog up`, or give the address of yours with {form}"


def _current_profile(environment: Mapping[str, str]) -> str | None:
    try:
        return load_profiles(environment).current
    except BadProfiles as error:
        raise NoCluster(str(error)) from None


def _of_profile(name: str, environment: Mapping[str, str]) -> ClusterChoice:
    try:
        found = load_profiles(environment).named(name)
    except BadProfiles as error:
        raise NoCluster(str(error)) from None
    hint = f"profile {name} names this cluster: `tidelog profile add {name} --bootstrap HOST:PORT` changes its address"
    return ClusterChoice(found.bootstrap, f"profile {name}", hint, found.command_config)


def default_data_directory(environment: Mapping[str, str] = os.environ) -> str:
    """TIDELOG_DATA, else the directory for application data of the XDG standard."""
    return environment.get(DATA_VARIABLE) or os.path.join(data_home(environment), "tidelog")


def _of_data_directory(environment: Mapping[str, str], option: str) -> ClusterChoice:
    directory = default_data_directory(environment)
    file = Path(directory).expanduser() / PLAN_FILE
    try:
        plan = json.loads(file.read_text(encoding="utf-8"))
        ports = range(int(plan["port"]), int(plan["port"]) + int(plan["brokers"]))
    except (FileNotFoundError, NotADirectoryError):
        raise NoCluster(
            f"no cluster is named, and there is none in {directory}; {_how_to_choose(f'{option} HOST:PORT')}"
        ) from None
    except OSError as error:
        raise NoCluster(f"cannot read {file}: {error.strerror}; give an address with {option} HOST:PORT") from None
    except (ValueError, KeyError, TypeError):
        raise NoCluster(f"{file} is damaged; give an address with {option} HOST:PORT") from None
    bootstrap = ",".join(f"{LOCAL_HOST}:{port}" for port in ports)
    hint = f"start the cluster of {directory} with `tidelog up`, or give the address of another with {option} HOST:PORT"
    properties = file.with_name(CLIENT_PROPERTIES)
    command_config = str(properties) if properties.exists() else None
    return ClusterChoice(bootstrap, f"the data directory {directory}", hint, command_config, directory)
