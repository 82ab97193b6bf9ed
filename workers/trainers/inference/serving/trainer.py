"""A replica of a service: loads the model, answers requests on its socket, and ends when it is drained."""

import time

from trainyard.protocol.commands import DRAIN
from workers.rank.run_context import Result, RunContext
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.transformers_engine import TransformersEngine
from workers.trainers.inference.engines import load_engine
from workers.trainers.inference.serving.adapters import ProjectAdapters
from workers.trainers.inference.serving.loop import GenerationLoop
from workers.trainers.inference.serving.openai.served_model import ServedModel, served_model
from workers.trainers.inference.serving.reports import Reports
from workers.trainers.inference.serving.server import SOCKET, EngineServer

_POLL_SECONDS = 0.05
_CANCEL = "cancel"
# How long answers may take to finish after a stop; the platform waits a little longer.
_FINISH_SECONDS = {DRAIN: 60.0, _CANCEL: 0.0}
_REQUEUE_SECONDS = 25.0


class ReplicaTrainer:
    """Runs on one device: more of them are more replicas."""

    def __init__(self, context: RunContext) -> None:
        if context.spec.world_size > 1:
            raise InvalidConfig(
                "resource_config.gpu_count: a replica runs on one device; leave it out, and set replicas.max instead"
            )
        self.context = context
        self._reports = Reports(context)
        self._adapters = ProjectAdapters(context)

    def run(self) -> Result:
        """As Trainer.run."""
        with self.context.section("loading"):
            model = self._load()
            loop = self._loop(model)
            path = self.context.spec.run_dir / SOCKET
            server = EngineServer(model, loop, path, on_batch=self._reports.batch)
            loop.start()
            try:
                server.start()
            except BaseException:
                loop.close()
                raise
        self.context.phase("SERVING")
        try:
            stopped = self._serve(server)
        finally:
            self._reports.close()
            server.close()  # first, because the loop's end may take as long as a batch
            loop.close()
        made = self._reports.made
        return Result(stopped=None if stopped == DRAIN else stopped, step=made.steps, tokens=made.tokens)

    def _load(self) -> ServedModel:
        engine = load_engine(self.context.spec)
        if not isinstance(engine, TransformersEngine):
            raise InvalidConfig("training_config.framework.type: this engine serves no requests; use TRANSFORMERS")
        return served_model(self.context.spec, engine)

    def _loop(self, model: ServedModel) -> GenerationLoop:
        return GenerationLoop(
            model.engine,
            self._adapters,
            max_waiting=model.serving.max_waiting,
            on_step=self._reports.step,
            max_context=model.serving.max_context,
            max_loaded=model.serving.max_loaded,
            max_rank=model.serving.max_rank,
        )

    def _serve(self, server: EngineServer) -> str:
        """Until a stop, and until the answers that it leaves time for are finished; the kind of the stop."""
        while (stop := self.context.stop) is None:
            self._pass(server)
        server.drain()
        since = time.monotonic()
        while server.open_requests:
            stop = self.context.stop or stop  # a cancel replaces the others
            if time.monotonic() - since >= _FINISH_SECONDS.get(stop.kind, _REQUEUE_SECONDS):
                break
            self._pass(server)
        return stop.kind

    def _pass(self, server: EngineServer) -> None:
        if server.loop.error is not None:
            raise server.loop.error
        counts = server.loop.counts
        # Requests that wait for an adapter to be fetched have no steps for as long as it takes.
        works = bool(counts.in_flight or (server.open_requests and not self._adapters.are_fetched))
        self._reports.update(counts, works=works)
        time.sleep(_POLL_SECONDS)
