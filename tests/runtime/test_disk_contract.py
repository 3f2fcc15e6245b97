"""Contract of every disk, and the extras of the one in memory."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tidelog.runtime.disk import DirectoryInUse, Disk, FileSlice, SystemDisk
from tidelog.runtime.memory_disk import CrashDamage, MemoryDisk
from tidelog.runtime.randomness import SeededRandomness

Place: TypeAlias = tuple[Disk, str]


def memory_place(tmp_path: Path) -> Place:
    disk = MemoryDisk()
    disk.make_directory("/data/here")
    return disk, "/data/here"


def system_place(tmp_path: Path) -> Place:
    return SystemDisk(), str(tmp_path)


@pytest.fixture(params=[memory_place, system_place])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    make: Callable[[Path], Place] = request.param
    return make(tmp_path)


def names(disk: Disk, path: str) -> dict[str, bool]:
    return {entry.name: entry.is_directory for entry in disk.list_directory(path)}


def test_what_was_appended_is_read_back_from_any_position(place: Place) -> None:
    disk, path = place
    file = disk.open(f"{path}/a", "append")
    file.append(b"hello ")
    file.append(memoryview(b"world"))
    file.append(bytearray(b"!"))
    assert file.size() == 12
    assert file.read(0, 100) == b"hello world!"
    assert file.read(6, 5) == b"world"
    assert file.read(12, 1) == b""
    assert file.is_cached(0, 12)
    assert file.read_cached(6, 5) == b"world"
    assert file.read_cached(6, 7) is None, "not all of it is there"
    assert FileSlice(file, 3, 4).read() == b"lo w"
    file.sync()
    file.close()
    assert disk.read_file(f"{path}/a") == b"hello world!"
    assert disk.size(f"{path}/a") == 12


def test_a_file_opened_again_goes_on_at_its_end(place: Place) -> None:
    disk, path = place
    disk.open(f"{path}/a", "append").append(b"one")
    disk.open(f"{path}/a", "append").append(b"two")
    disk.open(f"{path}/a", "update").append(b"three")
    assert disk.read_file(f"{path}/a") == b"onetwothree"


def test_create_empties_a_file_that_exists(place: Place) -> None:
    disk, path = place
    disk.open(f"{path}/a", "create").append(b"old content")
    disk.open(f"{path}/a", "create").append(b"new")
    assert disk.read_file(f"{path}/a") == b"new"


def test_a_file_is_itself_until_another_takes_its_place(place: Place) -> None:
    disk, path = place
    disk.open(f"{path}/a", "create").append(b"one")
    first = disk.identity(f"{path}/a")
    disk.open(f"{path}/a", "append").append(b"two")
    assert disk.identity(f"{path}/a") == first
    disk.open(f"{path}/b", "create").append(b"other")
    disk.rename(f"{path}/b", f"{path}/a")
    assert disk.identity(f"{path}/a") != first
    disk.remove(f"{path}/a")
    with pytest.raises(FileNotFoundError):
        disk.identity(f"{path}/a")


@pytest.mark.parametrize("mode", ["read", "update"])
def test_a_missing_file_is_not_made_by_reading_or_updating(place: Place, mode: str) -> None:
    disk, path = place
    with pytest.raises(FileNotFoundError):
        disk.open(f"{path}/a", mode)  # type: ignore[arg-type]
    assert not disk.exists(f"{path}/a")


def test_a_file_opened_for_reading_cannot_be_written(place: Place) -> None:
    disk, path = place
    disk.open(f"{path}/a", "create").close()
    with pytest.raises(OSError, match="descriptor"):
        disk.open(f"{path}/a", "read").append(b"x")


def test_no_file_can_be_made_where_there_is_no_directory(place: Place) -> None:
    disk, path = place
    with pytest.raises(FileNotFoundError):
        disk.open(f"{path}/none/a", "append")
    with pytest.raises(FileNotFoundError):
        disk.write_file_atomically(f"{path}/none/a", b"")
    with pytest.raises(FileNotFoundError):
        disk.list_directory(f"{path}/none")
    with pytest.raises(FileNotFoundError):
        disk.read_file(f"{path}/none")
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{path}/none", f"{path}/other")


def test_truncation_cuts_and_appends_go_on_there(place: Place) -> None:
    disk, path = place
    file = disk.open(f"{path}/a", "append")
    file.append(b"0123456789")
    file.truncate(4)
    file.append(b"x")
    assert file.read(0, 20) == b"0123x"


def test_an_atomic_write_replaces_the_whole_file_and_leaves_nothing_else(place: Place) -> None:
    disk, path = place
    disk.write_file_atomically(f"{path}/a", b"a longer first version")
    disk.write_file_atomically(f"{path}/a", b"second")
    assert disk.read_file(f"{path}/a") == b"second"
    assert names(disk, path) == {"a": False}


def test_directories_are_listed_with_sizes_and_kinds(place: Place) -> None:
    disk, path = place
    disk.make_directory(f"{path}/sub/deeper")
    disk.make_directory(f"{path}/sub")
    disk.write_file_atomically(f"{path}/file", b"12345")
    assert names(disk, path) == {"sub": True, "file": False}
    assert names(disk, f"{path}/sub") == {"deeper": True}
    assert next(entry.size for entry in disk.list_directory(path) if entry.name == "file") == 5
    disk.sync_directory(path)


def test_rename_replaces_a_file_and_moves_a_directory_with_its_content(place: Place) -> None:
    disk, path = place
    disk.write_file_atomically(f"{path}/a", b"a")
    disk.write_file_atomically(f"{path}/b", b"b")
    disk.rename(f"{path}/a", f"{path}/b")
    assert disk.read_file(f"{path}/b") == b"a"
    disk.make_directory(f"{path}/old")
    disk.write_file_atomically(f"{path}/old/c", b"c")
    disk.rename(f"{path}/old", f"{path}/new")
    assert disk.read_file(f"{path}/new/c") == b"c"
    assert names(disk, path) == {"b": False, "new": True}


def test_removing_what_is_gone_is_no_error(place: Place) -> None:
    disk, path = place
    disk.write_file_atomically(f"{path}/a", b"a")
    disk.remove(f"{path}/a")
    disk.remove(f"{path}/a")
    disk.make_directory(f"{path}/sub/sub")
    disk.remove_tree(f"{path}/sub")
    disk.remove_tree(f"{path}/sub")
    assert names(disk, path) == {}


def test_who_has_a_file_open_can_read_it_after_it_was_renamed_and_removed(place: Place) -> None:
    disk, path = place
    file = disk.open(f"{path}/a", "append")
    file.append(b"still here")
    disk.rename(f"{path}/a", f"{path}/a.deleted")
    disk.remove(f"{path}/a.deleted")
    assert file.read(0, 100) == b"still here"


def test_a_lock_is_held_by_one(place: Place) -> None:
    disk, path = place
    lock = disk.lock(f"{path}/.lock")
    with pytest.raises(DirectoryInUse):
        disk.lock(f"{path}/.lock")
    lock.release()
    disk.lock(f"{path}/.lock").release()


def test_space_is_reported(place: Place) -> None:
    disk, path = place
    total, usable = disk.space(path)
    assert total >= usable > 0


# ---- only in memory


def test_a_crash_loses_what_was_not_synced() -> None:
    disk = MemoryDisk()
    file = disk.open("/a", "append")
    file.append(b"synced")
    file.sync()
    file.append(b"not synced")
    assert disk.unsynced_bytes("/a") == 10
    disk.crash()
    assert disk.read_file("/a") == b"synced"


def test_a_crash_may_keep_some_of_it() -> None:
    disk = MemoryDisk()
    disk.open("/a", "append").append(b"0123456789")
    lock = disk.lock("/.lock")
    disk.crash(lambda path, unsynced_bytes: unsynced_bytes - 3 if path == "/a" else 0)
    assert disk.read_file("/a") == b"0123456"
    disk.lock("/.lock")
    lock.release()


def test_a_full_disk_takes_what_fits_and_then_fails() -> None:
    disk = MemoryDisk(capacity_bytes=10)
    file = disk.open("/a", "append")
    file.append(b"12345678")
    with pytest.raises(OSError, match="No space left") as caught:
        file.append(b"12345678")
    assert caught.value.errno == errno.ENOSPC
    assert disk.size("/a") == 10
    file.truncate(0)
    file.append(b"1234567890")
    disk.remove("/a")
    assert disk.space("/") == (10, 10)


def test_an_injected_fault_strikes_where_and_when_it_should() -> None:
    disk = MemoryDisk()
    disk.make_directory("/bad")
    disk.inject(errno.EACCES, "/bad", operations=("append",), calls_before=1)
    disk.open("/good", "append").append(b"x")
    file = disk.open("/bad/file", "append")
    file.append(b"x")
    with pytest.raises(PermissionError):
        file.append(b"x")


def test_a_vanished_directory_is_gone_with_all_that_was_in_it() -> None:
    disk = MemoryDisk()
    disk.make_directory("/data/a")
    disk.write_file_atomically("/data/a/file", b"x")
    disk.vanish("/data/a")
    with pytest.raises(FileNotFoundError):
        disk.write_file_atomically("/data/a/file", b"y")
    assert disk.list_directory("/data") == []


# ---- what the real one asks of the system


class SystemCalls:
    """In their order, by the name of the file that they are about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, str]] = []
        self._replace = os.replace
        monkeypatch.setattr(os, "fsync", lambda fd: self._note("fsync", fd))
        monkeypatch.setattr(os, "fdatasync", lambda fd: self._note("fdatasync", fd))
        monkeypatch.setattr(os, "replace", self._on_replace)

    def _note(self, call: str, fd: int) -> None:
        self.made.append((call, Path(os.readlink(f"/proc/self/fd/{fd}")).name))

    def _on_replace(self, old: str, new: str) -> None:
        self.made.append(("rename", Path(new).name))
        self._replace(old, new)


def test_an_atomic_write_is_synced_before_it_gets_its_name_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = SystemCalls(monkeypatch)
    SystemDisk().write_file_atomically(str(tmp_path / "checkpoint"), b"0\n")
    assert calls.made == [("fsync", "checkpoint.tmp"), ("rename", "checkpoint"), ("fsync", tmp_path.name)]


def test_files_and_directories_are_synced_when_somebody_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, calls = SystemDisk(), SystemCalls(monkeypatch)
    file = disk.open(str(tmp_path / "a"), "append")
    file.append(b"x")
    assert calls.made == []
    file.sync()
    disk.sync_directory(str(tmp_path))
    assert calls.made == [("fdatasync", "a"), ("fsync", tmp_path.name)]
    file.close()


# ---- what a power cut may leave behind


def torn(seed: int, damage: CrashDamage = CrashDamage(tears_writes=True)) -> bytes:  # noqa: B008
    disk = MemoryDisk()
    file = disk.open("/a", "append")
    file.append(b"synced")
    file.sync()
    file.append(b"first")
    file.append(b"second")
    disk.crash_badly(SeededRandomness(seed), damage)
    return disk.read_file("/a")


def test_a_power_cut_keeps_what_was_synced_and_tears_the_rest() -> None:
    left = {torn(seed) for seed in range(200)}
    assert all(found.startswith(b"synced") for found in left)
    assert {b"synced", b"syncedfirst", b"syncedfirstsecond", b"syncedfi"} <= left
    assert b"synced\x00\x00\x00\x00\x00second" in left  # a later write survived, an earlier one did not


def test_a_power_cut_may_undo_a_truncation_that_was_not_synced() -> None:
    left = set()
    for seed in range(20):
        disk = MemoryDisk()
        file = disk.open("/a", "append")
        file.append(b"0123456789")
        file.sync()
        file.truncate(4)
        file.truncate(2)
        disk.crash_badly(SeededRandomness(seed), CrashDamage(tears_writes=True))
        left.add(disk.read_file("/a"))
    assert left == {b"01", b"0123456789"}


def test_a_power_cut_flips_bits_only_in_what_was_not_synced() -> None:
    damage = CrashDamage(tears_writes=True, flips_bits=True)
    left = {torn(seed, damage) for seed in range(200)}
    assert all(found.startswith(b"synced") for found in left)
    assert any(found[6:].rstrip(b"\0") and not b"firstsecond".startswith(found[6:].rstrip(b"\0")) for found in left)


def test_names_are_durable_once_their_directory_is_synced() -> None:
    def names(seed: int, *, is_synced: bool) -> tuple[str, ...]:
        disk = MemoryDisk()
        disk.make_directory("/d")
        disk.write_file_atomically("/d/old", b"x")
        disk.sync_directory("/")
        disk.open("/d/made", "append").sync()
        disk.rename("/d/old", "/d/new")
        disk.remove("/d/made")
        if is_synced:
            disk.sync_directory("/d")
        disk.crash_badly(SeededRandomness(seed), CrashDamage(loses_names=True))
        return tuple(sorted(entry.name for entry in disk.list_directory("/d")))

    assert {names(seed, is_synced=True) for seed in range(20)} == {("new",)}
    assert {names(seed, is_synced=False) for seed in range(50)} == {
        ("old",),
        ("made", "old"),
        ("made", "new"),
        ("new",),
    }


def test_a_file_in_a_renamed_directory_is_lost_under_its_new_name() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    disk.open("/d/made", "append").sync()
    disk.rename("/d", "/e")
    disk.sync_directory("/")
    for seed in range(20):
        disk.crash_badly(SeededRandomness(seed), CrashDamage(loses_names=True))
    assert disk.exists("/e")
    assert not disk.exists("/d")


def test_an_observer_meets_no_fault() -> None:
    disk = MemoryDisk()
    disk.write_file_atomically("/a", b"x")
    disk.inject(errno.EIO)
    with disk.observed():
        assert disk.read_file("/a") == b"x"
    with pytest.raises(OSError, match="Input/output error"):
        disk.read_file("/a")
