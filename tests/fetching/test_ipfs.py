"""ipfs:// through an untrusted gateway: content that does not match its content id is refused."""

import pytest

from tests.fetching.ipfs_blocks import Dag, directory, file_of, raw, shard
from tests.fetching.web_server import file
from workers.attempt_failed import AttemptFailed
from workers.fetching.content_ids import content_id
from workers.fetching.failures import FetchRefused
from workers.prepare.inputs.resolve_inputs import DataRequest, find, find_data

LINES = b'{"text": "hello"}\n'
HELLO = b"hello world\n"
# As `ipfs add` names this text, in a block of its own form and as a raw one.
HELLO_V0 = "QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o"
HELLO_V1 = "bafkreifjjcie6lypi6ny7amxnfftagclbuxndqonfipmb64f2km2devei4"


@pytest.fixture
def library(web, make_library):
    return make_library(allow=(), ipfs_gateway=web.url(""))


def read(library, location: str) -> bytes:
    content: bytes = find_data(library, DataRequest(location=location)).path.read_bytes()
    return content


def refusal(library, location: str) -> AttemptFailed:
    with pytest.raises(AttemptFailed) as refused:
        find_data(library, DataRequest(location=location))
    return refused.value


def chunked() -> Dag:
    """A file of raw leaves under nodes of two levels, one of which has content of its own."""
    leaves = [raw(LINES * count) for count in (3, 2)]
    return file_of(parts=[file_of(parts=leaves), file_of(LINES)])


def test_content_ids_are_those_that_ipfs_gives():
    assert (file_of(HELLO).text, raw(HELLO).text) == (HELLO_V0, HELLO_V1)


@pytest.mark.parametrize(
    ("dag", "whole"), [(raw(LINES), LINES), (file_of(LINES), LINES), (chunked(), LINES * 6)], ids=["raw", "one", "many"]
)
def test_file_is_put_together_from_its_blocks(web, library, dag, whole):
    is_raw = len(dag.blocks) == 1 and dag.text.startswith("b")
    web.answers[f"/ipfs/{dag.text}"] = file(LINES if is_raw else dag.car())

    assert read(library, f"ipfs://{dag.text}") == whole
    (asked,) = web.seen
    assert asked.path.endswith("?format=raw" if is_raw else "?format=car&dag-scope=entity")
    assert asked.headers["accept"] == f"application/vnd.ipld.{'raw' if is_raw else 'car'}"


@pytest.mark.parametrize(
    "wrap", [directory, lambda entries: shard({f"A7{name}": one for name, one in entries.items()})]
)
def test_file_is_found_in_directories(web, library, wrap):
    dag = directory({"sets": wrap({"a b.jsonl": chunked(), "other": raw(b"x")})})
    web.answers[f"/ipfs/{dag.text}/sets/a%20b.jsonl"] = file(dag.car(but=raw(b"x").blocks))

    assert read(library, f"ipfs://{dag.text}/sets/a b.jsonl") == LINES * 6
    assert refusal(library, f"ipfs://{dag.text}/sets/c.jsonl").error_type == "DATA_NOT_FOUND"


def test_parts_of_a_large_directory_are_gone_through(web, library):
    dag = shard({"0F": shard({"B1a.jsonl": raw(LINES)}), "10": shard({"00b": raw(b"x")})})
    web.answers[f"/ipfs/{dag.text}/a.jsonl"] = file(dag.car())

    assert read(library, f"ipfs://{dag.text}/a.jsonl") == LINES


def test_content_never_changes_and_is_asked_for_once(web, library):
    dag = directory({"train.jsonl": raw(LINES)})
    web.answers[f"/ipfs/{dag.text}/train.jsonl"] = file(dag.car())
    request = DataRequest(location=f"ipfs://{dag.text}/train.jsonl")

    first, again = find(library, [], [request, request])[1]

    assert first.files[0].name == "train.jsonl"
    assert first.path.samefile(again.path)
    assert len(web.seen) == 1


def _wrong(dag: Dag) -> dict[str, bytes]:
    leaf = next(cid for cid in dag.blocks if cid[0] == 1)
    car = dag.car()
    return {
        "other bytes": dag.car(instead={leaf: LINES.upper() * 3}),
        "left a block out": dag.car(but=[leaf]),
        "cut off": car[:-5],
        "trustless gateway": LINES * 6,
    }


@pytest.mark.parametrize("why", _wrong(chunked()))
def test_what_does_not_fit_its_content_id_is_no_data(web, library, objects, why):
    dag = chunked()
    web.answers[f"/ipfs/{dag.text}"] = file(_wrong(dag)[why])

    refused = refusal(library, f"ipfs://{dag.text}")

    assert refused.error_type == "STORAGE_ERROR"
    assert why in refused.message
    assert objects() == []


def test_raw_block_of_other_bytes_is_no_data(web, library, objects):
    web.answers[f"/ipfs/{HELLO_V1}"] = file(b"hello, world\n")

    assert "other bytes" in refusal(library, f"ipfs://{HELLO_V1}").message
    assert objects() == []


def test_directory_is_no_file(web, library):
    dag = directory({"a.jsonl": raw(LINES)})
    web.answers[f"/ipfs/{dag.text}"] = file(dag.car())

    refused = refusal(library, f"ipfs://{dag.text}")

    assert (refused.error_type, "ipfs://cid/path" in refused.message) == ("INVALID_CONFIG", True)


@pytest.mark.parametrize("text", ["Qm" + "0" * 44, "bafy", "b" + "a" * 58, "z" + "1" * 40, HELLO_V1 + "aa"])
def test_what_is_no_content_id_is_refused(text):
    with pytest.raises(FetchRefused):
        content_id(text)
