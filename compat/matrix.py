"""Runs every feature with every client and makes the table."""

import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from compat.foreign import ClientUnavailable
from compat.remote import ProgramFailed
from tests.clients.broker import BrokerProcess
from tests.clients.driver import Capability, ClientDriver
from tests.clients.features import FEATURES, Feature, Workbench
from tests.clients.registry import ClientMissing

Verdict = Literal["works", "fails", "not offered", "not run"]
MARKS: Mapping[Verdict, str] = {"works": "yes", "fails": "**NO**", "not offered": "-", "not run": "?"}


class AnyClient(Protocol):
    """A client of the Python suite, or one of another language."""

    @property
    def name(self) -> str: ...

    @property
    def lacks(self) -> frozenset[Capability]: ...

    def connect(self, bootstrap: str) -> ClientDriver: ...


@dataclass(frozen=True)
class Outcome:
    client: str
    feature: str
    verdict: Verdict
    detail: str = ""


def try_client(client: AnyClient, broker: BrokerProcess, helper: ClientDriver, wanted: Sequence[str]) -> list[Outcome]:
    """One outcome per feature; a client that cannot be had is not run, and says so."""
    only: tuple[str, ...] = getattr(client, "only", ())
    features = [FEATURES[name] for name in wanted if not only or name.startswith(only)]
    try:
        driver = client.connect(broker.bootstrap)
    except (ClientUnavailable, ClientMissing) as error:
        print(f"{client.name}: {error}", flush=True)
        return [Outcome(client.name, feature.id, "not run", str(error)) for feature in features]
    started = time.monotonic()
    try:
        outcomes = [try_feature(client, feature, Workbench(driver, helper, broker)) for feature in features]
    finally:
        driver.close()
    counts = ", ".join(
        f"{sum(outcome.verdict == verdict for outcome in outcomes)} {verdict}" for verdict in ("works", "fails")
    )
    print(f"{client.name}: {counts} ({time.monotonic() - started:.0f} s)", flush=True)
    return outcomes


def try_feature(client: AnyClient, feature: Feature, bench: Workbench) -> Outcome:
    limits: Mapping[str, str] = getattr(client, "limits", {})
    if feature.id in limits:
        return Outcome(client.name, feature.id, "not offered", limits[feature.id])
    if lacking := feature.needs & client.lacks:
        return Outcome(client.name, feature.id, "not offered", ", ".join(sorted(lacking)))
    try:
        feature.check(bench)
    except Exception as error:  # noqa: BLE001 - a client may raise anything, and the table is to be whole
        detail = describe(error)
        print(f"{client.name}: {feature.id} fails: {detail}", flush=True)
        return Outcome(client.name, feature.id, "fails", detail)
    return Outcome(client.name, feature.id, "works")


def describe(error: Exception) -> str:
    if isinstance(error, ProgramFailed):
        return str(error).partition("\n")[0][:300]
    # A bare assertion says nothing by itself: its line does.
    text = str(error) or traceback.extract_tb(error.__traceback__)[-1].line
    return f"{type(error).__name__}: {text}"[:300]


def table(outcomes: Iterable[Outcome]) -> str:
    """Features down, clients across."""
    found = {(outcome.feature, outcome.client): outcome for outcome in outcomes}
    clients = list(dict.fromkeys(client for _feature, client in found))
    features = list(dict.fromkeys(feature for feature, _client in found))
    lines = [["feature", *clients], ["---"] * (len(clients) + 1)]
    for feature in features:
        cells = (found.get((feature, client)) for client in clients)
        lines.append([feature, *(MARKS[cell.verdict] if cell else "" for cell in cells)])
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def remarks(outcomes: Iterable[Outcome]) -> str:
    """Why something fails, was not run or is not offered for a reason of its own."""
    explained = [outcome for outcome in outcomes if outcome.detail and outcome.verdict in ("fails", "not run")]
    return "".join(f"- {one.client}, {one.feature}: {one.verdict}: {one.detail}\n" for one in explained)


def has_failed(outcomes: Iterable[Outcome]) -> bool:
    return any(outcome.verdict == "fails" for outcome in outcomes)
