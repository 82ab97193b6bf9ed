"""The bytes that a token stands for, which may be a part of a character."""

import re
from functools import cached_property
from typing import Any

from transformers import PreTrainedTokenizerBase

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "▁"  # of SentencePiece


class TokenTexts:
    """Of one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer: Any = tokenizer

    def text(self, token: int) -> str:
        return self.content(token).decode(errors="replace")

    def content(self, token: int) -> bytes:
        word = self._tokenizer.convert_ids_to_tokens(token)
        if word is None:  # the model's vocabulary is larger than the tokenizer's
            return b""
        if self._is_byte_level and all(character in _BYTES for character in word):
            return bytes(_BYTES[character] for character in word)
        if found := _BYTE.fullmatch(word):
            return bytes([int(found[1], 16)])
        return str(word).replace(_SPACE, " ").encode()

    @cached_property
    def _is_byte_level(self) -> bool:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return "ByteLevel" in str(getattr(backend, "decoder", ""))


def _byte_characters() -> dict[str, int]:
    """The printable characters by which byte-level tokenizers write bytes, as GPT-2 has assigned them."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    found = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    return {**found, **{chr(256 + place): byte for place, byte in enumerate(others)}}


_BYTES = _byte_characters()
