"""The simulator's speed: what is counted of the runs of each checkout."""

from collections.abc import Iterable

from bench.simulator import REPOSITORY, WARM_UP_SEED, Checkout, Run, Speed, measure, opened


class _Drawn(Checkout):
    """Needs the given processor seconds, one run after the other; every seed simulates 10 s."""

    def __init__(self, needed_s: Iterable[float]) -> None:
        self._needed_s = iter(needed_s)
        self.seeds: list[int] = []

    def run(self, seed: int) -> Run:
        self.seeds.append(seed)
        return Run(10.0, next(self._needed_s))


def test_the_least_run_of_each_seed_counts_and_the_warm_up_does_not() -> None:
    before, now = _Drawn([99, 5, 4, 3, 8]), _Drawn([99, 2, 2, 2, 1])
    assert measure([before, now], range(1, 3), rounds=2) == [Speed(2, 20.0, 7.0), Speed(2, 20.0, 3.0)]
    assert before.seeds == now.seeds == [WARM_UP_SEED, 1, 2, 1, 2]


def test_a_checkout_runs_a_seed_in_its_own_process() -> None:
    with opened([REPOSITORY]) as [checkout]:
        run = checkout.run(WARM_UP_SEED)
    assert 1 < run.simulated_s < 1000
    assert run.processor_s > 0
