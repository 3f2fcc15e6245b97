"""Files of this machine as Hadoop keeps them, without a process of `chmod` for each.

Hadoop sets the permissions of every file and directory that it makes. Without its native library, which PySpark does
not bring, it starts `chmod` for that: some milliseconds for each file, of which a micro-batch writes at least two. Java
can do the same itself. What does it is compiled within the driver's Java, by the compiler that Spark has along for its
queries, and takes the place of Hadoop's own among the file systems that are open. Who opens a new one gets Hadoop's.
"""

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SETTING = "fs.file.impl"
HADOOPS_OWN = "org.apache.hadoop.fs.RawLocalFileSystem"
WITHOUT_PROCESSES = "tidelog.LocalFiles"

SOURCE = """
package tidelog;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
        if (permission.getStickyBit()) {
            super.setPermission(path, permission);
            return;
        }
        String text = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
            + permission.getOtherAction().SYMBOL;
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
    }
}
"""


def prepare_local_files(spark: "SparkSession") -> threading.Thread:
    """Takes a second of compiling, in a thread of its own while the user goes on; queries that start before it is done
    are slower by the processes."""
    thread = threading.Thread(target=open_without_processes, args=(spark,), name="tidelog-local-files", daemon=True)
    thread.start()
    return thread


def open_without_processes(spark: "SparkSession") -> None:
    """Only in place of the one that our settings choose: see `spark_session.SETTINGS`."""
    try:
        settings: Any = spark.sparkContext._jsc.hadoopConfiguration()
        if os.name == "posix" and settings.get(SETTING) == HADOOPS_OWN:
            _replace(spark._jvm, settings)
    except Exception as error:  # noqa: BLE001 - the session may have ended meanwhile, and works without
        log.info("files are slow to make, as each needs a process reason=%s", error)


def _replace(java: Any, settings: Any) -> None:
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(settings.getClassLoader())
    compiler.cook(SOURCE)
    ours = java.org.apache.hadoop.conf.Configuration(settings)
    ours.setClassLoader(compiler.getClassLoader())
    ours.set(SETTING, WITHOUT_PROCESSES)
    file_systems, root = java.org.apache.hadoop.fs.FileSystem, java.java.net.URI("file:///")
    file_systems.get(root, settings).close()
    file_systems.get(root, ours)
