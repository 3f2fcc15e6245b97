"""`tidelog profile`: names for clusters, so that commands need no address."""

import argparse
import json
import sys
from collections.abc import Callable

from tidelog.cli.client_command import add_json_option
from tidelog.runtime.cluster_choice import BOOTSTRAP_VARIABLE
from tidelog.runtime.profiles import BadProfiles, Profile, Profiles, load_profiles, profiles_file, save_profiles

DESCRIPTION = f"""\
Names for clusters. A command connects to the address of --bootstrap, else to the cluster of --profile or of the
profile in use, else to ${BOOTSTRAP_VARIABLE}, else to the cluster that `tidelog up` made on this machine.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("profile", help="name clusters and choose one", description=DESCRIPTION)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_add(actions)
    shown = actions.add_parser("list", help="list the profiles", description="List the profiles and the one in use.")
    add_json_option(shown)
    shown.set_defaults(run=lambda options: _run("list", _list, options))
    used = actions.add_parser(
        "use", help="use a profile from now on", description="Use a profile for all commands from now on."
    )
    which = used.add_mutually_exclusive_group(required=True)
    which.add_argument("name", metavar="NAME", nargs="?")
    which.add_argument("--none", action="store_true", help="use no profile")
    add_json_option(used)
    used.set_defaults(run=lambda options: _run("use", _use, options))
    removed = actions.add_parser("remove", help="remove a profile", description="Remove a profile. The cluster stays.")
    removed.add_argument("name", metavar="NAME")
    add_json_option(removed)
    removed.set_defaults(run=lambda options: _run("remove", _remove, options))


def _add_add(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "add", help="add or change a profile", description="Add a profile, or change the one that has this name."
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--bootstrap", metavar="HOST:PORT,...", required=True, help="brokers of the cluster")
    parser.add_argument(
        "--command-config", metavar="FILE", help="properties file of clients of this cluster: TLS, user and password"
    )
    parser.add_argument("--use", action="store_true", help="use it from now on")
    add_json_option(parser)
    parser.set_defaults(run=lambda options: _run("add", _add, options))


def _run(action: str, work: Callable[[Profiles, argparse.Namespace], None], options: argparse.Namespace) -> int:
    try:
        work(load_profiles(), options)
    except BadProfiles as error:
        print(f"tidelog profile {action}: {error}", file=sys.stderr)
        return 1
    return 0


def _add(profiles: Profiles, options: argparse.Namespace) -> None:
    from tidelog.client.network.bootstrap import BadBootstrap, parse_bootstrap

    try:
        parse_bootstrap(options.bootstrap)
    except BadBootstrap as error:
        raise BadProfiles(f"--bootstrap: {error}") from None
    changed = profiles.with_profile(options.name, Profile(options.bootstrap, options.command_config))
    is_used = options.use or profiles.current == options.name
    save_profiles(changed.using(options.name) if is_used else changed)
    if options.json:
        print(json.dumps({"name": options.name, **changed.named(options.name)._asdict(), "is_used": is_used}))
        return
    how = "all commands use it now" if is_used else f"`tidelog profile use {options.name}` makes commands use it"
    print(f"profile {options.name}: {options.bootstrap}; {how}")


def _list(profiles: Profiles, options: argparse.Namespace) -> None:
    from tidelog.terminal.tables import table

    if options.json:
        listed = [
            {"name": name, **each._asdict(), "is_used": name == profiles.current}
            for name, each in sorted(profiles.profiles.items())
        ]
        print(json.dumps(listed))
        return
    if not profiles.profiles:
        print("no profiles yet; `tidelog profile add NAME --bootstrap HOST:PORT` adds one")
        return
    rows = [
        (name, each.bootstrap, "in use" if name == profiles.current else "")
        for name, each in sorted(profiles.profiles.items())
    ]
    print("\n".join(table(["PROFILE", "BROKERS", ""], rows)))
    print(f"file: {profiles_file()}")


def _use(profiles: Profiles, options: argparse.Namespace) -> None:
    save_profiles(profiles.using(options.name))
    if options.json:
        print(json.dumps({"is_used": options.name}))
    elif options.name is None:
        print(f"no profile is in use; commands look for ${BOOTSTRAP_VARIABLE}, then for the cluster on this machine")
    else:
        print(f"commands now use profile {options.name}: {profiles.named(options.name).bootstrap}")


def _remove(profiles: Profiles, options: argparse.Namespace) -> None:
    save_profiles(profiles.without(options.name))
    if options.json:
        print(json.dumps({"removed": options.name}))
        return
    after = "; no profile is in use now" if profiles.current == options.name else ""
    print(f"removed profile {options.name}{after}")
