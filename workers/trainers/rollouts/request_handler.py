"""What a rollout does for each request: it takes over weights, and completes prompts with them."""

import threading
import traceback

import torch
from torch import nn

from workers.trainers import failures
from workers.trainers.inference.engine.interface import Prompt
from workers.trainers.rollouts import requests
from workers.trainers.rollouts.completer import Completer, SamplingOptions
from workers.trainers.rollouts.weights import OtherModel, check, dtype_of_weights, frozen_digest, take
from workers.trainers.rollouts.wire import Wire

PATIENCE_SECONDS = 10.0  # for the rank that sends weights to all; then any other rank may
_TRANSFER_SECONDS = 60.0  # without a byte of weights that are being sent
_DESCRIBED_SECONDS = 600.0  # the other side may first make a digest of its base model


class RequestHandler:
    """One request at a time, whichever rank it comes from: completions never depend on who else asks."""

    def __init__(self, model: nn.Module, completer: Completer, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._model = model
        self._completer = completer
        self._patience_seconds = patience_seconds
        self._dtype = dtype_of_weights(model)
        self._frozen: str | None = None
        self._version: str | None = None  # None: no weights, or only a part of them
        self._changed = threading.Condition()  # its lock is for the model

    def answer(self, wire: Wire) -> None:
        """Wait for one request and answer it. Raises OSError."""
        header, size = wire.receive()
        if header.get("kind") == requests.WEIGHTS:
            self._take(wire, str(header["version"]))
        elif header.get("kind") == requests.COMPLETE:
            prompts = requests.prompts_of(header, wire, size)
            self._complete(wire, str(header["version"]), prompts, SamplingOptions.from_document(header["options"]))
        else:
            wire.send(_failed(ValueError(f"a request of an unknown kind {header.get('kind')!r:.80}")))

    def _take(self, wire: Wire, version: str) -> None:
        with self._changed:
            if self._version == version:
                wire.send({"kind": requests.HAS})
                return
            if self._frozen is None:
                self._frozen = frozen_digest(self._model, self._dtype)
            wire.send({"kind": requests.SEND, "dtype": self._dtype})
            wire.limit(_DESCRIBED_SECONDS)
            header, _ = wire.receive()
            try:
                dtypes = check(header, self._model, self._frozen)
            except OtherModel as error:
                wire.send(_failed(error))
                wire.limit(None)
                return
            wire.send({"kind": requests.GO})
            self._version = None
            wire.limit(_TRANSFER_SECONDS)
            take(wire, self._model, dtypes)
            wire.limit(None)
            self._version = version
            self._changed.notify_all()
            wire.send({"kind": requests.TAKEN})

    def _complete(self, wire: Wire, version: str, prompts: list[Prompt], options: SamplingOptions) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._version == version, self._patience_seconds):
                wire.send({"kind": requests.NEEDS})
                return
            try:
                found = self._completed(prompts, options)
            except Exception as error:  # noqa: BLE001  the training fails by it, whatever it is
                traceback.print_exc()
                wire.send(_failed(error))
                return
        requests.send_completions(wire, found)

    def _completed(self, prompts: list[Prompt], options: SamplingOptions) -> list[tuple[int, ...]]:
        """In halves, where memory does not suffice for all at once."""
        try:
            return self._completer(prompts, options)
        except Exception as error:
            if not failures.is_out_of_memory(error) or len(prompts) < 2:
                raise
            print(f"{type(error).__name__}: {len(prompts)} prompts are completed in halves", flush=True)  # noqa: T201
        # Outside of the handler, which keeps what the failed call has held.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        half = len(prompts) // 2
        return [*self._completer(prompts[:half], options), *self._completer(prompts[half:], options)]


def _failed(error: Exception) -> dict[str, str]:
    message = str(error) if isinstance(error, failures.TrainingFailure) else f"{type(error).__name__}: {error}"
    # The memory of a rollout is not the training's, which would try again with smaller batches.
    kind = failures.TrainingFailure.error_type if failures.is_out_of_memory(error) else failures.error_type(error)
    return {"kind": requests.FAILED, "error_type": kind, "message": message[:4000]}
