"""What an evaluation has measured is read from its output, of which a rank wrote every byte."""

from pathlib import Path

import pytest

from app.domain.spec.model import JobDocument
from tests.builders.shards import batch_document
from workers.supervisor.recording.evaluation_results import read_results
from workers.supervisor.recording.model_export import Output

DOCUMENT = JobDocument.from_json(batch_document(benchmarks=1, inference={"benchmarks": [{"name": "f1", "dataset": 0}]}))
DEEP, LARGE = b"[" * 100_000, b'{"benchmarks": {"f1": {"metrics": {"f1": 1' + b"0" * 400 + b"}}}}"
UNKNOWN = b'{"benchmarks": {"\\u0000": {"metrics": {"f1": 1}}, "f1": {"metrics": {"\\ud800": 1}}}}'


def read(directory: Path, content: bytes) -> dict[str, dict[str, object]]:
    (directory / "results.json").write_bytes(content)
    return read_results(Output(directory, {"results.json": "results.json"}), DOCUMENT)


@pytest.mark.parametrize("content", [DEEP, b"\xff", b"{}"])
def test_a_file_of_another_form_has_no_results(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content) == {}


def test_numbers_that_are_too_large_and_names_of_others_are_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, LARGE)["f1"]["metrics"] == {"f1": {"value": None, "stderr": None}}
    assert read(tmp_path, UNKNOWN) == {"f1": {"metrics": {}, "seconds": None}}
