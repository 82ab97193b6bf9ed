"""Reading files: every format, every compression, and every kind of damage, named with file and row."""

import gzip
import io
import json
import os
import random
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.trainers.supervision import ROOT
from workers.trainers.data import text_rows
from workers.trainers.data.reading import FORMATS, count_rows, rows, where
from workers.trainers.data.sources import DataFile
from workers.trainers.failures import DataInvalid, DataNotFound, InvalidConfig

ROWS = [{"text": f"record {number}", "n": number, "m": [{"role": "user", "content": "ü"}]} for number in range(700)]
TABLE = pa.Table.from_pylist(ROWS)
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def parquet():
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=300)
    return sink.getvalue()


def arrow(kind="stream"):
    sink = io.BytesIO()
    with getattr(pa.ipc, f"new_{kind}")(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=300)
    return sink.getvalue()


def read(file, format_):
    return [(row.number, row.values) for row in rows(file, format_)]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", LINES),
        ("a.json", json.dumps(ROWS).encode()),
        ("a.json", json.dumps({"version": 1, "rows": ROWS}).encode()),
        ("a.json", json.dumps({"columns": [], "data": ROWS}).encode()),
        ("a.parquet", parquet()),
        ("a.arrow", arrow("stream")),
        ("a.arrow", arrow("file")),
    ],
)
def test_rows_keep_their_values_and_numbers(write, name, content, suffix):
    file, format_ = write(content, name=name + suffix), name.partition(".")[2]

    assert read(file, format_) == list(enumerate(ROWS, start=1))
    assert count_rows(file, format_) == len(ROWS)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_content_says_how_a_file_is_compressed_not_its_name(write, compress):
    # Compressed files that were put one after the other are one file.
    file = write(compress(LINES), compress(LINES), name="plain.jsonl")

    assert [number for number, _ in read(file, "jsonl")] == list(range(1, 1401))


def test_csv_is_read_by_its_header(write):
    file = write(b'\xef\xbb\xbfprompt, completion\r\n"a, b","line\nbreak"\r\n\r\nc,""\r\n', name="a.csv")

    assert read(file, "csv") == [
        (2, {"prompt": "a, b", "completion": "line\nbreak"}),
        (5, {"prompt": "c", "completion": ""}),
    ]


def test_text_has_a_record_per_line_that_is_not_blank(write):
    file = write(b"\xef\xbb\xbfone \r\n\n  \ntwo", name="a.txt")

    assert read(file, "text") == [(1, {"text": "one "}), (4, {"text": "two"})]
    assert count_rows(file, "text") == 2


def test_blank_lines_of_jsonl_are_counted_not_read(write):
    assert read(write("\n", {"a": 1}, "  \n", {"a": 2}), "jsonl") == [(2, {"a": 1}), (4, {"a": 2})]


@pytest.mark.parametrize(("name", "format_"), [("a.parquet", "parquet"), ("a.arrow", "arrow")])
def test_only_the_columns_that_are_needed_are_read(write, name, format_):
    file = write(parquet() if format_ == "parquet" else arrow(), name=name)

    assert next(rows(file, format_, ["n"])).values == {"n": 0}
    assert next(rows(file, format_, ["n", "unknown"])).values == ROWS[0]


@pytest.mark.parametrize(
    ("content", "format_", "message"),
    [
        (b"", "jsonl", r"^a is empty$"),
        (LINES + b"{\n", "jsonl", r"^a line 701 is not JSON: .*$"),
        (b'[\n{"a": 1}\n]', "jsonl", r"line 1 is not JSON: .*; if the file is one JSON document, use format json"),
        (b"[" * 100_000, "jsonl", r"line 1 is not JSON: maximum recursion"),
        (b'{"a": 1}\n[1]\n', "jsonl", r"^a line 2 is not a JSON object$"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "jsonl", r"^a line 2 is not UTF-8: invalid start byte at byte 8$"),
        (b'{"a": 1}\n' * 999 + b"\0\0", "jsonl", r"line 1000 holds a NUL"),
        (b"\x7fELF\0\0", "jsonl", r"can't be read as jsonl: it is binary, not text"),
        (parquet(), "jsonl", r"can't be read as jsonl: it is a Parquet file; use format parquet"),
        (arrow("file"), "csv", r"can't be read as csv: it is an Arrow file"),
        ("text".encode("utf-16"), "text", r"it is UTF-16 text; save it as UTF-8"),
        (gzip.compress(LINES, mtime=0)[:-900], "jsonl", r"^a is damaged or cut off: Truncated"),
        (zstandard.compress(LINES)[:-900], "jsonl", r"^a is damaged or cut off: Truncated"),
        (gzip.compress(LINES, mtime=0)[:-8] + b"12345678", "jsonl", r"^a is damaged or cut off: zlib"),
        (b"[1]", "json", r"^a record 1 is not a JSON object$"),
        (b'[{"a": 1},\n{"a"', "json", r"^a is not JSON: .*line 2"),
        (b'[{"a": 1},\n{"a": "\xff"}]', "json", r"^a is not UTF-8 in line 2"),
        (b'{"a": 1}', "json", r"neither an array of objects nor an object with one list"),
        (b"a,b\n1,2\n1,2,3\n", "csv", r"^a line 3 has 3 fields; line 1 names 2 columns$"),
        (b"a,a\n1,2\n", "csv", r"line 1 must name the columns, without duplicates"),
        (b'a,b\n1,2\n1,"never closed\n3,4\n', "csv", r"^a line 3 is not CSV: unexpected end of data$"),
        (b"a,b\n1,\xff\n", "csv", r"^a line 2 is not UTF-8"),
        (parquet()[:-20], "parquet", r"^a is damaged or cut off, or no Parquet file"),
        (LINES, "parquet", r"or no Parquet file"),
        (LINES, "arrow", r"or no Arrow file"),
        (arrow("stream")[:-9000], "arrow", r"^a is damaged or cut off after record 300: "),
        (arrow("file")[:-100], "arrow", r"or no Arrow file"),
        (gzip.compress(parquet(), mtime=0)[:-100], "parquet", r"^a is damaged or cut off: Truncated"),
    ],
)
def test_damage_is_named_with_file_and_row(write, content, format_, message):
    file = write(content, name="a")

    with pytest.raises(DataInvalid, match=message):
        read(file, format_)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_cut_in_the_middle_is_named_by_the_last_good_line(write, compress):
    draw = random.Random(1)
    lines = [json.dumps({"text": draw.randbytes(500).hex()}) + "\n" for _ in range(2000)]
    whole = compress("".join(lines).encode())

    with pytest.raises(DataInvalid, match=r"^a is damaged or cut off after line (9|1[01])\d\d: Truncated"):
        read(write(whole[: len(whole) * 6 // 10], name="a"), "jsonl")


def test_damaged_page_of_parquet_is_named_by_the_last_good_record(write):
    draw = random.Random(1)
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": [draw.randbytes(99).hex() for _ in range(2000)]}), sink, row_group_size=256)
    content = sink.getvalue()
    middle = len(content) // 2
    file = write(content[: middle - 500] + b"\xff" * 1000 + content[middle + 500 :], name="a")

    with pytest.raises(DataInvalid, match=r"^a is damaged or cut off after record (768|1024): Corrupt snappy"):
        read(file, "parquet")


def test_text_that_is_no_utf_8_in_arrow_is_named_by_its_record(write):
    bad = _invalid_text()
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, bad.schema) as writer:
        writer.write_batch(bad)

    with pytest.raises(DataInvalid, match=r"^a record 2 can't be read"):
        read(write(sink.getvalue(), name="a"), "arrow")


def _invalid_text():
    values = pa.array([b"fine", b"\xff"])
    text = pa.Array.from_buffers(pa.string(), 2, values.buffers())
    return pa.record_batch([text], names=["text"])


def test_line_without_end_is_refused_before_it_fills_the_memory(write, monkeypatch):
    monkeypatch.setattr(text_rows, "MAX_RECORD_BYTES", 1 << 20)
    file = write(b'{"a": 1}\n' + b"x" * (1 << 21), name="a")

    with pytest.raises(DataInvalid, match=r"^a line 2 is longer than 1 MiB$"):
        read(file, "jsonl")


def test_file_that_is_not_there_is_no_data_error(tmp_path):
    with pytest.raises(DataNotFound, match=r"^gone\.jsonl does not exist"):
        read(DataFile(tmp_path / "gone.jsonl", "gone.jsonl"), "jsonl")


def test_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(DataInvalid, match="not a regular file"):
        read(DataFile(tmp_path / "pipe", "pipe"), "jsonl")


def test_unknown_format_lists_the_known_ones(write):
    with pytest.raises(InvalidConfig, match="format 'xml' is unknown; known: jsonl, json, csv, text, parquet, arrow"):
        read(write({"a": 1}), "xml")


@pytest.mark.parametrize("format_", FORMATS)
def test_rows_are_called_by_what_people_count(write, format_):
    noun = "line" if format_ in ("jsonl", "csv", "text") else "record"

    assert where(write({"a": 1}), format_, 7) == f"data.jsonl {noun} 7"


def test_reading_records_loads_neither_torch_nor_pyarrow():
    code = (
        "import sys, workers.trainers.data.records; sys.exit(bool({'torch', 'datasets', 'pyarrow'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
