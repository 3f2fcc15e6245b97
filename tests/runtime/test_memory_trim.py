from tidelog.runtime.memory_trim import GROWTH_BYTES, MAX_PAUSE, TrimSchedule

SMALL, LARGE = 0, 5 * GROWTH_BYTES


def test_a_process_that_did_not_grow_is_left_alone() -> None:
    schedule = TrimSchedule(SMALL)
    assert not any(schedule.is_due(GROWTH_BYTES) for _ in range(100))


def test_memory_that_a_burst_still_held_is_given_back_after_it() -> None:
    schedule = TrimSchedule(SMALL)
    assert schedule.is_due(LARGE)
    schedule.on_trimmed(LARGE, LARGE)  # in use
    assert [schedule.is_due(LARGE) for _ in range(2)] == [False, True]
    schedule.on_trimmed(LARGE, SMALL)
    assert not schedule.is_due(SMALL)


def test_memory_that_stays_in_use_is_looked_at_less_and_less_often() -> None:
    schedule = TrimSchedule(SMALL)
    trims = 0
    for _ in range(1000):
        if schedule.is_due(LARGE):
            trims += 1
            schedule.on_trimmed(LARGE, LARGE)
    assert trims < 10 + 1000 / MAX_PAUSE
