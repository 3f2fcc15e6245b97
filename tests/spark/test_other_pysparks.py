"""The tests of Spark with another version of PySpark, in a virtual environment of their own: 400 MB, and an hour.

    TIDELOG_PYSPARK=4.2 python -m pytest tests/spark/test_other_pysparks.py -s

`TIDELOG_PYSPARK_TESTS` names other files than all of them. What PySpark 4.1 cannot do is skipped there
(`tests/spark/pyspark_version.py`).
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.spark.pyspark_version import LEAKS

ROOT = Path(__file__).parents[2]
VERSION = os.environ.get("TIDELOG_PYSPARK", "")
TESTS = shlex.split(os.environ.get("TIDELOG_PYSPARK_TESTS", "tests/spark tests/pipelines"))
LIMIT_S = 4 * 3600


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


@pytest.mark.skipif(not VERSION, reason="TIDELOG_PYSPARK names no other version")
@pytest.mark.timeout(LIMIT_S)
def test_everything_of_spark_passes_with_another_version(tmp_path: Path) -> None:
    python = environment_with(VERSION, tmp_path / "venv")
    version = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True, check=True
    )
    assert version.stdout.startswith(f"{VERSION}.")
    environment = {name: value for name, value in os.environ.items() if name != "TIDELOG_PYSPARK"}
    command = [str(python), "-m", "pytest", "-m", "spark", *LEAKS, *TESTS]
    ended = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    assert ended.returncode == 0
