"""Log directories that may stand for a lost one (R42, KIP-858)."""

from tidelog.cluster.znodes import LogDirectoryEpochs
from tidelog.controller.log_directories import LogDirectories

OLD, NEW = LogDirectoryEpochs(0, 30), LogDirectoryEpochs(30, 30)


def test_a_new_directory_beside_all_the_earlier_ones_replaces_none() -> None:
    assert LogDirectories({"old": OLD, "new": NEW}).replacements_since(20) == set()


def test_a_new_directory_may_replace_one_of_that_epoch() -> None:
    missing = [LogDirectoryEpochs(10, 20)]
    assert LogDirectories({"old": OLD, "new": NEW}, missing).replacements_since(20) == {"new"}
    assert LogDirectories({"old": OLD, "new": NEW}, missing).replacements_since(10) == {"new"}


def test_a_directory_that_was_gone_before_that_epoch_or_came_after_it_was_not_lost_in_between() -> None:
    missing = [LogDirectoryEpochs(0, 19), LogDirectoryEpochs(21, 25)]
    present = {"old": LogDirectoryEpochs(20, 30), "new": NEW}
    assert LogDirectories(present, missing).replacements_since(20) == set()


def test_where_only_a_later_moment_of_the_incarnation_is_known_its_last_directories_count() -> None:
    """Apache Kafka wrote the state with transaction 20, when the incarnation of epoch 19 was in sync."""
    missing = [LogDirectoryEpochs(0, 19)]
    assert LogDirectories({"old": OLD, "new": NEW}, missing).replacements_since(20) == {"new"}


def test_a_broker_with_new_directories_only_has_lost_all_others() -> None:
    directories = LogDirectories({"new": NEW})
    assert directories.replacements_since(20) == {"new"}
    assert directories.are_all_in({"new"})
    assert not LogDirectories({"old": OLD, "new": NEW}).are_all_in({"new"})


def test_a_broker_that_names_no_directories_has_replaced_none() -> None:
    assert LogDirectories().replacements_since(20) == set()
