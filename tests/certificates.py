"""Certificates for tests, made by the `openssl` command."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    """Files in PEM: the key with the certificate, and the certificate of the authority that signed it."""

    location: Path
    authority: Path

    @property
    def ssl_settings(self) -> dict[str, object]:
        return {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": str(self.location),
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": str(self.authority),
        }


class Authority:
    """A certificate authority in a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key, self.certificate = directory / f"{name}.key", directory / f"{name}.pem"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", str(self._key), "-out", str(self.certificate)),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"),
        )

    def sign(self, name: str, subject: str = "/O=tidelog/CN=localhost", days: int = 2) -> Certificate:
        """A certificate for localhost and 127.0.0.1."""
        key, request, signed = (self._directory / f"{name}.{end}" for end in ("key", "csr", "crt"))
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", subject),
            *("-keyout", str(key), "-out", str(request)),
        )
        extensions = self._directory / f"{name}.ext"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key)),
            *("-CAcreateserial", "-days", str(days), "-extfile", str(extensions), "-out", str(signed)),
        )
        location = self._directory / f"{name}.pem"
        location.write_bytes(key.read_bytes() + signed.read_bytes())
        return Certificate(location, self.certificate)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
