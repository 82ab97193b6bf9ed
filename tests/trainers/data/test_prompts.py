"""Prompts to complete: their shapes, the columns beside them, and what becomes of those that are too long."""

import json

import pytest

from workers.trainers.data.datasets import load
from workers.trainers.data.encoded import RECORD
from workers.trainers.data.records import records
from workers.trainers.data.sources import sources_of
from workers.trainers.failures import DataInvalid

QUESTION = {"role": "user", "content": "2 + 2?"}
ANSWER = {"role": "assistant", "content": "4"}
TEXT = {"prompt": "2 + 2 =", "columns": {"completion": " 4", "level": 3}}
CHAT = {"prompt": [QUESTION], "columns": {"level": 3, "answer": "4"}}
VALUES = {"max_prompt_length": 0, "max_completion_length": 20}
BOS = 0


@pytest.fixture
def made(write, make_spec):
    """The records of lines, with a field mapping."""

    def found(*lines, **mapping):
        (source,) = sources_of(make_spec(write(*lines)))
        return [each.record for each in records(source, mapping, "RLHF")]

    return found


@pytest.fixture
def loaded(tmp_path, write, make_spec, make_tokenizer):
    """The splits of lines, with these settings."""

    def splits(*lines, max_seq_length=40, values=None, tokenizer=None, **preprocess):
        spec = make_spec(
            write(*lines),
            training_type="RLHF",
            max_seq_length=max_seq_length,
            preprocess=preprocess,
            hyperparameters={**VALUES, **(values or {})},
        )
        return load(spec, tokenizer or make_tokenizer(), tmp_path / "cache")

    return splits


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ({"prompt": "2 + 2 =", "completion": " 4", "level": 3}, TEXT),
        ({"prompt": [QUESTION], "level": 3, "answer": "4"}, CHAT),
        ({"messages": [QUESTION, ANSWER], "level": 3}, CHAT),
        ({"messages": json.dumps([QUESTION]), "level": 3, "answer": "4"}, CHAT),
        ({"messages": [QUESTION, ANSWER], "level": 3, "answer": "4"}, CHAT),
        ({"conversations": [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}], "level": 3}, CHAT),
    ],
)
def test_prompt_stands_beside_the_columns_for_the_reward(made, line, record):
    assert made(line) == [record]


def test_answer_that_is_given_counts_more_than_what_the_assistant_said(made):
    (record,) = made({"messages": [QUESTION, ANSWER], "answer": "four"})

    assert record == {"prompt": [QUESTION], "columns": {"answer": "four"}}


def test_mapping_names_the_prompt(made):
    assert made({"question": "2 + 2 =", "completion": " 4", "level": 3}, prompt="question") == [TEXT]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"text": "x"}], "has neither prompt, nor messages; name their columns .*; the row has text"),
        ([{"prompt": ""}], "prompt must be a text that is not empty"),
        ([{"messages": [ANSWER]}], "has no message before the assistant's"),
        ([{"prompt": "x"}, {"prompt": [QUESTION]}], "has messages, earlier records of this source have prompt"),
    ],
)
def test_record_that_is_no_prompt_is_named(made, lines, message):
    with pytest.raises(DataInvalid, match=message):
        made(*lines)


def test_prompts_keep_their_tokens_and_their_record(loaded, make_tokenizer):
    tokenizer = make_tokenizer()

    splits = loaded({"prompt": "2 + 2 =", "completion": " 4", "level": 3}, tokenizer=tokenizer)

    (row,) = splits.train
    assert row["prompt_ids"] == tokenizer("2 + 2 =")["input_ids"]
    assert json.loads(row[RECORD]) == TEXT
    assert not splits.conversational


def test_messages_end_where_the_assistant_is_to_answer(loaded, make_tokenizer):
    tokenizer = make_tokenizer()

    splits = loaded({"messages": [QUESTION, ANSWER]}, tokenizer=tokenizer, max_seq_length=200)

    wanted = tokenizer.apply_chat_template([QUESTION], add_generation_prompt=True, return_dict=True)["input_ids"]
    assert splits.train[0]["prompt_ids"] == wanted
    assert splits.conversational


def test_special_token_at_the_beginning_is_as_the_job_says(loaded, make_tokenizer):
    with_it = loaded({"prompt": "2"}, tokenizer=make_tokenizer(adds_bos=False), add_bos_token=True)
    without = loaded({"prompt": "2"}, tokenizer=make_tokenizer(adds_bos=True), add_bos_token=False)

    assert with_it.train[0]["prompt_ids"] == [BOS, *without.train[0]["prompt_ids"]]


@pytest.mark.parametrize(
    ("values", "longest"), [({}, 20), ({"max_completion_length": 30}, 10), ({"max_prompt_length": 5}, 5)]
)
def test_longer_prompts_are_left_out(loaded, make_tokenizer, values, longest):
    lines = [{"prompt": "a" * length} for length in range(1, 90)]

    splits = loaded(*lines, values=values)

    lengths = [len(row["prompt_ids"]) for row in splits.train]
    assert max(lengths) == longest
    assert splits.statistics["dropped"] == len(lines) - len(lengths) > 0


def test_prompts_that_are_all_too_long_are_refused_with_a_remedy(loaded):
    with pytest.raises(DataInvalid, match="all 1 prompts are too long, see max_prompt_length"):
        loaded({"prompt": "lazy dog " * 30})
    with pytest.raises(DataInvalid, match=r"the longest prompt 20; raise max_prompt_length .* leaves such prompts out"):
        loaded({"prompt": "lazy dog " * 30}, truncation=False)
