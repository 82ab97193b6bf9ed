"""EleutherAI's lm-evaluation-harness with its own client of completions, over a gateway and a replica of a model."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.engine_specs import engine_spec, loaded_engine
from tests.systems.gateways import GatewaySite
from tests.unit.workers.trainers.inference.engine.conftest import llama, save_model, tokenizer
from tests.unit.workers.trainers.inference.server.conftest import run_replica
from tests.unit.workers.trainers.inference.server.socket_client import Replica
from workers.trainers.inference.engine.interface import Continuation

pytest.importorskip("lm_eval", reason="needs the extra evaluate")
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

__all__ = ["llama", "run_replica", "save_model", "tokenizer"]  # fixtures
PAIRS = [("Return the", " name"), ("Return the", " key of the list"), ("No text", " here"), ("if x:", " return x")]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_likelihoods_are_those_of_the_engine(
    site: GatewaySite,
    run_replica: Callable[..., Replica],
    llama: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batch_size: int,
) -> None:
    site.replica(site.service(), run_replica(llama).socket)
    monkeypatch.setenv("OPENAI_API_KEY", site.key)
    client = LocalCompletionsAPI(
        base_url=f"http://127.0.0.1:{site.port}/v1/completions",
        model="support",
        tokenizer=str(llama),
        tokenizer_backend="huggingface",
        batch_size=batch_size,
        max_length=128,
    )
    asked = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(PAIRS)]

    found = client.loglikelihood(asked, disable_tqdm=True)

    engine = loaded_engine(engine_spec(llama, run_dir=tmp_path))
    wanted = engine.likelihoods([_continuation(client, *pair) for pair in PAIRS])
    assert [greedy for _, greedy in found] == [each.is_greedy for each in wanted]
    assert all(math.isclose(one, other.logprob, abs_tol=1e-4) for (one, _), other in zip(found, wanted, strict=True))


def _continuation(client: Any, context: str, text: str) -> Continuation:
    """With the tokens that the harness makes."""
    context_tokens, tokens = client._encode_pair(context, text)
    return Continuation(context=tuple(context_tokens), tokens=tuple(tokens))
