"""Stop texts: where an answer ends, also when the text lies across the borders of tokens."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase


def decoded(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> str:
    """The text of an answer's tokens, without special tokens."""
    text = tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return str(text)


class StopTexts:
    """The texts that end an answer; they are no part of it."""

    def __init__(self, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> None:
        self._texts = tuple(text for text in texts if text)
        self._tokenizer = tokenizer
        # A token has at least one byte, so a text has at most as many tokens as bytes; one more, because decoders treat
        # the first token of a sequence in their own way.
        self._window = 2 + max((len(text.encode()) for text in self._texts), default=0)

    def reached(self, tokens: Sequence[int]) -> bool:
        """Whether a stop text ends with the last token or within it; to be asked after every token."""
        if not self._texts:
            return False
        end = decoded(self._tokenizer, tokens[-self._window :])
        # The window may begin within a character or a space: only the whole answer decides.
        return any(text in end for text in self._texts) and self._found(decoded(self._tokenizer, tokens)) is not None

    def cut(self, tokens: Sequence[int]) -> tuple[str, tuple[int, ...]]:
        """The text before the first stop text, and the tokens that lie before it as a whole."""
        text = decoded(self._tokenizer, tokens)
        end = self._found(text)
        if end is None:
            return text, tuple(tokens)
        kept = len(tokens)
        while kept and len(decoded(self._tokenizer, tokens[:kept])) > end:
            kept -= 1
        return text[:end], tuple(tokens[:kept])

    def _found(self, text: str) -> int | None:
        places = [place for place in map(text.find, self._texts) if place >= 0]
        return min(places, default=None)
