"""The model as the harness asks for it: texts in, log-likelihoods and texts out, by an engine.

It cuts texts into tokens and shortens them as the harness's own class for transformers does, so that figures agree.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jinja2
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from transformers import PreTrainedTokenizerBase

from workers.trainers.failures import DataInvalid, InvalidConfig
from workers.trainers.inference.engine.interface import (
    Completion,
    Continuation,
    Engine,
    Likelihood,
    Prompt,
    RequestRefused,
    SamplingParams,
)
from workers.trainers.inference.seeds import sample_seed

Answer = TypeVar("Answer", Completion, Likelihood)
Pair = tuple[tuple[str, str], list[int], list[int]]  # texts, and tokens of context and continuation
Message = dict[str, str]

_LONGEST_ANSWER = 256  # tokens, where a task does not say; the harness's own
_LONGEST_CONTEXT = 2048  # tokens, of models without a limit; the harness's own
_UNLIMITED = 1 << 20
_AT_ONCE = 512  # prompts of one call of the engine: bounds its memory
# generation_kwargs of tasks that the engine knows, beside until and max_gen_toks.
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class HarnessModel(TemplateLM):  # type: ignore[misc]  # the harness has no types
    """Of one benchmark. ``failure`` is what an engine's call has raised, which is no error of the task."""

    def __init__(
        self, engine: Engine, name: str, seed: int, interrupted: Callable[[], bool], *, add_bos: bool | None = None
    ) -> None:
        super().__init__()
        self.tokenizer: PreTrainedTokenizerBase = engine.tokenizer
        self.failure: Exception | None = None
        self.prompt_tokens = self.completion_tokens = 0
        self._engine = engine
        self._name = name
        self._seed = seed
        self._interrupted = interrupted
        self._special = {} if add_bos is None else {"add_special_tokens": add_bos}

    @property
    def eot_token_id(self) -> int | None:
        end: int | None = self.tokenizer.eos_token_id
        return end

    @property
    def prefix_token_id(self) -> int:
        """What precedes a text that follows nothing. Raises InvalidConfig."""
        if self._start is None:
            raise InvalidConfig(
                f"benchmark {self._name}: the tokenizer has neither a BOS nor an EOS token, of which one precedes "
                "a text without context; name one in tokenizer_config"
            )
        return self._start

    @property
    def max_length(self) -> int:
        if self._engine.context_length < _UNLIMITED:
            return self._engine.context_length
        own: int = self.tokenizer.model_max_length
        return own if own < _UNLIMITED else _LONGEST_CONTEXT

    @property
    def tokenizer_name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def apply_chat_template(self, chat_history: list[Message], add_generation_prompt: bool = True) -> str:  # noqa: FBT001, FBT002  as the harness calls it
        """The messages as a prompt; without those of the system where the template refuses them."""
        how: Any = {"add_generation_prompt": add_generation_prompt, "continue_final_message": not add_generation_prompt}
        try:
            return str(self.tokenizer.apply_chat_template(chat_history, tokenize=False, **how))
        except jinja2.TemplateError:
            others = [each for each in chat_history if each["role"] != "system"]
            return str(self.tokenizer.apply_chat_template(others, tokenize=False, **how))

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:  # noqa: FBT001  as the harness calls it
        """Token ids; a text that begins with the beginning-of-sequence token gets no second one."""
        special = self._special if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        if add_special_tokens is None and self._begins(string):
            special = {"add_special_tokens": False}
        return [int(each) for each in self.tokenizer(text=string, verbose=False, **special)["input_ids"]]

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:  # noqa: ARG002, FBT001, FBT002  as the harness calls it
        found: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=True)
        return found

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = True) -> list[float]:  # noqa: ARG002, FBT001, FBT002  as the harness calls it
        """The log-likelihood of whole texts, of any length: in windows, each token once."""
        windows = [[(("", ""), *window) for window in self._windows(each.args[0])] for each in requests]
        answers = iter(self._loglikelihood_tokens([pair for pairs in windows for pair in pairs]))
        return [sum(next(answers)[0] for _ in pairs) for pairs in windows]

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = True) -> list[str]:  # noqa: ARG002, FBT001, FBT002  as the harness calls it
        """The answers, each up to its stop texts. Raises DataInvalid and InvalidConfig."""
        found = [""] * len(requests)
        groups: dict[str, list[int]] = {}
        for number, each in enumerate(requests):
            groups.setdefault(repr(each.args[1]), []).append(number)
        for numbers in groups.values():
            for chunk in (numbers[first : first + _AT_ONCE] for first in range(0, len(numbers), _AT_ONCE)):
                texts = {number: requests[number].args[0] for number in chunk}
                found_here = self._generated(texts, requests[chunk[0]].args[1])
                for number, text in zip(chunk, found_here, strict=True):
                    found[number] = text
        return found

    def _loglikelihood_tokens(self, requests: Sequence[Pair], **_: Any) -> list[tuple[float, bool]]:
        continuations = [self._continuation(*each) for each in requests]
        self.prompt_tokens += sum(len(each.context) + len(each.tokens) for each in continuations)
        answers = self._asked(lambda: self._engine.likelihoods(continuations, self._interrupted))
        return [(each.logprob, each.is_greedy) for each in map(self._accepted, answers)]

    def _continuation(self, texts: tuple[str, str], context: list[int], tokens: list[int]) -> Continuation:
        """What lies too far back is left out: the model reads all but the last token."""
        if not tokens or len(tokens) > self.max_length:
            raise DataInvalid(
                f"benchmark {self._name}: the continuation {texts[1][:64]!r} has {len(tokens)} tokens, and must have "
                f"from 1 to {self.max_length}, the model's context; change the task's doc_to_target or doc_to_choice"
            )
        return Continuation(context=context[-(self.max_length + 1 - len(tokens)) :], tokens=tokens)

    def _windows(self, text: str) -> Iterator[tuple[list[int], list[int]]]:
        rolling = get_rolling_token_windows(
            token_list=self.tok_encode(text),
            prefix_token=self.prefix_token_id,
            max_seq_len=self.max_length,
            context_len=1,
        )
        yield from map(make_disjoint_window, rolling)

    def _generated(self, texts: Mapping[int, str], asked: Mapping[str, Any]) -> list[str]:
        """By the number of the request, from which the random numbers of an answer follow."""
        options = dict(normalize_gen_kwargs(dict(asked), _LONGEST_ANSWER))
        end = self.tokenizer.decode([self.eot_token_id]) if self.eot_token_id is not None else None
        until = handle_stop_sequences(options.pop("until"), eos=end)
        sampling = self._sampling(options, until)
        room = self.max_length - sampling.max_new_tokens
        if room < 1:
            raise InvalidConfig(
                f"benchmark {self._name}: generation_kwargs.max_gen_toks of the task is {sampling.max_new_tokens}, "
                f"which leaves no room for a prompt in the model's context of {self.max_length} tokens; lower it"
            )
        prompts = [
            Prompt(tokens=self.tok_encode(text)[-room:], seed=sample_seed(self._seed, number, 0))
            for number, text in texts.items()
        ]
        answers = [self._accepted(each) for each in self._asked(lambda: self._completions(prompts, sampling))]
        self.prompt_tokens += sum(len(each.tokens) for each in prompts)
        self.completion_tokens += sum(len(each.tokens) for each in answers)
        return [postprocess_generated_text(each.text, until, None) for each in answers]

    def _completions(self, prompts: Sequence[Prompt], sampling: SamplingParams) -> list[Completion | RequestRefused]:
        return self._engine.generate(prompts, sampling, self._interrupted)

    def _sampling(self, options: dict[str, Any], until: Sequence[str]) -> SamplingParams:
        longest, draws = int(options.pop("max_gen_toks")), bool(options.pop("do_sample"))
        unknown = sorted(set(options) - set(_SAMPLING))
        if unknown:
            raise InvalidConfig(
                f"benchmark {self._name}: generation_kwargs of the task has {', '.join(unknown)}; known are until, "
                f"max_gen_toks, do_sample, {', '.join(_SAMPLING)}"
            )
        # Where the harness draws without a temperature, it is 1.
        how = {"temperature": 1.0, **options} if draws else {"temperature": 0.0}
        penalty = {name: options[name] for name in ("repetition_penalty",) if name in options}
        return SamplingParams(max_new_tokens=longest, stop=tuple(until), **{**how, **penalty})

    def _asked(self, ask: Callable[[], list[Answer | RequestRefused]]) -> list[Answer | RequestRefused]:
        try:
            return ask()
        except Exception as error:
            self.failure = error
            raise

    def _accepted(self, answer: Answer | RequestRefused) -> Answer:
        if isinstance(answer, RequestRefused):
            raise DataInvalid(f"benchmark {self._name}: a request of the task can't be answered: {answer.message}")
        return answer

    def _begins(self, text: str) -> bool:
        return self._start is not None and text.startswith(str(self.tokenizer.decode([self._start])))

    @property
    def _start(self) -> int | None:
        bos: int | None = self.tokenizer.bos_token_id
        return bos if bos is not None else self.eot_token_id
