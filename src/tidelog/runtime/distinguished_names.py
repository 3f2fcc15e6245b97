"""Distinguished names of certificates as Java writes them (RFC 2253), since principals and mapping rules rely on it."""

from collections.abc import Mapping
from typing import Any

_KEYWORDS = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_EMAIL = "1.2.840.113549.1.9.1"
_IA5_STRING = 0x16
_SPECIAL = ',+"\\<>;'


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """The subject of a certificate (`SSLSocket.getpeercert`), most specific part first: `CN=a,OU=b,O=c`."""
    parts = certificate.get("subject", ())
    return ",".join("+".join(_attribute(name, value) for name, value in part) for part in reversed(parts))


def _attribute(name: str, value: str) -> str:
    if name == "emailAddress":  # RFC 2253 has no keyword for it
        data = value.encode()
        return f"{_EMAIL}=#{bytes([_IA5_STRING]).hex()}{_length(len(data)).hex()}{data.hex()}"
    return f"{_KEYWORDS.get(name, name)}={_escaped(value)}"


def _length(length: int) -> bytes:
    """In DER."""
    if length < 0x80:
        return bytes([length])
    digits = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(digits)]) + digits


def _escaped(value: str) -> str:
    escaped = "".join(f"\\{each}" if each in _SPECIAL else each for each in value)
    if escaped[:1] in ("#", " "):
        escaped = f"\\{escaped}"
    if len(escaped) > 1 and escaped.endswith(" "):
        escaped = f"{escaped[:-1]}\\ "
    return escaped
