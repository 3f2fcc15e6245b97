"""Log lines for dynamic settings that are accepted without effect: sizes of thread pools that Tidelog does not have."""

import logging

from tidelog.config.broker import BrokerSettings
from tidelog.config.thread_pools import NO_EFFECT

logger = logging.getLogger(__name__)


class UnusedSettingsLog:
    """One line for each change at run time. Values of the file were logged when it was loaded."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._values = _unused_values(settings)

    def on_settings(self, settings: BrokerSettings) -> None:
        before, self._values = self._values, _unused_values(settings)
        for name, value in self._values.items():
            if value != before[name]:
                logger.info("setting accepted without effect name=%s value=%s reason=%s", name, value, NO_EFFECT[name])


def _unused_values(settings: BrokerSettings) -> dict[str, object]:
    return {name: getattr(settings, name.replace(".", "_")) for name in NO_EFFECT}
