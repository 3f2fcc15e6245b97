"""Broker settings given to `tidelog up` with --config and --set, validated before any broker is started."""

from collections.abc import Sequence

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.plan import reject_reserved
from tidelog.cli.settings_mistakes import shown_mistakes


def read_settings(config: str | None, overrides: Sequence[str]) -> dict[str, str]:
    """Settings of the file, overridden by the flags."""
    if config is None and not overrides:
        return {}
    from tidelog.config.loading import SettingsError, load_broker_settings
    from tidelog.config.properties import parse_properties

    settings: dict[str, str] = {}
    if config is not None:
        try:
            with open(config, encoding="utf-8") as file:
                settings |= {found.key: found.value for found in parse_properties(file.read())}
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text file in UTF-8"
            raise CommandError(f"{config}: {reason}") from error
    for override in overrides:
        name, _, value = override.partition("=")
        settings[name.strip()] = value.strip()
    reject_reserved(settings)
    try:
        load_broker_settings(config, overrides)
    except SettingsError as error:
        raise CommandError("; ".join(shown_mistakes(error.mistakes, config))) from error
    return settings
