"""Takes secrets out of text before it is kept or shown: known ones in any writing, unknown ones by their form."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus, unquote

if TYPE_CHECKING:
    from config.settings import Settings

MASK = "***"
# Shorter ones stand in ordinary words and numbers, and masking them would make a log unreadable without hiding them.
SHORTEST = 6
SHORTEST_NUMBER = 12
SHORTEST_ENCODED = 8
SECRET_NAMES = ("password", "secret", "secret_key")  # how the names of settings end that hold one

# With more of them than this, what a text could hold at all is looked up first.
FEW = 60

# Every form contains one of these in lower case; almost no line does, and looking for them is quick.
_HINTS = ("://", "ty_", "hf_", "whsec_", "eyj", "bearer", "authorization", "passw", "pwd", "x-")
_WORD = r"[^\s'\"\\,;&<>]"
# Whoever prints may be hostile: none of them may look at the same character again and again.
_FORMS = (
    # Our API keys: what identifies one stays, so that it can be found and revoked.
    (re.compile(r"\b(ty_[0-9a-z]{12})_[0-9A-Za-z]{20,}"), rf"\1_{MASK}"),
    (re.compile(r"\bhf_[0-9A-Za-z]{20,}"), f"hf_{MASK}"),
    (re.compile(r"\bwhsec_[\w+/=-]{16,}"), f"whsec_{MASK}"),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"), MASK),  # JSON web tokens
    (re.compile(rf"(?i)\b(authorization\b['\"]*\s*[:=]\s*b?['\"]*(?:[a-z]+\s+)?){_WORD}+"), rf"\1{MASK}"),
    (re.compile(r"(?i)\b(bearer\s+)(?=\S*\d)[\w.~+/=-]{12,}"), rf"\1{MASK}"),
    (re.compile(rf"(?i)(?<![\w-])(x-[a-z-]*(?:token|key|secret)['\"]*\s*[:=]\s*b?['\"]*){_WORD}+"), rf"\1{MASK}"),
    (re.compile(rf"(?i)((?:password|passwd|pwd)['\"]?\s*=\s*['\"]?){_WORD}+"), rf"\1{MASK}"),
    # scheme://user:password@host and scheme://token@host.
    (re.compile(r"(://)[^\s/@'\"<>]+@"), rf"\1{MASK}@"),
)
# What a URL is signed with, by its parameter's name.
_PARAMETER = re.compile(rf"([?&])([\w.%-]{{1,128}})={_WORD}+")
_SIGNS = re.compile(r"sig|token|key|secret|passw|auth|hmac|jwt|credential", re.IGNORECASE)


class Redaction:
    """Masks the given secrets, as they are and as they are written encoded, and what has the form of one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._needles: tuple[str, ...] = ()
        self._by_head: dict[str, list[str]] = {}
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Mask these from now on, too; from any thread."""
        new = {needle for secret in secrets for needle in _writings(secret)}
        needles = sorted(new.union(self._needles), key=len, reverse=True)
        by_head: dict[str, list[str]] = {}
        for needle in needles:
            by_head.setdefault(needle[:SHORTEST], []).append(needle)
        self._by_head, self._needles = by_head, tuple(needles)

    def __call__(self, text: str) -> str:
        for needle in self._needles if len(self._needles) <= FEW else self._that_may_be_in(text):
            if needle in text:
                text = text.replace(needle, MASK)
        return masked_forms(text)

    def of_cut(self, text: str) -> str:
        """The same for text that was cut off at its end, where only the beginning of a secret may stand."""
        text = self(text)
        kept = min((_length_without(text, needle) for needle in self._needles), default=len(text))
        return text if kept == len(text) else text[:kept] + MASK

    def _that_may_be_in(self, text: str) -> list[str]:
        """Those whose beginning stands there, the longest first."""
        by_head = self._by_head
        heads = {text[i : i + SHORTEST] for i in range(len(text) - SHORTEST + 1)} & by_head.keys()
        return sorted((needle for head in heads for needle in by_head[head]), key=len, reverse=True)


def masked_forms(text: str) -> str:
    """Without what looks like a key, a token, an Authorization header, or a password or signature in a URL."""
    lower = text.lower()
    if any(hint in lower for hint in _HINTS):
        for form, shown in _FORMS:
            text = form.sub(shown, text)
    if "=" in text and ("?" in text or "&" in text):
        text = _PARAMETER.sub(_parameter, text)
    return text


def _parameter(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}={MASK}" if _SIGNS.search(found[2]) else found[0]


def secrets_of(settings: "Settings") -> list[str]:
    """What the settings hold that nobody may read in a log: passwords, keys, and passwords in URLs."""
    return [secret for concern in fields(settings) for secret in _secrets_in(getattr(settings, concern.name))]


def _secrets_in(part: object) -> Iterator[str]:
    for name, value in vars(part).items():
        if not isinstance(value, str):
            continue
        if name.endswith(SECRET_NAMES):
            yield value
        user, at, _ = value.partition("://")[2].rpartition("@")
        if at and "/" not in user.partition(":")[0]:
            password = user.partition(":")[2] or user
            yield from (password, unquote(password))


def _writings(secret: str) -> Iterator[str]:
    """How a secret may stand in a text; the lines of one that has several, too."""
    parts = {secret, *secret.splitlines()} if "\n" in secret else {secret}
    for part in parts:
        text = part.strip()
        if len(text) < SHORTEST or (text.isdecimal() and len(text) < SHORTEST_NUMBER):
            continue
        plain = (text, quote(text, safe=""), quote(text), quote_plus(text), repr(text)[1:-1])
        yield from {*plain, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
        raw = text.encode("utf-8", "surrogatepass")
        encoded = {raw.hex(), raw.hex().upper(), *_base64(raw)}
        yield from (writing for writing in encoded if len(writing) >= SHORTEST_ENCODED)


def _base64(raw: bytes) -> Iterator[str]:
    """Wherever the secret begins in what was encoded, without the characters that depend on its neighbours."""
    for before in range(3):
        standard = base64.b64encode(bytes(before) + raw).decode()
        begin = (0, 2, 3)[before]
        rest = (before + len(raw)) % 3
        text = standard[begin : len(standard) - (4 - rest if rest else 0)]
        yield from (text, text.replace("+", "-").replace("/", "_"))


def _length_without(text: str, needle: str) -> int:
    """How long the text is without the beginning of the needle that it ends with."""
    for length in range(min(len(needle) - 1, len(text)), 3, -1):
        if text.endswith(needle[:length]):
            return len(text) - length
    return len(text)
