"""A request for which the model computes no finite numbers is refused, and the others of its call are answered."""

import pytest
import torch

from tests.builders.engine_specs import engine_spec, loaded_engine
from workers.trainers.inference.engine.interface import Completion, Prompt, RequestRefused, SamplingParams

BROKEN = 77  # a token whose embedding is not a number
GREEDY = SamplingParams(max_new_tokens=4, logprobs=True)
SAMPLED = SamplingParams(max_new_tokens=4, temperature=0.8, top_p=0.9)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(("kind", "config"), [("llama", {}), ("gemma2", {"head_dim": 8, "tie_word_embeddings": False})])
def test_only_the_request_itself_is_refused(save_model, prompts, kind, config, sampling):
    engine = loaded_engine(engine_spec(save_model(f"{kind}-untied", kind, **config)))
    requests = [Prompt(tokens=tokens) for tokens in ([5, 6, 7, 8], [5, BROKEN, 7, 8], prompts[0])]
    expected = engine.generate(requests, sampling)
    assert isinstance(expected[1], Completion)
    embedding = engine.model.get_input_embeddings().weight
    with torch.no_grad():
        embedding[BROKEN] = torch.nan if kind == "llama" else torch.inf

    found = engine.generate(requests, sampling)

    assert isinstance(found[1], RequestRefused)
    assert (found[1].code, "token 1 of the answer is not a finite number" in found[1].message) == ("NOT_FINITE", True)
    assert [found[0].tokens, found[2].tokens] == [expected[0].tokens, expected[2].tokens]
