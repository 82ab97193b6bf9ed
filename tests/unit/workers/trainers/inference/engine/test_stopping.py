"""Where answers end: end-of-sequence tokens, lengths, and stop texts across the borders of tokens."""

import pytest

from workers.trainers.inference.engine.interface import LENGTH, STOP, Prompt, SamplingParams
from workers.trainers.inference.engine.stopping import StopTexts, decoded

TEXT = "Return the name, or the default.\n\nMore — «text»."


def steps_until_stopped(stop: StopTexts, tokens):
    return next((count for count in range(1, len(tokens) + 1) if stop.reached(tokens[:count])), None)


@pytest.mark.parametrize("end", ["\n\n", "name, o", "t.", " — «te", "e def", "the default.\n\nMore"])
def test_stop_texts_lie_across_tokens(tokenizer, end):
    tokens = tokenizer(TEXT).input_ids
    stop = StopTexts([end], tokenizer)

    count = steps_until_stopped(stop, tokens)
    text, kept = stop.cut(tokens[:count])

    assert text == TEXT[: TEXT.index(end)]
    assert text.startswith(decoded(tokenizer, kept))
    assert list(kept) == tokens[: len(kept)]
    assert end not in decoded(tokenizer, tokens[: count - 1])


def test_the_first_of_several_stop_texts_ends_the_answer(tokenizer):
    tokens = tokenizer(TEXT).input_ids

    assert StopTexts(["default", "name", "absent"], tokenizer).cut(tokens)[0] == "Return the "


def test_text_without_a_stop_text_is_whole(tokenizer):
    tokens = tokenizer(TEXT).input_ids
    stop = StopTexts(["absent"], tokenizer)

    assert steps_until_stopped(stop, tokens) is None
    assert stop.cut(tokens) == (TEXT, tuple(tokens))


def test_a_request_ends_at_its_stop_text(engine, prompts):
    (whole,) = engine.generate([Prompt(tokens=prompts[3])], SamplingParams(max_new_tokens=8))
    end = whole.text[3:5]

    found, other = engine.generate(
        [Prompt(tokens=prompts[3]), Prompt(tokens=prompts[5])],
        SamplingParams(max_new_tokens=8, stop=(end,), logprobs=True),
    )

    assert (found.text, found.finish_reason) == (whole.text[: whole.text.index(end)], STOP)
    assert len(found.logprobs) == len(found.tokens) < len(whole.tokens)
    assert other.finish_reason in (STOP, LENGTH)


def test_an_end_of_sequence_token_is_no_part_of_the_answer(engine, prompts, monkeypatch):
    (whole,) = engine.generate([Prompt(tokens=prompts[2])], SamplingParams(max_new_tokens=8))
    monkeypatch.setattr(engine, "_ends", frozenset({whole.tokens[4]}))

    (found,) = engine.generate([Prompt(tokens=prompts[2])], SamplingParams(max_new_tokens=8))

    assert found.tokens == whole.tokens[: whole.tokens.index(whole.tokens[4])]
    assert (whole.finish_reason, found.finish_reason) == (LENGTH, STOP)
