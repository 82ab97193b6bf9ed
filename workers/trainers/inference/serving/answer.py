"""A request on its way through the loop."""

from collections.abc import Callable, Hashable

from transformers import PreTrainedTokenizerBase

from workers.trainers.inference.engine.interface import Prompt, RequestRefused
from workers.trainers.inference.engine.refusing import NOT_FINITE
from workers.trainers.inference.engine.sampling import Sampler
from workers.trainers.inference.serving.requests import Delta, GenerationRequest, TokenInfo
from workers.trainers.inference.serving.text_stream import TextStream

CANCELLED = "cancelled"  # Running.finish_reason


class AnswerInProgress:
    """One request, its sampler's state, and what has been said of its answer. ``deliver`` must not raise."""

    def __init__(
        self,
        name: str,
        request: GenerationRequest,
        sampler: Sampler,
        tokenizer: PreTrainedTokenizerBase,
        deliver: Callable[[Delta], None],
    ) -> None:
        self.name = name
        self.request = request
        self.running = sampler.begin(Prompt(tokens=request.prompt, seed=request.seed))
        self.is_cancelled = False
        self.is_apart = False  # it shares no step with others any more
        self._stream = TextStream(tokenizer, request.sampling.stop)
        self._deliver = deliver
        self._tokens_said = 0

    @property
    def group(self) -> Hashable:
        """Requests of one group may share a step."""
        return self.request.adapter, self.name if self.is_apart else None

    @property
    def length(self) -> int:
        """Most tokens of prompt and answer."""
        return len(self.request.prompt) + self.request.sampling.max_new_tokens

    @property
    def is_finished(self) -> bool:
        return bool(self.running.finish_reason)

    @property
    def is_spoiled(self) -> bool:
        """Whether the model's numbers for it were not finite."""
        return self.running.finish_reason == NOT_FINITE

    def separate(self) -> None:
        """Another try at the token whose numbers were not finite, where nothing is shared."""
        self.running.finish_reason = ""
        self.is_apart = True

    def advance(self) -> None:
        """Deliver what a step has made certain."""
        if self.is_cancelled:
            return
        if self.is_finished:
            self._finish()
            return
        text, known = self._stream.more(self.running.tokens)
        if text or known > self._tokens_said:
            self._deliver(Delta(text=text, tokens=self._tokens(known)))

    def refuse(self, refused: RequestRefused) -> None:
        """There is no answer, or no more of it."""
        if not self.is_cancelled:
            self._deliver(Delta(refused=refused))

    def _finish(self) -> None:
        completion = self.running.sampler.completion(self.running)
        if isinstance(completion, RequestRefused):
            self.refuse(completion)
            return
        tokens = self._tokens(len(completion.tokens))
        if (end := completion.end) is not None:
            tokens += (TokenInfo(id=end.id, logprob=end.logprob, top=end.top),)
        text = completion.text[self._stream.said :]
        self._deliver(Delta(text=text, tokens=tokens, finish_reason=completion.finish_reason))

    def _tokens(self, end: int) -> tuple[TokenInfo, ...]:
        """Those up to `end` that were not delivered yet."""
        running, places = self.running, range(self._tokens_said, end)
        self._tokens_said = max(self._tokens_said, end)
        if not self.request.sampling.logprobs:
            return tuple(TokenInfo(id=running.tokens[place]) for place in places)
        return tuple(
            TokenInfo(id=running.tokens[place], logprob=running.logprobs[place], top=running.tops[place])
            for place in places
        )
