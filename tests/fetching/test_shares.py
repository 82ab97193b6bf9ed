"""scaidrive://, scaiatlas:// and ipfs:// through their configured endpoints; the user's token is sent nowhere else."""

from urllib.parse import parse_qs

import pytest

from tests.fetching.web_server import file, redirect, status
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.resolve_inputs import DataRequest, find, find_data

LINES = b'{"text": "hello"}\n'
CID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"


@pytest.fixture
def shares(web, make_library):
    """A library whose services all are the web server, which no job could name."""

    def shares(secrets=None, **settings):
        urls = {"scaidrive_url": web.url("/drive"), "scaiatlas_url": web.url("/atlas/"), "ipfs_gateway": web.url("")}
        return make_library(allow=(), secrets=secrets, **{**urls, **settings})

    return shares


def refusal(library, location):
    with pytest.raises(AttemptFailed) as refused:
        find_data(library, DataRequest(location=location))
    return refused.value


def tokens(web):
    return [seen.headers.get("authorization") for seen in web.seen if seen.method == "GET"]


def test_files_are_read_as_the_submitting_user(web, shares):
    web.answers |= {"/drive/support/a%20b.jsonl": file(LINES), "/atlas/team/x.jsonl": file(LINES)}
    library = shares({"forwarded.scaidrive": "drive-token", "forwarded.scaiatlas": "atlas-token"})
    locations = ("scaidrive://support/a b.jsonl", "scaiatlas://team/x.jsonl")

    found = find(library, [], [DataRequest(location=each) for each in locations])[1]

    assert [(data.files[0].name, data.path.read_bytes()) for data in found] == [
        ("a b.jsonl", LINES),
        ("x.jsonl", LINES),
    ]
    assert tokens(web) == ["Bearer drive-token", "Bearer atlas-token"]


def test_users_token_is_used_as_it_is_without_an_exchange(web, shares):
    web.answers["/drive/s/a.jsonl"] = file(LINES)

    find_data(shares({"forwarded.user": "user-token"}), DataRequest(location="scaidrive://s/a.jsonl"))

    assert tokens(web) == ["Bearer user-token"]


def test_users_token_is_exchanged(web, shares):
    web.answers["/drive/s/a.jsonl"] = file(LINES)
    web.answers["/exchange"] = lambda handler: handler.answer(200, b'{"access_token": "short-lived"}')
    exchange = {
        "token_exchange_url": web.url("/exchange"),
        "token_exchange_client": "us",
        "token_exchange_secret": "hunter2",
    }

    find_data(shares({"forwarded.user": "user-token"}, **exchange), DataRequest(location="scaidrive://s/a.jsonl"))

    form = parse_qs(web.asked("/exchange")[0].body.decode())
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:token-exchange"]
    assert (form["subject_token"], form["audience"]) == (["user-token"], ["scaidrive"])
    assert (form["client_id"], form["client_secret"]) == (["us"], ["hunter2"])
    assert tokens(web) == ["Bearer short-lived"]


@pytest.mark.parametrize(("code", "error_type"), [(400, "DATA_NOT_FOUND"), (503, "STORAGE_ERROR")])
def test_refused_exchange_is_said_without_the_token(web, shares, capfd, code, error_type):
    web.answers["/exchange"] = status(code)
    library = shares({"forwarded.user": "user-token"}, token_exchange_url=web.url("/exchange"))

    refused = refusal(library, "scaidrive://s/a.jsonl")

    assert refused.error_type == error_type
    assert "user-token" not in refused.message + "".join(capfd.readouterr())


def test_missing_and_expired_tokens_name_the_header(web, shares):
    web.answers["/drive/s/a.jsonl"] = status(401)

    missing = refusal(shares(), "scaidrive://s/a.jsonl")
    expired = refusal(shares({"forwarded.scaidrive": "old-token"}), "scaidrive://s/a.jsonl")

    assert (missing.error_type, expired.error_type) == ("DATA_NOT_FOUND", "DATA_NOT_FOUND")
    assert "X-ScaiDrive-Token" in missing.message
    assert "expired" in expired.message
    assert "X-ScaiDrive-Token" in expired.message
    assert "old-token" not in expired.message


def test_what_was_fetched_for_one_user_is_not_given_to_another(web, shares):
    def mine_only(handler):
        allowed = handler.headers["Authorization"] == "Bearer mine"
        (file(LINES, ETag='"1"') if allowed else status(403))(handler)

    web.answers["/drive/s/a.jsonl"] = mine_only
    find_data(shares({"forwarded.scaidrive": "mine"}), DataRequest(location="scaidrive://s/a.jsonl"))

    assert refusal(shares({"forwarded.scaidrive": "other"}), "scaidrive://s/a.jsonl").error_type == "DATA_NOT_FOUND"


def test_configured_endpoint_does_not_open_the_way_to_private_places(web, shares):
    web.answers["/drive/s/a.jsonl"] = redirect(f"http://127.0.0.2:{web.port}/x")

    refused = refusal(shares({"forwarded.scaidrive": "token"}), "scaidrive://s/a.jsonl")

    assert refused.error_type == "INVALID_CONFIG"
    assert "TRAINYARD_FETCH_ALLOW" in refused.message


@pytest.mark.parametrize(
    ("location", "setting"),
    [("scaidrive://s/a", "TRAINYARD_FETCH_SCAIDRIVE_URL"), (f"ipfs://{CID}/a", "TRAINYARD_FETCH_IPFS_GATEWAY")],
)
def test_what_is_not_set_up_names_its_setting(shares, location, setting):
    refused = refusal(shares({"forwarded.user": "t"}, scaidrive_url="", ipfs_gateway=""), location)

    assert refused.error_type == "INVALID_CONFIG"
    assert setting in refused.message
