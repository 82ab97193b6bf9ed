"""Preferences: their shapes, what is refused with its row and field, and what of a pair is left when it is cut."""

import pytest

from workers.trainers.data.datasets import load
from workers.trainers.data.records import LocatedRecord, records
from workers.trainers.data.sources import sources_of
from workers.trainers.data.tokenizing import RecordTokenizer
from workers.trainers.failures import DataInvalid

QUESTION = {"role": "user", "content": "2 + 2?"}
RIGHT, WRONG = ({"role": "assistant", "content": text} for text in ("4", "five"))
TEXTS = {"prompt": "2 + 2 =", "chosen": " 4", "rejected": " five"}
CHATS = {"prompt": [QUESTION], "chosen": [RIGHT], "rejected": [WRONG]}
WHOLE_CHATS = {"chosen": [QUESTION, RIGHT], "rejected": [QUESTION, WRONG]}
BOS, EOS = 0, 1


@pytest.fixture
def made(write, make_spec):
    """The records of lines, with a field mapping."""

    def found(*lines, **mapping):
        (source,) = sources_of(make_spec(write(*lines)))
        return [each.record for each in records(source, mapping, "DPO")]

    return found


@pytest.fixture
def encode(make_spec, make_tokenizer, write):
    """A pair's ids, with these settings."""

    def encoded(record, *, max_seq_length=999, **preprocess):
        spec = make_spec(write({}), training_type="DPO", max_seq_length=max_seq_length, preprocess=preprocess)
        return RecordTokenizer(make_tokenizer(), spec).encode(LocatedRecord(record, "data.jsonl line 7"))

    return encoded


@pytest.mark.parametrize(("line", "record"), [(TEXTS, TEXTS), (CHATS, CHATS), (WHOLE_CHATS, CHATS)])
def test_every_shape_is_read_without_what_it_does_not_need(made, line, record):
    assert made({**line, "id": 7, "messages": "no"}, line) == [record, record]


def test_mapping_gives_columns_keys_and_roles_our_names(made):
    texts = {"question": "2 + 2 =", "good": " 4", "bad": " five"}
    chats = {
        "good": [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}],
        "bad": [{"from": "human", "value": "2 + 2?"}, {"from": "bot", "value": "five"}],
    }

    assert made(texts, prompt="question", chosen="good", rejected="bad") == [TEXTS]
    assert made(chats, chosen="good", rejected="bad", **{"roles.bot": "assistant"}) == [CHATS]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            {"prompt": "a", "completion": "b"},
            r"no column chosen, rejected; DPO learns from .*; the row has prompt, com",
        ),
        ({"prompt": "a", "chosen": "b"}, "no column rejected"),
        ({"chosen": "a b", "rejected": "a c"}, r"no column prompt; .* in preprocess.field_mapping.prompt"),
        ({**TEXTS, "chosen": ""}, "chosen must be a text that is not empty; it is empty"),
        ({**TEXTS, "rejected": None}, "rejected must be a text that is not empty; it is null"),
        ({**TEXTS, "chosen": [RIGHT]}, "chosen must be a text .*; where the prompt is a text, what answers it is one"),
        ({**CHATS, "chosen": "4"}, "chosen must be a list of messages"),
        ({**CHATS, "rejected": [QUESTION]}, "rejected have no turn of the assistant"),
        ({"chosen": [RIGHT], "rejected": [WRONG]}, "no message in common that they begin with, which is the prompt"),
        ({"chosen": [QUESTION, RIGHT], "rejected": [QUESTION, RIGHT]}, "chosen has no turn of the assistant after"),
    ],
)
def test_what_is_wrong_is_named_with_its_row(made, line, message):
    with pytest.raises(DataInvalid, match=rf"^data.jsonl line 2.*{message}"):
        made(WHOLE_CHATS if "prompt" not in line else TEXTS if isinstance(line["prompt"], str) else CHATS, line)


@pytest.mark.parametrize("record", [TEXTS, CHATS])
def test_bos_is_the_prompts_and_both_answers_end(encode, record):
    pair, bare = encode(record, add_bos_token=True), encode(record, add_bos_token=False, add_eos_token=False)

    assert pair.prompt_ids == [BOS, *bare.prompt_ids]
    assert (pair.chosen_ids, pair.rejected_ids) == ([*bare.chosen_ids, EOS], [*bare.rejected_ids, EOS])
    assert pair.full_length == len(pair.prompt_ids) + len(pair.rejected_ids)


def test_what_is_cut_is_the_end_of_answers_or_the_beginning_of_the_prompt(encode):
    whole = encode(TEXTS)
    prompt, chosen, rejected = whole.prompt_ids, whole.chosen_ids, whole.rejected_ids
    fits = whole.full_length - 1

    end = encode(TEXTS, max_seq_length=fits)
    beginning = encode(TEXTS, max_seq_length=fits, tokenizer_config={"truncation_side": "left"})
    answers_only = encode(TEXTS, max_seq_length=2, tokenizer_config={"truncation_side": "left"})
    prompt_only = encode(TEXTS, max_seq_length=len(prompt))

    assert (end.prompt_ids, end.chosen_ids, end.rejected_ids) == (prompt, chosen, rejected[:-1])
    assert (beginning.prompt_ids, beginning.chosen_ids, beginning.rejected_ids) == (prompt[1:], chosen, rejected)
    assert (answers_only.prompt_ids, answers_only.rejected_ids) == ([], rejected[-2:])
    assert [each.learns for each in (end, beginning, answers_only, prompt_only)] == [True, True, True, False]
    assert [each.truncated for each in (whole, end, beginning, prompt_only)] == [False, True, True, True]
    with pytest.raises(DataInvalid, match=rf"line 7 has {fits + 1} tokens, data_config.max_seq_length is {fits}"):
        encode(TEXTS, max_seq_length=fits, truncation=False)


def test_pairs_are_stored_split_and_streamed_as_they_are(tmp_path, write, make_spec, make_tokenizer):
    file = write(*[{**TEXTS, "prompt": f"{number} ="} for number in range(10)])

    stored = load(make_spec(file, training_type="DPO", validation_split=0.2), make_tokenizer(), tmp_path / "cache")
    streamed = load(make_spec(file, training_type="DPO", streaming=True), make_tokenizer(), tmp_path / "cache")

    assert stored.validation is not None
    pairs = [*stored.train, *stored.validation]
    assert stored.statistics["splits"] == {"train": 8, "validation": 2}
    assert set(pairs[0]) == {"prompt_ids", "chosen_ids", "rejected_ids"}
    first_pass = [pair for pair, _ in zip(streamed.train, range(10), strict=False)]
    assert sorted(pair["prompt_ids"] for pair in first_pass) == sorted(pair["prompt_ids"] for pair in pairs)


TOOLS = [{"type": "function", "function": {"name": "add"}}]
ELSEWHERE = {
    "input": {"messages": [QUESTION], "tools": TOOLS, "parallel_tool_calls": True},
    "preferred_output": [{**RIGHT, "weight": 1}],
    "non_preferred_output": [WRONG],
}


def test_preferences_of_openai_are_read(made):
    assert made(ELSEWHERE, {**ELSEWHERE, "input": {"messages": [QUESTION]}}) == [{**CHATS, "tools": TOOLS}, CHATS]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": "2 + 2?"}, "line 1: input must be an object with messages; it is str"),
        ({"input": {}}, "line 1: input.messages must be a list of messages that is not empty"),
        ({"preferred_output": []}, "line 1: preferred_output must be a list of messages that is not empty"),
        ({"non_preferred_output": [QUESTION]}, "line 1: non_preferred_output have no turn of the assistant"),
    ],
)
def test_bad_preference_of_openai_is_told_in_its_own_words(made, change, message):
    with pytest.raises(DataInvalid, match=message):
        made({**ELSEWHERE, **change})
