"""Messages of the assistant with weight 0: read and not learned, and records without weights as ever."""

import pytest

from workers.trainers.data.encoded import Encoded
from workers.trainers.data.records import LocatedRecord, records
from workers.trainers.data.shapes import UNLEARNED
from workers.trainers.data.sources import sources_of
from workers.trainers.data.tokenizing import RecordTokenizer
from workers.trainers.failures import DataInvalid

MARKED = "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>"
MARKED += "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ m.weight }}{% endfor %}"
TURNS = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "first"},
    {"role": "assistant", "content": "second"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "third"},
]


def weighted(**weights):
    """The messages, with weights by content."""
    return [{**turn, "weight": weights[turn["content"]]} if turn["content"] in weights else turn for turn in TURNS]


@pytest.fixture
def learned(make_spec, make_tokenizer, write):
    """(ids, text of what is learned) of one line of data."""

    def found(line, *, template=MARKED, **hyperparameters):
        tokenizer = make_tokenizer(chat_template=template)
        spec = make_spec(write(line), hyperparameters=hyperparameters)
        (source,) = sources_of(spec)
        (located,) = records(source, {}, "SFT")
        encoded = RecordTokenizer(tokenizer, spec).encode(located)
        assert isinstance(encoded, Encoded)
        return encoded.input_ids, tokenizer.decode([each for each in encoded.labels if each != -100])

    return found


def test_turn_with_weight_0_is_read_and_not_learned(learned):
    ids, all_ = learned({"messages": TURNS})
    weighed, some = learned({"messages": weighted(first=1, second=0)})

    assert weighed == ids
    assert some == all_.replace("second</s>", "") != all_


def test_weight_1_is_as_none(learned):
    assert learned({"messages": weighted(first=1, second=1.0, third=1)}) == learned({"messages": TURNS})


def test_record_without_weights_has_nothing_beside_its_messages(make_spec, write):
    (source,) = sources_of(make_spec(write({"messages": TURNS}, {"messages": weighted(first=0, third=1)})))

    first, second = records(source, {}, "SFT")

    assert first.record == {"messages": TURNS}
    assert second.record == {"messages": TURNS, UNLEARNED: [1]}


END = "{% generation %}{{ eos_token }}{% endgeneration %}"
ENDED = "{% if not add_generation_prompt and messages[-1].role == 'assistant' %}" + END + "{% endif %}"  # as Phi-3's
# As Gemma's: messages of the assistant that follow each other end as one.
JOINED = "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
JOINED += "{% if loop.last or loop.nextitem.role == 'user' %}{% generation %}</s>{% endgeneration %}{% endif %}"
JOINED += "{% else %}[{{ m.content }}]{% endif %}{% endfor %}"


def test_mark_at_the_end_of_a_conversation_is_of_no_message(learned):
    found = learned({"messages": weighted(first=0)}, template=MARKED + ENDED)[1]

    assert found == "second</s>third</s></s>"


def test_template_that_joins_messages_is_refused_where_it_matters(learned):
    assert learned({"messages": weighted(third=0)}, template=JOINED)[1] == "firstsecond</s>"
    with pytest.raises(DataInvalid, match="the chat template joins the messages 2 and 3 of the assistant"):
        learned({"messages": weighted(second=0)}, template=JOINED)


@pytest.mark.parametrize("completion_only", [True, False])
def test_completions_have_weights_too(learned, completion_only):
    line = {"prompt": TURNS[:1], "completion": weighted(first=0)[1:]}

    ids, text = learned(line, completion_only_loss=completion_only)

    assert ids == learned({"prompt": TURNS[:1], "completion": TURNS[1:]})[0]
    assert "first" not in text
    assert "second" in text
    assert "third" in text


def test_weights_of_many_records_are_those_of_each(make_spec, make_tokenizer, write):
    lines = [{"messages": TURNS}, {"messages": weighted(third=0)}, {"messages": TURNS}]
    spec = make_spec(write(*lines))
    (source,) = sources_of(spec)
    tokenizing = RecordTokenizer(make_tokenizer(chat_template=MARKED), spec)

    found = list(tokenizing.encode_all(records(source, {}, "SFT")))

    assert found == [(each, tokenizing.encode(each)) for each, _ in found]
    labels = [encoded.labels for _, encoded in found if isinstance(encoded, Encoded)]
    assert labels[0] == labels[2] != labels[1]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (weighted(first=0.5), r"line 1: messages 2: weight must be 0 or 1; it is float '0.5'"),
        (weighted(first=True), r"line 1: messages 2: weight must be 0 or 1; it is bool"),
        (weighted(two=0), r"line 1: messages 4: weight is for messages of the assistant, and this is the user's"),
        (weighted(first=0, second=0, third=0), "no turn of the assistant to learn: all of them have weight 0"),
    ],
)
def test_other_weights_are_refused(learned, messages, message):
    with pytest.raises(DataInvalid, match=message):
        learned({"messages": messages})


def test_default_template_marks_its_turns(make_spec, make_tokenizer, write):
    tokenizer, spec = make_tokenizer(), make_spec(write({}))
    record = {"messages": TURNS, UNLEARNED: [4]}

    encoded = RecordTokenizer(tokenizer, spec).encode(LocatedRecord(record, "data.jsonl line 1"))
    assert isinstance(encoded, Encoded)

    assert tokenizer.decode([each for each in encoded.labels if each != -100]) == "first</s>second</s>"
