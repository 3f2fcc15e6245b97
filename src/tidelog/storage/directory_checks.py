"""Checks of all log dirs of a broker together, before anything in them is changed."""

from tidelog.storage.log_directory import META_PROPERTIES, LogDirectory, StorageSetupError


def check_one_cluster(directories: list[LogDirectory]) -> None:
    known = {directory.cluster_id: directory.path for directory in directories if directory.cluster_id}
    if len(known) > 1:
        listed = ", ".join(f"{path} of {cluster_id}" for cluster_id, path in known.items())
        raise StorageSetupError(f"the log dirs belong to different clusters: {listed}")


def check_different_ids(directories: list[LogDirectory]) -> None:
    """KIP-858: with a copied meta.properties an empty disk would pass for the one that was there (R42)."""
    known: dict[str, str] = {}
    for directory in directories:
        other = known.setdefault(directory.directory_id or directory.path, directory.path)
        if other != directory.path:
            raise StorageSetupError(
                f"the log dirs {other} and {directory.path} have the same directory.id ({META_PROPERTIES}):"
                " take that line out where the file is a copy"
            )


def check_one_is_online(directories: list[LogDirectory]) -> None:
    if not any(directory.is_online for directory in directories):
        reasons = "; ".join(f"{directory.path}: {directory.error}" for directory in directories)
        raise StorageSetupError(f"no log dir can be used: {reasons}")
