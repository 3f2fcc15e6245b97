"""`tidelog partition list`: partitions of users, and one line for each internal topic."""

import pytest

from tests.cli.in_process import CommandLine
from tidelog.testing import Cluster


def test_internal_topics_take_one_line_each(capfd: pytest.CaptureFixture[str]) -> None:
    with Cluster(brokers=2) as kafka:
        cli = CommandLine(kafka, capfd)
        cli.good("topic", "create", "orders", "--replication-factor", "2")
        cli.good("topic", "create", "single", "--partitions", "2", "--replication-factor", "1")
        cli.run("transaction", "describe", "nobody")  # creates the topic of transactions
        count = len(cli.found("partition", "list", "--topic", "__transaction_state"))
        lines = cli.good("partition", "list").splitlines()
        assert [line.split()[0] for line in lines[1:-1]] == ["orders-0", "single-0", "single-1"]
        assert lines[-1].startswith(f"__transaction_state: {count} partition")
        assert len(cli.good("partition", "list", "--all").splitlines()) == 4 + count
        assert len(cli.found("partition", "list")) == 3 + count
        assert len(cli.good("partition", "list", "--topic", "__transaction_state").splitlines()) == 1 + count
        kafka.kill(2)
        shown = cli.good("partition", "list", "--unhealthy").splitlines()
        leaderless = ["no leader" in line for line in shown if line.startswith(("orders-", "single-"))]
        assert any(leaderless)
        assert leaderless == sorted(leaderless, reverse=True), "those without a leader come first"
        ended = cli.run("topic", "create", "late", "--replication-factor", "2")
        if ended.code == 0:
            assert "out of sync; `tidelog status` says why" in ended.err
