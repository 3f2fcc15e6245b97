"""The tour, step by step: three brokers, a shop, a pipeline, a killed leader, the audit, and whether it all held."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from demo.checks import Facts, Row, Totals, checks, totals_of
from demo.cluster import BROKERS, Cluster, Leadership, bootstrap_of, ended_at_last
from demo.commands import PROGRAMS, CommandFailed, Commands
from demo.events import MALFORMED_SHARE, Event, Shop
from demo.following import PipelineWatch, Progress
from demo.narrator import Narrator
from demo.reading import different_events, header_of, latest_totals, records_of_topic, rows_of_table
from demo.time_limits import time_limit_s
from demo.writing import Writer
from tidelog.client.consumer.consumer import ConsumedRecord
from tools.ports import free_ports

PIPELINE_FILE = Path(__file__).with_name("shop.toml")
PIPELINE, TABLE_SINK = "shop", "table"
ORDERS, DEAD_LETTERS, TOTALS = "orders", "orders.dead", "orders.totals"
PARTITIONS = 3
SEED = 7
LOOK_S = 0.2
LINE_EVERY_S = 2.0
LINE_EVERY_WHILE_STARTING_S = 5.0
START_LIMIT_S = 180.0
CATCH_UP_LIMIT_S = 120.0
AUDIT_LIMIT_S = 180.0
COLUMNS = ("TIME", "ACKNOWLEDGED", "ROWS IN TABLE", "DEAD LETTERS", "NOT YET READ")
WIDTHS = (5, 13, 14, 13, 13)


@dataclass(frozen=True)
class Plan:
    output: Path
    events_per_second: int
    phase_s: float
    """How long each part of the tour is watched."""


class Tour:
    """Made in a block that ends all that it started; `place` is forgotten afterwards."""

    def __init__(self, plan: Plan, place: Path, narrator: Narrator, stack: ExitStack) -> None:
        self._plan = plan
        self._narrator = narrator
        self._stack = stack
        port = free_ports(BROKERS)
        data, states = place / "data", place / "pipelines"
        self._environment = {
            "TIDELOG_DATA": str(data),
            "TIDELOG_PIPELINES": str(states),
            "TIDELOG_BOOTSTRAP": bootstrap_of(port),
        }
        self._commands = Commands(self._environment, plan.output)
        self._cluster = Cluster(data, self._commands, port)
        self._watch = PipelineWatch(states, PIPELINE, table=TABLE_SINK, topic=ORDERS)
        self._writer = Writer(self._cluster.bootstrap, ORDERS, PARTITIONS, Shop(SEED), plan.events_per_second)
        self._pipeline: subprocess.Popen[str] | None = None
        self._said = 0

    def run(self) -> bool:
        """Whether everything held."""
        self._start_brokers()
        self._start_shop()
        self._start_pipeline()
        busiest, leader_after = self._kill_the_leader()
        assert busiest.leader is not None
        self._bring_back(busiest.leader)
        self._end_the_day()
        rows, dead, totals = self._read_back()
        exit_code, verdict = self._audit()
        return self._summarise(
            Facts(
                good_ids=self._writer.good_ids,
                malformed=self._writer.malformed,
                rows=rows,
                dead_letters=len(different_events(dead)),
                totals=totals,
                leader_before=busiest.leader,
                leader_after=leader_after,
                audit_exit_code=exit_code,
                audit_verdict=verdict,
            )
        )

    def keep_logs(self) -> None:
        """Whatever became of the tour."""
        if self._watch.log_file.exists():
            shutil.copyfile(self._watch.log_file, self._logs(f"{PIPELINE}-pipeline.log"))
        for file in self._cluster.data.glob("broker-*.log"):
            shutil.copyfile(file, self._logs(file.name))

    def _logs(self, name: str) -> Path:
        logs = self._plan.output / "logs"
        logs.mkdir(exist_ok=True)
        return logs / name

    # -- the steps

    def _start_brokers(self) -> None:
        self._narrator.heading("1. Three brokers")
        self._narrator.text(
            "Three processes on this machine, each with files of its own. Every topic has three replicas, and a write "
            "is acknowledged when all replicas in sync have it, at least two."
        )
        self._stack.enter_context(ended_at_last(self._cluster.data))
        self._do("up", "--detach", "--brokers", str(BROKERS), "--port", str(self._cluster.port))
        self._do("topic", "create", ORDERS, "--partitions", str(PARTITIONS))
        self._narrator.text(
            "To look around meanwhile, paste this into another terminal, and begin with `tidelog status`:"
        )
        exported = {"PATH": f"{PROGRAMS}:$PATH", **self._environment}
        self._narrator.to_paste(f"export {name}={value}" for name, value in exported.items())

    def _start_shop(self) -> None:
        self._narrator.heading("2. A shop")
        self._narrator.text(
            f"From now on a shop writes {self._plan.events_per_second:,} orders a second to the topic {ORDERS!r} "
            f"(acks=all, idempotent), by customer. About one in {1 / MALFORMED_SHARE:.0f} is malformed. "
            "A good one and a bad one:"
        )
        self._narrator.block(event.value.decode() for event in samples())
        self._writer.start()
        self._stack.callback(self._writer.request_end)

    def _start_pipeline(self) -> None:
        self._narrator.heading("3. A pipeline on Spark")
        self._narrator.text(
            "From the topic into a Delta table, each order exactly once; totals per product to another topic; what "
            "does not parse to a third one. This file is all of it:"
        )
        file = self._plan.output / PIPELINE_FILE.name
        shutil.copyfile(PIPELINE_FILE, file)
        self._narrator.block(file.read_text().splitlines())
        self._do("pipeline", "check", file.name)
        arguments = ("pipeline", "run", file.name, "--no-view")
        self._narrator.command(f"tidelog {' '.join(arguments)}")
        self._narrator.text("Spark needs some seconds to start. Orders wait in the topic meanwhile: NOT YET READ.")
        output = self._stack.enter_context(self._pipeline_output.open("w"))
        self._pipeline = self._stack.enter_context(self._commands.started(arguments, output))
        self._narrator.row(COLUMNS, WIDTHS)
        self._follow(
            lambda progress: progress.rows > 0,
            START_LIMIT_S,
            "the pipeline wrote nothing to the table",
            LINE_EVERY_WHILE_STARTING_S,
        )
        self._follow_for(self._plan.phase_s)

    def _kill_the_leader(self) -> tuple[Leadership, int | None]:
        self._narrator.heading("4. kill -9")
        busiest = self._cluster.busiest(ORDERS)
        self._narrator.text(
            f"Broker {busiest.leader} leads {busiest.name}, the busiest partition. It gets no chance to say goodbye."
        )
        self._writer.longest_pause_s.clear()
        self._do("kill", str(busiest.leader))
        leader_after = self._cluster.wait_for_new_leader(busiest)
        self._narrator.text(
            f"Broker {leader_after} leads {busiest.name} now. The shop writes on and the pipeline reads on, by "
            "themselves; nobody restarts anything."
        )
        self._narrator.row(COLUMNS, WIDTHS)
        self._follow_for(self._plan.phase_s)
        pause_s = self._writer.longest_pause_s.get(busiest.partition, 0.0)
        self._narrator.text(f"The longest that {busiest.name} acknowledged nothing: {pause_s:.2f} s.")
        return busiest, leader_after

    def _bring_back(self, broker: int) -> None:
        self._narrator.heading("5. Back again")
        self._narrator.text("The broker checks the end of its logs, cuts what was never acknowledged, and catches up.")
        self._do("start", str(broker))
        took_s = self._cluster.wait_until_in_sync()
        self._narrator.text(f"All replicas are in sync again, {took_s:.1f} s later.")
        self._narrator.row(COLUMNS, WIDTHS)
        self._follow_for(self._plan.phase_s)

    def _end_the_day(self) -> None:
        self._narrator.heading("6. The end of the day")
        self._narrator.text("The shop closes. The pipeline works off what is left, and is stopped.")
        self._writer.finish()
        acknowledged = self._writer.acknowledged
        self._narrator.row(COLUMNS, WIDTHS)
        self._follow(
            lambda progress: progress.unread(acknowledged) == 0,
            CATCH_UP_LIMIT_S,
            "the pipeline did not read everything",
        )
        self._line(self._watch.progress())
        self._do("pipeline", "stop", PIPELINE)

    def _read_back(self) -> tuple[list[Row], list[ConsumedRecord], dict[str, Totals]]:
        rows = rows_of_table(self._plan.output / "table")
        dead = records_of_topic(self._cluster.bootstrap, DEAD_LETTERS)
        totals = latest_totals(records_of_topic(self._cluster.bootstrap, TOTALS))
        computed = totals_of(rows)
        self._narrator.text(f"The last totals in {TOTALS!r}, and the revenue recomputed from the table:")
        widths = (16, 8, 8, 14, 16)
        self._narrator.row(("PRODUCT", "ORDERS", "PIECES", "REVENUE", "FROM THE TABLE"), widths)
        for product, total in sorted(totals.items()):
            again = computed.get(product)
            figures = (
                f"{total.orders:,}",
                f"{total.pieces:,}",
                f"{total.revenue:,}",
                f"{again.revenue:,}" if again else "-",
            )
            self._narrator.row((product, *figures), widths)
        if dead:
            self._narrator.text("A dead letter keeps the bytes as they were, and says why it is one:")
            shown = max(dead, key=lambda record: len(header_of(record, "tidelog.error")))
            self._narrator.block([header_of(shown, "tidelog.error"), (shown.value or b"").decode(errors="replace")])
        return rows, dead, totals

    def _audit(self) -> tuple[int, str]:
        self._narrator.heading("7. Are the replicas identical?")
        self._do("down")
        self._narrator.text(
            "The audit reads every batch of every replica, on Spark, checks each, and compares the replicas."
        )
        reports = ("--report", "audit.html", "--json", "audit.json")
        self._narrator.command(f"tidelog audit {self._cluster.data} {' '.join(reports)}")
        arguments = ("audit", str(self._cluster.data), *reports)
        with (
            self._logs("audit.log").open("w") as errors,
            self._commands.started(arguments, subprocess.PIPE, errors) as process,
        ):
            try:
                limit_s = time_limit_s(AUDIT_LIMIT_S)
                said = process.communicate(timeout=limit_s)[0].strip().splitlines()
            except subprocess.TimeoutExpired:
                raise CommandFailed(f"the audit took longer than {limit_s:.0f} s") from None
        said = said or self._logs("audit.log").read_text().splitlines()[-1:] or ["the audit said nothing"]
        self._narrator.block(said)
        return process.returncode, said[-1]

    def _summarise(self, facts: Facts) -> bool:
        self._narrator.heading("Did it hold?")
        verdicts = checks(facts)
        for check in verdicts:
            self._narrator.verdict(check.claim, check.figures, check.holds)
        summary = {"seconds": round(self._narrator.elapsed_s, 1), "checks": [check._asdict() for check in verdicts]}
        (self._plan.output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        return all(check.holds for check in verdicts)

    # -- output

    @property
    def _pipeline_output(self) -> Path:
        return self._plan.output / "pipeline.txt"

    def _do(self, *arguments: str) -> None:
        self._narrator.command(f"tidelog {' '.join(arguments)}")
        self._narrator.block(self._commands.run(*arguments).strip().splitlines())

    def _follow_for(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        self._follow(lambda _progress: time.monotonic() >= end_s, seconds + LINE_EVERY_S, "")

    def _follow(
        self, is_done: Callable[[Progress], bool], limit_s: float, complaint: str, line_every_s: float = LINE_EVERY_S
    ) -> None:
        began_s, line_s = time.monotonic(), 0.0
        while not is_done(progress := self._watch.progress()):
            waited_s = time.monotonic() - began_s
            if waited_s > time_limit_s(limit_s):
                raise CommandFailed(f"{complaint} within {waited_s:.0f} s")
            self._writer.raise_failure()
            self._relay()
            if time.monotonic() - line_s >= line_every_s:
                self._line(progress)
                line_s = time.monotonic()
            time.sleep(LOOK_S)

    def _line(self, progress: Progress) -> None:
        acknowledged = self._writer.acknowledged
        figures = (acknowledged, progress.rows, progress.dead_letters, progress.unread(acknowledged))
        self._narrator.row((f"{self._narrator.elapsed_s:.0f} s", *(f"{figure:,}" for figure in figures)), WIDTHS)

    def _relay(self) -> None:
        """What the pipeline says, and whether it is still there."""
        said = self._pipeline_output.read_text().splitlines()
        self._narrator.block(said[self._said :])
        self._said = len(said)
        if self._pipeline is not None and self._pipeline.poll() is not None:
            raise CommandFailed(f"the pipeline ended with exit code {self._pipeline.returncode}")


def samples() -> list[Event]:
    """A good one and a bad one."""
    shop = Shop(SEED)
    events = [shop.next_event(time.time()) for _ in range(2_000)]
    return [next(event for event in events if event.is_malformed is wanted) for wanted in (False, True)]
