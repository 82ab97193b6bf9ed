"""Formats of the output: columns and their types, matrices, kept columns, equal bytes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_tensors

from tests.unit.workers.trainers.inference.runs import RecordingSession, contents, lines_of, make_spec, run, write_lines
from workers.trainers.failures import DataInvalid, InvalidConfig

RECORDS: list[dict[str, Any]] = [
    {"text": "w0", "topic": "a", "stars": 1},
    {"text": "w1 w2", "topic": None, "stars": 2.5},
    {"text": "w1 " * 20, "topic": "b", "stars": 3},
    {"text": "w3", "topic": "c"},
    {"text": "w1 " * 20, "topic": "b", "stars": 3},
]
FORMATS = ("jsonl", "parquet", "arrow", "npy", "safetensors")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "data.jsonl", RECORDS)


def embedded(tmp_path: Path, data: Path, format_: str, *keep: str, **task: Any) -> Path:
    section = {
        "task": {"type": "embed", **task},
        "output": {"format": format_, "shard_records": 2, "keep_columns": list(keep)},
        "on_error": {"max_share": 0.5},
    }
    run(make_spec(tmp_path, data, section))
    return tmp_path / "run" / "output"


def test_parquet_has_fixed_size_lists_and_typed_columns(tmp_path: Path, data: Path) -> None:
    output = embedded(tmp_path, data, "parquet", "topic", "stars")

    table = ds.dataset(sorted(output.glob("*.parquet"))).to_table()
    assert table.schema.names == ["index", "topic", "stars", "embedding", "prompt_tokens", "completion_tokens", "error"]
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 4)
    assert table.schema.field("stars").type == pa.float64()
    assert table.column("embedding").to_pylist() == [
        [3.0, 6.0, 9.0, 12.0],
        [4.5, 9.0, 13.5, 18.0],
        None,
        [6.0, 12.0, 18.0, 24.0],
        None,
    ]
    assert table.column("topic").to_pylist() == ["a", None, "b", "c", "b"]
    assert table.column("error").to_pylist()[4]["code"] == "CONTEXT_TOO_LONG"


def test_pooling_none_gives_a_list_of_vectors_for_each_record(tmp_path: Path, data: Path) -> None:
    output = embedded(tmp_path, data, "arrow", pooling="none", dtype="float16")

    table = ds.dataset(sorted(output.glob("*.arrow")), format="ipc").to_table()
    assert table.schema.field("embedding").type == pa.list_(pa.list_(pa.float16(), 4))
    assert [None if each is None else len(each) for each in table.column("embedding").to_pylist()] == [
        1,
        2,
        None,
        1,
        None,
    ]


def test_npy_is_one_matrix_whose_index_names_the_records(tmp_path: Path, data: Path) -> None:
    output = embedded(tmp_path, data, "npy", dtype="float16")

    assert sorted(contents(output)) == [
        "_manifest.json",
        "embeddings.npy",
        "errors-00001.jsonl",
        "errors-00002.jsonl",
        "index.npy",
        "meta.json",
    ]
    matrix = np.load(output / "embeddings.npy", mmap_mode="r")
    assert (matrix.shape, matrix.dtype) == ((3, 4), np.float16)
    assert np.load(output / "index.npy").tolist() == [0, 1, 3]
    assert matrix[:, 0].tolist() == [3.0, 4.5, 6.0]
    assert json.loads((output / "errors-00001.jsonl").read_text())["index"] == 2


def test_index_repeats_the_record_of_each_token(tmp_path: Path, data: Path) -> None:
    output = embedded(tmp_path, data, "safetensors", pooling="none")

    found = load_file(output / "part-00000.safetensors")
    assert found["index"].tolist() == [0, 1, 1]
    assert found["embedding"][:, 0].tolist() == [3.0, 4.0, 5.0]
    assert load_file(output / "part-00002.safetensors")["embedding"].shape == (0, 4)


def test_safetensors_hold_bfloat16(tmp_path: Path, data: Path) -> None:
    output = embedded(tmp_path, data, "safetensors", dtype="bfloat16")

    assert str(load_tensors(output / "part-00000.safetensors")["embedding"].dtype) == "torch.bfloat16"


def test_meta_says_how_the_vectors_were_made(tmp_path: Path, data: Path) -> None:
    output = embedded(tmp_path, data, "npy", pooling="max", max_tokens=100)

    meta = json.loads((output / "meta.json").read_text())
    assert (meta["pooling"], meta["dimension"], meta["dtype"], meta["normalize"]) == ("max", 4, "float32", False)
    assert (meta["model"]["model_id"], len(meta["model"]["model_hash"])) == ("small", 64)


@pytest.mark.parametrize("format_", FORMATS)
def test_interrupted_run_leaves_the_same_bytes(tmp_path: Path, data: Path, format_: str) -> None:
    section = {
        "task": {"type": "embed"},
        "output": {"format": format_, "shard_records": 2},
        "on_error": {"max_share": 0.5},
    }
    run(make_spec(tmp_path, data, section))
    first = make_spec(tmp_path, data, section, run="first")
    run(first, RecordingSession(first, stop_after=2))
    second = make_spec(tmp_path, data, section, run="second", finished_shards=(0, 1))
    second.run_dir.mkdir()
    (first.run_dir / "output").rename(second.run_dir / "output")

    run(second)

    assert contents(second.run_dir / "output") == contents(tmp_path / "run" / "output")


def test_generated_texts_fit_tables(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"prompt": "w1", "id": 7}, {"prompt": "w1 " * 20, "id": "x"}]
    section = {
        "task": {"n": 2, "max_new_tokens": 4, "logprobs": True},
        "output": {"format": "parquet"},
        "on_error": {"max_share": 0.5},
    }

    run(make_spec(tmp_path, write_lines(tmp_path / "d.jsonl", rows), section))

    table = ds.dataset(tmp_path / "run" / "output" / "part-00000.parquet").to_table().to_pylist()
    assert [row["id"] for row in table] == ["7", '"x"']  # numbers and texts have no type in common, so they are JSON
    assert table[0]["outputs"][0].keys() == {"output", "finish_reason", "completion_tokens", "logprobs"}
    assert table[1]["outputs"] is None


def test_kept_columns_that_only_some_records_have_are_null(tmp_path: Path, data: Path) -> None:
    rows = lines_of(embedded(tmp_path, data, "jsonl", "stars"))

    assert [row["stars"] for row in rows] == [1, 2.5, 3, None, 3]


def test_lone_surrogate_becomes_an_escape(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "d.jsonl", [{"text": "w1", "note": "\ud800 ä"}])

    output = embedded(tmp_path, data, "jsonl", "note")

    assert '"note": "\\ud800 ä"'.encode() in contents(output)["part-00000.jsonl"]


def test_error_may_name_a_column_that_no_file_can_hold(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "d.jsonl", [{"text": "w1"}, {"\ud800": "w1"}])

    output = embedded(tmp_path, data, "parquet")

    assert (
        ds.dataset(output / "part-00000.parquet")
        .to_table()
        .column("error")
        .to_pylist()[1]["message"]
        .endswith("the row has \\ud800")
    )


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"task": {"type": "embed"}, "output": {"format": "xml"}}, "output.format 'xml' is not one of jsonl, parquet"),
        ({"task": {}, "output": {"format": "npy"}}, "format npy holds vectors only"),
        ({"task": {"type": "embed"}, "output": {"format": "npy", "keep_columns": ["topic"]}}, "use parquet"),
        ({"task": {"type": "embed", "dtype": "bfloat16"}, "output": {"format": "npy"}}, "needs output.format safet"),
        ({"task": {}, "output": {"keep_columns": ["output"]}}, "the output has a column output of its own"),
    ],
)
def test_what_a_format_can_not_hold_is_refused(
    tmp_path: Path, data: Path, section: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        run(make_spec(tmp_path, data, section))


def test_missing_kept_column_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "d.csv"
    data.write_text("text,topic\nw1,a\n")

    with pytest.raises(DataInvalid, match=r"d.csv has no column star, which output.keep_columns names"):
        embedded(tmp_path, data, "jsonl", "star")


def test_kept_column_must_not_be_left_out_by_its_source(tmp_path: Path, data: Path) -> None:
    section = {"task": {"type": "embed"}, "output": {"keep_columns": ["topic"]}}
    sources = {"sources": [{"columns": ["text"]}]}

    with pytest.raises(InvalidConfig, match=r"data_config.sources.0.columns leaves out: add it there"):
        run(make_spec(tmp_path, data, section, data_config=sources))
