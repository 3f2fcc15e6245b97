"""The tests of Spark with another version of PySpark, in a virtual environment of their own: 400 MB, and an hour.

    TIDELOG_PYSPARK=4.2 python -m pytest tests/spark/test_other_pysparks.py -s

`TIDELOG_PYSPARK_TESTS` names other files than all of them. PySpark 4.1 cannot read streams: sources in Python neither
bound a micro-batch nor end with the `availableNow` trigger there (pyspark.sql.streaming.datasource, since 4.2). The
test with 4.1 is that this is reported.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = os.environ.get("TIDELOG_PYSPARK", "")
TESTS = shlex.split(os.environ.get("TIDELOG_PYSPARK_TESTS", "tests/spark tests/pipelines"))
LIMIT_S = 4 * 3600
TOO_OLD = "4.1"
PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
stream = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", "127.0.0.1:9").option("subscribe", "a")
try:
    stream.load().writeStream.format("noop").option("checkpointLocation", {checkpoint!r}).start().awaitTermination(300)
except Exception as error:
    print(error)
"""


def environment_with(pyspark: str, directory: Path) -> Path:
    """Its Python. All other packages are those of this one."""
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = directory / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"pyspark=={pyspark}.*"], check=True)
    (packages,) = (directory / "lib").glob("python*/site-packages")
    borrowed = [str(ROOT / "src"), *(path for path in sys.path if path.endswith("-packages"))]
    (packages / "borrowed.pth").write_text("\n".join([*borrowed, sysconfig.get_path("purelib")]))
    program = directory / "bin" / "tidelog"
    program.write_text(f'#!/bin/sh\nexec "{python}" -m tidelog "$@"\n')
    program.chmod(0o755)
    return python


@pytest.mark.skipif(VERSION != TOO_OLD, reason=f"TIDELOG_PYSPARK is not {TOO_OLD}")
@pytest.mark.timeout(LIMIT_S)
def test_a_version_that_is_too_old_is_refused(tmp_path: Path) -> None:
    python = environment_with(VERSION, tmp_path / "venv")
    program = PROGRAM.format(checkpoint=str(tmp_path / "checkpoint"))
    environment = os.environ | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    ended = subprocess.run([python, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert "is too old to read streams in Python" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.skipif(VERSION in ("", TOO_OLD), reason="TIDELOG_PYSPARK names no other version")
@pytest.mark.timeout(LIMIT_S)
def test_everything_of_spark_passes_with_another_version(tmp_path: Path) -> None:
    python = environment_with(VERSION, tmp_path / "venv")
    version = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True, check=True
    )
    assert version.stdout.startswith(f"{VERSION}.")
    environment = {name: value for name, value in os.environ.items() if name != "TIDELOG_PYSPARK"}
    ended = subprocess.run([python, "-m", "pytest", "-m", "spark", *TESTS], cwd=ROOT, env=environment, check=False)
    assert ended.returncode == 0
