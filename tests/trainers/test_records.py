"""Training records: what is read, what is refused with its line, and how validation data is made."""

import json

import pytest

from workers.trainers.failures import DataInvalid, DataNotFound, InvalidConfig
from workers.trainers.hf_trainer import records

CHAT = {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}
PAIR = {"prompt": "2 + 2 =", "completion": " 4"}


@pytest.fixture
def write(tmp_path):
    """Writes a file of JSON Lines and returns its path."""

    def written(*lines, name="data.jsonl"):
        path = tmp_path / name
        path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
        return str(path)

    return written


def load(tmp_path, paths, **data_config):
    return records.load(paths, data_config, tmp_path / "cache")


@pytest.mark.parametrize("record", [CHAT, PAIR, {"text": "a text"}])
def test_every_shape_is_read_without_what_it_does_not_need(tmp_path, write, record):
    splits = load(tmp_path, [write({**record, "id": 7}, "\n", record)])

    assert splits.train.to_list() == [record, record]
    assert splits.validation is None
    assert splits.conversational == ("messages" in record)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{\n", "is not JSON"),
        ("[1]\n", "not a JSON object"),
        ({"prompt": "alone"}, r"neither messages.* it has \['prompt'\]"),
        ({"text": ""}, "text must be a text that is not empty"),
        ({"text": 5}, "text must be a text"),
        ({"messages": []}, "messages must be a list that is not empty"),
        ({"messages": [{"role": "user"}]}, "needs a role and a content"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "no turn of the assistant"),
    ],
)
def test_bad_record_is_refused_with_its_line(tmp_path, write, line, message):
    path = write({"text": "fine"}, line)

    with pytest.raises(DataInvalid, match=r"data.jsonl line 2.*" + message):
        list(records.read(path))


def test_mixed_shapes_are_refused(tmp_path, write):
    with pytest.raises(DataInvalid, match="text, earlier ones are of messages"):
        load(tmp_path, [write(CHAT, {"text": "plain"})])


def test_file_without_records_is_refused(tmp_path, write):
    with pytest.raises(DataInvalid, match=r"no records in data.jsonl"):
        load(tmp_path, [write("\n")])


def test_missing_file_is_named(tmp_path):
    with pytest.raises(DataNotFound, match=r"gone.jsonl"):
        load(tmp_path, [str(tmp_path / "gone.jsonl")])


def test_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"text": "\xff"}')

    with pytest.raises(DataInvalid, match="not UTF-8"):
        list(records.read(str(path)))


def test_source_with_a_validation_split_is_not_trained_on(tmp_path, write):
    paths = [write({"text": "a"}), write({"text": "b"}, name="held.jsonl")]
    splits = load(tmp_path, paths, sources=[{"split": "train"}, {"split": "validation"}], validation_split=0.5)

    assert splits.train.to_list() == [{"text": "a"}]
    assert splits.validation.to_list() == [{"text": "b"}]


def test_validation_alone_is_refused(tmp_path, write):
    with pytest.raises(InvalidConfig, match="no source to train on"):
        load(tmp_path, [write({"text": "a"})], sources=[{"split": "test"}])


def test_share_is_drawn_by_the_seed(tmp_path, write):
    path = write(*({"text": str(number)} for number in range(20)))
    first, again, other = (load(tmp_path, [path], validation_split=0.2, seed=seed) for seed in (1, 1, 2))

    drawn = [row["text"] for row in first.validation]
    assert len(drawn) == 4
    assert drawn == [row["text"] for row in again.validation]
    assert drawn != [row["text"] for row in other.validation]
    assert set(drawn).isdisjoint(row["text"] for row in first.train)


def test_share_that_leaves_nothing_is_refused(tmp_path, write):
    with pytest.raises(InvalidConfig, match="leaves nothing"):
        load(tmp_path, [write({"text": "a"})], validation_split=0.9)
