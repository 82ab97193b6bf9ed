"""Uploaded files as data sources, and the directories that hold them."""

from typing import Any

import pytest

from app.domain.errors import BadSpec
from app.domain.ids import new_id
from app.domain.spec.credentials import check_access
from app.domain.spec.locations.paths import FILE, ReadingRules, check_source, kind_of, readable
from app.domain.spec.locations.uploads import UPLOAD, UPLOAD_DIRECTORIES, check_purpose, is_upload
from app.domain.spec.model import Source
from app.storage import object_keys

FILE_ID = "file-01935b5f-7c00-7abc-8def-0123456789ab"
RULES = ReadingRules(roots=("/d/files", "/srv"), data_dir="/d", storage_dir="/srv/store")


@pytest.mark.parametrize("location", [FILE_ID, new_id("file")], ids=["known", "new"])
def test_id_of_a_file_is_a_source_of_its_own_kind(location: str) -> None:
    check_source(location, RULES, field="f")

    assert kind_of(location, field="f") == UPLOAD


@pytest.mark.parametrize("location", [f"./{FILE_ID}", f"{FILE_ID}.jsonl", FILE_ID.upper(), "file-abc", f"x/{FILE_ID}"])
def test_other_names_are_paths(location: str) -> None:
    assert not is_upload(location)
    assert kind_of(location, field="f") == FILE


@pytest.mark.parametrize("name", [object_keys.USER_FILES, object_keys.UPLOAD_PARTS])
@pytest.mark.parametrize("store", ["/d/files", "/srv/store"])
@pytest.mark.parametrize("below", ["", "/ours", f"/ours/{FILE_ID}", "/*/*"])
def test_no_job_reads_an_uploaded_file_by_its_path(store: str, name: str, below: str) -> None:
    path = f"{store}/{name}{below}"

    assert not readable(path, RULES)
    with pytest.raises(BadSpec, match="which jobs may not read"):
        check_source(f"file://{path}", RULES, field="f")


def test_neighbours_of_uploaded_files_stay_readable() -> None:
    assert readable("/d/files/user-files-of-mine/x.jsonl", RULES)
    assert readable("/srv/data/user-files/x.jsonl", RULES)
    assert UPLOAD_DIRECTORIES == (object_keys.USER_FILES, object_keys.UPLOAD_PARTS)


@pytest.mark.parametrize(
    "extra", [{"credentials": {"token": "t"}}, {"storage_options": {"region": "r"}}], ids=["credentials", "options"]
)
def test_uploaded_file_takes_no_credentials_and_no_options(extra: dict[str, Any]) -> None:
    with pytest.raises(BadSpec, match="an uploaded file"):
        check_access(Source(path=FILE_ID, **extra), FILE_ID, UPLOAD, (), at="data_config.sources.0")


def test_jobs_read_files_that_were_uploaded_as_data() -> None:
    refused = {}
    for purpose in ("fine-tune", "user_data", "evals", "batch", "batch_output", "fine-tune-results"):
        try:
            check_purpose(FILE_ID, purpose, field="f")
        except BadSpec as error:
            refused[purpose] = error.message

    assert list(refused) == ["batch", "batch_output", "fine-tune-results"]
    assert all(f"was uploaded for {purpose}" in message for purpose, message in refused.items())
