"""The routes of the engine's server."""

import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol, TypeVar

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler

from app.domain.spec.inference import EMBED, GENERATE, SCORE
from workers.trainers.inference.serving.loop import GenerationLoop
from workers.trainers.inference.serving.openai.asking import Asking
from workers.trainers.inference.serving.openai.chance import Chance, drawn
from workers.trainers.inference.serving.openai.chat import chat
from workers.trainers.inference.serving.openai.completions import completion
from workers.trainers.inference.serving.openai.deliveries import Deliveries
from workers.trainers.inference.serving.openai.echoes import EchoReader
from workers.trainers.inference.serving.openai.embeddings import embeddings_answer, wanted_texts
from workers.trainers.inference.serving.openai.problems import AnswerProblem
from workers.trainers.inference.serving.openai.reranking import rerank_answer, wanted_pairs
from workers.trainers.inference.serving.openai.served_model import ServedModel

ADAPTER = "X-Trainyard-Adapter"
_ADAPTER = re.compile(r"\w[\w.-]{0,62}(/\w[\w.-]{0,62})?", re.ASCII)
_RETRY_SECONDS = "1"
_LOG = logging.getLogger(__name__)
_ANSWERS = {
    GENERATE: "generates text; ask it by /v1/chat/completions or /v1/completions",
    EMBED: "makes embeddings; ask it by /v1/embeddings",
    SCORE: "scores documents; ask it by /v1/rerank",
}
Body = dict[str, Any]
Result = TypeVar("Result")
Ask = Callable[[Body, str | None, ServedModel, Chance], Asking]


class HungUp(Exception):
    """The client has closed the connection."""


class Host(Protocol):
    """What handlers need of the server."""

    model: ServedModel
    loop: GenerationLoop
    echoes: EchoReader
    on_batch: Callable[[], None]

    def enter(self, deliveries: Deliveries) -> None:
        """A request begins. Raises AnswerProblem when none are taken any more."""

    def leave(self, deliveries: Deliveries) -> None:
        """It has ended."""

    async def apart(self, work: Callable[[], Result]) -> Result:
        """Run what takes long on a thread that does nothing else."""

    async def compiling(self, work: Callable[[], Result]) -> Result:
        """Run what compiles a response format on a thread of its own."""

    def usage_of_cancelled(self, request_id: str) -> Mapping[str, int]:
        """Counts of tokens; empty where there was no such request lately."""

    def state(self) -> Mapping[str, Any]: ...


class EngineHealthHandler(RequestHandler):
    def initialize(self, host: Host) -> None:
        self._host = host

    def get(self) -> None:
        self.finish(dict(self._host.state()))


class UsageHandler(RequestHandler):
    """What a request has used whose client has left, or is leaving: it is cancelled then."""

    def initialize(self, host: Host) -> None:
        self._host = host

    def post(self) -> None:
        try:
            name = str(json.loads(self.request.body)["request_id"])
        except (ValueError, KeyError, TypeError):
            self.set_status(400)
            return
        self.finish({"usage": dict(self._host.usage_of_cancelled(name))})


class _Handler(RequestHandler):
    """A request with a JSON body, which the gateway has checked; errors are OpenAI's."""

    needed: str  # field of the body, beside the model

    def initialize(self, host: Host) -> None:
        self.host = host
        self._deliveries: Deliveries | None = None
        self._is_streaming = False

    async def post(self) -> None:
        deliveries = self._deliveries = Deliveries()
        deliveries.request_id = self.request.headers.get("X-Request-ID", "")
        try:
            self.host.enter(deliveries)
        except AnswerProblem as problem:
            self._refuse(problem)
            return
        try:
            await self.answer(self._body(), deliveries)
        except AnswerProblem as problem:
            self._refuse(problem)
        except (HungUp, StreamClosedError):
            return
        except Exception:  # noqa: BLE001  (an answer that has begun must not just break off)
            _LOG.exception("a request was not answered")
            self._refuse(
                AnswerProblem("the engine could not answer this request; the replica's log says why", status=500)
            )
        finally:
            self.host.leave(deliveries)

    async def answer(self, body: Body, deliveries: Deliveries) -> None:
        """Raises AnswerProblem."""
        raise NotImplementedError

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self._deliveries is not None:
            self._deliveries.abort(HungUp())

    def write_error(self, status_code: int, **_values: Any) -> None:
        """For faults of this program, and methods and paths that there are not."""
        problem = AnswerProblem(self._reason, status=status_code)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps(problem.body()))

    def need(self, task: str) -> None:
        """Raises AnswerProblem where the model does something else."""
        own = self.host.model.task
        if own != task:
            raise AnswerProblem(f"this service {_ANSWERS[own]}", param="model")

    def adapter(self) -> str | None:
        """JOB or JOB/CHECKPOINT."""
        name = self.request.headers.get(ADAPTER)
        if name is not None and not _ADAPTER.fullmatch(name):
            raise AnswerProblem(f"{ADAPTER} is JOB or JOB/CHECKPOINT", param="model")
        return name

    def send_json(self, document: Mapping[str, Any]) -> None:
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))

    async def send_event(self, data: str) -> None:
        """One event of a stream. Raises StreamClosedError."""
        if not self._is_streaming:
            self._is_streaming = True
            self.set_header("Content-Type", "text/event-stream; charset=utf-8")
            self.set_header("Cache-Control", "no-cache")
        self.write(f"data: {data}\n\n".encode("utf-8", "replace"))
        await self.flush()

    def _body(self) -> Body:
        try:
            found = json.loads(self.request.body)
        except ValueError as error:
            raise AnswerProblem(f"the body is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise AnswerProblem("the body is no JSON object")
        for name in ("model", self.needed):
            if name not in found:
                raise AnswerProblem(f"the body has no {name}", param=name)
        return found

    def _refuse(self, problem: AnswerProblem) -> None:
        if self._is_streaming:
            self.finish(f"data: {json.dumps(problem.body())}\n\n")
            return
        self.set_status(problem.http_status)
        if problem.http_status == 503:
            self.set_header("Retry-After", _RETRY_SECONDS)
        self.send_json(problem.body())


class _Answers(_Handler):
    """By `ask`, which says what the body asks of the loop."""

    ask: Ask

    async def answer(self, body: Body, deliveries: Deliveries) -> None:
        self.need(GENERATE)
        adapter = self.adapter()
        asking = await self.host.apart(lambda: type(self).ask(body, adapter, self.host.model, drawn()))
        await self.host.echoes.read(asking.echoes, self.host.model, deliveries)
        if asking.requests:
            has_form = any(request.sampling.response_format for request in asking.requests)
            begin = self.host.compiling if has_form else self.host.apart
            await begin(lambda: deliveries.submit(self.host.loop, asking.requests))
        if asking.streams:
            await self._stream(asking, deliveries)
            return
        async for index, delta in deliveries.deltas(asking.param):
            deliveries.prompt_tokens = asking.prompt_tokens
            deliveries.completion_tokens += len(delta.tokens)
            for _ in asking.choices[index].add(delta):
                pass
        self.send_json(asking.whole(deliveries.completion_tokens))

    async def _stream(self, asking: Asking, deliveries: Deliveries) -> None:
        async for chunk in _chunks(asking, deliveries):
            await self.send_event(json.dumps(chunk, ensure_ascii=False))
        await self.send_event("[DONE]")
        self.finish()


class Chat(_Answers):
    needed = "messages"
    ask = staticmethod(chat)


class CompletionsHandler(_Answers):
    needed = "prompt"
    ask = staticmethod(completion)


class Unknown(_Handler):
    """Any other path."""

    def prepare(self) -> None:
        raise HTTPError(404)


class Embeddings(_Handler):
    needed = "input"

    async def answer(self, body: Body, deliveries: Deliveries) -> None:
        model = self.host.model
        self.need(EMBED)
        texts = await self.host.apart(lambda: wanted_texts(body, model))
        loop = self.host.loop
        vectors = await deliveries.called(
            loop, lambda: model.vectors(texts, self.host.on_batch, lambda: loop.closes or deliveries.is_aborted)
        )
        self.send_json(await self.host.apart(lambda: embeddings_answer(body, texts, vectors)))


class Rerank(_Handler):
    needed = "documents"

    async def answer(self, body: Body, deliveries: Deliveries) -> None:
        self.need(SCORE)
        model, loop = self.host.model, self.host.loop
        pairs = await self.host.apart(lambda: wanted_pairs(body, model))
        scores = await deliveries.called(
            loop, lambda: model.scores(pairs, self.host.on_batch, lambda: loop.closes or deliveries.is_aborted)
        )
        self.send_json(rerank_answer(body, pairs, scores, drawn()))


async def _chunks(asking: Asking, deliveries: Deliveries) -> AsyncIterator[Mapping[str, Any]]:
    """Begins with the first delta, so that what is refused has a status of its own."""
    tokens, begun = 0, False
    beginning = [part for choice in asking.choices for part in choice.begin()]
    async for index, delta in deliveries.deltas(asking.param):
        if not begun:
            begun = True
            for part in beginning:
                yield asking.chunk(part)
        tokens += len(delta.tokens)
        for part in asking.choices[index].add(delta):
            yield asking.chunk(part)
    if not asking.requests:
        for part in beginning:
            yield asking.chunk(part)
    if asking.includes_usage:
        yield asking.last_chunk(tokens)


def routes(host: Host) -> list[tuple[str, type[RequestHandler], dict[str, Any]]]:
    return [
        (r"/health", EngineHealthHandler, {"host": host}),
        (r"/usage", UsageHandler, {"host": host}),
        (r"/v1/chat/completions", Chat, {"host": host}),
        (r"/v1/completions", CompletionsHandler, {"host": host}),
        (r"/v1/embeddings", Embeddings, {"host": host}),
        (r"/v1/rerank", Rerank, {"host": host}),
        (r".*", Unknown, {"host": host}),
    ]
