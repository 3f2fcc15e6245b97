"""Node names of users, client ids and groups, which may be any text (Kafka: Sanitizer)."""

from urllib.parse import quote, unquote


def sanitized(name: str) -> str:
    escaped = quote(name, safe="").replace("~", "%7E")
    return escaped.replace(".", "%2E") if escaped in (".", "..") else escaped


def desanitized(node_name: str) -> str:
    return unquote(node_name)
