"""docs/client.md: every example runs."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tidelog.testing import Cluster

PAGE = Path(__file__).parents[3] / "docs" / "client.md"


@pytest.mark.clients
def test_examples_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 4
    names: dict[str, Any] = {"__name__": "page"}
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)

    async def run_all(address: str) -> int:
        await names["main"](address)
        await names["write_many"](address)
        await names["copy"](address, 10_001)
        found: int = await names["count_by_key"](address, 10_001)
        return found

    with Cluster() as kafka:
        assert asyncio.run(asyncio.wait_for(run_all(kafka.bootstrap_servers), 120)) == 10_001
        kafka.topic("copies").should_have(count=10_001)
    assert "b'Dover' b'low'" in capsys.readouterr().out
