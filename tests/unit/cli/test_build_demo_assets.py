"""Making the demo's model and data: the same in every shape, and nothing left where it fails."""

import csv
import gzip
import json
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from pyarrow import ipc, parquet

from examples import build_demo_assets, demo_data
from examples.demo_data import Documented

ROOT = Path(__file__).parents[3]


def documented(kind: str, number: int) -> Documented:
    return Documented(
        f'{kind} name{number}(self):\n    """', f'Sentence, of "{number}" words.."""', f"module{number % 3}"
    )


FUNCTIONS = [documented("def", number) for number in range(demo_data.VALIDATION_RECORDS + 5)]
CLASSES = [documented("class", number) for number in range(60)]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    demo_data.write(directory, FUNCTIONS, CLASSES)
    return directory


def test_every_file_is_there_and_the_same_each_time(written, tmp_path):
    demo_data.write(tmp_path, FUNCTIONS, CLASSES)

    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert contents.keys() == set(demo_data.FILES.values())
    assert contents == {path.name: path.read_bytes() for path in written.iterdir()}


def test_all_formats_hold_the_same_records(written):
    pairs = [json.loads(line) for line in (written / "train.jsonl").read_text().splitlines()]
    columns = [(pair["prompt"], pair["completion"]) for pair in pairs]

    assert len(pairs) == 5
    assert gzip.decompress((written / "train.jsonl.gz").read_bytes()) == (written / "train.jsonl").read_bytes()
    with pa.memory_map(str(written / "train.arrow")) as file:
        assert ipc.open_file(file).read_all().to_pylist() == pairs
    with (written / "functions.csv").open(newline="") as file:
        assert [(row["signature"], row["docstring"]) for row in csv.DictReader(file)] == columns
    rows = parquet.read_table(written / "functions.parquet").to_pylist()
    assert [(row["signature"], row["docstring"]) for row in rows] == columns
    assert parquet.read_table(written / "classes.parquet").num_rows == demo_data.CLASS_RECORDS


def test_all_conversations_are_the_same(written):
    chat = [json.loads(line)["messages"] for line in (written / "chat.jsonl").read_text().splitlines()]
    said = [[turn["content"] for turn in turns] for turns in chat]

    assert [turn["role"] for turn in chat[0]] == ["user", "assistant"]
    assert [r["messages"] for r in json.loads(gzip.decompress((written / "chat.json.gz").read_bytes()))] == chat
    for name, turns, content in (("sharegpt", "conversations", "value"), ("dialogues", "dialogue", "said")):
        records = [json.loads(line) for line in (written / f"{name}.jsonl").read_text().splitlines()]
        assert [[turn[content] for turn in record[turns]] for record in records] == said


def test_plain_text_has_one_record_per_line(written):
    lines = (written / "sentences.txt").read_bytes()

    assert len(lines.splitlines()) == 5
    assert zstandard.ZstdDecompressor().decompress((written / "sentences.txt.zst").read_bytes()) == lines


@pytest.mark.long
def test_nothing_is_left_when_building_fails(tmp_path):
    command = [sys.executable, "-B", "-m", "examples.build_demo_assets", "--out", str(tmp_path / "demo")]

    ended = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )

    assert "OSError" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_an_earlier_version_built_is_completed_and_kept(tmp_path):
    draft, out = tmp_path / "draft", tmp_path / "demo"
    for place, text in ((draft / "train.jsonl", "new"), (draft / "chat.jsonl", "new"), (out / "train.jsonl", "old")):
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)

    build_demo_assets._put(draft, out)

    assert {path.name: path.read_text() for path in out.iterdir()} == {"train.jsonl": "old", "chat.jsonl": "new"}
