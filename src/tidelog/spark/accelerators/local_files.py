"""Local files without checksums and without a `chmod` process for each file that Hadoop creates.

Hadoop sets the permissions of every file and directory it creates. Without its native library, which PySpark does not
include, it starts a `chmod` process for that: milliseconds per file, and a micro-batch writes at least two files. It
also writes a checksum file beside each file. This module replaces it by a subclass of Hadoop's LocalFileSystem (Spark's
RocksDB state store requires that class) without checksums, which sets permissions through Java. It is compiled in the
driver's JVM by the compiler that Spark uses for queries, and replaces Hadoop's instance in the file system cache.
"""

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

SETTING = "fs.file.impl"
HADOOPS_OWN = "org.apache.hadoop.fs.LocalFileSystem"
WITHOUT_PROCESSES = "tidelog.LocalFiles"

SOURCE = """
package tidelog;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new RawFiles());
        setWriteChecksum(false);
    }

    public static class RawFiles extends RawLocalFileSystem {
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
}
"""


def prepare_local_files(spark: "SparkSession") -> threading.Thread:
    """Compiles in a thread, because it takes a second; queries that start before it is done are slower."""
    thread = threading.Thread(target=replace_local_files, args=(spark,), name="tidelog-local-files", daemon=True)
    thread.start()
    return thread


def replace_local_files(spark: "SparkSession") -> None:
    """Replaces only the class that our settings choose (`spark_session.SETTINGS`), not one set by the user."""
    try:
        settings: Any = spark.sparkContext._jsc.hadoopConfiguration()
        if os.name == "posix" and settings.get(SETTING) == HADOOPS_OWN:
            _replace(spark._jvm, settings)
    except Exception as error:  # noqa: BLE001 - the session may have ended, and works without it
        logger.info("local file accelerator not available reason=%s", error)


def _replace(java: Any, settings: Any) -> None:
    file_systems, root = java.org.apache.hadoop.fs.FileSystem, java.java.net.URI("file:///")
    hadoops_own = file_systems.get(root, settings)
    hadoops_own.setWriteChecksum(False)  # for queries that start before the compilation is done
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(settings.getClassLoader())
    compiler.cook(SOURCE)
    ours = java.org.apache.hadoop.conf.Configuration(settings)
    ours.setClassLoader(compiler.getClassLoader())
    ours.set(SETTING, WITHOUT_PROCESSES)
    hadoops_own.close()
    file_systems.get(root, ours)
