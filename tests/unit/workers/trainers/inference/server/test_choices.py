"""What choices make of deltas that a tiny model does not produce."""

import math

from transformers import PreTrainedTokenizerBase

from workers.trainers.inference.serving.openai.chance import drawn
from workers.trainers.inference.serving.openai.choices import ChatChoice, TextChoice
from workers.trainers.inference.serving.openai.token_texts import TokenTexts
from workers.trainers.inference.serving.openai.tool_calls import ToolText
from workers.trainers.inference.serving.requests import Delta, TokenInfo


def test_impossible_token_has_a_finite_logarithm(tokenizer: PreTrainedTokenizerBase) -> None:
    texts = TokenTexts(tokenizer)
    token = TokenInfo(id=5, logprob=-0.5, top=((5, -0.5), (6, -math.inf)))
    delta = Delta(text="x", tokens=(token,), finish_reason="stop")
    choices = (ChatChoice(0, ToolText(), texts, drawn()), TextChoice(0, "", texts))
    for choice in choices:
        list(choice.add(delta))

    chat, text = (choice.whole()["logprobs"] for choice in choices)

    assert [each["logprob"] for each in chat["content"][0]["top_logprobs"]] == [-0.5, -9999.0]
    assert min(text["top_logprobs"][0].values()) == -9999.0


def test_token_may_be_a_part_of_a_character(tokenizer: PreTrainedTokenizerBase) -> None:
    texts = TokenTexts(tokenizer)

    ids = tokenizer("é€").input_ids

    assert b"".join(map(texts.content, ids)) == "é€".encode()
    assert any(texts.text(each) == "\ufffd" for each in ids)
    assert texts.content(10_000) == b""
