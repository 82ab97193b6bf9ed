"""Streaming: every record once a pass, shared out to the lanes, in an order that is random and always the same."""

import itertools
import json
from collections import Counter
from typing import cast

import pytest
from torch.utils.data import DataLoader

from workers.trainers.data.datasets import load
from workers.trainers.data.encoded import Encoded
from workers.trainers.data.sources import sources_of
from workers.trainers.data.streaming import Stream
from workers.trainers.data.tokenizing import RecordTokenizer
from workers.trainers.failures import DataInvalid


@pytest.fixture
def stream(write, make_spec, make_tokenizer, tmp_path):
    """A streamed dataset over so many texts."""

    def made(count=20, *, file=None, **options):
        file = file or write(*({"text": f"t{number}"} for number in range(count)), name="data.jsonl.gz")
        spec = make_spec(file, **{"streaming": True, "shuffle_buffer": 8, **options})
        return load(spec, make_tokenizer(), tmp_path / "cache").train

    return made


@pytest.fixture
def texts(make_tokenizer):
    """The first texts of a dataset."""
    tokenizer = make_tokenizer()

    def taken(dataset, count):
        examples = itertools.islice(iter(dataset), count)
        return [tokenizer.decode(example["input_ids"], skip_special_tokens=True) for example in examples]

    return taken


def test_every_pass_has_every_record_once_in_another_order(stream, texts):
    found = texts(stream(), 60)
    passes = [found[:20], found[20:40], found[40:]]

    assert all(sorted(each) == sorted(f"t{number}" for number in range(20)) for each in passes)
    assert len({tuple(each) for each in passes}) == 3
    assert found == texts(stream(), 60)
    assert found != texts(stream(seed=1), 60)


def test_without_a_buffer_the_order_is_that_of_the_files(stream, texts):
    assert texts(stream(3, shuffle_buffer=0), 7) == ["t0", "t1", "t2", "t0", "t1", "t2", "t0"]


def test_buffer_bounds_how_far_a_record_moves_forward(stream, texts):
    found = texts(stream(200, shuffle_buffer=10), 200)

    # A record is given out only after it was read, at most a buffer ahead.
    assert all(int(text[1:]) <= place + 10 for place, text in enumerate(found))
    assert found != [f"t{number}" for number in range(200)]


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_the_records_without_overlap(stream, texts, ranks):
    whole = texts(stream(20), 60)
    # What accelerate does with a dataset of as many shards as there are ranks.
    dataset = stream(20, world_size=ranks)
    parts = [texts(dataset.shard(num_shards=ranks, index=rank), 60 // ranks) for rank in range(ranks)]

    assert dataset.n_shards == ranks
    assert [text for turn in zip(*parts, strict=True) for text in turn] == whole


def test_loading_processes_share_what_their_rank_has(stream, texts):
    rank = stream(24, world_size=2, num_workers=2).shard(num_shards=2, index=1)
    loader = DataLoader(rank, batch_size=3, num_workers=2, collate_fn=list)
    batches = list(itertools.islice(iter(loader), 4))
    found = [tuple(example["input_ids"]) for batch in batches for example in batch]

    whole = [tuple(example["input_ids"]) for example in itertools.islice(iter(stream(24)), 24)]
    assert Counter(found) == Counter(whole[2::4] + whole[3::4])


def test_pretraining_streams_blocks(stream, make_tokenizer):
    tokenizer = make_tokenizer()
    dataset = stream(5, training_type="CONTINUED_PRETRAIN", max_seq_length=8, shuffle_buffer=0)
    found = list(itertools.islice(iter(dataset), 6))

    joined = [token for number in range(5) for token in [*tokenizer(f"t{number}")["input_ids"], 1]] * 9
    assert [token for block in found for token in block["input_ids"]] == joined[:48]
    assert all(block["labels"] == block["input_ids"] for block in found)


def test_held_out_sources_are_stored_and_whole(write, make_spec, make_tokenizer, tmp_path):
    spec = make_spec(
        write({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}),
        (write({"text": "v"}, name="v.jsonl"), {"split": "validation"}),
        streaming=True,
    )
    splits = load(spec, make_tokenizer(), tmp_path / "cache")

    assert splits.validation is not None
    assert len(splits.validation) == 1
    assert splits.conversational
    assert splits.statistics["splits"] == {"validation": 1}


def test_broken_record_in_the_middle_is_named_when_it_is_reached(stream, texts, write):
    file = write(*({"text": f"t{number}"} for number in range(50)), "{\n", name="bad.jsonl")
    dataset = stream(file=file, shuffle_buffer=0)

    assert len(texts(dataset, 50)) == 50
    with pytest.raises(DataInvalid, match=r"^bad\.jsonl line 51 is not JSON"):
        texts(dataset, 51)


def test_stream_of_which_nothing_is_left_to_learn_ends(stream, write):
    file = write({"prompt": "a long prompt", "completion": "x"}, name="long.jsonl")

    with pytest.raises(DataInvalid, match="no record is left with anything to learn"):
        next(iter(stream(file=file, max_seq_length=3, world_size=2)))


def test_records_are_tokenized_by_the_lane_that_gets_them(write, make_spec):
    """Else every rank would do the work of all."""
    spec = make_spec(write(*({"text": f"t{number}"} for number in range(8))))

    class Counting:
        """Stands for a tokenizer's work."""

        def __init__(self):
            self.seen = []

        def encode(self, located):
            self.seen.append(json.dumps(located.record))
            return Encoded([1], [1], 1)

    counting = Counting()
    lanes = Stream(
        sources=sources_of(spec),
        mapping={},
        method="SFT",
        tokenizing=cast("RecordTokenizer", counting),
        shuffle_buffer=0,
        seed=0,
        lanes=2,
    )
    list(itertools.islice(lanes.examples(1), 4))

    assert counting.seen == [json.dumps({"text": f"t{number}"}) for number in (1, 3, 5, 7)]
