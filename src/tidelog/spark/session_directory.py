"""Working directory of Spark's Python processes, at which relative paths start.

It is the directory of the driver, as for Spark's own formats. In Spark Connect and in sessions with artifacts it is a
directory of the session, which Spark deletes with it.
"""

import os

ARTIFACTS = "SPARK_JOB_ARTIFACT_UUID"
NO_ARTIFACTS = "default"


def is_deleted_with_session() -> bool:
    return os.environ.get(ARTIFACTS, NO_ARTIFACTS) != NO_ARTIFACTS


def relative_path_sentence(setting: str) -> str:
    return f"{setting} is a relative path, and the server of Spark has another directory. Give a path from the root"
