"""Removes secrets from text before it is stored or shown: known ones in any encoding, unknown ones by their form."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

MASK = "***"
# Shorter secrets occur in ordinary words and numbers; masking them would make a log unreadable without hiding them.
SHORTEST = 6
SHORTEST_NUMBER = 12
SHORTEST_ENCODED = 8
SHORTEST_BEGINNING = 4  # of a secret, where a text was truncated

# With more secrets than this, candidates are prefiltered: in a line, and in a text of many lines, where a search costs
# less for each character.
PREFILTER_ABOVE = 60
PREFILTER_LINES_ABOVE = 1000

_WORD = r"[^\s'\"\\,;&<>]"
# A substring that every match contains in lower case, the pattern, and its replacement. Almost no line contains the
# substring, and searching for it is fast. Log output may be hostile: no pattern may backtrack over the same character
# repeatedly.
_FORMS = (
    # Our API keys: the identifying part stays, so that the key can be found and revoked.
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
    ("x-", re.compile(rf"(?i)(?<![\w-])(x-[a-z-]*(?:token|key|secret)['\"]*\s*[:=]\s*b?['\"]*){_WORD}+"), rf"\1{MASK}"),
    ("passw", re.compile(rf"(?i)(passw(?:or)?d['\"]?\s*=\s*['\"]?){_WORD}+"), rf"\1{MASK}"),
    ("pwd", re.compile(rf"(?i)(pwd['\"]?\s*=\s*['\"]?){_WORD}+"), rf"\1{MASK}"),
    # scheme://user:password@host and scheme://token@host; a password may contain an unencoded @.
    ("://", re.compile(r"(://)[^\s/'\"<>]+@"), rf"\1{MASK}@"),
)
# Signature parameters of URLs, by name.
_PARAMETER = re.compile(rf"([?&])([\w.%-]{{1,128}})={_WORD}+")
_PERCENT = re.compile("%[0-9A-F]{2}")
_XML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
_SIGNS = re.compile(r"sig|token|key|secret|passw|auth|hmac|jwt|credential", re.IGNORECASE)


class Redaction:
    """Masks the given secrets, plain and encoded, and text in the form of a secret."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._needles: tuple[str, ...] = ()
        self._by_head: dict[str, list[str]] = {}
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Mask these secrets from now on, too; safe from any thread."""
        new = {needle for secret in secrets for needle in _encodings(secret)}
        needles = sorted(new.union(self._needles), key=len, reverse=True)
        by_head: dict[str, list[str]] = {}
        for needle in needles:
            by_head.setdefault(needle[:SHORTEST], []).append(needle)
        self._by_head, self._needles = by_head, tuple(needles)

    def __call__(self, text: str) -> str:
        for needle in self._needles if len(self._needles) <= PREFILTER_ABOVE else self._that_may_be_in(text):
            if needle in text:
                text = text.replace(needle, MASK)
        return masked_forms(text)

    def lines(self, text: str) -> str:
        """Redact each line; one search of all of them, because almost none has anything to mask."""
        prefiltered = len(self._needles) > PREFILTER_LINES_ABOVE
        needles = self._that_may_be_in(text) if prefiltered else self._needles
        if any(needle in text for needle in needles) or _has_forms(text):
            return "\n".join(map(self, text.split("\n")))
        return text

    def redact_truncated(self, text: str) -> str:
        """Redact text that was truncated at its end, where only the beginning of a secret may remain."""
        # A character split by the truncation has become a replacement mark; the secret may continue there.
        text = self(text.rstrip("\ufffd"))
        kept = min((_length_without(text, needle) for needle in self._needles), default=len(text))
        return text if kept == len(text) else text[:kept] + MASK

    def bounded(self, text: str, limit: int) -> str:
        """Redact text that was truncated if it has this length."""
        return self.redact_truncated(text) if len(text) >= limit else self(text)

    def _that_may_be_in(self, text: str) -> list[str]:
        """Secrets whose beginning occurs in the text, longest first."""
        by_head = self._by_head
        heads = {text[i : i + SHORTEST] for i in range(len(text) - SHORTEST + 1)} & by_head.keys()
        return sorted((needle for head in heads for needle in by_head[head]), key=len, reverse=True)


def masked_forms(text: str) -> str:
    """The text without what has the form of a key, a token, an Authorization header, or a password or signature in a
    URL.
    """
    lower = text.lower()
    for hint, form, shown in _FORMS:
        if hint in lower:
            text = form.sub(shown, text)
    if "=" in text and ("?" in text or "&" in text):
        text = _PARAMETER.sub(_parameter, text)
    return text


def _has_forms(text: str) -> bool:
    """Whether ``masked_forms`` may change a line of the text: a match within a line is one of the text, too."""
    lower = text.lower()
    if any(hint in lower and form.search(text) for hint, form, _ in _FORMS):
        return True
    has_query = "=" in text and ("?" in text or "&" in text)
    return has_query and any(_SIGNS.search(found[2]) for found in _PARAMETER.finditer(text))


def _parameter(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}={MASK}" if _SIGNS.search(found[2]) else found[0]


def _encodings(secret: str) -> Iterator[str]:
    """The encodings in which a secret may occur; also each line of a multi-line secret, as logs show lines
    separately.
    """
    text = secret.strip()
    if _is_distinctive(text):
        raw = text.encode("utf-8", "surrogatepass")
        yield from {*_escaped(text), *_quoted(raw)}
        encoded = {raw.hex(), raw.hex().upper(), *_base64(raw)}
        yield from (writing for writing in encoded if len(writing) >= SHORTEST_ENCODED)
    # A file of many lines must not take ten times its size, so only the whole secret is encoded.
    lines = {line.strip() for line in text.splitlines()} if "\n" in text else set()
    yield from (writing for line in lines if _is_distinctive(line) for writing in {*_escaped(line)})


def _is_distinctive(text: str) -> bool:
    """Whether the text differs from ordinary words and numbers."""
    return len(text) >= (SHORTEST_NUMBER if text.isdecimal() else SHORTEST)


def _escaped(text: str) -> Iterator[str]:
    """The text plain, and as Python, JSON and XML escape it; also JSON within JSON, as nested logs contain it."""
    yield from (text, repr(text)[1:-1], ascii(text)[1:-1], repr(text.encode("utf-8", "surrogatepass"))[2:-1])
    for written in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        yield from (written, written.replace("/", "\\/"), json.dumps(written)[1:-1])
    yield text.translate(_XML)


def _quoted(raw: bytes) -> Iterator[str]:
    for written in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield from (written, _PERCENT.sub(lambda found: found[0].lower(), written))


def _base64(raw: bytes) -> Iterator[str]:
    """The base64 forms for every alignment, without the characters that depend on adjacent bytes."""
    for before in range(3):
        standard = base64.b64encode(bytes(before) + raw).decode()
        begin = (0, 2, 3)[before]
        rest = (before + len(raw)) % 3
        text = standard[begin : len(standard) - (4 - rest if rest else 0)]
        yield from (text, text.replace("+", "-").replace("/", "_"))


def _length_without(text: str, needle: str) -> int:
    """Length of the text without a partial match of the needle at its end."""
    head = needle[:SHORTEST_BEGINNING]
    at = text.find(head, max(0, len(text) - len(needle) + 1))
    while at >= 0 and not needle.startswith(text[at:]):
        at = text.find(head, at + 1)
    return at if at >= 0 else len(text)
