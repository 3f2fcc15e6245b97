"""Manifests of a Parquet directory: each lists the staged files to move into place and the files to remove."""

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tidelog.pipelines.tables.files import sync_path
from tidelog.pipelines.tables.table import Before, TableError, nothing

MANIFESTS_MAX = 16
"""Finished manifests kept before they are summarised, so that finding a batch stays cheap."""


@dataclass(frozen=True, slots=True)
class Manifest:
    name: str
    """The batch id, or an operation with a unique suffix."""
    staged: str
    """Staging directory, relative to the table, so that the table can be moved."""
    files: tuple[str, ...]
    """Paths relative to the staging directory and, later, to the table."""
    replaced: tuple[str, ...] = ()

    @property
    def batch_id(self) -> int | None:
        return int(self.name) if self.name.isdigit() else None


class Manifests:
    """Manifests of one application. A published manifest is always carried out, if necessary after a restart."""

    def __init__(self, location: Path, application: str, before: Before = nothing) -> None:
        self._location = location
        self._directory = location / "_tidelog" / "batches" / application
        self._staging = location / "_tidelog" / "staged" / application
        self._summary = self._directory / "summary"
        self._lock = location / "_tidelog" / "lock"
        self._is_locked = False
        self._before = before
        self._finished: set[str] = set()

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """Lock for moving or removing files of the table; reentrant."""
        if self._is_locked:
            yield
            return
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._is_locked = True
            yield
        finally:
            self._is_locked = False
            os.close(descriptor)

    def staging_directory(self, name: str) -> Path:
        return self._staging / name

    def manifest(self, name: str, files: Iterable[str], replaced: Iterable[str] = ()) -> Manifest:
        staged = self.staging_directory(name).relative_to(self._location)
        return Manifest(name, str(staged), tuple(files), tuple(replaced))

    def publish(self, manifest: Manifest) -> bool:
        """False if the name exists: another writer was first, and its manifest counts."""
        for directory in {(self._location / manifest.staged / file).parent for file in manifest.files}:
            sync_path(str(directory))
        self._before("publish the manifest")
        target = self._directory / f"{manifest.name}.json"
        temporary = _written(self._directory / f".{uuid.uuid4().hex}", json.dumps(asdict(manifest)).encode())
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        sync_path(str(self._directory))
        return True

    def last_batch(self) -> int | None:
        """Carries out manifests that a crash left behind, then returns the last batch in the table."""
        with self.exclusive():
            for manifest in self._pending():
                self.finish(manifest)
            batches = [batch for batch in (self._summarised_batch(), *self._batches()) if batch is not None]
            return max(batches, default=None)

    @staticmethod
    def applications(location: Path) -> list[str]:
        """All applications that have published anything, by directory name."""
        directory = location / "_tidelog" / "batches"
        published = (path for path in directory.rglob("*") if path.suffix == ".json" or path.name == "summary")
        return sorted({str(path.parent.relative_to(directory)) for path in published})

    def siblings_with_batches(self) -> bool:
        """True if other applications of the same owner have published anything."""
        if not self._directory.parent.exists():
            return False
        others = (path for path in self._directory.parent.iterdir() if path != self._directory)
        return any(file.suffix == ".json" or file.name == "summary" for other in others for file in other.glob("*"))

    def finish(self, manifest: Manifest) -> None:
        """Idempotent: may be repeated after a crash at any point."""
        for path in manifest.replaced:
            self._before(f"remove {path}")
            (self._location / path).unlink(missing_ok=True)
        for path in manifest.files:
            self._before(f"move {path}")
            self._move(self._location / manifest.staged / path, self._location / path)
        self._before("sync directories")
        for directory in {(self._location / path).parent for path in (*manifest.files, *manifest.replaced)}:
            if directory.exists():
                sync_path(str(directory))
        self._before("remove the staging directory")
        shutil.rmtree(self._location / manifest.staged, ignore_errors=True)
        self._finished.add(manifest.name)
        if manifest.batch_id is None:
            self._before("remove the manifest")
            self._path(manifest.name).unlink(missing_ok=True)
        elif len(self._batches()) >= MANIFESTS_MAX:
            self.summarise()

    def summarise(self) -> None:
        """Afterwards no manifest lists the files in place, so that they may be replaced."""
        with self.exclusive():
            last = self.last_batch()
            if last is not None:
                self._summarise(last)

    def _summarise(self, last: int) -> None:
        self._before("write the summary")
        replace_file(self._summary, json.dumps({"last_batch": last}).encode())
        self._before("remove summarised manifests")
        self._drop_summarised(last)

    def unfinished_staging(self) -> Iterator[Path]:
        """Staging directories without a manifest."""
        needed = {self._location / manifest.staged for manifest in self._pending()}
        if self._staging.exists():
            yield from (path for path in self._staging.iterdir() if path not in needed)

    def _move(self, staged: Path, final: Path) -> None:
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(staged, final)
        except FileNotFoundError:
            if not final.exists():
                raise TableError(
                    f"File {final} of the table is missing, and so is its staged copy {staged}: "
                    "restore one of them, or rebuild the table"
                ) from None

    def _pending(self) -> list[Manifest]:
        """In the order of batches; compactions last."""
        last = self._summarised_batch()
        self._drop_summarised(-1 if last is None else last)
        names = [path.stem for path in self._manifest_paths() if path.stem not in self._finished]
        return [self._read(name) for name in sorted(names, key=lambda name: (len(name), name))]

    def _drop_summarised(self, last: int) -> None:
        for batch in self._batches():
            if batch <= last:
                self._path(str(batch)).unlink(missing_ok=True)

    def _summarised_batch(self) -> int | None:
        return int(json.loads(self._summary.read_bytes())["last_batch"]) if self._summary.exists() else None

    def _batches(self) -> list[int]:
        return [int(path.stem) for path in self._manifest_paths() if path.stem.isdigit()]

    def _manifest_paths(self) -> Iterable[Path]:
        self._directory.mkdir(parents=True, exist_ok=True)
        return [path for path in self._directory.iterdir() if path.suffix == ".json"]

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def _read(self, name: str) -> Manifest:
        stored = json.loads(self._path(name).read_bytes())
        return Manifest(stored["name"], stored["staged"], tuple(stored["files"]), tuple(stored["replaced"]))


def _written(path: Path, content: bytes) -> Path:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return path


def replace_file(path: Path, content: bytes) -> None:
    """Atomic: after a crash the file has the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(_written(path.parent / f".{uuid.uuid4().hex}", content), path)
    sync_path(str(path.parent))
