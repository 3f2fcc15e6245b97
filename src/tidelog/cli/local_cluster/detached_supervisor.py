"""`python -m tidelog.cli.local_cluster.detached_supervisor DIR`: supervisor of a detached cluster with --restart."""

import asyncio
import logging
import sys

from tidelog.cli.local_cluster.data_directory import DataDirectory
from tidelog.cli.local_cluster.foreground import StopSignals, new_queries, stop_brokers
from tidelog.cli.local_cluster.inspection import inspect_local_cluster
from tidelog.cli.local_cluster.plan import Plan
from tidelog.cli.local_cluster.supervisor import Supervisor
from tidelog.cli.rotating_log import RotatingLog

logger = logging.getLogger(__name__)


async def supervise(data: DataDirectory, plan: Plan) -> None:
    end = StopSignals()
    supervisor = asyncio.ensure_future(Supervisor(data, plan, logger.info, restart=True).run())
    asked = asyncio.ensure_future(end.asked.wait())
    await asyncio.wait([supervisor, asked], return_when=asyncio.FIRST_COMPLETED)
    if supervisor.done():
        supervisor.result()
    supervisor.cancel()
    queries = new_queries(data.command_config)
    try:
        view = await inspect_local_cluster(queries, data, plan)
    finally:
        queries.close()
    await stop_brokers(data.running_brokers(plan), view.controller, logger.info, end)


def main(path: str) -> None:
    data = DataDirectory(path)
    handlers = [RotatingLog(str(data.supervisor_log))]
    logging.basicConfig(handlers=handlers, level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    with data.supervision(restart=True):
        asyncio.run(supervise(data, data.require_plan()))


if __name__ == "__main__":
    main(sys.argv[1])
