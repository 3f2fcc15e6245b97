"""Every piece of a pipeline file that the pages show is accepted where the page says it belongs."""

import re
from pathlib import Path

import pytest

from tidelog.pipelines.definition.model import Pipeline
from tidelog.pipelines.definition.parsing import load

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENVIRONMENT = {"SHOP_PASSWORD": "x", "REGISTRY_PASSWORD": "x", "HOSTNAME": "driver", "TIDELOG_BOOTSTRAP": "localhost:9"}

TOPIC = """
[sources.orders]
topic = "orders"
format = "json"
schema = "order_id bigint, id bigint, customer string, country string, amount double, at timestamp"
"""
SINK = """
[sinks.table]
from = "orders"
delta = "table"
"""


def loaded(text: str, directory: Path) -> Pipeline:
    """Raises Mistakes."""
    file = directory / "shop.toml"
    file.write_text(text)
    return load(file, ENVIRONMENT)


def completed(block: str) -> str:
    """With a source and a sink, if the block has none; keys without a table belong to one of them."""
    if block.startswith("registry"):
        return f'[sources.orders]\ntopic = "orders"\nformat = "avro"\n{block}{SINK}'
    if not block.startswith("["):
        return f"{TOPIC}{SINK}{block}"
    has_orders = re.search(r"FROM customers|^topic", block, re.MULTILINE)
    source, sink = "" if has_orders else TOPIC, "" if "[sinks" in block else SINK
    return f"{block}\n{source}{sink}"


BLOCKS = [
    (page, block) for page in ("pipelines.md", "spark-cluster.md") for block in BLOCK.findall((DOCS / page).read_text())
]


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page}: {block[:30]!r}" for page, block in BLOCKS])
def test_blocks_are_accepted(page: str, block: str, tmp_path: Path) -> None:
    assert loaded(completed(block), tmp_path).sinks


TOPIC_SINK = """
[sinks.topic]
from = "orders"
topic = "out"
"""
FILES = """
[sources.files]
files = "in"
stream = true
format = "csv"
schema = "id bigint"
"""
DATABASE = """
[sources.rows]
jdbc = "jdbc:postgresql://localhost/shop"
once = true
table = "rows"
jar = "driver.jar"
"""
STEP = """
[[steps]]
view = "step"
from = "orders"
"""
IN_SENTENCES = [
    (TOPIC, "options = ", "{ maxOffsetsPerTrigger = 100000 }"),
    (TOPIC, "watermark = ", '{ column = "at", delay = "10 minutes" }'),
    (TOPIC, "", "options = { failOnDataLoss = false }"),
    (TOPIC, "", 'options = { "kafka.isolation.level" = "read_committed" }'),
    (TOPIC, "starting = ", "2026-01-31T12:00:00Z"),
    (TOPIC, "", 'bad_records = "skip"'),
    (FILES, "", "format_options = { maxFilesPerTrigger = 100 }"),
    (FILES, "format_options = ", "{ header = false }"),
    (DATABASE, "options = ", "{ fetchsize = 1000 }"),
    (STEP, "", 'deduplicate = ["order_id"]'),
    (TOPIC_SINK, "options = ", '{ "kafka.compression.type" = "zstd" }'),
    (TOPIC_SINK, "", 'options = { delivery = "exactly-once" }'),
    (TOPIC_SINK, "", 'output_mode = "update"'),
    (SINK, "partition_by = ", '["day = date(at)", "country"]'),
    (SINK, "compact = ", '{ files = 32, target = "128 MB" }'),
    (SINK, "", 'query = "orders"'),
    ("[pipeline]\n", "", 'trigger = "1 minute"'),
    ("[spark]\n", "", 'spark.driver.memory = "4g"'),
]


@pytest.mark.parametrize(("part", "key", "text"), IN_SENTENCES, ids=[text for _, _, text in IN_SENTENCES])
def test_keys_in_sentences_are_accepted(part: str, key: str, text: str, tmp_path: Path) -> None:
    assert text in "".join((DOCS / page).read_text() for page in ("pipelines.md", "tutorial-changes.md"))
    value = f'"{text}"' if text[0].isdecimal() else text
    other = "".join(each for each in (TOPIC, SINK) if each != part)
    assert loaded(f"{part}{key}{value}\n{other}", tmp_path).sinks
