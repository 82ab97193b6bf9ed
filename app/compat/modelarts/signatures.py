"""Verification of requests signed by Huawei Cloud's SDKs: `SDK-HMAC-SHA256`.

Source: "Signing Algorithm" of Huawei Cloud's API Gateway. The signature covers the method, path, query,
some headers, the time and the body; requests with a time too far from now are refused.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from app.domain.errors import CredentialsInvalid

ALGORITHM = "SDK-HMAC-SHA256"
CLOCKS_DIFFER = timedelta(minutes=15)
_DATE = "x-sdk-date"
_FORM = re.compile(
    rf"{ALGORITHM}\s+Access=(?P<access>[A-Za-z0-9_-]{{1,128}}),\s*"
    r"SignedHeaders=(?P<headers>[a-z0-9;_-]{1,1024}),\s*Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, kw_only=True)
class SignedRequest:
    """``path`` is decoded; ``query`` has decoded names and values; ``headers`` have lower-case names."""

    method: str
    path: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Signature:
    """``text`` is the signed string."""

    access_key: str
    text: bytes
    signature: str

    def is_made_with(self, secret_key: str) -> bool:
        made = hmac.new(secret_key.encode(), self.text, hashlib.sha256).hexdigest()
        return hmac.compare_digest(made, self.signature)


def read_signature(authorization: str, request: SignedRequest, *, now: datetime) -> Signature:
    """Raises CredentialsInvalid for a malformed signature, or one with a time too far from ``now``."""
    found = _FORM.fullmatch(authorization.strip())
    if found is None:
        raise CredentialsInvalid(
            f"the header Authorization must be: {ALGORITHM} Access=…, SignedHeaders=…, Signature=…"
        )
    names = found["headers"].split(";")
    missing = [name for name in (*names, _DATE) if name not in request.headers]
    if missing:
        raise CredentialsInvalid(f"the header {missing[0]} is required by the signature, and missing")
    moment = request.headers[_DATE]
    _refuse_other_times(moment, now)
    signed = hashlib.sha256(_canonical(request, names).encode()).hexdigest()
    text = f"{ALGORITHM}\n{moment}\n{signed}".encode()
    return Signature(access_key=found["access"], text=text, signature=found["signature"])


def _refuse_other_times(moment: str, now: datetime) -> None:
    try:
        signed_at = datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise CredentialsInvalid("the header X-Sdk-Date must be a time such as 20260517T093000Z") from error
    if abs(now - signed_at) > CLOCKS_DIFFER:
        raise CredentialsInvalid("the request was signed at another time; set the clock of your machine")


def _canonical(request: SignedRequest, names: Sequence[str]) -> str:
    path = quote(request.path, safe="/~")
    query = "&".join(f"{quote(key, safe='~')}={quote(value, safe='~')}" for key, value in sorted(request.query))
    headers = "".join(f"{name}:{request.headers[name].strip()}\n" for name in names)
    return "\n".join(
        [
            request.method.upper(),
            path if path.endswith("/") else f"{path}/",
            query,
            headers,
            ";".join(names),
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
