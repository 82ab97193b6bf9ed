"""Rollouts of the tests in this folder, whose ranks are threads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from tests.trainers.supervision import free_port
from tests.unit.workers.trainers.inference.stand_in_engine import word_tokenizer
from tests.unit.workers.trainers.rollouts.asking import SECRET, Start, stop
from workers.rank.run_context import RunSpec
from workers.trainers.rollouts.completer import Completer
from workers.trainers.rollouts.places import InstanceAddress
from workers.trainers.rollouts.request_handler import RequestHandler
from workers.trainers.rollouts.server import RolloutServer


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return word_tokenizer()


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    given = {"run_dir": str(tmp_path), "framework": "HF_TRAINER", "training_type": "RLHF", "data_config": {"seed": 5}}
    return RunSpec.from_document({**given, "device_type": "cpu", "training_config": {}})


@pytest.fixture
def start(tokenizer: PreTrainedTokenizerBase, spec: RunSpec, tmp_path: Path) -> Iterator[Start]:
    """Starts the ranks of an instance, each with a model of its own."""
    servers: list[RolloutServer] = []

    def begin(*models: Any, index: int = 0, port: int = 0) -> InstanceAddress:
        place = InstanceAddress("rollout", index, "127.0.0.1", port or free_port())
        for rank, model in enumerate(models):
            server = RolloutServer(place, rank, len(models), SECRET, tmp_path)
            server.start()
            server.ready(RequestHandler(model, Completer(model, tokenizer, spec), patience_seconds=0.1))
            servers.append(server)
        return place

    yield begin
    stop(*servers)
