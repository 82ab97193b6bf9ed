"""One choice of an answer as it comes: the parts that a stream sends, and the whole."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from workers.trainers.inference.serving.openai.chance import Chance
from workers.trainers.inference.serving.openai.token_texts import TokenTexts
from workers.trainers.inference.serving.openai.tool_calls import ToolCall, ToolText
from workers.trainers.inference.serving.requests import Delta, TokenInfo

Part = Mapping[str, Any]  # an element of `choices`
_TOOL_CALLS = "tool_calls"
_LEAST = -9999.0  # of log-probabilities, because JSON has no infinity


class AnswerChoice(Protocol):
    """Gets the deltas of one answer in their order."""

    def begin(self) -> Iterator[Part]:
        """What a stream sends before the first delta."""

    def add(self, delta: Delta) -> Iterator[Part]:
        """What a stream sends for this delta."""

    def whole(self) -> Part:
        """The choice once it is finished."""


class ChatChoice:
    """``texts`` None: no log-probabilities are wanted."""

    def __init__(self, index: int, tools: ToolText, texts: TokenTexts | None, chance: Chance) -> None:
        self._index = index
        self._tools = tools
        self._chance = chance
        self._texts = texts
        self._content: list[str] = []
        self._calls: list[ToolCall] = []
        self._logprobs: list[Part] = []
        self._finish_reason: str | None = None

    def begin(self) -> Iterator[Part]:
        yield self._part({"role": "assistant", "content": ""})

    def add(self, delta: Delta) -> Iterator[Part]:
        content = self._tools.add(delta.text)
        calls: list[ToolCall] = []
        if delta.finish_reason is not None:
            rest, calls = self._tools.end()
            content += rest
            self._finish_reason = _TOOL_CALLS if calls else delta.finish_reason
        logprobs = [_chat_logprob(each, self._texts) for each in delta.tokens] if self._texts else []
        self._content.append(content)
        self._calls += calls
        self._logprobs += logprobs
        if content or logprobs:
            yield self._part({"content": content}, logprobs)
        for number, call in enumerate(calls):
            yield self._part({_TOOL_CALLS: [{"index": number, **self._described(number, call)}]})
        if self._finish_reason is not None:
            yield {**self._part({}), "finish_reason": self._finish_reason}

    def whole(self) -> Part:
        content = "".join(self._content)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if self._calls:
            calls = [self._described(number, call) for number, call in enumerate(self._calls)]
            message |= {"content": content or None, _TOOL_CALLS: calls}
        return {
            "index": self._index,
            "message": message,
            "logprobs": self._wrapped(self._logprobs),
            "finish_reason": self._finish_reason,
        }

    def _described(self, number: int, call: ToolCall) -> dict[str, Any]:
        return call.to_json(self._chance.call(self._index, number))

    def _part(self, delta: Part, logprobs: Sequence[Part] = ()) -> dict[str, Any]:
        return {
            "index": self._index,
            "delta": delta,
            "logprobs": self._wrapped(logprobs) if logprobs else None,
            "finish_reason": None,
        }

    def _wrapped(self, logprobs: Sequence[Part]) -> Part | None:
        return {"content": list(logprobs), "refusal": None} if self._texts else None


class TextChoice:
    """Of completions; ``echo`` is the prompt's text where it is to stand before the answer."""

    def __init__(self, index: int, echo: str, texts: TokenTexts | None, *, finish_reason: str | None = None) -> None:
        """With a ``finish_reason`` there is nothing after the prompt."""
        self._index = index
        self._echo = echo
        self._texts = texts
        self._offset = len(echo)
        self._parts: list[str] = [echo]
        self._logprobs: dict[str, list[Any]] = {}
        self._finish_reason = finish_reason

    def echoed(self, tokens: Sequence[TokenInfo]) -> None:
        """The prompt's tokens, before there are others."""
        if self._texts is None:
            return
        self._logprobs = self._described(tokens, self._texts)
        self._logprobs["top_logprobs"][0] = None  # nothing precedes the first token
        self._logprobs["text_offset"] = list(_places(self._echo, self._logprobs["tokens"]))
        self._offset = len(self._echo)

    def begin(self) -> Iterator[Part]:
        if self._echo or self._logprobs or self._finish_reason:
            yield {**self._part(self._echo, self._logprobs or None), "finish_reason": self._finish_reason}

    def add(self, delta: Delta) -> Iterator[Part]:
        logprobs = self._described(delta.tokens, self._texts) if self._texts and delta.tokens else None
        self._parts.append(delta.text)
        for name, values in (logprobs or {}).items():
            self._logprobs.setdefault(name, []).extend(values)
        self._finish_reason = delta.finish_reason
        if delta.text or logprobs or delta.finish_reason:
            yield {**self._part(delta.text, logprobs), "finish_reason": delta.finish_reason}

    def whole(self) -> Part:
        return {
            **self._part("".join(self._parts), self._logprobs if self._texts else None),
            "finish_reason": self._finish_reason,
        }

    def _part(self, text: str, logprobs: Part | None) -> dict[str, Any]:
        return {"text": text, "index": self._index, "logprobs": logprobs, "finish_reason": None}

    def _described(self, tokens: Sequence[TokenInfo], texts: TokenTexts) -> dict[str, list[Any]]:
        words = [texts.text(each.id) for each in tokens]
        offsets = []
        for word in words:
            offsets.append(self._offset)
            self._offset += len(word)
        return {
            "tokens": words,
            "token_logprobs": [_number(each.logprob) for each in tokens],
            "top_logprobs": [_likeliest(each.top, texts) for each in tokens],
            "text_offset": offsets,
        }


def _likeliest(top: Sequence[tuple[int, float]], texts: TokenTexts) -> dict[str, float | None]:
    """By their texts; of tokens with the same text, such as parts of a character, the likeliest one."""
    found: dict[str, float | None] = {}
    for token, value in top:
        found.setdefault(texts.text(token), _number(value))
    return found


def _places(text: str, words: Sequence[str]) -> Iterator[int]:
    """Where the words of tokens begin; those that the text does not have, such as special tokens, have no width."""
    place = 0
    for word in words:
        yield place
        found = next((each for each in (word, word.lstrip(" ")) if text.startswith(each, place)), "")
        place += len(found)


def _chat_logprob(token: TokenInfo, texts: TokenTexts) -> Part:
    top = [_described(each, logprob, texts) for each, logprob in token.top]
    return {**_described(token.id, token.logprob, texts), "top_logprobs": top}


def _described(token: int, logprob: float | None, texts: TokenTexts) -> dict[str, Any]:
    content = texts.content(token)
    return {"token": content.decode(errors="replace"), "logprob": _number(logprob), "bytes": list(content)}


def _number(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, _LEAST)
