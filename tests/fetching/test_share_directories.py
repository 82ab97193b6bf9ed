"""Directories of scaidrive:// and scaiatlas://: listed by the service, fetched file by file as the user, or refused."""

from pathlib import Path

import pytest

from tests.fetching.web_server import directory, file, listing, status
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.resolve_inputs import DataRequest, ModelRequest, find, find_data, find_model

WEIGHTS = bytes(range(256)) * 20
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": WEIGHTS,
    "sub dir/a%20+b.json": b"{}",
    "empty.txt": b"",
    "model.onnx": b"another form",
}
NEEDED = {name: body for name, body in FILES.items() if name != "model.onnx"}
MODEL = "scaidrive://team/my model"
AT = "/drive/team/my%20model"


@pytest.fixture
def shares(web, make_library):
    """A library of a user of both services, which are the web server."""

    def shares(token="drive-token", **settings):
        urls = {"scaidrive_url": web.url("/drive"), "scaiatlas_url": web.url("/atlas/")}
        secrets = {"forwarded.scaidrive": token, "forwarded.scaiatlas": "atlas-token"}
        return make_library(allow=(), secrets=secrets, **{**urls, **settings})

    return shares


def files_of(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def sent(web, name):
    """How often the server was asked for a file itself."""
    return len([seen for seen in web.asked(f"{AT}/{name}") if seen.method == "GET"])


def refusal(library, location=MODEL) -> AttemptFailed:
    with pytest.raises(AttemptFailed) as refused:
        find_model(library, ModelRequest(model_id=location))
    return refused.value


@pytest.mark.parametrize("listed", [("sha256", "etag"), ("sha256",), ("etag",), ()])
def test_model_is_all_files_of_the_directory_but_other_forms_of_its_weights(web, shares, listed):
    web.answers |= directory(AT, FILES, listed)

    model = find_model(shares(), ModelRequest(model_id=MODEL))

    assert files_of(model.path) == NEEDED
    assert {seen.headers["authorization"] for seen in web.seen} == {"Bearer drive-token"}
    assert web.asked(f"{AT}/")[0].path == f"{AT}/?list"
    assert web.asked(f"{AT}/")[0].headers["accept"] == "application/json"


def test_model_of_the_other_service_with_a_slash_at_its_end(web, shares):
    web.answers |= directory("/atlas/models/m", FILES)

    model = find_model(shares(), ModelRequest(model_id="scaiatlas://models/m/"))

    assert files_of(model.path) == NEEDED
    assert {seen.headers["authorization"] for seen in web.seen} == {"Bearer atlas-token"}


def test_weights_are_left_out_of_a_look(web, shares):
    web.answers |= directory(AT, FILES)

    model = find_model(shares(), ModelRequest(model_id=MODEL, without_weights=True))

    assert files_of(model.path).keys() == NEEDED.keys() - {"model.safetensors"}
    assert web.asked(f"{AT}/model.safetensors") == []


@pytest.mark.long
@pytest.mark.parametrize(("listed", "times"), [(("sha256",), 1), (("etag",), 1), ((), 2)])
def test_file_listed_as_unchanged_is_fetched_once(web, shares, listed, times):
    web.answers |= directory(AT, FILES, listed)
    find_model(shares(), ModelRequest(model_id=MODEL))

    model = find_model(shares(), ModelRequest(model_id=MODEL))

    assert files_of(model.path) == NEEDED
    assert sent(web, "model.safetensors") == times


@pytest.mark.long
@pytest.mark.parametrize("listed", [("sha256",), ("etag",), ()])
def test_only_what_changed_is_fetched_anew(web, shares, listed):
    web.answers |= directory(AT, FILES, listed)
    find_model(shares(), ModelRequest(model_id=MODEL))
    changed = {**FILES, "config.json": b'{"model_type": "qwen2"}'}
    web.answers |= directory(AT, changed, listed)

    model = find_model(shares(), ModelRequest(model_id=MODEL))

    assert files_of(model.path)["config.json"] == changed["config.json"]
    assert sent(web, "config.json") == 2


@pytest.mark.long
def test_fetching_goes_on_where_it_failed(web, shares):
    web.answers |= directory(AT, FILES) | {f"{AT}/model.safetensors": status(503)}
    assert refusal(shares()).error_type == "STORAGE_ERROR"
    web.answers |= directory(AT, FILES)

    model = find_model(shares(), ModelRequest(model_id=MODEL))

    assert files_of(model.path) == NEEDED
    assert sent(web, "config.json") <= 1


def test_broken_download_of_a_file_goes_on_in_its_middle(web, shares):
    def half_at_first(handler):
        asked = handler.headers.get("Range")
        if asked is None:
            handler.head(200, Content_Length=str(len(WEIGHTS)), ETag='"w"')
            handler.wfile.write(WEIGHTS[:1000] if handler.command == "GET" else b"")
            handler.close_connection = True
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        handler.head(
            206,
            Content_Length=str(len(WEIGHTS) - start),
            ETag='"w"',
            Content_Range=f"bytes {start}-{len(WEIGHTS) - 1}/{len(WEIGHTS)}",
        )
        handler.wfile.write(WEIGHTS[start:])

    web.answers |= {
        f"{AT}/": listing({"path": "model.safetensors", "size": len(WEIGHTS), "etag": '"w"'}),
        f"{AT}/model.safetensors": half_at_first,
    }

    assert files_of(find_model(shares(), ModelRequest(model_id=MODEL)).path) == {"model.safetensors": WEIGHTS}
    assert [seen.headers.get("range") for seen in web.asked(f"{AT}/model.safetensors") if seen.method == "GET"] == [
        None,
        "bytes=1000-",
    ]


# ---- a directory that is changed while it is read


@pytest.mark.parametrize(
    ("listed", "size"),
    [
        (("sha256",), len(WEIGHTS)),
        (("etag",), len(WEIGHTS)),
        (("sha256",), 3),
        (("sha256",), 9999),
        (("etag",), 3),
        ((), 3),
        ((), 9999),
        ((), 0),
    ],
)
def test_file_that_is_not_as_it_was_listed(web, shares, listed, size):
    body = b"x" * size
    web.answers |= directory(AT, FILES, listed) | {f"{AT}/model.safetensors": file(body, ETag='"other"')}

    refused = refusal(shares())

    assert refused.error_type == "STORAGE_ERROR"
    assert "model.safetensors" in refused.message


def test_file_that_is_gone_after_it_was_listed(web, shares):
    for name in ("model.safetensors", "config.json"):  # the largest is asked for first
        web.answers |= directory(AT, FILES) | {f"{AT}/{name}": status(404)}

        refused = refusal(shares())

        assert (refused.error_type, name in refused.message) == ("STORAGE_ERROR", True)


def test_directory_whose_listing_tells_no_digests_is_listed_again(web, shares):
    listings = [
        listing({"path": "config.json", "size": 2}),
        listing({"path": "config.json", "size": 2}, {"path": "model.safetensors", "size": 1}),
    ]

    def changing(handler):
        listings.pop(0)(handler)

    web.answers |= {f"{AT}/": changing, f"{AT}/config.json": file(b"{}")}

    refused = refusal(shares())

    assert (refused.error_type, listings) == ("STORAGE_ERROR", [])
    assert "changed while it was read" in refused.message


# ---- what can not be had


def test_single_file_where_a_directory_is_needed(web, shares):
    web.answers["/drive/team/m.safetensors"] = file(WEIGHTS)

    refused = refusal(shares(), "scaidrive://team/m.safetensors")

    assert refused.error_type == "MODEL_NOT_FOUND"
    assert "single file" in refused.message
    assert "name the directory" in refused.message


@pytest.mark.long
def test_directory_that_is_not_there_or_empty(web, shares):
    missing = refusal(shares())
    web.answers[f"{AT}/"] = listing()
    empty = refusal(shares())

    assert (missing.error_type, empty.error_type) == ("MODEL_NOT_FOUND", "MODEL_NOT_FOUND")
    assert "no such directory" in missing.message
    assert "has no files" in empty.message
    assert MODEL in missing.message
    assert MODEL in empty.message


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "error_type", "said"),
    [
        (401, "MODEL_NOT_FOUND", "X-ScaiDrive-Token"),
        (403, "MODEL_NOT_FOUND", "X-ScaiDrive-Token"),
        (400, "MODEL_NOT_FOUND", "400"),
        (500, "STORAGE_ERROR", "500"),
        (503, "STORAGE_ERROR", "503"),
    ],
)
def test_service_that_does_not_list(web, shares, code, error_type, said):
    web.answers[f"{AT}/"] = status(code)

    refused = refusal(shares())

    assert refused.error_type == error_type
    assert said in refused.message
    assert "drive-token" not in refused.message


def test_what_was_fetched_for_one_user_is_not_given_to_one_who_may_only_list(web, shares):
    def mine_only(handler):
        allowed = handler.headers["Authorization"] == "Bearer mine"
        (file(WEIGHTS) if allowed else status(403))(handler)

    web.answers |= directory(AT, FILES) | {f"{AT}/model.safetensors": mine_only}
    find_model(shares("mine"), ModelRequest(model_id=MODEL))

    refused = refusal(shares("other"))

    assert refused.error_type == "MODEL_NOT_FOUND"
    assert "token" in refused.message


def entry(**changed):
    return {"path": "config.json", "size": 2, **changed}


def test_malformed_listing_is_refused_before_anything_is_fetched(web, shares):
    web.answers[f"{AT}/"] = listing(entry(), entry(path="../x"))

    refused = refusal(shares())

    assert refused.error_type == "INVALID_CONFIG"
    assert "listing of it is malformed" in refused.message
    assert {seen.path for seen in web.seen} == {f"{AT}/?list"}


@pytest.mark.parametrize("body", [b"<html>", b""])
def test_service_that_answers_with_no_listing(web, shares, body):
    web.answers[f"{AT}/"] = file(body)

    refused = refusal(shares())

    assert refused.error_type == "INVALID_CONFIG"
    assert "listing" in refused.message


@pytest.mark.long
def test_limits_are_named_by_their_setting(web, shares):
    web.answers |= directory(AT, FILES)

    files = refusal(shares(max_files=3))
    size = refusal(shares(max_bytes=1000))
    web.answers[f"{AT}/"] = file(b" " * 9000)
    listing_ = refusal(shares(max_files=4))

    assert [each.error_type for each in (files, size, listing_)] == ["INVALID_CONFIG"] * 3
    assert "TRAINYARD_FETCH_MAX_FILES" in files.message
    assert "TRAINYARD_FETCH_MAX_BYTES" in size.message
    assert "TRAINYARD_FETCH_MAX_FILES" in listing_.message
    assert not any(sent(web, name) for name in ("config.json", "model.safetensors"))


# ---- directories of data

LINES = b'{"text": "hello"}\n'


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (DataRequest(location="scaidrive://team/d/"), ["a.jsonl", "b.jsonl"]),
        (DataRequest(location="scaidrive://team/d/", format="jsonl"), ["a.jsonl", "b.jsonl"]),
        (
            DataRequest(location="scaidrive://team/d/", custom=True),
            [".h.jsonl", "README.md", "a.jsonl", "b.jsonl", "s/c.jsonl"],
        ),
        (DataRequest(location="scaidrive://team/d/a.jsonl"), ["a.jsonl"]),
    ],
)
def test_data_with_a_slash_at_its_end_is_a_directory(web, shares, source, names):
    files = dict.fromkeys(("b.jsonl", "a.jsonl", "README.md", ".h.jsonl", "s/c.jsonl"), LINES)
    web.answers |= directory("/drive/team/d", files)

    data = find_data(shares(), source)

    assert [each.name for each in data.files] == names
    assert all(each.path.read_bytes() == LINES for each in data.files)


def test_data_directory_without_its_slash_is_refused_with_the_reason(web, shares):
    web.answers |= directory("/drive/team/d", {"a.jsonl": LINES})

    with pytest.raises(AttemptFailed, match="ends with a slash") as refused:
        find_data(shares(), DataRequest(location="scaidrive://team/d"))

    assert refused.value.error_type == "DATA_NOT_FOUND"


def test_script_gets_a_directory_of_one_file_as_a_directory(web, shares):
    web.answers |= directory("/drive/team/d", {"a.jsonl": LINES})

    data = find(shares(), [], [DataRequest(location="scaidrive://team/d/", custom=True)])[1][0]

    assert files_of(data.path) == {"a.jsonl": LINES}
