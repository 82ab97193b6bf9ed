"""Structured answers: which tokens a JSON schema or a regular expression allows next, by llguidance."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from app.domain.spec.response_formats import JSON_SCHEMA, REGEX, TYPES
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.format_limits import check_size
from workers.trainers.inference.engine.interface import LENGTH, STOP

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

# Written as json.dumps does. Space wherever JSON allows it would let a weak model write nothing else.
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_WORD = 32  # bits of a mask's words
_KEPT = 16  # compiled formats, which requests repeat
# Of a format that shares its steps with other requests: a mask takes milliseconds.
_SHARED = {
    "max_items_in_row": 1_000,
    "step_max_items": 10_000,
    "step_lexer_fuel": 100_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 50_000,
}


class Matcher:
    """The place of one answer in a grammar."""

    def __init__(self, matcher: "LLMatcher", *, is_shared: bool) -> None:
        self._matcher = matcher
        self._is_shared = is_shared

    def accept(self, token: int) -> str:
        """Add a token; the reason to finish with it, or "" when more can follow."""
        self._matcher.consume_token(token)
        if self._matcher.is_error():  # it takes more memory or steps than the library allows
            return LENGTH
        return STOP if self._matcher.is_stopped() else ""

    def write_mask(self, mask: "np.ndarray[Any, np.dtype[np.int32]]") -> None:
        """One bit for each token that is allowed next; none beyond what a shared format may take."""
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._is_shared and self._matcher.is_error():
            mask[:] = 0  # the library allows the end of the answer instead, within the form


class Grammar:
    """A compiled response format."""

    def __init__(self, make: "Callable[[], LLMatcher]", vocabulary: int, *, is_shared: bool) -> None:
        self._make = make
        self._vocabulary = vocabulary
        self._is_shared = is_shared

    def matcher(self) -> Matcher:
        """For a new answer."""
        return Matcher(self._make(), is_shared=self._is_shared)

    def masked(self, matchers: Sequence[Matcher], scores: torch.Tensor) -> torch.Tensor:
        """The scores, one row for each matcher, with minus infinity for every token that is not allowed."""
        words = np.zeros((len(matchers), -(-self._vocabulary // _WORD)), dtype=np.int32)
        for row, matcher in enumerate(matchers):
            matcher.write_mask(words[row])
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, : scores.shape[1]]
        allowed = torch.zeros(scores.shape, dtype=torch.bool)
        allowed[:, : bits.shape[1]] = torch.from_numpy(bits.astype(bool))
        return scores.masked_fill(~allowed.to(scores.device), -torch.inf)


class Grammars:
    """Compiles response formats for one tokenizer, of which `ends` are the tokens that end an answer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, ends: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._ends = sorted(ends)
        self._shared = lru_cache(_KEPT)(self._shared_of)

    def of(self, response_format: Mapping[str, Any], *, is_shared: bool = False) -> Grammar | None:
        """The grammar of a response format; None for any text. ``is_shared``: a step of it must not hold up requests of
        others. Raises InvalidConfig.
        """
        if not response_format:
            return None
        if is_shared:
            return self._shared(json.dumps(response_format))
        library = _library()
        definition = _valid(response_format, library, None)
        tokens = self._tokens
        return Grammar(lambda: library.LLMatcher(tokens, definition, log_level=0), tokens.vocab_size, is_shared=False)

    def _shared_of(self, response_format: str) -> Grammar:
        """Of a format as JSON: its text keeps the order of properties, which is that of the answer."""
        form, library = json.loads(response_format), _library()
        check_size(form)
        limits = library.LLParserLimits(**_SHARED)
        definition = _valid(form, library, limits)
        tokens = self._tokens
        first = library.LLMatcher(tokens, definition, log_level=0, limits=limits)
        if first.is_error():
            raise InvalidConfig(f"task.response_format can't be applied: {first.get_error()}; simplify it")
        return Grammar(first.deep_copy, tokens.vocab_size, is_shared=True)

    @cached_property
    def _tokens(self) -> "LLTokenizer":
        """The vocabulary in the library's form, which takes a second to make for a large one."""
        from llguidance.hf import from_tokenizer  # noqa: PLC0415  (an extra)

        if not isinstance(self._tokenizer, PreTrainedTokenizerFast) or not self._ends:
            raise InvalidConfig(
                "task.response_format needs a model with a fast tokenizer and an end-of-sequence token; leave it out"
            )
        return from_tokenizer(self._tokenizer, eos_token=self._ends)


def _valid(response_format: Mapping[str, Any], library: ModuleType, limits: object) -> str:
    """Its definition. Raises InvalidConfig."""
    definition = _definition(response_format, library)
    if problem := library.LLMatcher.validate_grammar(definition, limits=limits):
        raise InvalidConfig(f"task.response_format can't be applied: {problem}; simplify it")
    return definition


def _definition(response_format: Mapping[str, Any], library: ModuleType) -> str:
    kind = response_format.get("type")
    if kind == REGEX:
        return str(library.LLMatcher.grammar_from_regex(_text(response_format, "pattern")))
    if kind != JSON_SCHEMA:
        raise InvalidConfig(f"task.response_format.type {kind!r} is not one of {', '.join(TYPES)}")
    schema = response_format.get("schema")
    if not isinstance(schema, Mapping):
        raise InvalidConfig("task.response_format.schema must be an object: a JSON schema")
    try:
        return str(library.LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=_SPACING))
    except ValueError as error:
        raise InvalidConfig(f"task.response_format.schema can't be applied: {error}; simplify it") from error


def _text(response_format: Mapping[str, Any], name: str) -> str:
    found = response_format.get(name)
    if not isinstance(found, str) or not found:
        raise InvalidConfig(f"task.response_format.{name} must be a text: a regular expression")
    return found


def _library() -> ModuleType:
    try:
        import llguidance  # noqa: PLC0415  (an extra)
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            "task.response_format needs llguidance, which this node lacks: pip install trainyard[inference]; or leave "
            "it out"
        ) from error
    return llguidance
