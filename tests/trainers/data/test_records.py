"""Records: the shapes that are known, field mapping, ShareGPT, and what is refused with its row and field."""

import json

import pyarrow as pa
import pytest

from workers.trainers.data.records import records
from workers.trainers.data.sources import DataFile, sources_of
from workers.trainers.failures import DataInvalid, InvalidConfig

CHAT = {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}
PAIR = {"prompt": "2 + 2 =", "completion": " 4"}
CHAT_PAIR = {"prompt": CHAT["messages"][:1], "completion": CHAT["messages"][1:]}
SHARE_GPT = {"conversations": [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}]}


@pytest.fixture
def made(write, make_spec):
    """The records of lines (or of a file) with a field mapping."""

    def found(*lines, mapping=(), training_type="SFT", **document):
        file = lines[0] if isinstance(lines[0], DataFile) else write(*lines)
        (source,) = sources_of(make_spec((file, document)))
        return [each.record for each in records(source, dict(mapping), training_type)]

    return found


@pytest.mark.parametrize("record", [CHAT, PAIR, CHAT_PAIR, {"text": "a text"}])
def test_every_shape_is_read_without_what_it_does_not_need(made, record):
    assert made({**record, "id": 7}, "\n", record) == [record, record]


def test_share_gpt_is_recognised(made):
    assert made(SHARE_GPT) == [CHAT]
    assert made({"messages": SHARE_GPT["conversations"]}) == [CHAT]


@pytest.mark.parametrize(
    ("line", "mapping", "expected"),
    [
        ({"question": "2 + 2 =", "answer": " 4"}, {"prompt": "question", "completion": "answer"}, PAIR),
        ({"prompt": "2 + 2 =", "answer": " 4", "text": "no"}, {"completion": "answer"}, PAIR),
        ({"body": "a text", "messages": []}, {"text": "body"}, {"text": "a text"}),
        (
            {"talk": [{"who": "person", "said": "2 + 2?"}, {"who": "bot", "said": "4"}]},
            {
                "messages": "talk",
                "messages.role": "who",
                "messages.content": "said",
                "roles.person": "user",
                "roles.bot": "assistant",
            },
            CHAT,
        ),
        (
            {"conversations": [{"from": "human", "value": "2 + 2?"}, {"from": "machine", "value": "4"}]},
            {"roles.machine": "assistant"},
            CHAT,
        ),
        (
            {"prompt": [{"who": "person", "content": "2 + 2?"}], "completion": [{"who": "bot", "content": "4"}]},
            {"messages.role": "who", "roles.person": "user", "roles.bot": "assistant"},
            CHAT_PAIR,
        ),
    ],
)
def test_mapping_gives_columns_keys_and_roles_our_names(made, line, mapping, expected):
    assert made(line, mapping=mapping) == [expected]


def test_messages_keep_what_templates_want(made):
    called = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add"}}], "name": None}
    answer = {"role": "tool", "content": [{"type": "text", "text": "4"}, {"type": "text", "text": "!"}]}
    tools = [{"type": "function", "function": {"name": "add"}}]

    (record,) = made({"messages": [called, answer], "tools": json.dumps(tools), "chat_template_kwargs": {"a": 1}})

    assert record == {
        "messages": [
            {"role": "assistant", "content": "", "tool_calls": called["tool_calls"]},
            {"role": "tool", "content": "4!"},
        ],
        "tools": tools,
        "chat_template_kwargs": {"a": 1},
    }


def test_messages_may_be_written_as_json_in_a_column_of_texts(tmp_path, made, write):
    cell = json.dumps(CHAT["messages"]).replace('"', '""')
    assert made(write(f'messages\n"{cell}"\n', name="a.csv")) == [CHAT]


def test_arrow_leaves_out_keys_that_a_message_does_not_have(tmp_path, made):
    messages = [[{**CHAT["messages"][0], "name": "Ann"}, CHAT["messages"][1]]]
    table = pa.table({"messages": messages})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)

    (record,) = made(DataFile(tmp_path / "a.arrow", "a.arrow"))

    assert record["messages"] == messages[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"prompt": "alone"}, r"neither messages, nor prompt and completion, nor text; .*; the row has prompt$"),
        ({"messages": None}, r"neither messages"),
        ({"text": ""}, r"text must be a text that is not empty; it is empty"),
        ({"text": 5}, r"text must be a text that is not empty; it is int '5'"),
        ({"prompt": "a", "completion": ""}, "completion must be a text"),
        ({"prompt": "a", "completion": CHAT["messages"]}, "completion must be a text"),
        ({"prompt": CHAT["messages"], "completion": "a"}, "completion must be a list of messages"),
        ({"prompt": CHAT["messages"], "completion": CHAT["messages"][:1]}, "completion have no turn of the assistant"),
        ({"messages": []}, "messages must be a list of messages that is not empty; it is empty"),
        ({"messages": "hi"}, "messages must be a list of messages that is not empty; it is str 'hi'"),
        ({"messages": ["hi"]}, "messages 1 must be an object with role and content; it is str"),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "user"}]},
            "messages 2: content must be a text; it is null",
        ),
        ({"messages": [{"content": "a"}]}, "messages 1 needs a role, a text, in role; it has content"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "no turn of the assistant to learn; their roles are user"),
        ({**CHAT, "tools": "x"}, "tools must be a JSON array"),
    ],
)
def test_bad_record_is_refused_with_its_row_and_field(made, line, message):
    first = {"text": "fine"} if "text" in line else PAIR if "completion" in line else CHAT

    with pytest.raises(DataInvalid, match=r"^data.jsonl line 2.*" + message):
        made(first, line)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            {"prompt": "question"},
            r"^data.jsonl line 1 has no column question \(preprocess.field_mapping.prompt\); it has",
        ),
        ({"messages": "talk"}, "no column talk"),
        ({"text": "boby"}, "no column boby"),
    ],
)
def test_mapped_column_that_is_not_there_is_named(made, mapping, message):
    with pytest.raises(DataInvalid, match=message):
        made({"body": "x", "completion": "y"}, mapping=mapping)


def test_pretraining_reads_text_only(made):
    assert made({"text": "a", "messages": []}, training_type="CONTINUED_PRETRAIN") == [{"text": "a"}]
    assert made({"body": "a"}, training_type="CONTINUED_PRETRAIN", mapping={"text": "body"}) == [{"text": "a"}]
    with pytest.raises(DataInvalid, match="line 1 has no column text; CONTINUED_PRETRAIN learns text only"):
        made(CHAT, training_type="CONTINUED_PRETRAIN")


def test_one_source_has_one_shape(made):
    with pytest.raises(DataInvalid, match=r"^data.jsonl line 2 has text, earlier records of this source have messages"):
        made(CHAT, {"text": "plain"})


def test_source_without_records_is_refused_with_what_took_them(made):
    with pytest.raises(DataInvalid, match=r"^no records in data.jsonl$"):
        made("\n")
    with pytest.raises(DataInvalid, match=r"no records in data.jsonl that .*sources.0.split and .*filters leave over"):
        made(PAIR, split="train[:50%]", filters=[{"column": "prompt", "op": "is_null"}])


@pytest.mark.parametrize(
    ("document", "message"),
    [({"split": "train[5:2]"}, "sources.0"), ({"filters": [{"column": "a", "op": "like", "value": 1}]}, "like")],
)
def test_source_that_can_mean_nothing_is_a_wrong_configuration(made, document, message):
    with pytest.raises(InvalidConfig, match=message):
        made(PAIR, **document)
