"""Profiles: named clusters of a user, in one JSON file of the user's configuration directory."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog.runtime.user_directories import config_home

PROFILE_NAME = re.compile(r"[A-Za-z0-9._-]+")
PROFILES_VARIABLE = "TIDELOG_PROFILES"
"""Names another file."""
FILE_VERSION = 1


class BadProfiles(ValueError):
    """The message names the file or the profile, and what to do."""


class Profile(NamedTuple):
    bootstrap: str
    command_config: str | None = None
    """Path of a properties file for clients: TLS, SASL."""


class Profiles(NamedTuple):
    """All profiles of a user. Changes return a new value."""

    profiles: Mapping[str, Profile] = {}
    current: str | None = None
    """Name of the profile that commands use if none is given."""

    def with_profile(self, name: str, profile: Profile) -> "Profiles":
        if not PROFILE_NAME.fullmatch(name):
            raise BadProfiles(f"{name!r} is not a profile name: use letters, digits, dots, underscores and hyphens")
        return self._replace(profiles={**self.profiles, name: profile})

    def without(self, name: str) -> "Profiles":
        self.named(name)
        left = {each: profile for each, profile in self.profiles.items() if each != name}
        return Profiles(left, None if self.current == name else self.current)

    def using(self, name: str | None) -> "Profiles":
        if name is not None:
            self.named(name)
        return self._replace(current=name)

    def named(self, name: str) -> Profile:
        found = self.profiles.get(name)
        if found is None:
            known = f"there are {', '.join(sorted(self.profiles))}" if self.profiles else "there are none yet"
            raise BadProfiles(
                f"there is no profile {name} ({known}); `tidelog profile add {name} --bootstrap HOST:PORT` adds it"
            )
        return found


def profiles_text(profiles: Profiles) -> str:
    document = {
        "version": FILE_VERSION,
        "current": profiles.current,
        "profiles": {
            name: {key: value for key, value in profile._asdict().items() if value is not None}
            for name, profile in sorted(profiles.profiles.items())
        },
    }
    return json.dumps(document, indent=2) + "\n"


def parse_profiles(text: str, path: str) -> Profiles:
    try:
        document = json.loads(text)
        if document["version"] != FILE_VERSION:
            raise BadProfiles(f"{path} has format version {document['version']}; this Tidelog reads {FILE_VERSION}")
        profiles = {
            str(name): Profile(str(each["bootstrap"]), each.get("command_config"))
            for name, each in document["profiles"].items()
        }
        found = Profiles(profiles, document.get("current"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, BadProfiles):
            raise
        raise BadProfiles(
            f"{path} is not a file of profiles ({type(error).__name__}: {error}); mend or remove it"
        ) from None
    return found


def profiles_file(environment: Mapping[str, str] = os.environ) -> Path:
    chosen = environment.get(PROFILES_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(config_home(environment)) / "tidelog" / "profiles.json"


def load_profiles(environment: Mapping[str, str] = os.environ) -> Profiles:
    path = profiles_file(environment)
    try:
        return parse_profiles(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except (OSError, UnicodeDecodeError) as error:
        raise BadProfiles(f"cannot read {path}: {error}") from None


def save_profiles(profiles: Profiles, environment: Mapping[str, str] = os.environ) -> None:
    """Atomic: a reader sees the old or the new file."""
    path = profiles_file(environment)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(profiles_text(profiles), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise BadProfiles(f"cannot write {path}: {error.strerror}") from None
