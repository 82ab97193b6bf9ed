"""Digest of the files of a model: what changes it, and how little of each file it needs."""

import contextlib
import hashlib

import pytest

from workers.attempt_failed import AttemptFailed
from workers.fetching.digests import Digests
from workers.prepare.inputs.model_files import digest_of

MEBIBYTE = 1 << 20


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"w" * 5 * MEBIBYTE)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"[]"),
        ("1_Pooling/config.json", b"[]"),
        ("model.safetensors", b"w" * (5 * MEBIBYTE - 1) + b"x"),
        ("model.safetensors", b"x" + b"w" * (5 * MEBIBYTE - 1)),
        ("tokenizer.json", b"{}"),
    ],
)
def test_other_files_have_another_digest(model, name, content):
    before = digest_of([model])

    (model / name).write_bytes(content)

    assert digest_of([model]) != before


def test_what_no_model_is_loaded_from_does_not_count(model):
    before = digest_of([model])

    (model / "README.md").write_text("new")
    (model / ".cache").mkdir()
    (model / ".cache" / "state.json").write_text("{}")

    assert digest_of([model]) == before
    assert digest_of([]) == ""


def test_so_many_files_are_not_sampled(model):
    assert digest_of([model], most_files=3) == digest_of([model])
    assert digest_of([model], most_files=2) == ""


def test_file_that_cannot_be_looked_at_is_named(model):
    (model / "vocab.json").symlink_to("v" * 300)

    with pytest.raises(AttemptFailed, match=r"a file of the model can't be read: .*vocab\.json"):
        digest_of([model])


class Growing:
    """A file that another job writes to faster than it is read."""

    def __init__(self, file):
        self.file = file

    def read(self, size=-1):
        assert 0 < size <= MEBIBYTE, "nothing bounds it"
        return b"x" * size

    def __getattr__(self, name):
        return getattr(self.file, name)


@contextlib.contextmanager
def growing(path):
    with path.open("rb") as file:
        yield Growing(file)


def test_file_that_grows_for_ever_is_not_read_for_ever(model, tmp_path):
    assert digest_of([model], growing)

    digest = Digests(tmp_path / "digests", growing).of(model / "model.safetensors")
    assert digest == hashlib.sha256(b"x" * 5 * MEBIBYTE).hexdigest()
