"""API keys: shown once, stored as a hash, compared in constant time.

``ty_<id>_<secret><checksum>``: the id finds the row, the secret has 190 bits, and the checksum rejects mistyped keys
without a database query and lets secret scanners recognize a leaked key.
"""

import hashlib
import hmac
import re
import secrets
import string
import zlib
from dataclasses import dataclass
from datetime import datetime

from app.models import ApiKey
from app.security.permissions import Role
from app.security.secrets import SecretBox

_ALPHABET = string.digits + string.ascii_letters
_FORM = re.compile(r"(ty_[0-9a-z]{12})_([0-9A-Za-z]{32})([0-9A-Za-z]{6})", re.ASCII)
# Compared with for unknown ids, so that timing does not reveal which ids exist.
_DUMMY_HASH = hashlib.sha256(b"unknown key").hexdigest()


@dataclass(frozen=True, kw_only=True)
class NewKey:
    """The row to store, and the secrets shown once: the bearer key, and the secret key of the signing pair."""

    row: ApiKey
    key: str
    secret_key: str


@dataclass(frozen=True, kw_only=True)
class PresentedKey:
    prefix: str
    secret: str


@dataclass(frozen=True)
class StoredKey:
    """The columns of a key's row that authentication reads."""

    id: str
    project: str | None
    role: str
    secret_hash: str
    revoked_at: datetime | None
    expires_at: datetime | None
    last_used_at: datetime | None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


def make_key(
    *, key_id: str, project: str | None, role: Role, name: str, expires_at: datetime | None, box: SecretBox
) -> NewKey:
    """Generate a key; ``project`` None is for super admins and grants access to every project."""
    prefix, secret = f"ty_{_random(12, string.digits + string.ascii_lowercase)}", _random(32)
    access_key, secret_key = f"TYAK{_random(16, string.digits + string.ascii_uppercase)}", _random(40)
    row = ApiKey(
        id=key_id,
        project=project,
        role=role,
        name=name,
        prefix=prefix,
        secret_hash=_hash(secret),
        access_key=access_key,
        sealed_secret_key=box.seal({"secret_key": secret_key}),
        expires_at=expires_at,
    )
    return NewKey(row=row, key=f"{prefix}_{secret}{_checksum(prefix, secret)}", secret_key=secret_key)


def read_key(presented: str) -> PresentedKey | None:
    """The parts of a bearer key; None if it is malformed or its checksum is wrong."""
    match = _FORM.fullmatch(presented) if len(presented) < 100 else None
    if match is None or not hmac.compare_digest(_checksum(match[1], match[2]), match[3]):
        return None
    return PresentedKey(prefix=match[1], secret=match[2])


def is_of(presented: PresentedKey, row: ApiKey | StoredKey | None) -> bool:
    """Whether the row belongs to the presented key, valid or not."""
    stored = row.secret_hash if row is not None else _DUMMY_HASH
    return hmac.compare_digest(_hash(presented.secret), stored) and row is not None


def is_live(row: ApiKey | StoredKey, *, now: datetime) -> bool:
    """Whether the key is neither revoked nor expired."""
    return row.revoked_at is None and (row.expires_at is None or now < row.expires_at)


def _hash(secret: str) -> str:
    # A fast hash suffices: 190 random bits cannot be brute-forced.
    return hashlib.sha256(secret.encode()).hexdigest()


def _checksum(prefix: str, secret: str) -> str:
    number = zlib.crc32(f"{prefix}_{secret}".encode())
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def _random(length: int, alphabet: str = _ALPHABET) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(length))
