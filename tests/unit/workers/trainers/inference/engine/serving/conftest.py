"""A loop over a tiny model, and adapters that were made for it."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tests.builders.engine_specs import engine_spec, loaded_engine
from tests.systems.once import once
from workers.rank.run_context import AdapterNotLoaded
from workers.trainers.inference.engine.transformers_engine import TransformersEngine
from workers.trainers.inference.serving.loop import GenerationLoop, Handle
from workers.trainers.inference.serving.requests import Delta, GenerationRequest, ServedSampling

SECONDS = 30


class Directories:
    """Adapters by name; `fetched` are the names in the order in which they were asked for."""

    def __init__(self) -> None:
        self.by_name: dict[str, Path] = {}
        self.fetched: list[str] = []
        self.may_fetch = threading.Event()
        self.may_fetch.set()

    def directory(self, name: str) -> Path:
        self.fetched.append(name)
        assert self.may_fetch.wait(SECONDS)
        if name not in self.by_name:
            raise AdapterNotLoaded(f"there is no adapter {name}")
        return self.by_name[name]


class Collected:
    """The deltas of one request."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.has_ended = threading.Event()
        self.began = threading.Event()
        self.handle: Handle | None = None

    def __call__(self, delta: Delta) -> None:
        self.deltas.append(delta)
        self.began.set()
        if delta.is_last:
            self.has_ended.set()

    def wait(self) -> "Collected":
        assert self.has_ended.wait(SECONDS)
        return self

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token.id for delta in self.deltas for token in delta.tokens)

    @property
    def last(self) -> Delta:
        return self.deltas[-1]


class Asking:
    """A started loop with its adapters, and the totals of its steps."""

    def __init__(self, engine: TransformersEngine, **options: Any) -> None:
        self.adapters = Directories()
        self.steps: list[Any] = []
        self.loop = GenerationLoop(
            engine, self.adapters, **{"max_waiting": 100, "on_step": self.steps.append, **options}
        )
        self.loop.start()

    def ask(self, prompt: list[int], *, seed: int = 0, adapter: str | None = None, **sampling: Any) -> Collected:
        found = Collected()
        options = ServedSampling(**{"max_new_tokens": 8, **sampling})
        request = GenerationRequest(prompt=tuple(prompt), sampling=options, seed=seed, adapter=adapter)
        found.handle = self.loop.submit(request, found)
        return found


@pytest.fixture
def serve() -> Iterator[Callable[..., Asking]]:
    """`serve(directory, **options)`: a loop over a model of its own, because adapters change it."""
    begun: list[Asking] = []

    def begin(directory: Path, **options: Any) -> Asking:
        begun.append(Asking(loaded_engine(engine_spec(directory)), **options))
        return begun[-1]

    yield begin
    for each in begun:
        each.loop.close()


@pytest.fixture(scope="session")
def save_adapter(run_directory: Path) -> Callable[..., Path]:
    """`save_adapter(name, base, **config)`: a LoRA with random weights."""

    def save(name: str, base: Path, **config: Any) -> Path:
        return once(run_directory / f"adapter-{name}", lambda directory: write(directory, name, base, config))

    def write(directory: Path, name: str, base: Path, config: dict[str, Any]) -> None:
        torch.manual_seed(sum(name.encode()))
        values = {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **config}
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(**values))
        for parameter in (each for each in model.parameters() if each.requires_grad):
            parameter.data.normal_()
        model.save_pretrained(str(directory))

    return save
