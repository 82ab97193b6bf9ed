"""Replicas of tiny models, which run in a thread of the test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModel

from tests.builders.engine_specs import engine_spec
from tests.unit.workers.trainers.inference.engine.conftest import llama, save_model, tokenizer
from tests.unit.workers.trainers.inference.server.socket_client import Replica

__all__ = ["llama", "save_model", "tokenizer"]  # fixtures


@contextmanager
def replicas(directory: Path) -> Iterator[Callable[..., Replica]]:
    started: list[Replica] = []

    def run(model: Path, task: str = "generate", **serving: Any) -> Replica:
        adapters = serving.pop("adapter_directories", {})
        section = {"serving": {"name": "tiny", "max_output_tokens": 64, **serving}}
        run_dir = directory / str(len(started))
        spec = engine_spec(model, task, training_type="REPLICA", inference=section, run_dir=run_dir)
        started.append(Replica(spec, adapters))
        return started[-1]

    try:
        yield run
    finally:
        for replica in started:
            replica.stop()


@pytest.fixture
def run_replica(tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    """Starts a replica of a model: `run_replica(model, task="generate", **fields of the section serving)`.

    `adapter_directories` are those that its supervisor has fetched, by job.
    """
    with replicas(tmp_path) as run:
        yield run


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory, llama: Path) -> Iterator[Replica]:
    with replicas(tmp_path_factory.mktemp("replica")) as run:
        yield run(llama)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory, save_model: Callable[..., Path]) -> Iterator[Replica]:
    with replicas(tmp_path_factory.mktemp("embedder")) as run:
        yield run(save_model("bert", kind="bert", of=AutoModel), task="embed")
