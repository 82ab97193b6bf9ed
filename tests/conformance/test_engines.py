"""What every engine of inference jobs must do, whatever computes its answers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.domain.spec.inference import TRANSFORMERS
from tests.builders.engine_specs import engine_spec
from workers.trainers.failures import InvalidConfig
from workers.trainers.inference.engine.interface import (
    LENGTH,
    STOP,
    Completion,
    Continuation,
    Engine,
    Interrupted,
    Pooling,
    Prompt,
    RequestRefused,
    SamplingParams,
)
from workers.trainers.inference.engines import ENGINES, load_engine

TEXTS = ("def get_name(self, default=None):", "class Reader", "def f(x", "def close(self, timeout: float, force=True)")
SAMPLED = SamplingParams(max_new_tokens=6, temperature=0.9, top_p=0.95)


@pytest.fixture(scope="module", params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest, demo_assets: Path) -> Iterator[Engine]:
    try:
        found = load_engine(engine_spec(demo_assets / "model", framework=request.param))
    except InvalidConfig as refused:
        if request.param == TRANSFORMERS:  # every node has it
            raise
        pytest.skip(str(refused))
    yield found
    found.close()


@pytest.fixture(scope="module")
def prompts(engine: Engine) -> list[Prompt]:
    return [Prompt(tokens=engine.tokenizer(text).input_ids, seed=number) for number, text in enumerate(TEXTS)]


def test_answers_depend_on_their_own_request_alone(engine, prompts):
    together = engine.generate(prompts, SAMPLED)
    backwards = engine.generate(prompts[::-1], SAMPLED)[::-1]
    alone = [engine.generate([each], SAMPLED)[0] for each in prompts]

    assert [each.tokens for each in together] == [each.tokens for each in backwards] == [each.tokens for each in alone]
    assert all(each.finish_reason in (STOP, LENGTH) for each in together)


def test_log_probabilities_of_answers_are_their_likelihoods(engine, prompts):
    answers = engine.generate(prompts, SamplingParams(max_new_tokens=6, logprobs=True))
    continuations = [
        Continuation(context=prompt.tokens, tokens=answer.tokens)
        for prompt, answer in zip(prompts, answers, strict=True)
    ]

    found = engine.likelihoods(continuations)

    assert [each.logprob for each in found] == pytest.approx([sum(each.logprobs) for each in answers], abs=1e-3)
    assert all(each.is_greedy for each in found)
    assert [each.tokens for each in found] == [len(each.tokens) for each in answers]


def test_a_request_beyond_the_context_is_refused_alone(engine, prompts):
    long = Prompt(tokens=[5] * engine.context_length)

    first, refused, last = engine.generate([prompts[0], long, prompts[1]], SAMPLED)

    assert isinstance(refused, RequestRefused)
    assert refused.code == "CONTEXT_TOO_LONG"
    assert all(str(number) in refused.message for number in (engine.context_length, SAMPLED.max_new_tokens))
    assert isinstance(first, Completion)
    assert isinstance(last, Completion)


def test_an_interrupted_engine_can_be_used_again(engine, prompts):
    with pytest.raises(Interrupted):
        engine.generate(prompts, SAMPLED, lambda: True)
    with pytest.raises(Interrupted):
        engine.likelihoods([Continuation(context=[5], tokens=[6])], lambda: True)

    assert len(engine.generate(prompts, SAMPLED)) == len(prompts)


def test_vectors_have_the_length_of_the_text_or_none(engine, prompts):
    texts = [each.tokens for each in prompts]

    pooled = engine.embeddings(texts, Pooling(normalize=True))
    tokens = engine.embeddings(texts, Pooling(kind="none"))

    assert {each.dtype for each in (*pooled, *tokens)} == {np.dtype("float32")}
    assert [each.shape for each in tokens] == [(len(text), len(pooled[0])) for text in texts]
    assert [float(np.linalg.norm(each)) for each in pooled] == pytest.approx([1.0] * len(texts), abs=1e-5)


def test_no_request_has_no_answer(engine):
    assert engine.generate([], SAMPLED) == engine.likelihoods([]) == engine.embeddings([], Pooling()) == []
