"""Limits on connections from single addresses: `max.connections.per.ip.overrides`."""

from ipaddress import ip_address

from tidelog.config.setting import INT_MAX, BadValue
from tidelog.numerals import natural_number


def parse_overrides_per_ip(text: str) -> dict[str, int]:
    """Limits by address, from `address:count,address:count`. Raises BadValue."""
    found = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        host, _, count = entry.rpartition(":")
        try:
            address = str(ip_address(host.strip().strip("[]")))
        except ValueError:
            # Kafka also accepts host names, and resolves them once at start: a DNS answer is a poor guard.
            raise BadValue(f"{entry}: expected address:count, with the address in numbers") from None
        limit = natural_number(count.strip())
        if limit is None or limit > INT_MAX:
            raise BadValue(f"{entry}: the number of connections must be at least 0")
        found[address] = limit
    return found


def check_overrides_per_ip(_name: str, text: str) -> None:
    """Check of the setting. Raises BadValue."""
    parse_overrides_per_ip(text)
