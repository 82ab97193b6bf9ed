"""Token ids and labels beyond trl's defaults: BOS and EOS, truncation, templates, and what can't be tokenized."""

import dataclasses
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.trainers.data import templates
from workers.trainers.data.records import LocatedRecord
from workers.trainers.data.tokenizer_threads import all_threads
from workers.trainers.data.tokenizing import RecordTokenizer
from workers.trainers.failures import DataInvalid, InvalidConfig

CHAT = {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}
PAIR = {"prompt": "2 + 2 =", "completion": " 4"}
BOS, EOS = 0, 1


@pytest.fixture
def encode(make_spec, make_tokenizer, write):
    """One record's ids and labels, with these settings."""

    def encoded(record, *, tokenizer=None, hyperparameters=None, training_type="SFT", max_seq_length=999, **preprocess):
        spec = make_spec(
            write({}),
            training_type=training_type,
            hyperparameters=hyperparameters,
            max_seq_length=max_seq_length,
            preprocess=preprocess,
        )
        return RecordTokenizer(tokenizer or make_tokenizer(), spec).encode(LocatedRecord(record, "data.jsonl line 7"))

    return encoded


@pytest.mark.parametrize(
    "record", [CHAT, PAIR, {"text": "a text"}, {"prompt": CHAT["messages"][:1], "completion": CHAT["messages"][1:]}]
)
@pytest.mark.parametrize("adds_bos", [False, True])
def test_bos_is_there_once_or_not_at_all(encode, make_tokenizer, record, adds_bos):
    with_bos = encode(record, tokenizer=make_tokenizer(adds_bos=adds_bos), add_bos_token=True)
    without = encode(record, tokenizer=make_tokenizer(adds_bos=adds_bos), add_bos_token=False)

    assert with_bos.input_ids[0] == BOS
    assert BOS not in with_bos.input_ids[1:]
    assert without.input_ids == with_bos.input_ids[1:]
    assert without.labels == with_bos.labels[1:]


@pytest.mark.parametrize("record", [PAIR, {"text": "a text"}, {"text": "a text</s>"}])
def test_text_and_completions_end_with_eos_unless_disabled(encode, record):
    by_default, asked, refused = encode(record), encode(record, add_eos_token=True), encode(record, add_eos_token=False)

    assert by_default.input_ids[-1] == by_default.labels[-1] == EOS
    assert asked == by_default
    assert refused.input_ids == by_default.input_ids[:-1]


def test_messages_end_as_their_template_does_unless_configured(encode, make_tokenizer):
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"

    def ids(**preprocess):
        return encode(CHAT, tokenizer=make_tokenizer(chat_template=template), **preprocess).input_ids

    assert ids(add_eos_token=True) == [*ids(), EOS]
    assert EOS not in ids()
    assert encode(CHAT).input_ids == [*encode(CHAT, add_eos_token=False).input_ids, EOS]


def test_only_the_assistant_is_learned(encode, make_tokenizer):
    tokenizer = make_tokenizer()
    encoded = encode(CHAT, tokenizer=tokenizer)

    learned = [token for token in encoded.labels if token != -100]
    assert tokenizer.decode(learned) == "4</s>"
    assert tokenizer.chat_template == templates.DEFAULT
    assert encode(CHAT, hyperparameters={"assistant_only_loss": False}).labels == encoded.input_ids


def test_turns_that_are_not_learned_need_marks_or_beginnings(encode, make_tokenizer):
    question, answer, later = *CHAT["messages"], {"role": "assistant", "content": "5"}
    record = {"messages": [question, answer, question, later], "unlearned": [1]}
    each = "[{{ m['role'] }}]{{ m['content'] }}</s>"
    template = f"{{% for m in messages %}}{each}{{% endfor %}}"
    header = "{% if add_generation_prompt %}[assistant]{% endif %}"

    tokenizer = make_tokenizer(chat_template=template + header)
    encoded = encode(record, tokenizer=tokenizer)

    assert tokenizer.decode(encoded.input_ids) == "[user]2 + 2?</s>[assistant]4</s>[user]2 + 2?</s>[assistant]5</s>"
    learned = tokenizer.decode([label for label in encoded.labels if label != -100])
    assert learned == "[user]2 + 2?</s>[assistant][user]2 + 2?</s>[assistant]5</s>"
    with pytest.raises(DataInvalid, match="weight 0 needs a chat template that marks what the assistant says"):
        encode(record, tokenizer=make_tokenizer(chat_template=template.replace("messages", "messages | reverse")))


def test_tokenizer_without_messages_keeps_having_no_template(encode, make_tokenizer):
    tokenizer = make_tokenizer()
    encode(PAIR, tokenizer=tokenizer)

    assert not tokenizer.chat_template


def test_own_template_is_used_and_kept(encode, make_tokenizer):
    tokenizer = make_tokenizer(chat_template="{{ 'theirs' }}")
    encoded = encode(CHAT, tokenizer=tokenizer, chat_template="{{ 'own' }}")

    assert tokenizer.decode(encoded.input_ids) == "own"
    assert tokenizer.chat_template == "{{ 'own' }}"


def test_invalid_template_is_a_wrong_configuration(encode):
    with pytest.raises(InvalidConfig, match=r"^data_config.preprocess.chat_template is no Jinja template: "):
        encode(CHAT, chat_template="{% for %}")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "can't be tokenized: roles must alternate"),
        ("{{ messages[0]['content'] + 1 }}", "can't be tokenized: "),
        ("{{ '' }}", "has no tokens"),
        ("a{% generation %}{% endgeneration %}", "the chat template marks no assistant turn"),
    ],
)
def test_record_that_the_template_refuses_is_named(encode, template, message):
    with pytest.raises(DataInvalid, match=r"^data.jsonl line 7:? " + message):
        encode(CHAT, chat_template=template)


def test_text_that_is_no_unicode_is_named(encode):
    with pytest.raises(DataInvalid, match=r"^data.jsonl line 7 can't be tokenized"):
        encode({"text": "a \ud800 b"})


@pytest.mark.parametrize(("side", "kept"), [(None, slice(0, 5)), ("right", slice(0, 5)), ("left", slice(-5, None))])
def test_long_record_is_cut_on_the_side_that_is_asked_for(encode, side, kept):
    whole = encode(PAIR)
    cut = encode(PAIR, max_seq_length=5, tokenizer_config={"truncation_side": side})

    assert (cut.input_ids, cut.labels) == (whole.input_ids[kept], whole.labels[kept])
    assert (cut.full_length, cut.truncated, cut.learns) == (len(whole.input_ids), True, side == "left")


def test_long_record_is_an_error_where_nothing_may_be_cut(encode):
    length = len(encode(PAIR).input_ids)

    assert encode(PAIR, max_seq_length=length, truncation=False).full_length == length
    with pytest.raises(DataInvalid, match=rf"^data.jsonl line 7 has {length} tokens, .*max_seq_length is 5; raise it"):
        encode(PAIR, max_seq_length=5, truncation=False)


@pytest.mark.parametrize("settings_", [{"hyperparameters": {"packing": True}}, {"training_type": "CONTINUED_PRETRAIN"}])
def test_what_is_packed_later_is_not_cut_before(encode, settings_):
    assert encode({"text": "long " * 9}, max_seq_length=5, **settings_) == encode({"text": "long " * 9})


def test_bos_that_does_not_exist_is_a_wrong_configuration(encode, make_tokenizer):
    tokenizer = make_tokenizer()
    tokenizer.bos_token = None

    with pytest.raises(InvalidConfig, match="the tokenizer has no BOS token"):
        encode(PAIR, tokenizer=tokenizer, add_bos_token=True)


@given(text=st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])), longest=st.integers(1, 30))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ids_and_labels_always_fit(encode, text, longest):
    encoded = encode({"prompt": text, "completion": text}, max_seq_length=longest)

    assert 1 <= len(encoded.input_ids) == len(encoded.labels) <= longest
    assert all(label in (-100, token) for token, label in zip(encoded.input_ids, encoded.labels, strict=True))
    assert encoded.full_length >= len(encoded.input_ids)


@pytest.mark.parametrize(
    "batch",
    [
        [CHAT, {"messages": [*CHAT["messages"], *CHAT["messages"]]}],
        [CHAT, {**CHAT, "chat_template_kwargs": {"add_generation_prompt": True}}, CHAT],
        [PAIR, {"prompt": "a", "completion": "b c d"}],
        [{"prompt": CHAT["messages"][:1], "completion": CHAT["messages"][1:]}] * 2,
        [{"text": "a"}] * 300,
    ],
)
@pytest.mark.parametrize("assistant_only", [False, True])
def test_many_at_a_time_are_as_one_by_one(make_spec, make_tokenizer, write, batch, assistant_only):
    spec = make_spec(write({}), hyperparameters={"assistant_only_loss": assistant_only})
    tokenizing = RecordTokenizer(make_tokenizer(), spec)
    located = [LocatedRecord(record, f"data.jsonl line {number}") for number, record in enumerate(batch)]

    assert list(tokenizing.encode_all(located)) == [(each, tokenizing.encode(each)) for each in located]


def test_one_of_many_that_can_not_be_tokenized_is_named(make_spec, make_tokenizer, write):
    located = [
        LocatedRecord({"text": text}, f"data.jsonl line {number}") for number, text in enumerate(["a", "\ud800", "b"])
    ]
    found = RecordTokenizer(make_tokenizer(), make_spec(write({}))).encode_all(located)

    assert next(found)[0] is located[0]
    with pytest.raises(DataInvalid, match=r"^data\.jsonl line 1 can't be tokenized"):
        next(found)


def test_threads_of_all_ranks_are_used_while_data_is_prepared_and_not_later(make_spec, write, monkeypatch):
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    spec = dataclasses.replace(make_spec(write({}), world_size=4), threads_per_rank=3)

    with all_threads(spec):
        assert (os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"]) == ("true", "12")
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
