"""Options that only served requests have: penalties, bias, likeliest tokens."""

import pytest
import torch

from workers.trainers.inference.engine.interface import Prompt, SamplingParams
from workers.trainers.inference.engine.sampling import Sampler, choose_each
from workers.trainers.inference.serving.paged_schedule import PagedSchedule

VOCABULARY = 6


def chosen(tokenizer, logits, answered=(), **options):
    """The token that is chosen after `answered`, and the request."""
    sampler = Sampler(SamplingParams(max_new_tokens=99, **options), tokenizer, ends=())
    running = sampler.begin(Prompt(tokens=[1, 2]))
    running.tokens.extend(answered)
    token = int(choose_each([running], torch.tensor([logits]))[0])
    return token, running


@pytest.mark.parametrize(
    ("options", "answered", "token"),
    [
        ({}, [4, 4], 4),
        ({"frequency_penalty": 0.4}, [4], 4),
        ({"frequency_penalty": 0.6}, [4, 4], 3),
        ({"presence_penalty": 0.6}, [4, 4], 4),
        ({"presence_penalty": 1.2}, [4], 3),
        ({"presence_penalty": 1.2}, [4, 3], 4),
        ({"frequency_penalty": -0.6}, [3, 3], 3),
        ({"presence_penalty": 2.0}, [], 4),
        ({"logit_bias": {4: -100.0}}, [], 3),
        ({"logit_bias": {0: 100.0}}, [], 0),
        ({"logit_bias": {3: 1.5}, "presence_penalty": 1.0}, [3], 4),
    ],
)
def test_penalties_count_the_answers_tokens_and_bias_is_added(tokenizer, options, answered, token):
    logits = [0.0, 1.0, 1.5, 2.0, 3.0, 0.0]  # 1 and 2 are the prompt's

    assert chosen(tokenizer, logits, answered, **options)[0] == token


def test_likeliest_tokens_are_those_before_options(tokenizer):
    logits = [0.0, 1.0, 1.5, 2.0, 3.0, 0.0]

    token, running = chosen(tokenizer, logits, logprobs=True, top_logprobs=2, logit_bias={0: 100.0})

    every = torch.tensor(logits).log_softmax(-1).tolist()
    assert token == 0
    assert running.logprobs == pytest.approx([every[0]])
    assert [each for each, _ in running.tops[0]] == [4, 3]
    assert [value for _, value in running.tops[0]] == pytest.approx([every[4], every[3]])


def test_no_more_likeliest_tokens_than_there_are(tokenizer):
    _, running = chosen(tokenizer, [0.0, 1.0], logprobs=True, top_logprobs=20)

    assert len(running.tops[0]) == 2


def test_requests_with_different_options_share_a_step(tokenizer):
    options = [
        {},
        {"logit_bias": {5: 100.0}},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0},
        {"logprobs": True},
        {},
    ]
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(len(options), VOCABULARY, generator=generator)

    def begun(row):
        sampler = Sampler(SamplingParams(max_new_tokens=9, **options[row]), tokenizer, ends=())
        return sampler.begin(Prompt(tokens=[1], seed=row))

    together = [begun(row) for row in range(len(options))]
    found = choose_each(together, logits).tolist()

    alone = [int(choose_each([begun(row)], logits[row : row + 1])[0]) for row in range(len(options))]
    assert found == alone == [each.tokens[-1] for each in together]
    assert [len(each.logprobs) for each in together] == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("options", [{"temperature": 1e-38}, {"repetition_penalty": 1e-40}])
def test_options_that_leave_no_token_are_not_the_models_fault(tokenizer, options):
    sampler = Sampler(SamplingParams(max_new_tokens=9, **options), tokenizer, ends=())
    running = sampler.begin(Prompt(tokens=[1]))

    choose_each([running], torch.tensor([[1.0, 5.0, 2.0]]))

    assert (running.finish_reason, running.tokens) == ("NO_CHOICE", [])


def test_a_row_that_is_not_finite_ends_its_own_request_alone(tokenizer):
    sampler = Sampler(SamplingParams(max_new_tokens=9, logprobs=True), tokenizer, ends=())
    running = [sampler.begin(Prompt(tokens=[1])) for _ in range(2)]

    choose_each(running, torch.tensor([[float("nan"), 1.0], [0.0, 1.0]]))

    assert [each.finish_reason for each in running] == ["NOT_FINITE", ""]
    assert [each.tokens for each in running] == [[], [1]]
    assert [len(each.logprobs) for each in running] == [0, 1]


def test_others_go_on_where_options_leave_no_token(serve, llama, prompts, monkeypatch):
    asking = serve(llama)
    alone = asking.ask(prompts[1], max_new_tokens=40, logit_bias={2: -100}).wait().tokens
    monkeypatch.setattr(PagedSchedule, "_start_again", None)
    other = asking.ask(prompts[1], max_new_tokens=40, logit_bias={2: -100})

    found = asking.ask(prompts[0], temperature=1e-38).wait()

    assert found.last.refused.code == "NO_CHOICE"
    assert other.wait().tokens == alone
