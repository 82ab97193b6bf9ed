"""Fetching through the operator's proxy: which hosts it is asked for, and that nothing else is connected to."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.domain.spec.credentials import ENDPOINT, Access
from tests.doubles.git_server import running_git_server
from tests.doubles.hub import Hub
from tests.doubles.outbound_proxy import CompanyProxy, company_proxy
from tests.fetching.web_server import WebServer, file, redirect
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.resolve_inputs import DataRequest, find_code, find_data

BODY = b'{"text": "hello"}\n' * 10
HOST = "data.example.org"  # which no resolver knows


@pytest.fixture
def proxy() -> Iterator[CompanyProxy]:
    with company_proxy() as found:
        found.login = "node:p@ss"
        yield found


@pytest.fixture
def through(proxy: CompanyProxy, make_library: Any) -> Any:
    """Makes a library whose node reaches public hosts through the proxy, and no private ones."""

    def make(**settings: Any) -> Any:
        ours = {"proxy": proxy.url, "proxy_user": "node", "proxy_secret": "p@ss", "allow": ()}
        return make_library(**{**ours, **settings})

    return make


def refusal(library: Any, location: str) -> str:
    with pytest.raises(AttemptFailed) as refused:
        find_data(library, DataRequest(location=location))
    return refused.value.message


def test_data_comes_through_the_proxy_also_after_redirects(web: WebServer, proxy: CompanyProxy, through: Any) -> None:
    web.answers["/a.jsonl"] = redirect(web.url("/b.jsonl", host="other.example.org"))
    web.answers["/b.jsonl"] = file(BODY)

    found = find_data(through(), DataRequest(location=web.url("/a.jsonl", host=HOST)))

    assert found.path.read_bytes() == BODY
    assert proxy.asked == [f"{HOST}:{web.port}", f"other.example.org:{web.port}"]


@pytest.mark.parametrize("host", ["127.0.0.1", "wiki.corp.internal"])
def test_proxy_is_not_asked_for_inner_hosts(web: WebServer, proxy: CompanyProxy, through: Any, host: str) -> None:
    web.answers["/a.jsonl"] = file(BODY)
    web.answers["/b.jsonl"] = redirect(web.url("/a.jsonl", host=host))

    assert "private address" in refusal(through(), web.url("/a.jsonl", host=host))
    assert "private address" in refusal(through(), web.url("/b.jsonl", host=HOST))

    assert proxy.asked == [f"{HOST}:{web.port}"]


def test_address_of_the_proxy_itself_is_no_place_of_data(proxy: CompanyProxy, through: Any) -> None:
    assert "private address" in refusal(through(), f"{proxy.url}/status.jsonl")
    assert proxy.asked == []


def test_hosts_of_no_proxy_are_connected_to_directly(web: WebServer, proxy: CompanyProxy, through: Any) -> None:
    web.answers["/a.jsonl"] = file(BODY)
    library = through(allow=("127.0.0.1",), no_proxy=("127.0.0.0/8",))

    assert find_data(library, DataRequest(location=web.url("/a.jsonl"))).path.read_bytes() == BODY
    assert proxy.asked == []


def test_wrong_login_and_silent_proxy_are_named(web: WebServer, proxy: CompanyProxy, through: Any) -> None:
    https = f"https://{HOST}:{web.port}/a.jsonl"
    assert "the proxy of TRAINYARD_FETCH_PROXY answers 407" in refusal(through(proxy_secret="hunter2"), https)
    assert "hunter2" not in refusal(through(proxy_secret="hunter2"), https)
    http = f"http://{HOST}:{web.port}/a.jsonl"
    assert "the proxy of TRAINYARD_FETCH_PROXY answers 407" in refusal(through(proxy_secret="hunter2"), http)


@pytest.mark.parametrize("bucket", ["x--use1-az4--x-s3", "x--use1-az4--xa-s3", "x--op-s3"])
def test_proxy_is_not_asked_for_a_host_that_a_bucket_makes(bucket: str, proxy: CompanyProxy, through: Any) -> None:
    access = Access(options={ENDPOINT: f"http://{HOST}"})
    with pytest.raises(AttemptFailed, match="are read from the operator's service alone"):
        find_data(through(), DataRequest(location=f"s3://{bucket}/a.jsonl", access=access))
    assert proxy.asked == []


def test_objects_come_through_the_proxy(bucket: Any, proxy: CompanyProxy, through: Any) -> None:
    bucket.put_object(Key="a.jsonl", Body=BODY)
    port = bucket.url.rpartition(":")[2]
    library = through(s3_endpoint=f"http://s3.us-east-1.amazonaws.com:{port}", s3_key="key", s3_secret="secret")

    assert find_data(library, DataRequest(location="s3://data/a.jsonl")).path.read_bytes() == BODY

    assert {*proxy.asked} == {f"s3.us-east-1.amazonaws.com:{port}"}


@pytest.mark.long
def test_hub_is_reached_through_the_proxy(
    hub: Hub, proxy: CompanyProxy, through: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/faq", {"train.jsonl": BODY}, dataset=True)
    port = hub.url.rpartition(":")[2]
    monkeypatch.setenv("HF_ENDPOINT", f"http://hub.example.org:{port}")

    assert find_data(through(), DataRequest(location="hf://datasets/org/faq")).path.read_bytes() == BODY

    assert {*proxy.asked} == {f"hub.example.org:{port}"}


@pytest.mark.long
def test_code_comes_through_the_proxy(
    tmp_path: Any, proxy: CompanyProxy, through: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_git_server(tmp_path, host="git.example.org") as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        location = f"{server.url('code')}@{server.commit('code', {'train.py': 'print()'})}"

        code = find_code(through(), location)
        assert (code / "train.py").read_text() == "print()"
        assert {*proxy.asked} == {f"git.example.org:{server.port}"}

        proxy.status = "403 Forbidden"
        other = location.replace("git.example.org", "other.example.org")
        with pytest.raises(AttemptFailed, match="the proxy of TRAINYARD_FETCH_PROXY answers 403") as failed:
            find_code(through(), other)
    assert failed.value.error_type == "HUB_UNREACHABLE"
