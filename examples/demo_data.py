"""The demo's text in every shape and format that training data comes in: the same records each time."""

import csv
import gzip
import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard
from pyarrow import ipc, parquet

Row = dict[str, Any]

VALIDATION_RECORDS = 200
CLASS_RECORDS = 48
_SEED = 7

# What is written, by the name it is printed with.
FILES = {
    "train": "train.jsonl",
    "validation": "validation.jsonl",
    "chat": "chat.jsonl",
    "text": "text.jsonl",
    "preferences": "preferences.jsonl",
    "csv": "functions.csv",
    "parquet": "functions.parquet",
    "arrow": "train.arrow",
    "json_gz": "chat.json.gz",
    "jsonl_gz": "train.jsonl.gz",
    "plain_text": "sentences.txt",
    "text_zst": "sentences.txt.zst",
    "sharegpt": "sharegpt.jsonl",
    "dialogues": "dialogues.jsonl",
    "classes": "classes.parquet",
}


@dataclass(frozen=True, order=True)
class Documented:
    """A function or a class: how it begins, and what the first sentence of its docstring says."""

    prompt: str
    completion: str
    module: str

    @property
    def signature(self) -> str:
        return self.prompt.partition("\n")[0]

    @property
    def sentence(self) -> str:
        return self.completion.removesuffix('"""')

    @property
    def pair(self) -> Row:
        return {"prompt": self.prompt, "completion": self.completion}

    @property
    def preference(self) -> Row:
        """The sentence is preferred to its words in reverse order."""
        rejected = " ".join(reversed(self.sentence.split()))
        return {"prompt": self.prompt, "chosen": self.completion, "rejected": f'{rejected}"""'}

    @property
    def turns(self) -> list[tuple[str, str]]:
        return [("user", f"What does this function do?\n{self.signature}"), ("assistant", self.sentence)]


def write(directory: Path, functions: Sequence[Documented], classes: Sequence[Documented]) -> None:
    """Every file of ``FILES``; the first records are kept for validation."""
    places = {name: directory / file for name, file in FILES.items()}
    train = functions[VALIDATION_RECORDS:]
    pairs = [each.pair for each in train]
    columns = [_columns(each) for each in train]
    conversations = [_conversation(each, "messages", "role", "content") for each in train]
    lines = "".join(f"{each.signature} {each.sentence}\n" for each in train).encode()

    places["train"].write_bytes(_json_lines(pairs))
    places["validation"].write_bytes(_json_lines([each.pair for each in functions[:VALIDATION_RECORDS]]))
    places["text"].write_bytes(_json_lines([{"text": each.prompt + each.completion} for each in train]))
    places["preferences"].write_bytes(_json_lines([each.preference for each in train]))
    places["chat"].write_bytes(_json_lines(conversations))
    places["sharegpt"].write_bytes(_json_lines([_sharegpt(each) for each in train]))
    places["dialogues"].write_bytes(_json_lines([_dialogue(each) for each in train]))
    places["jsonl_gz"].write_bytes(gzip.compress(_json_lines(pairs), mtime=0))
    places["json_gz"].write_bytes(gzip.compress(json.dumps(conversations, indent=1).encode(), mtime=0))
    places["plain_text"].write_bytes(lines)
    places["text_zst"].write_bytes(zstandard.ZstdCompressor().compress(lines))
    places["csv"].write_text(_csv(columns), encoding="utf-8")
    parquet.write_table(pa.Table.from_pylist(columns), places["parquet"])
    parquet.write_table(pa.Table.from_pylist([_columns(each) for each in _some(classes)]), places["classes"])
    table = pa.Table.from_pylist(pairs)
    with ipc.new_file(str(places["arrow"]), table.schema) as arrow:
        arrow.write_table(table)


def _columns(each: Documented) -> Row:
    """Names of columns that are none of ours, and two columns to choose records by."""
    return {
        "module": each.module,
        "signature": each.prompt,
        "docstring": each.completion,
        "words": len(each.sentence.split()),
    }


def _conversation(each: Documented, turns: str, role: str, content: str, **names: str) -> Row:
    return {turns: [{role: names.get(who, who), content: said} for who, said in each.turns]}


def _sharegpt(each: Documented) -> Row:
    return _conversation(each, "conversations", "from", "value", user="human", assistant="gpt")


def _dialogue(each: Documented) -> Row:
    return _conversation(each, "dialogue", "speaker", "said", user="person", assistant="bot")


def _some(classes: Sequence[Documented]) -> list[Documented]:
    return random.Random(_SEED).sample(classes, CLASS_RECORDS)


def _json_lines(records: Sequence[Row]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
