"""Certificate authority of a local cluster and certificates of its brokers, made by `tidelog up --secure`."""

import datetime
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli.command_error import CommandError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509 import Certificate

AUTHORITY_DAYS = 3650
BROKER_DAYS = 397
RENEWED_DAYS = 60
"""A broker's certificate that expires sooner is replaced at the next start of the cluster."""
AUTHORITY_FILE, AUTHORITY_KEY_FILE = "authority.pem", "authority.key"


def broker_file(broker_id: int) -> str:
    return f"broker-{broker_id}.pem"


def broker_name(broker_id: int) -> str:
    """Distinguished name in the certificate of a broker, which is its principal."""
    return f"CN=broker-{broker_id}"


def make_certificates(directory: Path, broker_ids: range) -> None:
    """Make what is missing, and renew what expires soon. The authority stays: clients trust it."""
    try:
        from cryptography import x509
    except ImportError as error:
        raise CommandError("--secure needs: pip install 'tidelog[security]'") from error
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (directory / AUTHORITY_KEY_FILE).exists():
        _make_authority(directory)
    authority = x509.load_pem_x509_certificate((directory / AUTHORITY_FILE).read_bytes())
    for broker_id in broker_ids:
        if _expires_soon(directory / broker_file(broker_id)):
            _make_broker(directory, broker_id, authority)


def _expires_soon(path: Path) -> bool:
    from cryptography import x509

    if not path.exists():
        return True
    expires = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    return expires < _now() + datetime.timedelta(days=RENEWED_DAYS)


def _make_authority(directory: Path) -> None:
    from cryptography import x509

    key = _new_key()
    name = "Tidelog local authority"
    builder = _builder(name, name, AUTHORITY_DAYS).public_key(key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(usage, critical=True).add_extension(identifier, critical=False)
    certificate = builder.sign(key, _sha_256())
    write_secret(directory / AUTHORITY_KEY_FILE, _key_text(key))
    write_secret(directory / AUTHORITY_FILE, _certificate_text(certificate))


def _make_broker(directory: Path, broker_id: int, authority: "Certificate") -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509.oid import ExtendedKeyUsageOID

    signer = serialization.load_pem_private_key((directory / AUTHORITY_KEY_FILE).read_bytes(), None)
    assert isinstance(signer, EllipticCurvePrivateKey)
    key = _new_key()
    issuer = authority.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
    builder = _builder(broker_name(broker_id).removeprefix("CN="), str(issuer), BROKER_DAYS)
    names = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.public_key(key.public_key()).add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(usage, critical=False).add_extension(identifier, critical=False)
    certificate = builder.sign(signer, _sha_256())
    write_secret(directory / broker_file(broker_id), _key_text(key) + _certificate_text(certificate))


def _builder(subject: str, issuer: str, days: int) -> "x509.CertificateBuilder":
    from cryptography import x509

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    begin = _now() - datetime.timedelta(hours=1)
    builder = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name(issuer))
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(begin).not_valid_after(begin + datetime.timedelta(days=days))


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _sha_256() -> "SHA256":
    from cryptography.hazmat.primitives.hashes import SHA256

    return SHA256()


def _key_text(key: "EllipticCurvePrivateKey") -> str:
    from cryptography.hazmat.primitives import serialization as formats

    none = formats.NoEncryption()
    return key.private_bytes(formats.Encoding.PEM, formats.PrivateFormat.PKCS8, none).decode()


def _certificate_text(certificate: "Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def write_secret(path: Path, text: str) -> None:
    """A file that only its owner can read, from the first byte on."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
