"""Takes secrets out of text before it is kept or shown: known ones in any writing, unknown ones by their form."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

MASK = "***"
# Shorter ones stand in ordinary words and numbers, and masking them would make a log unreadable without hiding them.
SHORTEST = 6
SHORTEST_NUMBER = 12
SHORTEST_ENCODED = 8
SHORTEST_BEGINNING = 4  # of a secret, where a text was cut

# With more of them than this, what a text could hold at all is looked up first.
FEW = 60

_WORD = r"[^\s'\"\\,;&<>]"
# What every text of a form holds in lower case, its pattern, and what is shown instead. Almost no line holds any of
# that, and looking for it is quick. Whoever prints may be hostile: no pattern may look at the same character again and
# again.
_FORMS = (
    # Our API keys: what identifies one stays, so that it can be found and revoked.
    ("ty_", re.compile(r"\b(ty_[0-9a-z]{12})_[0-9A-Za-z]{20,}"), rf"\1_{MASK}"),
    ("hf_", re.compile(r"\bhf_[0-9A-Za-z]{20,}"), f"hf_{MASK}"),
    ("whsec_", re.compile(r"\bwhsec_[\w+/=-]{16,}"), f"whsec_{MASK}"),
    ("eyj", re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"), MASK),  # JSON web tokens
    (
        "authorization",
        re.compile(rf"(?i)\b(authorization\b['\"]*\s*[:=]\s*b?['\"]*(?:[a-z]+\s+)?){_WORD}+"),
        rf"\1{MASK}",
    ),
    ("bearer", re.compile(r"(?i)\b(bearer\s+)(?=\S*\d)[\w.~+/=-]{12,}"), rf"\1{MASK}"),
    (
        "x-",
        re.compile(rf"(?i)(?<![\w-])(x-[a-z-]*(?:token|key|secret)['\"]*\s*[:=]\s*b?['\"]*){_WORD}+"),
        rf"\1{MASK}",
    ),
    ("passw", re.compile(rf"(?i)(passw(?:or)?d['\"]?\s*=\s*['\"]?){_WORD}+"), rf"\1{MASK}"),
    ("pwd", re.compile(rf"(?i)(pwd['\"]?\s*=\s*['\"]?){_WORD}+"), rf"\1{MASK}"),
    # scheme://user:password@host and scheme://token@host; a password may hold an @ that nobody encoded.
    ("://", re.compile(r"(://)[^\s/'\"<>]+@"), rf"\1{MASK}@"),
)
# What a URL is signed with, by its parameter's name.
_PARAMETER = re.compile(rf"([?&])([\w.%-]{{1,128}})={_WORD}+")
_PERCENT = re.compile("%[0-9A-F]{2}")
_XML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
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
        # A letter that was cut in two has become a mark; the secret goes on there.
        text = self(text.rstrip("\ufffd"))
        kept = min((_length_without(text, needle) for needle in self._needles), default=len(text))
        return text if kept == len(text) else text[:kept] + MASK

    def bounded(self, text: str, limit: int) -> str:
        """The same for text that was cut off if it is that long."""
        return self.of_cut(text) if len(text) >= limit else self(text)

    def _that_may_be_in(self, text: str) -> list[str]:
        """Those whose beginning stands there, the longest first."""
        by_head = self._by_head
        heads = {text[i : i + SHORTEST] for i in range(len(text) - SHORTEST + 1)} & by_head.keys()
        return sorted((needle for head in heads for needle in by_head[head]), key=len, reverse=True)


def masked_forms(text: str) -> str:
    """Without what looks like a key, a token, an Authorization header, or a password or signature in a URL."""
    lower = text.lower()
    for hint, form, shown in _FORMS:
        if hint in lower:
            text = form.sub(shown, text)
    if "=" in text and ("?" in text or "&" in text):
        text = _PARAMETER.sub(_parameter, text)
    return text


def _parameter(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}={MASK}" if _SIGNS.search(found[2]) else found[0]


def _writings(secret: str) -> Iterator[str]:
    """How a secret may stand in a text; the lines of one that has several, too, as a log shows them one by one."""
    text = secret.strip()
    if _can_be_told(text):
        raw = text.encode("utf-8", "surrogatepass")
        yield from {*_escaped(text), *_quoted(raw)}
        encoded = {raw.hex(), raw.hex().upper(), *_base64(raw)}
        yield from (writing for writing in encoded if len(writing) >= SHORTEST_ENCODED)
    # A file of many lines must not take ten times its size: what is encoded is the whole.
    lines = {line.strip() for line in text.splitlines()} if "\n" in text else set()
    yield from (writing for line in lines if _can_be_told(line) for writing in {*_escaped(line)})


def _can_be_told(text: str) -> bool:
    """Whether it is unlike ordinary words and numbers."""
    return len(text) >= (SHORTEST_NUMBER if text.isdecimal() else SHORTEST)


def _escaped(text: str) -> Iterator[str]:
    """Plain, and as Python, JSON and XML write it; also JSON within JSON, as logs of logs hold it."""
    yield from (text, repr(text)[1:-1], ascii(text)[1:-1], repr(text.encode("utf-8", "surrogatepass"))[2:-1])
    for written in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        yield from (written, written.replace("/", "\\/"), json.dumps(written)[1:-1])
    yield text.translate(_XML)


def _quoted(raw: bytes) -> Iterator[str]:
    for written in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield from (written, _PERCENT.sub(lambda found: found[0].lower(), written))


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
    head = needle[:SHORTEST_BEGINNING]
    at = text.find(head, max(0, len(text) - len(needle) + 1))
    while at >= 0 and not needle.startswith(text[at:]):
        at = text.find(head, at + 1)
    return at if at >= 0 else len(text)
