"""Downloads over HTTP: what arrives, what is refused, and which addresses are never connected to."""

import gzip
import socket
import time
from pathlib import Path

import pytest

from config.fetching import FetchSettings
from tests.fetching.conftest import LOOPBACK
from tests.fetching.web_server import file, redirect, status
from workers.fetching.failures import FetchRefused, FetchTooLarge, NotThere, Trouble, Unusable
from workers.fetching.web import Download, DownloadRequest, NotModified

BODY = b'{"text": "hello"}\n' * 100


@pytest.fixture
def get(tmp_path):
    """Downloads a URL in this process; gives (body, version)."""

    def get(url: str, *, known: str = "", headers=None, trusted=(), personal=False, max_bytes=1 << 20, **settings):
        request = DownloadRequest(
            url=url, headers=headers or {}, max_bytes=max_bytes, known=known, trusted=trusted, personal=personal
        )
        fetch = FetchSettings(**{"allow": LOOPBACK, "stalled_seconds": 1.0, **settings})
        path = Path(tmp_path, "part")
        version = Download(fetch, request, before_bytes=lambda _: None, on_bytes=lambda _: None).to(path)
        return path.read_bytes(), version

    return get


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr("workers.fetching.web.RETRY_SECONDS", 0.01)


def test_a_file_arrives(web, get):
    web.answers["/a.jsonl"] = file(BODY)

    assert get(web.url("/a.jsonl"))[0] == BODY


def test_what_is_known_is_not_sent_again(web, get):
    web.answers["/a"] = file(BODY, ETag='"1"')
    _, version = get(web.url("/a"))

    with pytest.raises(NotModified):
        get(web.url("/a"), known=version)

    assert web.seen[-1].headers["if-none-match"] == '"1"'


def test_server_that_does_not_understand_conditions_is_not_read_again(web, get):
    web.answers["/a"] = lambda handler: handler.answer(200, BODY, ETag='"1"')
    _, version = get(web.url("/a"))

    with pytest.raises(NotModified):
        get(web.url("/a"), known=version)


def test_refusal_with_the_version_that_is_known_is_a_refusal(web, get):
    web.answers["/a"] = file(BODY, ETag='"1"')
    known = get(web.url("/a"))[1]
    web.answers["/a"] = status(403, ETag='"1"')

    with pytest.raises(NotThere, match="403"):
        get(web.url("/a"), known=known)


def test_personal_file_is_not_identified_by_its_modification_time(web, get):
    web.answers["/a"] = file(BODY, Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT")

    assert get(web.url("/a"))[1] != ""
    assert get(web.url("/a"), personal=True)[1] == ""


def test_changed_file_is_sent_again(web, get):
    web.answers["/a"] = file(BODY, ETag='"1"')
    _, version = get(web.url("/a"))
    web.answers["/a"] = file(b"new", ETag='"2"')

    assert get(web.url("/a"), known=version)[0] == b"new"


def test_change_within_the_second_of_last_modified_is_not_overlooked(web, get):
    web.answers["/fresh"] = lambda handler: handler.answer(200, BODY, Last_Modified=handler.date_time_string())
    web.answers["/old"] = lambda handler: handler.answer(200, BODY, Last_Modified="Wed, 21 Oct 2015 07:28:00 GMT")

    assert get(web.url("/fresh"))[1] == ""
    assert get(web.url("/old"))[1] != ""


@pytest.mark.parametrize(
    ("code", "failure"), [(404, NotThere), (410, NotThere), (403, NotThere), (401, NotThere), (400, NotThere)]
)
def test_status_that_lasts_is_said(web, get, code, failure):
    web.answers["/a"] = status(code)

    with pytest.raises(failure, match=str(code)):
        get(web.url("/a"))

    assert len(web.seen) == 1


@pytest.mark.parametrize("code", [500, 503, 429])
def test_status_that_may_pass_is_tried_again(web, get, code):
    answers = [file(BODY), status(code), status(code)]

    def answer(handler):
        answers.pop()(handler)

    web.answers["/a"] = answer

    assert get(web.url("/a"))[0] == BODY


def test_status_that_does_not_pass_is_trouble(web, get):
    web.answers["/a"] = status(502)

    with pytest.raises(Trouble, match="502"):
        get(web.url("/a"))


def test_redirects_are_followed(web, get):
    web.answers["/a"] = redirect("/b")
    web.answers["/b"] = redirect(web.url("/c"), 307)
    web.answers["/c"] = file(BODY)

    assert get(web.url("/a"))[0] == BODY


def test_redirects_in_a_circle_end(web, get):
    web.answers["/a"] = redirect("/b")
    web.answers["/b"] = redirect("/a")

    with pytest.raises(FetchRefused, match="TRAINYARD_FETCH_MAX_REDIRECTS"):
        get(web.url("/a"))

    assert len(web.seen) == 6


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.2/x",
        "http://[::1]/x",
        "http://169.254.169.254/latest",
        "http://localhost/x",
        "http://2130706434/",
        "http://[::ffff:10.0.0.1]/x",
        "//10.0.0.1/x",
    ],
)
def test_redirect_to_a_private_address_is_refused(web, get, target):
    web.answers["/a"] = redirect(target)

    with pytest.raises(FetchRefused, match="TRAINYARD_FETCH_ALLOW"):
        get(web.url("/a"))


def test_trust_in_a_service_does_not_reach_others_of_its_machine(web, get):
    trusted = (f"127.0.0.1:{web.port}",)
    web.answers["/a"] = redirect("http://127.0.0.1:1/x")
    web.answers["/b"] = file(BODY)

    with pytest.raises(FetchRefused, match="TRAINYARD_FETCH_ALLOW"):
        get(web.url("/a"), trusted=trusted, allow=())
    assert get(web.url("/b"), trusted=trusted, allow=())[0] == BODY


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://example.com/x", "gopher://example.com/"])
def test_redirect_to_another_scheme_is_refused(web, get, target):
    web.answers["/a"] = redirect(target)

    with pytest.raises(FetchRefused, match="not followed"):
        get(web.url("/a"))


@pytest.fixture
def names(monkeypatch):
    """What names resolve to, one list of addresses for each lookup."""
    known: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def resolve(host, port, *args, **kwargs):
        if host not in known:
            return real(host, port, *args, **kwargs)
        addresses = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
        return [
            (socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "0.0.0.0"])
def test_name_of_a_private_address_is_refused(web, get, names, address):
    names["evil.example"] = [[address]]

    with pytest.raises(FetchRefused, match="TRAINYARD_FETCH_ALLOW"):
        get(web.url("/a", host="evil.example"), allow=())

    assert web.seen == []


def test_name_that_changes_its_address_after_a_look_is_refused(web, get, names):
    names["evil.example"] = [["127.0.0.1"], ["127.0.0.2"]]
    web.answers["/a"] = file(BODY)
    get(web.url("/a", host="evil.example"))

    with pytest.raises(FetchRefused, match="TRAINYARD_FETCH_ALLOW"):
        get(web.url("/a", host="evil.example"))

    assert len(web.seen) == 1


def test_listed_name_may_be_private(web, get, names):
    names["hub.example"] = [["127.0.0.1"]]
    web.answers["/a"] = file(BODY)

    assert get(web.url("/a", host="hub.example"), allow=("hub.example",))[0] == BODY


def test_credentials_stay_with_their_host(web, get, names):
    names["other.example"] = [["127.0.0.1"]]
    web.answers["/a"] = redirect("/b")
    web.answers["/b"] = redirect(web.url("/c", host="other.example"))
    web.answers["/c"] = file(BODY)

    get(web.url("/a"), headers={"Authorization": "Bearer hunter2"})

    assert [seen.headers.get("authorization") for seen in web.seen] == ["Bearer hunter2", "Bearer hunter2", None]


def test_proxies_of_the_environment_are_not_used(web, get, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    web.answers["/a"] = file(BODY)

    assert get(web.url("/a"))[0] == BODY


def test_announced_size_over_the_limit_is_not_read(web, get):
    web.answers["/a"] = lambda handler: handler.head(200, Content_Length=str(1 << 40))

    with pytest.raises(FetchTooLarge, match="TRAINYARD_FETCH_MAX_BYTES"):
        get(web.url("/a"), max_bytes=1 << 30)


def endless(handler):
    handler.head(200, Connection="close")
    while not handler.server.owner.closing.is_set():
        handler.wfile.write(bytes(1 << 16))


def test_endless_body_is_cut_at_the_limit(web, get):
    web.answers["/a"] = endless

    with pytest.raises(FetchTooLarge):
        get(web.url("/a"), max_bytes=1 << 20)


def test_compressed_on_the_way_counts_as_what_it_is(web, get):
    web.answers["/small"] = file(gzip.compress(BODY), Content_Encoding="gzip")
    web.answers["/bomb"] = file(gzip.compress(bytes(4 << 20)), Content_Encoding="gzip")

    assert get(web.url("/small"))[0] == BODY
    with pytest.raises(FetchTooLarge):
        get(web.url("/bomb"), max_bytes=1 << 20)


@pytest.mark.long
def test_slow_drip_ends_with_the_time_limit(web, get):
    def drip(handler):
        handler.head(200, Content_Length="1000")
        while not handler.server.owner.closing.wait(0.05):
            handler.wfile.write(b"x")

    web.answers["/a"] = drip
    began = time.monotonic()

    with pytest.raises(Trouble):
        get(web.url("/a"), max_seconds=0.5)

    assert time.monotonic() - began < 3


def test_silence_ends_with_the_stall_limit(web, get):
    web.answers["/a"] = lambda handler: handler.server.owner.closing.wait()

    with pytest.raises(Trouble, match="nothing arrives"):
        get(web.url("/a"), stalled_seconds=0.2)


def test_body_shorter_than_announced_is_trouble(web, get):
    def short(handler):
        handler.head(200, Content_Length="1000", Connection="close")
        handler.wfile.write(b"x" * 400)

    web.answers["/a"] = short

    with pytest.raises(Trouble, match="incomplete"):
        get(web.url("/a"))


def test_broken_download_goes_on_where_it_ended(web, get):
    def breaking(handler):
        start = int(handler.headers.get("Range", "bytes=0-")[6:-1])
        if start:
            assert handler.headers["If-Range"] == '"1"'
            handler.answer(206, BODY[start:], ETag='"1"', Content_Range=f"bytes {start}-{len(BODY) - 1}/{len(BODY)}")
            return
        handler.head(200, Content_Length=str(len(BODY)), ETag='"1"')
        handler.wfile.write(BODY[:700])
        handler.close_connection = True

    web.answers["/a"] = breaking

    assert get(web.url("/a"))[0] == BODY
    assert [seen.headers.get("range") for seen in web.seen] == [None, "bytes=700-"]


def test_file_that_changed_meanwhile_is_read_from_its_start(web, get):
    def changing(handler):
        if "Range" in handler.headers:
            handler.answer(200, b"the new one", ETag='"2"')
            return
        handler.head(200, Content_Length="1000", ETag='"1"')
        handler.wfile.write(b"x" * 500)
        handler.close_connection = True

    web.answers["/a"] = changing

    assert get(web.url("/a"))[0] == b"the new one"


def test_empty_file_is_no_data(web, get):
    web.answers["/a"] = file(b"")

    with pytest.raises(Unusable, match="empty"):
        get(web.url("/a"))


def test_unreachable_host_is_trouble(get):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(Trouble, match=r"127\.0\.0\.1"):
        get(f"http://127.0.0.1:{port}/a")
