"""The splits of a job: what is trained on, validated and tested with, stored once and found again."""

import json

import pytest

from workers.trainers.data import templates
from workers.trainers.data.datasets import load
from workers.trainers.data.packing import blocks
from workers.trainers.failures import DataInvalid, DataNotFound, InvalidConfig

CHAT = {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}
EOS = 1


@pytest.fixture
def cache_dir(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def texts(write):
    """A file of so many short texts, each different: those from `start` on."""

    def written(count, name="data.jsonl", start=0):
        return write(*({"text": f"t{number}"} for number in range(start, start + count)), name=name)

    return written


@pytest.fixture
def decoded(make_tokenizer):
    """The texts of a dataset, without what ends them."""
    tokenizer = make_tokenizer()
    return lambda dataset: [tokenizer.decode(row["input_ids"], skip_special_tokens=True) for row in dataset]


def test_sources_are_split_by_what_they_are_for(cache_dir, texts, make_spec, make_tokenizer, decoded):
    spec = make_spec(
        texts(3),
        (texts(2, "held.jsonl", 10), {"split": "eval"}),
        texts(2, "more.jsonl", 20),
        (texts(4, "test.jsonl", 30), {"split": "test[:50%]"}),
    )
    splits = load(spec, make_tokenizer(), cache_dir)

    assert decoded(splits.train) == ["t0", "t1", "t2", "t20", "t21"]
    assert decoded(splits.validation) == ["t10", "t11"]
    assert decoded(splits.test) == ["t30", "t31"]
    assert splits.train.column_names == ["input_ids", "labels"]
    assert not splits.conversational


def test_statistics_say_how_much_and_how_long(cache_dir, write, make_spec, make_tokenizer):
    file = write(*({"text": "x" * length} for length in range(1, 101)), {"text": "y" * 300})
    spec = make_spec(file, (write({"text": "z"}, name="v.jsonl"), {"split": "validation"}), max_seq_length=100)

    found = load(spec, make_tokenizer(), cache_dir).statistics

    assert json.loads(json.dumps(found)) == found
    assert found["splits"] == {"train": 101, "validation": 1}
    assert found["sources"][0] == {
        "location": "data.jsonl",
        "split": "train",
        "records": 101,
        "dropped": 0,
        "truncated_share": 2 / 101,
        "tokens": sum(range(2, 102)) + 301,
        "lengths": {"0.5": 52, "0.9": 92, "0.99": 101, "max": 301},
    }
    assert found["records"] == 102


def test_second_load_finds_what_the_first_one_stored(cache_dir, texts, make_spec, make_tokenizer):
    spec = make_spec(texts(5), validation_split=0.4)
    first = load(spec, make_tokenizer(), cache_dir)
    stored = {path: path.stat().st_mtime_ns for path in cache_dir.rglob("*") if path.is_file()}
    second = load(spec, make_tokenizer(), cache_dir)

    assert list(first.train) == list(second.train)
    assert list(first.validation or ()) == list(second.validation or ())
    assert first.statistics == second.statistics
    assert {path: path.stat().st_mtime_ns for path in cache_dir.rglob("*") if path.is_file()} == stored
    assert not [path for path in stored if "partial" in path.name]


def test_changed_file_is_not_taken_for_the_stored_one(cache_dir, write, texts, make_spec, make_tokenizer, decoded):
    load(make_spec(texts(5)), make_tokenizer(), cache_dir)

    assert decoded(load(make_spec(texts(6)), make_tokenizer(), cache_dir).train)[-1] == "t5"


def test_failed_build_leaves_nothing_that_looks_complete(cache_dir, write, make_spec, make_tokenizer):
    spec = make_spec(write({"text": "a"}, "{\n"))

    for _ in range(2):
        with pytest.raises(DataInvalid, match=r"data\.jsonl line 2 is not JSON"):
            load(spec, make_tokenizer(), cache_dir)
    assert not [path for path in cache_dir.rglob("*") if path.is_file()]


def test_validation_share_is_drawn_by_the_seed(cache_dir, texts, make_spec, make_tokenizer, decoded):
    files = texts(15), texts(5, "more.jsonl", 15)

    def loaded(seed):
        return load(make_spec(*files, validation_split=0.2, seed=seed), make_tokenizer(), cache_dir)

    first, again, other = loaded(1), loaded(1), loaded(2)
    held = decoded(first.validation)
    assert len(held) == 4
    assert sorted([*held, *decoded(first.train)]) == sorted(f"t{number}" for number in range(20))
    assert held == decoded(again.validation)
    assert held != decoded(other.validation)


def test_sources_for_validation_take_the_place_of_a_share(cache_dir, texts, make_spec, make_tokenizer):
    spec = make_spec(texts(4), (texts(1, "v.jsonl"), {"split": "validation"}), validation_split=0.5)
    splits = load(spec, make_tokenizer(), cache_dir)

    assert (len(splits.train), len(splits.validation or ())) == (4, 1)


def test_weights_decide_how_often_a_source_comes(cache_dir, texts, make_spec, make_tokenizer, decoded):
    spec = make_spec((texts(4), {"weight": 3}), (texts(4, "more.jsonl", 10), {"weight": 1}), validation_split=0.25)
    splits = load(spec, make_tokenizer(), cache_dir)

    found = decoded(splits.train)
    few, many = [t for t in found if len(t) == 3], [t for t in found if len(t) == 2]
    assert len(splits.validation or ()) == 2
    assert len(many) == 3 * len(few)
    assert not {*found} & {*decoded(splits.validation)}


def test_sources_may_have_different_shapes(cache_dir, write, texts, make_spec, make_tokenizer):
    tokenizer = make_tokenizer()
    splits = load(make_spec(texts(2), write(CHAT, name="chat.jsonl")), tokenizer, cache_dir)

    assert len(splits.train) == 3
    assert splits.conversational
    assert tokenizer.chat_template == templates.DEFAULT


def test_template_is_set_also_where_the_records_are_found_stored(cache_dir, write, make_spec, make_tokenizer):
    spec = make_spec(write(CHAT))
    load(spec, make_tokenizer(), cache_dir)
    tokenizer = make_tokenizer()
    load(spec, tokenizer, cache_dir)

    assert tokenizer.chat_template == templates.DEFAULT


def test_source_of_which_nothing_is_left_to_learn_is_refused(cache_dir, write, make_spec, make_tokenizer):
    spec = make_spec(write({"prompt": "a long prompt", "completion": "x"}), max_seq_length=3)

    with pytest.raises(
        DataInvalid, match=r"^data.jsonl: no record is left with anything to learn; .*\(1 of 1 are cut\)"
    ):
        load(spec, make_tokenizer(), cache_dir)


def test_job_without_data_to_train_on_is_refused(cache_dir, texts, make_spec, make_tokenizer):
    with pytest.raises(InvalidConfig, match="no source to train on"):
        load(make_spec((texts(3), {"split": "test"})), make_tokenizer(), cache_dir)


def test_missing_file_is_named(cache_dir, texts, make_spec, make_tokenizer):
    file = texts(1)
    spec = make_spec(file)
    file.path.unlink()

    with pytest.raises(DataNotFound, match=r"data\.jsonl does not exist"):
        load(spec, make_tokenizer(), cache_dir)


def test_pretraining_is_cut_into_blocks_of_joined_texts(cache_dir, texts, make_spec, make_tokenizer):
    tokenizer = make_tokenizer()
    options = {"training_type": "CONTINUED_PRETRAIN", "max_seq_length": 7}
    spec = make_spec(texts(20), (texts(1, "v.jsonl"), {"split": "validation"}), **options)
    splits = load(spec, tokenizer, cache_dir)

    joined = [token for number in range(20) for token in [*tokenizer(f"t{number}")["input_ids"], EOS]]
    assert [token for row in splits.train for token in row["input_ids"]] == joined[: len(joined) // 7 * 7]
    assert {len(row["input_ids"]) for row in splits.train} == {7}
    assert list(splits.train) == [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in splits.train]
    # The only block is kept though it is not full.
    assert [len(row["input_ids"]) for row in splits.validation or ()] == [3]
    assert splits.statistics["splits"] == {"train": len(joined) // 7, "validation": 1}


def test_blocks_of_held_out_texts_hold_no_text_that_is_trained_on(cache_dir, texts, make_spec, make_tokenizer):
    tokenizer = make_tokenizer()
    spec = make_spec(texts(90, start=10), training_type="CONTINUED_PRETRAIN", max_seq_length=8, validation_split=0.3)
    splits = load(spec, tokenizer, cache_dir)

    def seen(dataset):
        text = tokenizer.decode([token for row in dataset for token in row["input_ids"]])
        # The first and the last one of a split may be cut.
        return set(text.split("</s>")[1:-1])

    assert len(seen(splits.validation)) > 20
    assert not seen(splits.train) & seen(splits.validation)


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([[1, 2], [3, 4, 5, 6, 7], [8]], [[1, 2, 3], [4, 5, 6]]),
        ([[1, 2, 3]], [[1, 2, 3]]),
        ([[1], [2]], [[1, 2]]),
        ([], []),
    ],
)
def test_texts_are_cut_into_blocks(documents, expected):
    assert list(blocks(documents, 3)) == expected
