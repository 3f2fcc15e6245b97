"""Gets other versions of Python: `python -m tools.pythons`. Go's module proxy has them, where nothing else does."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

from tools.apache_kafka import REPOSITORY, NotAvailable

CACHE = REPOSITORY / ".cache" / "pythons"
MODULE = "github.com/kluctl/go-embed-python"
"""A Go module that holds builds of CPython as files, each compressed."""
VERSIONS = {
    "3.12": "v0.0.0-3.12.3-20240415-1",
    "3.13": "v0.0.0-3.13.1-20241219-1",
    "3.14": "v0.0.0-3.14.6-20260610-1",
}
PERMISSIONS = 0o777
TIMEOUT_S = 600


def interpreter(version: str) -> Path:
    """Where it is, if it was fetched."""
    return CACHE / version / "bin" / f"python{version}"


def fetch(version: str) -> Path:
    found = interpreter(version)
    if found.exists():
        return found
    target = CACHE / version
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    _unpack(_download(VERSIONS[version]) / "python" / "internal" / "data" / "linux-amd64", partial)
    partial.rename(target)
    return found


def _download(version: str) -> Path:
    if shutil.which("go") is None:
        raise NotAvailable("Go is not installed: its module proxy has the interpreters")
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "go.mod").write_text("module pythons\n")
    command = ["go", "mod", "download", "-json", f"{MODULE}@{version}"]
    ended = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if ended.returncode != 0:
        raise NotAvailable(f"{MODULE}@{version} cannot be had: {ended.stderr.strip() or ended.stdout.strip()}")
    return Path(json.loads(ended.stdout)["Dir"])


def _unpack(source: Path, target: Path) -> None:
    for each in json.loads((source / "files.json").read_text())["files"]:
        path = target / each["name"]
        packed = source / f"{each['name']}.gz"
        plain = source / each["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        if each.get("symlink"):
            path.symlink_to(each["symlink"])
        elif plain.is_dir():
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes())
            path.chmod(each["perm"] & PERMISSIONS)


def main() -> int:
    try:
        for version in VERSIONS:
            print(fetch(version))
    except NotAvailable as reason:
        print(f"tools.pythons: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
