"""Small files from `file:` and `https:` addresses. Blocking: called by workers only."""

import base64
import json
import urllib.parse
import urllib.request

TIMEOUT_S = 10.0
MAX_BYTES = 1024 * 1024
SCHEMES = ("file", "http", "https")


def read_url(url: str, *, data: bytes | None = None, headers: dict[str, str] | None = None) -> str:
    """Raises OSError with a message that names the address."""
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise OSError(f"{url}: expected file:, http: or https:")
    request = urllib.request.Request(url, data=data, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            content: bytes = response.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise OSError(f"cannot read {url}: {error}") from error
    if len(content) > MAX_BYTES:
        raise OSError(f"{url} has more than {MAX_BYTES} bytes")
    return content.decode(errors="replace")


def request_token(url: str, client_id: str, client_secret: str, scope: str | None) -> str:
    """An access token by the grant `client_credentials` (RFC 6749). Raises OSError."""
    pair = f"{urllib.parse.quote(client_id)}:{urllib.parse.quote(client_secret)}"
    headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}", "Accept": "application/json"}
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    answer = read_url(url, data=urllib.parse.urlencode(form).encode(), headers=headers)
    try:
        token = json.loads(answer)["access_token"]
    except (ValueError, KeyError, TypeError):
        raise OSError(f"{url} answered without an access token") from None
    return str(token)
