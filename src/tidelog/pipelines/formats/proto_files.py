"""Protobuf schema files: descriptor sets, and .proto files, which protoc of grpcio-tools compiles."""

import base64
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from google.protobuf import descriptor_pb2

from tidelog.pipelines.formats import FormatError
from tidelog.pipelines.formats.protobuf_types import files_of
from tidelog.pipelines.formats.schema_registry import Reference, RegisteredSchema, SchemaKind

PROTO_SUFFIX = ".proto"
WELL_KNOWN = "google/protobuf/"
COMPILE_TIMEOUT_S = 60
NEEDS_PROTOC = "A .proto file needs protoc: pip install 'tidelog[registry]'"


def read_descriptor_set(file: Path) -> bytes:
    """Raises FormatError."""
    try:
        if file.suffix == PROTO_SUFFIX:
            file.read_bytes()
            return compiled(file.parent, file.name)
        return file.read_bytes()
    except OSError as error:
        raise FormatError(f"The schema file {file} cannot be read: {error.strerror}") from error


def compiled(directory: Path, name: str) -> bytes:
    """The descriptor set of a .proto file and of those that it imports; the file itself is the last."""
    if find_spec("grpc_tools") is None:
        raise FormatError(NEEDS_PROTOC)
    with tempfile.TemporaryDirectory(prefix="tidelog-protoc-") as temporary:
        output = Path(temporary, "descriptors")
        # `python -m` adds the well-known types to the path. In this process, errors would go to its standard error.
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{directory}", "--include_imports"]
        run = subprocess.run(
            [*command, f"--descriptor_set_out={output}", name],
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        if run.returncode:
            problem = (run.stderr.strip().splitlines() or [f"protoc ended with {run.returncode}"])[0]
            raise FormatError(f"The Protobuf schema cannot be compiled: {problem}")
        return output.read_bytes()


def compiled_texts(name: str, texts: Mapping[str, str]) -> bytes:
    """The descriptor set of the file `name`; `texts` has its content and that of the files it imports, by name."""
    with tempfile.TemporaryDirectory(prefix="tidelog-protoc-") as temporary:
        for other, text in texts.items():
            file = Path(temporary, other).resolve()
            if not file.is_relative_to(Path(temporary).resolve()):
                raise FormatError(f"The Protobuf schema imports {other}, which is outside of its directory")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return compiled(Path(temporary), name)


def to_register(file: Path, descriptor_set: bytes, name: str) -> RegisteredSchema:
    """The text of a .proto file; of a descriptor set the file `name`, as Confluent's clients register it."""
    files = {each.name: each for each in files_of(descriptor_set) if not each.name.startswith(WELL_KNOWN)}

    def text(each: str) -> str:
        if file.suffix == PROTO_SUFFIX:
            return (file.parent / each).read_text(encoding="utf-8")
        return base64.b64encode(files[each].SerializeToString()).decode()

    references = tuple(Reference(each, text(each)) for each in _imports(name, files))
    return RegisteredSchema(0, SchemaKind.PROTOBUF, text(name), references)


def _imports(name: str, files: Mapping[str, descriptor_pb2.FileDescriptorProto]) -> list[str]:
    """Files that `name` needs, each after those that it needs itself."""
    found: list[str] = []
    for needed in files[name].dependency:
        if needed in files:
            found += [each for each in (*_imports(needed, files), needed) if each not in found]
    return found
