"""The text of an answer while it grows: only what further tokens can't change."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from workers.trainers.inference.engine.stopping import decoded

_REPLACEMENT = "\ufffd"  # what decoders write for a part of a character


class TextStream:
    """Holds back incomplete characters, and what may become a stop text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stops: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stops = stops
        # Tokens are decoded together with those of the step before, because decoders treat a first token in their own
        # way: tokens[_begin:_read] are those that give the text which is read already.
        self._begin = 0
        self._read = 0
        self._held = ""
        self._ends: list[int] = []  # for each token that is read: where its text ends
        self._said = 0
        self._tokens_said = 0

    @property
    def said(self) -> int:
        """Characters that `more` has given."""
        return self._said

    def more(self, tokens: Sequence[int]) -> tuple[str, int]:
        """The text that is new and certain, and how many of all tokens lie within what is said by now."""
        self._decode(tokens)
        length = len(self._held) - self._open()
        text, self._held = self._held[:length], self._held[length:]
        self._said += len(text)
        while self._tokens_said < len(self._ends) and self._ends[self._tokens_said] <= self._said:
            self._tokens_said += 1
        return text, self._tokens_said

    def _decode(self, tokens: Sequence[int]) -> None:
        before = decoded(self._tokenizer, tokens[self._begin : self._read])
        text = decoded(self._tokenizer, tokens[self._begin :])
        if len(text) <= len(before) or text.endswith(_REPLACEMENT):
            return
        self._held += text[len(before) :]
        self._ends += [self._said + len(self._held)] * (len(tokens) - self._read)
        self._begin, self._read = self._read, len(tokens)

    def _open(self) -> int:
        """The length of the end that may be the beginning of a stop text."""
        longest = 0
        for stop in self._stops:
            lengths = range(min(len(stop) - 1, len(self._held)), longest, -1)
            longest = next((each for each in lengths if self._held.endswith(stop[:each])), longest)
        return longest
