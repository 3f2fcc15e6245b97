"""Work of `tidelog user`."""

import argparse
import json
import secrets
import sys

from tidelog.cli.command_error import CommandError
from tidelog.cli.user import MECHANISMS
from tidelog.client.admin.user_admin import UserAdmin
from tidelog.client.routing.cluster import Cluster

PASSWORD_BYTES = 18


async def add_user(cluster: Cluster, options: argparse.Namespace) -> None:
    admin = UserAdmin(cluster)
    if options.name in await admin.list():
        raise CommandError(f"user {options.name} exists; `tidelog user passwd {options.name}` changes its password")
    await _set_password(admin, options, "added user")


async def passwd_user(cluster: Cluster, options: argparse.Namespace) -> None:
    admin = UserAdmin(cluster)
    if options.name not in await admin.list():
        raise CommandError(f"user {options.name} does not exist; `tidelog user add {options.name}` adds it")
    await _set_password(admin, options, "changed password of user")


async def _set_password(admin: UserAdmin, options: argparse.Namespace, done: str) -> None:
    given = _given_password(options.password_file)
    password = given or secrets.token_urlsafe(PASSWORD_BYTES)
    mechanisms = options.mechanism or MECHANISMS
    await admin.set_password(options.name, password, mechanisms)
    if options.json:
        printed = {} if given else {"password": password}
        print(json.dumps({"user": options.name, "mechanisms": list(mechanisms), **printed}))
        return
    print(f"{done} {options.name}")
    if not given:
        print(f"password: {password}")


def _given_password(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        if path == "-":
            line = sys.stdin.readline()
        else:
            with open(path, encoding="utf-8") as file:
                line = file.readline()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    password = line.rstrip("\r\n")
    if not password:
        raise CommandError(f"{path}: the first line is empty; it should be the password")
    return password


async def list_user(cluster: Cluster, options: argparse.Namespace) -> None:
    users = await UserAdmin(cluster).list()
    if options.json:
        print(json.dumps([{"user": user, "mechanisms": dict(found)} for user, found in users.items()]))
        return
    if not users:
        print("no user has a password in the cluster; `tidelog user add NAME` adds one")
    for user, found in users.items():
        print(f"{user}  {', '.join(found)}")


async def remove_user(cluster: Cluster, options: argparse.Namespace) -> None:
    admin = UserAdmin(cluster)
    found = (await admin.list()).get(options.name)
    if found is None:
        raise CommandError(f"user {options.name} does not exist; `tidelog user list` lists the users")
    await admin.remove(options.name, list(found))
    print(json.dumps({"user": options.name}) if options.json else f"removed user {options.name}")
