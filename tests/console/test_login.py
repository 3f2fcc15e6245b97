"""Login with the cluster's own users: over HTTPS, each with their permissions, and what attackers may try."""

import asyncio
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Page, expect

from tests.certificates import Authority, Certificate
from tests.cli.process import tidelog
from tests.clients.test_sasl import ADMIN, brokers
from tests.console.chromium import needs_chromium
from tests.console.running_console import RunningConsole, running_console
from tidelog.client import Admin
from tidelog.config.client import BadClientSettings, ClientSecurity
from tidelog.console.login import login_settings

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TIME_LIMIT_S = 60
BOB = "bob's password"


class Secured(NamedTuple):
    bootstrap: str
    certificate: Certificate
    template: Path
    """client.properties without a user."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Generator[Secured]:
    """One broker with SASL_SSL, the super user admin, and bob, who has no permission."""
    directory = tmp_path_factory.mktemp("secured")
    certificate = Authority(directory).sign("broker")
    template = directory / "client.properties"
    # The user of the file must not be used for anybody.
    template.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=hunter2\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificate.authority}\n"
    )
    started, over = threading.Event(), asyncio.Event()
    found: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        jaas = f'{ADMIN} user_bob="{BOB}";'
        async with brokers(
            directory,
            certificate,
            "SASL_SSL",
            authorizer_class_name=STANDARD_AUTHORIZER,
            super_users="User:admin",
            listener_overrides={"listener.name.sasl_ssl.plain.sasl.jaas.config": jaas},
        ) as (broker,):
            address = str(broker.advertised_address)
            async with Admin(address, config=_config(template)) as admin:
                await admin.create_topic("secret-plans", partitions=1)
            found.append(address)
            started.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert started.wait(TIME_LIMIT_S)
    yield Secured(found[0], certificate, template)
    loops[0].call_soon_threadsafe(over.set)
    thread.join()


def _config(path: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in path.read_text().splitlines())
    return {key: value for key, _, value in lines}


@pytest.fixture(scope="module")
def console(secured: Secured) -> Generator[RunningConsole]:
    key = str(secured.certificate.location)
    options = ("--login", "--manage", "--command-config", str(secured.template))
    with running_console(secured.bootstrap, *options, "--tls-certificate", key, "--tls-key", key) as running:
        assert running.url.startswith("https://")
        yield running


class Browser:
    """Just enough of one: a cookie, and the header that the page sends."""

    def __init__(self, console: RunningConsole, authority: Path) -> None:
        self._console = console
        self._tls = ssl.create_default_context(cafile=str(authority))
        self.cookie = ""

    def ask(self, path: str, wanted: object = None, **headers: str) -> tuple[int, Any, Any]:
        body = None if wanted is None else json.dumps(wanted).encode()
        sent = ({"X-Tidelog-Console": "1"} if wanted is not None else {}) | {"Cookie": self.cookie} | headers
        request = urllib.request.Request(self._console.origin + path, body, sent)
        try:
            with urllib.request.urlopen(request, timeout=TIME_LIMIT_S, context=self._tls) as response:
                return response.status, json.loads(response.read()), response.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read()), error.headers

    def log_in(self, user: str, password: str) -> Any:
        status, answer, headers = self.ask("/api/login", {"user": user, "password": password})
        assert status == 200, answer
        self.cookie = headers["Set-Cookie"].split(";")[0]
        return headers


@pytest.fixture
def stranger(console: RunningConsole, secured: Secured) -> Browser:
    return Browser(console, secured.certificate.authority)


def test_nothing_is_shown_before_the_login(stranger: Browser) -> None:
    status, about, _ = stranger.ask("/api/about")
    assert (status, set(about)) == (200, {"login", "change_header"})
    for path in ("/api/topics", "/api/stream", "/api/brokers/1", "/api/pipelines", "/api/topics/secret-plans/messages"):
        assert stranger.ask(path)[:2] == (401, {"error": "log in first"})
    assert stranger.ask("/api/changes/delete-topic", {"topic": "secret-plans"})[0] == 401


def test_everybody_has_their_own_permissions(stranger: Browser, console: RunningConsole, secured: Secured) -> None:
    headers = stranger.log_in("admin", "hunter2")
    cookie = headers["Set-Cookie"]
    assert cookie.startswith("__Host-tidelog_console_")
    assert all(each in cookie for each in ("HttpOnly", "SameSite=strict", "Secure", "Path=/"))
    assert stranger.ask("/api/about")[1]["user"] == "admin"
    assert stranger.ask("/api/topics/secret-plans")[0] == 200
    bob = Browser(console, secured.certificate.authority)
    bob.log_in("bob", BOB)
    assert bob.ask("/api/topics")[1] == []
    assert bob.ask("/api/topics/secret-plans")[0] == 502
    assert bob.ask("/api/changes/delete-topic", {"topic": "secret-plans"})[0] == 502
    status, answer, _ = bob.ask("/api/changes/kill-broker", {"broker": 1})
    assert (status, "for brokers of `tidelog up`" in answer["error"]) == (400, True)
    assert bob.ask("/api/logout", {})[0] == 200
    assert bob.ask("/api/topics")[0] == 401
    assert stranger.ask("/api/topics/secret-plans")[0] == 200


def test_a_stolen_or_guessed_way_in_is_refused(stranger: Browser) -> None:
    wanted = {"user": "bob", "password": BOB}
    assert stranger.ask("/api/login", wanted, Origin="https://evil.example")[0] == 403
    assert stranger.ask("/api/login", wanted, Host="evil.example")[0] == 421
    assert stranger.ask("/api/login", wanted, **{"Sec-Fetch-Site": "same-site"})[0] == 403
    stranger.cookie = "__Host-tidelog_console_1_session=guess"
    assert stranger.ask("/api/topics")[0] == 401
    # A password is a stranger's text: the console must not look for `${env:...}` in it.
    status, answer, _ = stranger.ask("/api/login", {"user": "bob", "password": "${env:BOB}"})
    assert (status, answer["error"]) == (403, "the cluster does not accept this user and password")


@needs_chromium
def test_the_page_asks_for_the_login(console: RunningConsole, page: Page, errors: list[str]) -> None:
    page.goto(f"{console.origin}/#/topics")
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("does not accept")
    assert "status of 403" in errors.pop()
    page.get_by_label("Password").fill("hunter2")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("main")).to_contain_text("secret-plans")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("h1")).to_have_text("Log in")


@needs_chromium
def test_users_permissions_and_quotas_are_shown_to_who_may_see_them(
    console: RunningConsole, secured: Secured, page: Page, tmp_path: Path
) -> None:
    connected = ("--bootstrap", secured.bootstrap, "--command-config", str(secured.template))
    (tmp_path / "password").write_text("a secret of alice\n")
    for command in (
        ("user", "add", "alice", "--password-file", str(tmp_path / "password")),
        ("acl", "add", "alice", "read", "topic", "plans-", "--prefix"),
        ("acl", "add", "mallory", "all", "cluster", "--deny"),
        ("quota", "set", "--user", "alice", "producer_byte_rate=1048576"),
    ):
        done = tidelog(*command, *connected)
        assert done.returncode == 0, done.stderr
    log_in(page, console, "admin", "hunter2")
    page.goto(f"{console.origin}/#/access")
    expect(page.locator("tr", has_text="SCRAM")).to_contain_text("alice")
    rule = page.locator("tr", has_text="User:alice")
    expect(rule.filter(has_text="read")).to_contain_text("topics that begin with plans-")
    expect(page.locator("tr", has_text="User:mallory").locator(".pill.bad").first).to_have_text("deny")
    expect(page.locator("main")).to_contain_text("producer_byte_rate 1.0 MB/s")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("User")).to_be_visible()  # the page is loaded anew when the session has ended
    log_in(page, console, "bob", BOB)
    page.goto(f"{console.origin}/#/access")
    expect(page.locator(".card.empty")).to_have_count(3)
    expect(page.locator("main")).not_to_contain_text("alice")


def log_in(page: Page, console: RunningConsole, user: str, password: str) -> None:
    page.goto(f"{console.origin}/#/topics")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


def test_passwords_do_not_cross_the_network_unencrypted(secured: Secured) -> None:
    options = ("--bootstrap", secured.bootstrap, "--login", "--command-config", str(secured.template), "--port", "0")
    done = tidelog("console", *options, "--host", "0.0.0.0")
    assert (done.returncode, "--tls-certificate" in done.stderr) == (1, True)


def test_a_certificate_that_cannot_be_used_is_one_sentence(secured: Secured, tmp_path: Path) -> None:
    options = ("--bootstrap", secured.bootstrap, "--login", "--command-config", str(secured.template), "--port", "0")
    done = tidelog("console", *options, "--tls-key", str(secured.template), "--tls-certificate", str(secured.template))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "cannot use --tls-certificate" in done.stderr


@pytest.mark.parametrize("settings", [(), (("security.protocol", "SASL_SSL"),), (("sasl.mechanism", "PLAIN"),)])
def test_a_login_needs_protocol_and_mechanism(settings: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(BadClientSettings, match="in the file of --command-config"):
        login_settings([], ClientSecurity(settings))


def test_the_user_of_the_file_is_dropped() -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.password": "hunter2"}
    found = login_settings([], ClientSecurity(tuple(given.items())))
    assert (found.security.protocol, found.security.mechanism) == ("SASL_PLAINTEXT", "SCRAM-SHA-256")
    assert dict(found.security.options) == {}


def test_a_console_with_the_credentials_of_a_file_needs_no_login(secured: Secured) -> None:
    with running_console(secured.bootstrap, "--command-config", str(secured.template)) as running:
        # Others on this machine must not act with the credentials of the file.
        assert running.refused("/api/topics/secret-plans")[0] == 401
        query = running.url.partition("?")[2]
        assert running.get(f"/api/topics/secret-plans?{query}")["name"] == "secret-plans"
        assert b"hunter2" not in running.read(f"/api/brokers/1?{query}")
