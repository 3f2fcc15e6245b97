"""`tidelog quota set`, `unset` and `list`."""

import argparse
import json
from collections.abc import Mapping

from tidelog.cli.command_error import CommandError
from tidelog.client.admin.quota_admin import QuotaAdmin
from tidelog.client.routing.cluster import Cluster
from tidelog.numerals import decimal_number
from tidelog.quotas.entities import CLIENT_ID, IP, USER, QuotaEntity, QuotaMistake, check_quota, entity_of, quota_text
from tidelog.terminal.tables import table

EVERYBODY = "default"
TITLES = ("USER", "CLIENT ID", "ADDRESS", "LIMIT", "VALUE")


async def set_(cluster: Cluster, options: argparse.Namespace) -> None:
    entity = _entity(options)
    quotas = {key: _number(key, text) for key, text in options.settings}
    try:
        for key, value in quotas.items():
            check_quota(entity, key, value)
    except QuotaMistake as mistake:
        raise CommandError(str(mistake)) from None
    await _change(cluster, options, entity, dict(quotas))


async def unset(cluster: Cluster, options: argparse.Namespace) -> None:
    await _change(cluster, options, _entity(options), dict.fromkeys(options.keys))


async def list_(cluster: Cluster, options: argparse.Namespace) -> None:
    found = await QuotaAdmin(cluster).describe()
    if options.json:
        print(json.dumps([{**entity.parts, "quotas": quotas} for entity, quotas in found.items()]))
        return
    rows = sorted(
        (*(_shown(entity, kind) for kind in (USER, CLIENT_ID, IP)), key, quota_text(value))
        for entity, quotas in found.items()
        for key, value in quotas.items()
    )
    print("\n".join(table(TITLES, rows)) if rows else "nobody has a limit")


async def _change(
    cluster: Cluster, options: argparse.Namespace, entity: QuotaEntity, quotas: Mapping[str, float | None]
) -> None:
    await QuotaAdmin(cluster).alter(entity, quotas)
    if options.json:
        print(json.dumps({**entity.parts, "quotas": quotas}))
        return
    text = ", ".join(
        f"{key} is unset" if value is None else f"{key}={quota_text(value)}" for key, value in quotas.items()
    )
    print(f"changed {entity}: {text}")


def _entity(options: argparse.Namespace) -> QuotaEntity:
    given = {USER: options.user, CLIENT_ID: options.client_id, IP: options.ip}
    parts = {kind: None if name == EVERYBODY else name for kind, name in given.items() if name is not None}
    if not parts:
        raise CommandError("whose limit? Give --user, --client-id, both, or --ip")
    try:
        return entity_of(parts)
    except QuotaMistake as mistake:
        raise CommandError(str(mistake)) from None


def _number(key: str, text: str) -> float:
    number = decimal_number(text)
    if number is None:
        raise CommandError(f"{key} needs a number, found {text!r}")
    return number


def _shown(entity: QuotaEntity, kind: str) -> str:
    parts = entity.parts
    return "-" if kind not in parts else parts[kind] or "(default)"
