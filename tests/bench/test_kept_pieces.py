"""Benchmarks that go on where they stopped: what is measured again, and what is not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench import results
from bench.kept_pieces import KeptPiece, KeptPieces, Piece, code_version
from bench.measures import QUICK, Sizes
from bench.results import Results
from bench.run import run_rounds
from bench.scenarios import Figures, Scenario, Session, Step


class NoPeer:
    def __init__(self, directory: Path) -> None: ...

    def start(self) -> float:
        return 0.5

    def kill(self) -> None: ...


def scenario(name: str, work: Callable[[Session], Figures]) -> Scenario:
    return Scenario(name, (Step("all of it", work),), {"tidelog": NoPeer, "kafka": NoPeer})  # type: ignore[dict-item]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptPieces:
    monkeypatch.setattr(results, "DIRECTORY", tmp_path / "results")
    return KeptPieces(tmp_path, QUICK, "abc")


def new_run(rounds: int) -> Results:
    return Results("partial", results.now(), rounds, QUICK, {}, {"tidelog": "Tidelog", "kafka": "Kafka"})


def test_what_is_done_is_not_done_again_and_counts_in_the_results(kept: KeptPieces) -> None:
    calls: list[int] = []

    def work(_: Session) -> Figures:
        calls.append(1)
        return {"start": float(len(calls)), "trials": [1.0, 2.0]}

    run_rounds(new_run(1), ["tidelog"], [scenario("one", work)], kept, is_forced=False)
    again = new_run(3)
    run_rounds(again, ["tidelog"], [scenario("one", work)], kept, is_forced=False)
    assert again.samples["start"] == {"tidelog": [1.0, 2.0, 3.0]}, "only the new rounds were run"
    assert again.samples["trials"] == {"tidelog": [1.0, 2.0] * 3}
    run_rounds(new_run(1), ["tidelog"], [scenario("one", work)], kept, is_forced=True)
    assert len(calls) == 4


def test_what_failed_is_tried_again(kept: KeptPieces) -> None:
    def fail(_: Session) -> Figures:
        raise OSError("the broker is gone")

    first = new_run(1)
    run_rounds(first, ["kafka"], [scenario("one", fail)], kept, is_forced=False)
    assert first.failures == ["round 1, kafka, one, all of it: the broker is gone"]
    second = new_run(1)
    run_rounds(second, ["kafka"], [scenario("one", lambda _: {"start": 1.0})], kept, is_forced=False)
    assert (second.samples, second.failures) == ({"start": {"kafka": [1.0]}}, [])


def test_other_code_and_other_sizes_have_pieces_of_their_own(tmp_path: Path) -> None:
    piece = Piece("one", "kafka", 1)
    KeptPieces(tmp_path, QUICK, "abc").keep(piece, KeptPiece("today", [{"start": 1.0}]))
    assert KeptPieces(tmp_path, QUICK, "abc").find(piece) == KeptPiece("today", [{"start": 1.0}])
    assert KeptPieces(tmp_path, QUICK, "abd").find(piece) is None
    assert KeptPieces(tmp_path, Sizes(), "abc").find(piece) is None


def test_version_is_one_word() -> None:
    assert code_version().replace("-", "").isalnum()
