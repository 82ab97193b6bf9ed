"""What requests need of a loaded model beside the loop that answers them."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from app.domain.spec.inference import EMBED, GENERATE, SCORE, InferenceTask, Serving
from workers.rank.run_context import RunSpec
from workers.trainers.data.shapes import Record
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.embedding import Vector
from workers.trainers.inference.engine.interface import Pair, Pooling, RequestRefused, Scores, TokenIds
from workers.trainers.inference.engine.transformers_engine import TransformersEngine
from workers.trainers.inference.pooling import pooling_of
from workers.trainers.inference.section import inference_of
from workers.trainers.inference.serving.openai.fingerprint import Fingerprints
from workers.trainers.inference.serving.openai.problems import CONTEXT_LENGTH_EXCEEDED, AnswerProblem
from workers.trainers.inference.serving.openai.token_texts import TokenTexts
from workers.trainers.inference.tokens import TaskTokens, Unanswerable


@dataclass(frozen=True)
class ServedModel:
    """``tokenizer`` is a copy: the engine's is used by another thread. ``context``: most tokens of prompt and answer,
    by the model, the service and the memory; ``longest_answer``: most that a request may ask for.
    """

    engine: TransformersEngine
    tokenizer: PreTrainedTokenizerBase
    tokens: TaskTokens
    texts: TokenTexts
    task: str
    serving: Serving
    pooling: Pooling
    context: int
    longest_answer: int
    fingerprints: Fingerprints

    def prompt(self, record: Record, param: str) -> tuple[int, ...]:
        """The tokens of a text or of messages. Raises AnswerProblem about the field ``param``."""
        try:
            return tuple(self.tokens.prompt(record))
        except Unanswerable as error:
            raise AnswerProblem(error.message, param=param, code=error.code.lower()) from error

    def text(self, text: str, param: str) -> tuple[int, ...]:
        """The tokens of a whole text, of which a vector is wanted. Raises AnswerProblem."""
        try:
            return tuple(self.tokens.whole({"text": text}))
        except Unanswerable as error:
            raise AnswerProblem(error.message, param=param, code=error.code.lower()) from error

    def answer_length(self, prompt: int, body: Mapping[str, Any]) -> int:
        """Most tokens of the answer to a prompt of so many. Raises AnswerProblem with the numbers."""
        param = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
        asked = body.get(param)
        most = self.longest_answer
        if asked is not None and not 1 <= asked <= most:
            raise AnswerProblem(f"{param} is {asked}, but an answer has 1 to {most} tokens", param=param)
        new = asked if asked is not None else min(self.serving.max_output_tokens, self.context - prompt)
        if new < 1 or prompt + new > self.context:
            raise AnswerProblem(
                f"the context holds {self.context} tokens, but the prompt has {prompt} and the answer may have "
                f"{max(1, new)}; shorten the prompt, or lower {param}",
                param=param if asked is not None and prompt < self.context else None,
                code=CONTEXT_LENGTH_EXCEEDED,
            )
        return int(new)

    def pair(self, query: str, document: str, most: int | None, param: str) -> Pair:
        """The tokens of a query with a document. Raises AnswerProblem."""
        try:
            return self.tokens.pair(query, document, most)
        except Unanswerable as error:
            raise AnswerProblem(error.message, param=param, code=error.code.lower()) from error

    def refuse(self, prompt: TokenIds) -> RequestRefused | None:
        """Why a prompt can't be read."""
        return self.engine.limits(self.engine.generation()).refuse(prompt)

    def vectors(
        self, texts: Sequence[TokenIds], on_batch: Callable[[], None], is_unwanted: Callable[[], bool]
    ) -> list[Vector | RequestRefused]:
        """On the thread of the loop; both are called before each batch of texts. Raises Interrupted."""
        return self.engine.embeddings(texts, self.pooling, _interrupted(on_batch, is_unwanted))

    def scores(
        self, pairs: Sequence[Pair], on_batch: Callable[[], None], is_unwanted: Callable[[], bool]
    ) -> list[Scores | RequestRefused]:
        """As `vectors`."""
        return self.engine.pair_scores(pairs, _interrupted(on_batch, is_unwanted))

    @property
    def vocabulary(self) -> int:
        return int(self.engine.model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]

    @property
    def chat_template(self) -> str:
        return json.dumps(self.tokenizer.chat_template) if self.tokenizer.chat_template else ""


def _interrupted(on_batch: Callable[[], None], is_unwanted: Callable[[], bool]) -> Callable[[], bool]:
    def interrupted() -> bool:
        on_batch()
        return is_unwanted()

    return interrupted


def _task(task: InferenceTask, engine: TransformersEngine) -> str:
    """What the model answers. Raises InvalidConfig for a classifier whose scores have no order."""
    if task.type != SCORE:
        return EMBED if task.makes_vectors else GENERATE
    if engine.labels != 1:
        raise InvalidConfig(
            f"task: a service that scores documents needs a sequence classifier with one label, and this model has "
            f"{engine.labels or 'none'}; serve a reranker or a reward model"
        )
    return SCORE


def served_model(spec: RunSpec, engine: TransformersEngine) -> ServedModel:
    """Raises InvalidConfig."""
    inference = inference_of(spec)
    serving = inference.serving
    held = engine.generation().longest if engine.generates else None
    context = min(filter(None, (engine.context_length, serving.max_context, held)))
    tokenizer = copy.deepcopy(engine.tokenizer)
    return ServedModel(
        engine=engine,
        tokenizer=tokenizer,
        tokens=TaskTokens(tokenizer, spec, engine.context_length),
        texts=TokenTexts(tokenizer),
        task=_task(inference.task, engine),
        serving=serving,
        pooling=pooling_of(spec),
        context=context,
        # Requests of a job that names no service are limited by the model alone.
        longest_answer=serving.max_output_tokens if serving.name else context,
        fingerprints=Fingerprints(spec, str(engine.model.dtype)),
    )
