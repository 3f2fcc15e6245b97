"""Single swarm runs: a seed gives one run in any process, its events can be printed, and a broken rule is noticed."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.simulation.broken_rules import joining_before_the_epoch_start
from tests.simulation.mistakes import FOUND_BY
from tidelog.simulation import chaos, command
from tidelog.simulation.__main__ import main
from tidelog.simulation.chaos import Verdict, run_events, run_seed
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.digest import RunDigest
from tidelog.simulation.fault_schedule import draw_schedule
from tidelog.simulation.many_seeds import Finding, run_one
from tidelog.simulation.processes import run_simulation
from tidelog.simulation.shrinking import shrink
from tidelog.simulation.swarm import ALL_FAULTS, ALWAYS_WORK, OPTIONAL_WORK, draw_config
from tidelog.store.interface import Create

REPEATED_SEEDS = (4, 7, 18, 58)
SHORT_SEED = 7


@pytest.mark.parametrize("seed", REPEATED_SEEDS)
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    """To the last frame, store write and disk write, in any process, however it hashes."""
    printed = {
        subprocess.run(
            [sys.executable, "-m", "tidelog.simulation", "--seed", str(seed), "--digest"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("7", "11")
    }
    assert printed == {f"seed={seed} {run_events(seed, with_digest=True).digest} held"}


def test_the_digests_of_two_seeds_differ_in_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--first", "7", "--seeds", "2", "--duration", "3", "--digest"])
    seventh, eighth = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (seventh[0], eighth[0]) == ("seed=7", "seed=8")
    assert all(one != other for one, other in zip(seventh[1:4], eighth[1:4], strict=True))


def test_a_digest_notices_one_byte_of_a_frame_of_a_store_write_and_of_a_disk_write() -> None:
    assert len({_small_run(which) for which in ("nothing", "frame", "store", "disk")}) == 4
    assert _small_run("frame") == _small_run("frame")


def _small_run(changed: str) -> str:
    async def main() -> str:
        cluster = SimulatedCluster()
        digest = RunDigest(cluster)
        one, other = cluster.network.at("one"), cluster.network.at("other")
        (await other.listen("other", 1, lambda channel: SilentReceiver())).start()
        channel = await one.connect("other", 1, lambda channel: SilentReceiver())
        channel.send([b"frame" if changed == "frame" else b"Frame"])
        channel.flush()
        cluster.store_state.perform([Create("/a", b"store" if changed == "store" else b"Store")], 1)
        cluster.wipe(1)  # a new disk is observed as well
        file = cluster.machines[1].disk.open("/logs/a", "append")
        file.append(b"disk" if changed == "disk" else b"Disk")
        return digest.text()

    return run_simulation(main())


class SilentReceiver:
    def on_frame(self, frame: memoryview) -> None:
        """Whatever it is."""

    def on_frames_done(self) -> None:
        """Nothing to answer."""

    def on_drained(self) -> None:
        """Nothing to send."""

    def on_closed(self, reason: str) -> None:
        """Nothing to do."""


def test_the_command_prints_the_events_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "4", "--trace"]) == 0
    *events, verdict = capsys.readouterr().out.splitlines()
    assert "3 brokers" in events[0] or "brokers with" in events[0]
    assert any("in sync:" in line for line in events)
    assert any("all faults end" in line for line in events)
    assert verdict.startswith("seed=4 ")
    assert verdict.endswith(" held")


def test_the_command_runs_many_seeds_and_sums_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the seeds themselves do."""
    verdicts = {7: Verdict(7, applied=[1, 2]), 8: Verdict(8, ["I4 lost"], applied=[1])}
    monkeypatch.setattr(chaos, "run_seed", verdicts.__getitem__)
    assert main(["--seeds", "2", "--first", "7"]) == command.EXIT_VIOLATED
    printed = capsys.readouterr().out
    assert "seed 8 violated: I4 lost" in printed
    assert "2 of 2 seeds, 1 violated; 3 faults" in printed
    assert main(["--seeds", "1", "--first", "7"]) == command.EXIT_HELD
    assert "1 of 1 seeds, 0 violated; 2 faults" in capsys.readouterr().out


def test_a_seed_of_many_is_run_as_alone() -> None:
    verdict, finding = run_seed(SHORT_SEED), run_one(SHORT_SEED, is_exactly_once=False)
    assert finding.violations == verdict.violations
    assert finding.faults == len(verdict.applied) > 0
    assert finding.simulated_s == verdict.simulated_s > 0


def test_faults_that_are_left_out_do_not_strike() -> None:
    everything = run_events(4)
    kept = everything.applied[:2]
    part = run_events(4, kept, duration_s=8.0)
    assert set(part.applied) <= set(kept)
    assert part.simulated_s < everything.simulated_s


def test_swarms_differ_and_every_fault_and_kind_of_work_is_in_some() -> None:
    configs = [draw_config(seed) for seed in range(200)]
    kinds = {*OPTIONAL_WORK, *ALWAYS_WORK}
    assert {fault for config in configs for fault in config.faults} == set(ALL_FAULTS)
    assert {work for config in configs for work in config.work} == kinds
    assert {config.brokers for config in configs} == {3, 4, 5, 6, 7}
    assert all(draw_schedule(config) == draw_schedule(config) for config in configs[:5])


def test_most_runs_are_short_some_are_long_and_all_have_faults() -> None:
    configs = [draw_config(seed) for seed in range(300)]
    lengths = sorted(config.fault_duration_s for config in configs)
    assert lengths[0] >= 2.5
    assert lengths[150] < 6
    assert lengths[-5] > 30
    assert min(len(draw_schedule(config)) for config in configs) >= 5


def test_an_interrupted_command_says_where_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seeds: range, processes: int, *, exactly_once: bool) -> Iterator[Finding]:
        yield Finding(9, [], 1, 1.0, 1.0)  # which a process finished before seed 8
        yield Finding(7, [], 1, 1.0, 1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_many", interrupted)
    assert main(["--seeds", "10", "--first", "7", "--processes", "2"]) == command.EXIT_INTERRUPTED
    printed = capsys.readouterr().out
    assert "2 of 10 seeds, 0 violated" in printed
    assert "make simulate SEEDS=9 FIRST=8 PROCESSES=2" in printed


def test_a_violation_is_shrunk_to_few_faults() -> None:
    with joining_before_the_epoch_start():
        verdicts = (run_seed(seed) for seed in FOUND_BY["join-before-epoch-start"])
        verdict = next(each for each in verdicts if not each.is_good)
        found = shrink(verdict, None, lambda line: None, max_runs=12)
        assert len(found.verdict.applied) < len(verdict.applied)
        assert not run_events(verdict.seed, found.kept, found.duration_s).is_good
    assert any("VIOLATED" in line for line in found.verdict.event_log)
    assert any("high watermark" in line for line in found.verdict.event_log)
