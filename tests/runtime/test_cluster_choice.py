"""The one rule for finding a cluster, and the file of profiles."""

from pathlib import Path

import pytest

from tidelog.runtime.cluster_choice import NoCluster, choose_cluster
from tidelog.runtime.profiles import BadProfiles, Profile, Profiles, load_profiles, parse_profiles, save_profiles


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cluster.json").write_text('{"version": 1, "brokers": 2, "port": 31000, "zookeeper": null}')
    found = {
        "TIDELOG_PROFILES": str(tmp_path / "config" / "profiles.json"),
        "TIDELOG_DATA": str(tmp_path / "data"),
        "TIDELOG_BOOTSTRAP": "variable:9092",
    }
    profiles = Profiles({"prod": Profile("prod:9092"), "test": Profile("test:9092", "client.properties")}, "prod")
    save_profiles(profiles, found)
    return found


def test_order_is_option_profile_variable_data_directory(environment: dict[str, str]) -> None:
    assert choose_cluster("given:9092", "test", environment)[:2] == ("given:9092", "--bootstrap")
    assert choose_cluster(None, "test", environment)[:2] == ("test:9092", "profile test")
    assert choose_cluster(None, "test", environment).command_config == "client.properties"
    assert choose_cluster(None, None, environment)[:2] == ("prod:9092", "profile prod")
    save_profiles(load_profiles(environment).using(None), environment)
    assert choose_cluster(None, None, environment)[:2] == ("variable:9092", "TIDELOG_BOOTSTRAP")
    del environment["TIDELOG_BOOTSTRAP"]
    assert choose_cluster(None, None, environment).bootstrap == "127.0.0.1:31000,127.0.0.1:31001"


def test_empty_or_unknown_names_never_lead_to_another_cluster(environment: dict[str, str]) -> None:
    with pytest.raises(NoCluster, match="--bootstrap is empty"):
        choose_cluster("", None, environment)
    with pytest.raises(NoCluster, match="there is no profile staging"):
        choose_cluster(None, "staging", environment)
    save_profiles(Profiles(), environment)
    with pytest.raises(NoCluster, match="TIDELOG_BOOTSTRAP is empty"):
        choose_cluster(None, None, environment | {"TIDELOG_BOOTSTRAP": " "})
    del environment["TIDELOG_BOOTSTRAP"]
    with pytest.raises(NoCluster, match="there is none in nowhere; start a cluster with `tidelog up`"):
        choose_cluster(None, None, environment | {"TIDELOG_DATA": "nowhere"})


def test_damaged_files_are_named(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data" / "cluster.json").write_text("{}")
    save_profiles(Profiles(), environment)
    del environment["TIDELOG_BOOTSTRAP"]
    with pytest.raises(NoCluster, match=r"cluster\.json is damaged"):
        choose_cluster(None, None, environment)
    Path(environment["TIDELOG_PROFILES"]).write_text("[]")
    with pytest.raises(NoCluster, match="is not a file of profiles"):
        choose_cluster(None, None, environment)


def test_profiles_are_values() -> None:
    profiles = Profiles().with_profile("a", Profile("a:1")).using("a")
    assert profiles.without("a") == Profiles()
    assert profiles.with_profile("b", Profile("b:1")).without("b") == profiles
    with pytest.raises(BadProfiles, match="not a profile name"):
        profiles.with_profile("a b", Profile("x:1"))
    with pytest.raises(BadProfiles, match="format version 9"):
        parse_profiles('{"version": 9}', "p")
