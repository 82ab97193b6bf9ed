"""Texts of growing answers: whole characters, and nothing that may become a stop text."""

import pytest

from workers.trainers.inference.engine.stopping import decoded
from workers.trainers.inference.serving.text_stream import TextStream


def parts(tokenizer, text, stops=()):
    """What is said after each of the text's tokens."""
    tokens = tokenizer(text).input_ids
    stream = TextStream(tokenizer, stops)
    return tokens, [stream.more(tokens[: place + 1]) for place in range(len(tokens))]


@pytest.mark.parametrize("text", ["def get_name(self, key)", "grüße 👩‍🚀 日本", "a b  c\n\n d", "e\u0301"])
def test_the_parts_are_the_text(tokenizer, text):
    tokens, found = parts(tokenizer, text)

    assert "".join(part for part, _ in found) == decoded(tokenizer, tokens) == text
    assert found[-1][1] == len(tokens)


def test_no_part_ends_within_a_character(tokenizer):
    _, found = parts(tokenizer, "日👩‍🚀")

    assert not any("\ufffd" in part for part, _ in found)
    assert any(not part for part, _ in found)


def test_what_may_become_a_stop_text_is_held_back(tokenizer):
    _, found = parts(tokenizer, "xy##z##", stops=("##!",))

    said = "".join(part for part, _ in found)
    assert said == "xy##z"


def test_tokens_are_said_with_their_text(tokenizer):
    tokens, found = parts(tokenizer, "qwx#", stops=("#!",))

    assert [count for _, count in found][-1] == len(tokens) - 1


def test_special_tokens_have_no_text(tokenizer):
    tokens = [*tokenizer("ab").input_ids, tokenizer.bos_token_id, *tokenizer(" c").input_ids]
    stream = TextStream(tokenizer, ())

    found = [stream.more(tokens[: place + 1]) for place in range(len(tokens))]

    assert "".join(part for part, _ in found) == "ab c"
    assert found[-1][1] == len(tokens)
