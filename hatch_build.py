"""Build hooks: compile the record kernels with mypyc where a C compiler is there, and make the README of packages. No
failure of the compiler fails a build.

`python hatch_build.py` compiles the kernels in place, for a checkout.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # run by hand
    BuildHookInterface = MetadataHookInterface = object

REQUIREMENTS = ["mypy>=2.4,<3", "setuptools>=65"]
SOURCE = Path("src/tidelog/kernels/records.py")
COMPILED = Path("src/tidelog/kernels/_compiled")
IN_A_WHEEL = "tidelog/kernels/_compiled"
LIMIT_SECONDS = 120
SETUP = """
from mypyc.build import mypycify
from setuptools import setup

setup(name="kernels", ext_modules=mypycify(["records.py"], opt_level="2", debug_level="0"))
"""


def has_compiler() -> bool:
    if os.environ.get("TIDELOG_KERNELS") == "interpreted":
        return False
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return shutil.which(compiler) is not None and headers.exists() and sys.implementation.name == "cpython"


def library_name(source: bytes) -> str:
    """Tells the source it was made from: a library that does not match its source is never loaded."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return f"records-{hashlib.sha256(source).hexdigest()[:16]}{suffix}"


def compile_kernels(root: Path, scratch: Path) -> Path | None:
    """The library, in `scratch`; None if it could not be made, with the reason on stderr."""
    if not has_compiler():
        print(
            "record kernels will run interpreted: there is no C compiler, or no header files of Python", file=sys.stderr
        )
        return None
    source = (root / SOURCE).read_bytes()
    (scratch / "records.py").write_bytes(source)
    (scratch / "setup.py").write_text(SETUP)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    try:
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
        problem = "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    built = list(scratch.glob("records.*.so"))
    if problem or not built:
        print(f"record kernels will run interpreted: they could not be compiled\n{problem}", file=sys.stderr)
        return None
    return built[0].rename(scratch / library_name(source))


def put_in_place(root: Path, library: Path) -> Path:
    """Replaces those of earlier sources, in one step: a broker may be running from this checkout."""
    directory = root / COMPILED
    directory.mkdir(exist_ok=True)
    target = directory / library.name
    shutil.copy(library, target.with_suffix(".new"))
    target.with_suffix(".new").replace(target)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for other in directory.glob(f"records-*{suffix}"):
        if other != target:
            other.unlink()
    return target


class KernelBuildHook(BuildHookInterface):  # type: ignore[misc]
    """For wheels and editable installs."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return REQUIREMENTS if has_compiler() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        self._scratch = Path(tempfile.mkdtemp(prefix="tidelog-kernels-"))
        try:
            library = compile_kernels(Path(self.root), self._scratch)
            if library is not None and version == "editable":
                put_in_place(Path(self.root), library)
            elif library is not None:
                build_data["pure_python"] = False
                build_data["infer_tag"] = True
                build_data["force_include"][str(library)] = f"{IN_A_WHEEL}/{library.name}"
        except Exception as error:  # noqa: BLE001 - an install must not fail for want of speed
            print(f"record kernels will run interpreted: {error!r}", file=sys.stderr)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.target_name == "wheel":
            shutil.rmtree(self._scratch, ignore_errors=True)


class ReadmeHook(MetadataHookInterface):  # type: ignore[misc]
    """README of the package."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_relative_links(text)}


def without_relative_links(text: str) -> str:
    """Package indexes resolve no relative links, and the project has no public address that would make them absolute:
    pages are named by their path in the source distribution, and pictures left out."""
    text = re.sub(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n*", "", text)
    return re.sub(r"\[([^]]*)\]\((?!https?:|#)([^)]*)\)", _named_page, text)


def _named_page(link: re.Match[str]) -> str:
    text, path = link.groups()
    return text if text == path else f"{text} (`{path}`)"


def main() -> int:
    root = Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory(prefix="tidelog-kernels-") as scratch:
        library = compile_kernels(root, Path(scratch))
        if library is not None:
            print(f"compiled {put_in_place(root, library).relative_to(root)}")
    return int(library is None)


if __name__ == "__main__":
    sys.exit(main())
