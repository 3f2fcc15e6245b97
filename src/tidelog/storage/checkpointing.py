"""Checkpoint writes of all log dirs (R2): high watermarks, recovery points and log start offsets."""

from tidelog.storage.log_directories import LogDirectories
from tidelog.storage.log_directory import LogDirectory


class CheckpointWriter:
    """Writes a checkpoint file in a worker, and only if its contents changed."""

    def __init__(self, directories: LogDirectories) -> None:
        self._directories = directories

    async def write(self, name: str) -> None:
        """Write the checkpoint of this name in every log dir."""
        for directory in self._directories:
            await self.write_in(directory, name)

    async def write_in(self, directory: LogDirectory, name: str) -> bool:
        """Whether the current contents are on disk."""
        checkpoint = directory.collect_checkpoint(name)
        return directory.is_written(checkpoint) or await directory.run(directory.write_checkpoint, *checkpoint)
