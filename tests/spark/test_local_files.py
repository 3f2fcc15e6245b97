"""Files that Spark makes on this machine have the permissions that Hadoop gives them, without a process for each."""

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.spark.accelerators.local_files import HADOOPS_OWN, WITHOUT_PROCESSES, prepare_local_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_hadoop_sets_permissions_as_ever_but_without_processes(spark: "SparkSession", tmp_path: Path) -> None:
    prepare_local_files(spark).join()
    java: Any = spark._jvm
    settings: Any = spark.sparkContext._jsc.hadoopConfiguration()
    root = java.java.net.URI("file:///")
    file_systems = java.org.apache.hadoop.fs.FileSystem
    ours, hadoops = file_systems.get(root, settings), file_systems.newInstance(root, settings)
    assert (ours.getClass().getName(), hadoops.getClass().getName()) == (WITHOUT_PROCESSES, HADOOPS_OWN)

    for number, mode in enumerate((0o640, 0o755, 0o1777, 0o400)):
        found = []
        for name, files in (("ours", ours), ("hadoops", hadoops)):
            path = java.org.apache.hadoop.fs.Path(str(tmp_path / f"{name}-{number}"))
            permission = java.org.apache.hadoop.fs.permission.FsPermission(f"{mode:04o}")
            files.create(path, True).close()
            found.append((tmp_path / f"{name}-{number}").stat().st_mode)
            files.setPermission(path, permission)
            found.append((tmp_path / f"{name}-{number}").stat().st_mode)
            files.delete(path, False)
            files.mkdirs(path, permission)
            found.append((tmp_path / f"{name}-{number}").stat().st_mode)
        assert found[:3] == found[3:]
        assert stat.S_IMODE(found[1]) == mode


@pytest.mark.spark
def test_files_have_no_checksum_file_beside_them(spark: "SparkSession", tmp_path: Path) -> None:
    prepare_local_files(spark).join()
    java: Any = spark._jvm
    files = java.org.apache.hadoop.fs.FileSystem.get(
        java.java.net.URI("file:///"), spark.sparkContext._jsc.hadoopConfiguration()
    )
    files.create(java.org.apache.hadoop.fs.Path(str(tmp_path / "file")), True).close()
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


@pytest.mark.spark
def test_hadoop_takes_it_for_a_local_file_system(spark: "SparkSession") -> None:
    """RocksDB's state store asks by `getLocal`, which casts to LocalFileSystem."""
    prepare_local_files(spark).join()
    java: Any = spark._jvm
    local = java.org.apache.hadoop.fs.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())
    assert local.getClass().getName() == WITHOUT_PROCESSES


def test_a_session_that_has_ended_is_left_alone() -> None:
    prepare_local_files(None).join()  # type: ignore[arg-type]
