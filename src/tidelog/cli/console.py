"""`tidelog console`: the console in the browser, for any Kafka cluster."""

import argparse
import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tidelog.cli.client_command import (
    CLIENT_CONFIG_VARIABLE,
    add_client_options,
    cancel_on_interrupt,
    note,
    print_error,
    run_command,
    run_unconnected,
)
from tidelog.cli.command_error import CommandError
from tidelog.numerals import natural_number

if TYPE_CHECKING:
    from tidelog.client.routing.cluster import Cluster
    from tidelog.console.changes import LocalCluster
    from tidelog.console.server import ConsoleOptions

DEFAULT_PORT = 29080
TOKEN_VARIABLE = "TIDELOG_CONSOLE_TOKEN"
REGISTRY_VARIABLE = "TIDELOG_SCHEMA_REGISTRY_AUTH"


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "console",
        help="look at a cluster in the browser",
        description="Serve a page that shows a cluster as it moves: brokers, partitions, leaders, in-sync replicas,"
        " topics, messages, groups, transactions. It works with every Kafka cluster. It listens on this machine only"
        " unless --host says otherwise, and changes nothing without --manage.",
    )
    parser.add_argument(
        "--port",
        metavar="PORT",
        type=_port,
        default=DEFAULT_PORT,
        help=f"port (default: {DEFAULT_PORT}); 0 picks a free one",
    )
    parser.add_argument("--listener", metavar="FD", type=int, help=argparse.SUPPRESS)  # a socket of `tidelog up`
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1); any other needs the token that is printed, or --login",
    )
    parser.add_argument(
        "--manage", action="store_true", help="allow changes: topics, settings, offsets, moves, brokers"
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        default=os.environ.get(TOKEN_VARIABLE),
        help=f"token that the page asks for (default: ${TOKEN_VARIABLE}; else, off loopback or with credentials of"
        " --command-config, a new one)",
    )
    parser.add_argument(
        "--data",
        metavar="DIRECTORY",
        help="data directory of the `tidelog up` cluster that --manage may kill and start brokers of",
    )
    parser.add_argument(
        "--prometheus", metavar="URL", type=_url_with_path, help="address of a Prometheus that the charts link to"
    )
    _add_schema_options(parser)
    _add_security_options(parser)
    add_client_options(parser)
    parser.set_defaults(run=_run_either)


def _add_schema_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--schema-registry",
        metavar="URL",
        type=_url_with_path,
        help=f"decode Avro, Protobuf and JSON Schema with this registry (user:password in ${REGISTRY_VARIABLE})",
    )
    parser.add_argument(
        "--schema",
        metavar="TOPIC=FILE",
        action="append",
        default=[],
        help="schema of a topic's values: Avro (.avsc), or a Protobuf descriptor set, with :MESSAGE if it has several;"
        " may be repeated",
    )


def _add_security_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--login",
        action="store_true",
        help="everybody logs in with a user and password of the cluster (SASL), and has that user's permissions;"
        " protocol, mechanism and TLS come from --command-config",
    )
    parser.add_argument(
        "--tls-certificate", metavar="FILE", help="serve HTTPS with this PEM certificate (and its chain)"
    )
    parser.add_argument("--tls-key", metavar="FILE", help="private key of the certificate, in PEM, without a password")
    parser.add_argument(
        "--public-url",
        metavar="URL",
        type=_url,
        help="address that users type if it is not that of --host, such as that of a proxy with TLS",
    )


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/") or parts.query:
        raise argparse.ArgumentTypeError(f"expected an address such as https://console.example, found {text!r}")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _url_with_path(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise argparse.ArgumentTypeError(
            "expected an address such as http://localhost:8081, without a user, a password and a query"
        )
    return text


def _run_either(options: argparse.Namespace) -> int:
    if not options.login:
        return run_command("console", _run, options)
    return run_unconnected("console", lambda: _run_with_login(options), options)


def _port(text: str) -> int:
    port = natural_number(text)
    if port is None or port > 65535:
        raise argparse.ArgumentTypeError(f"expected a port between 0 and 65535, found {text!r}")
    return port


async def _run(cluster: "Cluster", options: argparse.Namespace) -> None:
    server = _console_server()
    from tidelog.console.changes import LocalCluster

    local = _local(options)
    settings = _options(options, None if local is None else LocalCluster(local))
    cancel_on_interrupt()
    await cluster.refresh()
    try:
        await server.serve(cluster, settings, note)
    except server.BadOptions as bad:
        raise CommandError(str(bad)) from bad


async def _run_with_login(options: argparse.Namespace) -> int:
    """Nobody is connected before they log in."""
    from tidelog.client.network.bootstrap import BadBootstrap, parse_bootstrap
    from tidelog.config.client import BadClientSettings, default_client_security, load_client_security
    from tidelog.runtime.cluster_choice import NoCluster, choose_cluster

    try:
        server = _console_server()
        from tidelog.console.login import login_settings

        chosen = choose_cluster(options.bootstrap, options.profile, command_config=options.command_config)
        path = options.command_config or chosen.command_config
        security = load_client_security(path) if path else default_client_security()
        settings = login_settings(parse_bootstrap(chosen.bootstrap), security)
        cancel_on_interrupt()
        await server.serve_logins(settings, _options(options, None), note)
        return 0
    except (NoCluster, BadBootstrap, BadClientSettings, CommandError) as error:
        return print_error("console", str(error))
    except server.BadOptions as bad:
        return print_error("console", str(bad))


def _options(options: argparse.Namespace, local: "LocalCluster | None") -> "ConsoleOptions":
    from tidelog.console.decoding import Decoding, file_schemas
    from tidelog.console.schema_registry import SchemaRegistry, reader_of
    from tidelog.console.server import ConsoleOptions

    registry = None
    if options.schema_registry is not None:
        registry = SchemaRegistry(reader_of(options.schema_registry, os.environ.get(REGISTRY_VARIABLE)))
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise CommandError("--tls-certificate and --tls-key need each other")
    return ConsoleOptions(
        options.host,
        options.port,
        options.manage,
        options.token,
        local,
        options.tls_certificate,
        options.tls_key,
        options.public_url,
        Decoding(file_schemas(options.schema), registry),
        bool(options.command_config or os.environ.get(CLIENT_CONFIG_VARIABLE)),
        options.prometheus,
        options.listener,
    )


def _console_server() -> ModuleType:
    try:
        from tidelog.console import server
    except ImportError as error:
        raise CommandError(
            f"the console needs {error.name}; install it with `pip install 'tidelog[console]'`"
        ) from error
    return server


def _local(options: argparse.Namespace) -> Path | None:
    """The data directory whose brokers may be killed: the one named, or the default one if it is this cluster's."""
    from tidelog.cli.local_cluster.data_directory import DataDirectory
    from tidelog.runtime.cluster_choice import default_data_directory

    if options.bootstrap and not options.data:
        return None
    data = DataDirectory(options.data or default_data_directory())
    return data.root if data.stored_plan() is not None else None
