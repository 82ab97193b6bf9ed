"""http:// sources through the whole way: child process, cache, links, and what stands in messages."""

import pytest

from app.domain.spec.model import JobDocument
from tests.fetching.web_server import file, status
from workers.attempt_failed import AttemptFailed
from workers.fetching.fetch import TooLargeHere
from workers.prepare.inputs.resolve_inputs import DataRequest, find, find_data
from workers.prepare.prepare import find_sources, sources_document

LINES = b'{"text": "hello"}\n'


def refusal(library, location):
    with pytest.raises(AttemptFailed) as refused:
        find_data(library, DataRequest(location=location))
    return refused.value


@pytest.mark.long
def test_file_is_fetched_once_and_noticed_when_it_changes(web, make_library, objects):
    web.answers["/train.jsonl"] = file(LINES, ETag='"1"')
    library, request = make_library(), DataRequest(location=web.url("/train.jsonl"))
    first, again = find(library, [], [request, request])[1]
    web.answers["/train.jsonl"] = file(LINES * 2, ETag='"2"')
    changed = find_data(library, request)

    assert first.path.name == "train.jsonl"
    assert first.path.samefile(again.path)
    assert first.sha256 == again.sha256 != changed.sha256
    assert (first.path.read_bytes(), changed.path.read_bytes()) == (LINES, LINES * 2)
    assert len(objects()) == 2


def test_unchanged_file_without_validators_is_kept_once(web, make_library, objects):
    web.answers["/train.jsonl"] = file(LINES)
    request = DataRequest(location=web.url("/train.jsonl"))

    find(make_library(), [], [request, request])

    assert len(web.seen) == 2
    assert len(objects()) == 1


def test_ranks_can_read_but_not_change_what_all_share(web, make_library):
    web.answers["/train.jsonl"] = file(LINES)

    data = find_data(make_library(), DataRequest(location=web.url("/train.jsonl")))

    assert data.path.stat().st_mode & 0o777 == 0o444
    assert [path.is_dir() for path in data.visible] == [True]


@pytest.mark.long
def test_signatures_stand_in_no_message_and_no_file_name(web, make_library, tmp_path, capfd):
    web.answers["/a.jsonl"] = status(403)
    web.answers["/b.jsonl"] = file(LINES)
    library = make_library()

    refused = refusal(library, web.url("/a.jsonl?X-Signature=hunter2"))
    data = find_data(library, DataRequest(location=web.url("/b.jsonl?X-Signature=hunter2")))

    assert refused.error_type == "DATA_NOT_FOUND"
    assert "hunter2" not in refused.message
    assert data.path.name == "b.jsonl"
    kept = "".join(path.name + path.read_text() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert "hunter2" not in kept + "".join(capfd.readouterr())


def test_signed_url_is_fetched_from_the_jobs_secrets(web, make_library, mine):
    web.answers["/a.jsonl"] = file(LINES)
    (mine / "model").mkdir()
    (mine / "model" / "config.json").write_text("{}")
    training = {"base_model": {"model_id": "model"}, "framework": {"type": "HF_TRAINER"}}
    data = {"sources": [{"path": web.url("/a.jsonl?sig=***")}]}
    document = JobDocument.from_json({"training_config": training, "data_config": data})
    library = make_library(secrets={"data_config.sources.0.path": web.url("/a.jsonl?sig=hunter2")})

    found = find_sources(library, "HF_TRAINER", document).data

    assert [seen.path for seen in web.seen] == ["/a.jsonl?sig=hunter2"]
    assert "hunter2" not in str(sources_document(found))


def test_private_address_is_refused_with_a_remedy(web, make_library):
    refused = refusal(make_library(allow=()), web.url("/a.jsonl"))

    assert refused.error_type == "INVALID_CONFIG"
    assert "TRAINYARD_FETCH_ALLOW" in refused.message
    assert web.seen == []


def test_what_is_too_large_here_may_be_fine_elsewhere(web, make_library):
    web.answers["/a.jsonl"] = file(LINES * 100)

    with pytest.raises(TooLargeHere) as refused:
        find_data(make_library(fetch_bytes=1000), DataRequest(location=web.url("/a.jsonl")))

    assert refused.value.error_type == "DATA_INVALID"


def test_all_that_is_local_is_looked_at_before_anything_is_fetched(web, make_library, mine):
    web.answers["/a.jsonl"] = file(LINES)
    requests = [DataRequest(location=web.url("/a.jsonl")), DataRequest(location="gone.jsonl")]

    with pytest.raises(AttemptFailed, match="gone"):
        find(make_library(), [], requests)

    assert web.seen == []
