"""Which requests an engine can't answer, and what it says about them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from workers.trainers.inference.engine.interface import RequestRefused, TokenIds

# Refused.code
CONTEXT_TOO_LONG, EMPTY, UNKNOWN_TOKEN = "CONTEXT_TOO_LONG", "EMPTY", "UNKNOWN_TOKEN"
NOT_FINITE = "NOT_FINITE"
NO_CHOICE = "NO_CHOICE"  # of finite numbers, the sampling options leave none
Request = TypeVar("Request")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class EngineLimits:
    """``context``: most tokens that the model takes; ``held``: most that the memory for them takes."""

    context: int
    vocabulary: int
    held: int | None = None

    def refuse(self, tokens: TokenIds, new: int = 0) -> RequestRefused | None:
        """Why these tokens, with `new` more to come, can't be computed; None: they can."""
        if not tokens:
            return RequestRefused(code=EMPTY, message="it has no tokens; leave the record out, or give it a text")
        length = len(tokens) + new
        if length > self.context:
            return self._too_long(len(tokens), new, f"the model's context holds {self.context}")
        if self.held is not None and length > self.held:
            return self._too_long(len(tokens), new, f"the memory for them holds {self.held}")
        if unknown := next((each for each in tokens if not 0 <= each < self.vocabulary), None):
            return RequestRefused(
                code=UNKNOWN_TOKEN,
                message=f"token {unknown} is unknown to the model, which has {self.vocabulary}; use its own tokenizer",
            )
        return None

    @staticmethod
    def _too_long(tokens: int, new: int, limit: str) -> RequestRefused:
        asked = f"{tokens} tokens and {new} new ones" if new else f"{tokens} tokens"
        way_out = "shorten the text, set max_tokens and truncate" + (", or lower max_new_tokens" if new else "")
        return RequestRefused(code=CONTEXT_TOO_LONG, message=f"{asked} are too many: {limit}; {way_out}")


def no_choice(place: int) -> RequestRefused:
    """Of finite numbers, the sampling options leave no token for this place of the answer."""
    return RequestRefused(
        code=NO_CHOICE,
        message=f"the sampling options leave no token for place {place} of the answer; use less extreme values of "
        "temperature, repetition_penalty and logit_bias, or a simpler response_format",
    )


def not_finite(what: str) -> RequestRefused:
    """The model computed NaN or an infinity, which no format of the output can hold as a result."""
    return RequestRefused(
        code=NOT_FINITE,
        message=f"the model's {what} is not a finite number; use base_model.dtype float32, or check its weights",
    )


def answer_accepted(
    requests: Sequence[Request],
    refuse: Callable[[Request], RequestRefused | None],
    answer: Callable[[list[Request]], Sequence[Answer]],
) -> list[Answer | RequestRefused]:
    """Answers of the accepted requests in the places of all; `answer` gets none of the refused ones."""
    found: list[Answer | RequestRefused | None] = [refuse(each) for each in requests]
    accepted = [index for index, refused in enumerate(found) if refused is None]
    if accepted:
        answers = answer([requests[index] for index in accepted])
        for index, each in zip(accepted, answers, strict=True):
            found[index] = each
    return [each for each in found if each is not None]
