"""Prompts that stand before their answers with the log-probabilities of their tokens."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from workers.trainers.inference.engine.prompt_reading import PromptReading
from workers.trainers.inference.serving.loop import GenerationLoop
from workers.trainers.inference.serving.openai.choices import TextChoice
from workers.trainers.inference.serving.openai.deliveries import Deliveries
from workers.trainers.inference.serving.openai.problems import OVERLOADED, refusal, unavailable
from workers.trainers.inference.serving.openai.served_model import ServedModel
from workers.trainers.inference.serving.requests import GenerationRequest, NoSuchAdapter, ServedSampling, TokenInfo

_PROMPT = "prompt"
_TRIES = 8  # to read a piece while other requests need the place of its adapter
_NO_ANSWER = ServedSampling(max_new_tokens=1)


@dataclass(frozen=True, kw_only=True)
class Echo:
    """``top``: so many of the likeliest tokens at each place; ``choices`` begin with the prompt."""

    prompt: tuple[int, ...]
    top: int
    adapter: str | None
    choices: Sequence[TextChoice]

    def reading(self, model: ServedModel) -> PromptReading:
        """Raises AnswerProblem."""
        if refused := model.refuse(self.prompt):
            raise refusal(refused, _PROMPT)
        return model.engine.prompt_reading(self.prompt, self.top)

    def add(self, reading: PromptReading) -> None:
        """Give the choices what was read. Raises AnswerProblem."""
        if reading.refused is not None:
            raise refusal(reading.refused, _PROMPT)
        tokens = tuple(_described(self.prompt, reading))
        for choice in self.choices:
            choice.echoed(tokens)


class EchoReader:
    """Of one server: reads one prompt at a time, because what is kept of it is not in the loop's share of memory."""

    def __init__(self, loop: GenerationLoop, on_piece: Callable[[], None]) -> None:
        self._loop = loop
        self._on_piece = on_piece
        self._alone = asyncio.Lock()

    async def read(self, echoes: Sequence[Echo], model: ServedModel, deliveries: Deliveries) -> None:
        """Between the steps of other requests, piece by piece. Raises AnswerProblem, and what `abort` was given."""
        for echo in echoes:
            async with self._alone:
                reading = echo.reading(model)
                while not reading.is_done:
                    await self._advance(echo, reading, deliveries)
                echo.add(reading)

    async def _advance(self, echo: Echo, reading: PromptReading, deliveries: Deliveries) -> None:
        def piece() -> None:
            self._on_piece()
            reading.advance()

        for _ in range(_TRIES):
            try:
                await deliveries.called(self._loop, piece, echo.adapter)
            except NoSuchAdapter:
                await self._load(echo, deliveries)
            else:
                return
        raise unavailable("other adapters are in use all the time; ask again later", OVERLOADED)

    async def _load(self, echo: Echo, deliveries: Deliveries) -> None:
        """By a request for a token, whose answer is dropped: requests wait for their adapter in the order of all."""
        request = GenerationRequest(prompt=echo.prompt[:1], sampling=_NO_ANSWER, adapter=echo.adapter)
        deliveries.submit(self._loop, [request])
        async for _ in deliveries.deltas(_PROMPT):
            pass


def _described(prompt: Sequence[int], reading: PromptReading) -> Iterator[TokenInfo]:
    yield TokenInfo(id=prompt[0])
    for token, logprob, top in zip(prompt[1:], reading.logprobs, reading.tops, strict=True):
        yield TokenInfo(id=token, logprob=logprob, top=top)
