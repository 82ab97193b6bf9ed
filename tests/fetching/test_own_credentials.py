"""Sources with credentials of their own: each opens one place, is sent nowhere else, and stands in no message."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cryptography.fernet import Fernet

from app.domain.lifecycle.states import JobState
from app.domain.spec.credentials import Access
from app.models import Job
from app.security.secrets import SecretBox
from config.fetching import FetchSettings
from tests.doubles.guarded_buckets import GuardedBuckets, running_guarded_buckets
from tests.doubles.hub import READ_TOKEN, STRANGER_TOKEN
from tests.fetching.web_server import Answer, Handler, WebServer, file, redirect
from tests.systems.supervising import World
from workers.attempt_failed import AttemptFailed
from workers.fetching.filesystems import service
from workers.prepare.inputs.resolve_inputs import DataRequest, ModelRequest, find, find_data, find_model

LINES = b'{"text": "hello"}\n'
BASIC = "Basic " + base64.b64encode("someone:p:ß".encode()).decode()
OPERATOR = {"s3_region": "us-east-1", "s3_key": "operator-key", "s3_secret": "operator-secret"}
READS = """
from trainyard import hooks
run = hooks.init()
for path in run.data_paths:
    print(open(path).read().strip(), flush=True)
"""


@pytest.fixture(scope="module")
def buckets() -> Iterator[GuardedBuckets]:
    with running_guarded_buckets() as made:
        yield made


@pytest.fixture(scope="module")
def one(buckets: GuardedBuckets) -> dict[str, str]:
    return buckets.make("bucket-one", a_jsonl=b'{"text": "of one"}\n')


@pytest.fixture(scope="module")
def two(buckets: GuardedBuckets) -> dict[str, str]:
    return buckets.make("bucket-two", a_jsonl=b'{"text": "of two"}\n')


@pytest.fixture
def checked(buckets: GuardedBuckets, one: dict[str, str], two: dict[str, str]) -> Iterator[GuardedBuckets]:
    with buckets.checked():
        yield buckets


def request(location: str, credentials: dict[str, str] | None = None, **options: str) -> DataRequest:
    return DataRequest(location=location, access=Access(credentials=credentials or {}, options=options))


def refusal(library, *requests):
    with pytest.raises(AttemptFailed) as refused:
        find(library, [], requests)
    return refused.value


def only(header: str, value: str) -> Answer:
    """A file for those who send this header."""

    def answer(handler: Handler) -> None:
        file(LINES, ETag='"1"')(handler) if handler.headers.get(header) == value else handler.answer(403)

    return answer


OPENS = [
    ({"token": "tok-one"}, "Authorization", "Bearer tok-one"),
    ({"username": "someone", "password": "p:ß"}, "Authorization", BASIC),
    ({"headers": '{"X-Api-Key": "key-one"}'}, "X-Api-Key", "key-one"),
]


@pytest.mark.parametrize(("credentials", "header", "value"), OPENS)
def test_file_is_read_with_what_its_source_brings(web, make_library, credentials, header, value):
    web.answers["/a.jsonl"] = only(header, value)

    found = find_data(make_library(), request(web.url("/a.jsonl"), credentials))

    assert found.path.read_bytes() == LINES


def test_each_source_is_asked_for_with_its_own(web, make_library):
    web.answers |= {"/a": only("Authorization", "Bearer tok-one"), "/b": only("Authorization", "Bearer tok-two")}
    web.answers["/c"] = file(LINES)
    requests = [
        request(web.url("/a"), {"token": "tok-one"}),
        request(web.url("/b"), {"token": "tok-two"}),
        request(web.url("/c")),
    ]

    find(make_library(), [], requests)

    sent = {seen.path: seen.headers.get("authorization") for seen in web.seen}
    assert sent == {"/a": "Bearer tok-one", "/b": "Bearer tok-two", "/c": None}


def test_credentials_do_not_follow_a_redirect_to_another_host(web, make_library):
    with WebServer() as other:
        web.answers["/a"] = redirect(other.url("/b"))
        other.answers["/b"] = file(LINES)
        find_data(make_library(), request(web.url("/a"), {"headers": '{"X-Api-Key": "key-one"}'}))

        assert [seen.headers.get("x-api-key") for seen in web.seen] == ["key-one"]
        assert [seen.headers.get("x-api-key") for seen in other.seen] == [None]


def test_wrong_credentials_are_a_cause_that_does_not_tell_them(web, make_library):
    web.answers["/a"] = only("Authorization", "Bearer tok-one")

    refused = refusal(make_library(), request(web.url("/a"), {"token": "tok-wrong"}))

    assert refused.error_type == "DATA_NOT_FOUND"
    assert "does not accept the credentials that the job has for it" in refused.message
    assert "tok-wrong" not in refused.message


def test_what_one_has_fetched_is_not_for_those_with_other_credentials(web, make_library):
    web.answers["/a"] = only("Authorization", "Bearer tok-one")
    find_data(make_library(), request(web.url("/a"), {"token": "tok-one"}))

    for other in (request(web.url("/a"), {"token": "tok-two"}), request(web.url("/a"))):
        assert refusal(make_library(), other).error_type == "DATA_NOT_FOUND"
    assert [seen.headers.get("if-none-match") for seen in web.seen] == [None, None, None]


def test_same_credentials_find_it_in_the_cache(web, make_library):
    web.answers["/a"] = only("Authorization", "Bearer tok-one")

    for _ in range(2):
        find_data(make_library(), request(web.url("/a"), {"token": "tok-one"}))

    assert [seen.headers.get("if-none-match") for seen in web.seen] == [None, '"1"']


# ---- object stores


def test_two_buckets_are_read_each_with_its_own_keys(checked, one, two, make_library):
    library = make_library(**OPERATOR, s3_endpoint=checked.url)

    found = find(library, [], [request("s3://bucket-one/a.jsonl", one), request("s3://bucket-two/a.jsonl", two)])[1]

    assert [each.path.read_bytes() for each in found] == [b'{"text": "of one"}\n', b'{"text": "of two"}\n']


@pytest.mark.parametrize(
    "change", [{}, {"secret_access_key": "wrong-secret"}, {"access_key_id": "AKIAUNKNOWN000000000"}]
)
def test_keys_that_do_not_open_a_bucket_are_said(checked, one, make_library, change):
    library = make_library(**OPERATOR, s3_endpoint=checked.url)

    refused = refusal(library, request("s3://bucket-two/a.jsonl", {**one, **change}))

    assert refused.error_type == "DATA_NOT_FOUND"
    assert "does not accept the credentials that the job has for it" in refused.message
    assert not [value for value in {**one, **change}.values() if value in refused.message]


@pytest.mark.long
def test_object_in_the_cache_is_not_for_those_who_may_only_list(checked, one, two, make_library):
    library = make_library(**OPERATOR, s3_endpoint=checked.url)
    find_data(library, request("s3://bucket-one/a.jsonl", one))

    assert refusal(library, request("s3://bucket-one/a.jsonl", two)).error_type == "DATA_NOT_FOUND"


@pytest.mark.parametrize("scheme", ["s3", "oci", "obs"])
def test_service_may_be_named_beside_the_source(checked, one, make_library, tmp_path, scheme):
    """Also where the buckets of the scheme are directories of the installation."""
    own = {} if scheme == "s3" else {f"{scheme}_dir": tmp_path}
    options = {"endpoint_url": checked.url, "region": "us-east-1"}

    found = find_data(make_library(**own), request(f"{scheme}://bucket-one/a.jsonl", one, **options))

    assert found.path.read_bytes() == b'{"text": "of one"}\n'


def test_service_that_a_job_names_never_gets_the_keys_of_the_operator(web, make_library):
    source = request("s3://bucket-one/*.jsonl", None, endpoint_url=web.url("").rstrip("/"))

    assert refusal(make_library(**OPERATOR), source).error_type == "DATA_NOT_FOUND"

    assert web.seen
    assert not [seen for seen in web.seen if "operator-key" in str(seen.headers)]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_service_that_a_job_names_may_not_be_private(checked, one, make_library, host):
    endpoint = checked.url.replace("127.0.0.1", host)

    refused = refusal(make_library(allow=()), request("s3://bucket-one/a.jsonl", one, endpoint_url=endpoint))

    assert refused.error_type == "INVALID_CONFIG"
    assert "private address" in refused.message


# In its own process: a thread of the file system resolves names, and it lives as long as the process.
RESOLVES = """
import socket, sys
from app.domain.spec.credentials import Access
from config.fetching import FetchSettings
from workers.fetching.filesystems import Objects, filesystem, service
found = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: found("127.0.0.1", *rest, **more)
known = service("s3", FetchSettings(allow=tuple(sys.argv[2:])), Access(options={"endpoint_url": sys.argv[1]}))
try:
    print(Objects(filesystem("s3", known), "s3", known).info("bucket-one/a.jsonl"))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.long
@pytest.mark.parametrize(("allow", "said"), [((), "FetchRefused "), (("public.example",), "None")])
def test_name_of_a_service_may_not_lead_to_a_private_address(buckets, one, allow, said):
    endpoint = buckets.url.replace("127.0.0.1", "public.example")

    done = subprocess.run(
        [sys.executable, "-c", RESOLVES, endpoint, *allow], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith(said)


def test_session_token_is_sent(web, one, make_library):
    credentials = {**one, "session_token": "session-one"}

    refusal(make_library(), request("s3://bucket-one/*.jsonl", credentials, endpoint_url=web.url("").rstrip("/")))

    assert {seen.headers.get("x-amz-security-token") for seen in web.seen} == {"session-one"}


def test_region_of_a_source_is_what_its_requests_are_signed_for(web, one, make_library):
    web_url = web.url("").rstrip("/")
    settings = {**OPERATOR, "s3_endpoint": web_url}

    refusal(make_library(**settings), request("s3://bucket-one/*.jsonl", one, region="eu-test-7"))

    assert {seen.headers["authorization"].split("/")[2] for seen in web.seen} == {"eu-test-7"}


def test_region_that_the_service_is_not_in_is_a_lasting_cause(web, one, make_library):
    body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Message>expecting 'us-east-2'</Message></Error>"
    web.answers["/bucket-one"] = lambda handler: handler.answer(400, body, Content_Type="application/xml")
    source = request("s3://bucket-one/*.jsonl", one, region="eu-test-7", endpoint_url=web.url("").rstrip("/"))

    refused = refusal(make_library(), source)

    assert refused.error_type == "INVALID_CONFIG"
    assert "in another region" in refused.message
    assert "expecting 'us-east-2'" in refused.message


@pytest.mark.parametrize(
    ("endpoint", "region", "used"),
    [
        (
            "https://n.compat.objectstorage.us-a-1.example.com",
            "us-a-1",
            "https://n.compat.objectstorage.eu-b-2.example.com",
        ),
        ("https://minio.example.com:9000", "us-a-1", "https://minio.example.com:9000"),
        ("", "", ""),
    ],
)
def test_region_of_a_source_is_where_the_service_of_the_operator_is_asked(endpoint, region, used):
    settings = FetchSettings(s3_endpoint=endpoint, s3_region=region, s3_key="operator-key", s3_secret="x")

    found = service("s3", settings, Access(options={"region": "eu-b-2"}))

    assert (found.endpoint, found.region, found.key) == (used, "eu-b-2", "operator-key")


# ---- hubs


@pytest.mark.long
def test_tokens_of_two_places_of_a_hub(hub, make_library):
    hub.add("acme/data", {"a.jsonl": LINES}, dataset=True, private=True)
    hub.add("acme/tiny", {"config.json": b"{}"}, private=True)
    library = make_library(secrets={"output_config.hub_token": STRANGER_TOKEN})
    own = Access(credentials={"token": READ_TOKEN})

    model = find_model(library, ModelRequest(model_id="acme/tiny", access=own))
    data = find_data(library, DataRequest(location="hf://datasets/acme/data", access=own))

    assert (model.path / "config.json").read_bytes() == b"{}"
    assert data.path.read_bytes() == LINES
    assert refusal(library, DataRequest(location="hf://datasets/acme/data")).error_type == "DATA_NOT_FOUND"


# ---- a directory


def test_directory_takes_no_credentials(make_library, tmp_path, one):
    (tmp_path / "bucket-one").mkdir()
    (tmp_path / "bucket-one/a.jsonl").write_bytes(LINES)

    refused = refusal(make_library(oci_dir=tmp_path), request("oci://bucket-one/a.jsonl", one))

    assert refused.error_type == "INVALID_CONFIG"
    assert "a directory of this installation" in refused.message


# ---- a whole attempt


@pytest.fixture
def world(tmp_path, sqlite_url, checked, forked_supervisors):
    world = World(
        tmp_path,
        sqlite_url,
        spawn=forked_supervisors.spawn,
        TRAINYARD_FETCH_S3_ENDPOINT=checked.url,
        TRAINYARD_FETCH_ALLOW="127.0.0.1",
        TRAINYARD_SECURITY_SECRET_KEY=Fernet.generate_key().decode(),
    )
    yield world
    world.close()


def run(world: World, *sources: tuple[str, dict[str, str]]) -> Job:
    listed = [{"path": path, "credentials": dict.fromkeys(own, "***")} for path, own in sources]
    named = ((f"data_config.sources.{i}.credentials", own) for i, (_, own) in enumerate(sources))
    secrets = {f"{at}.{name}": value for at, own in named for name, value in own.items()}
    job_id = world.submit(READS)
    with world.db.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = {**job.spec, "data_config": {"sources": listed}}
        job.sealed_secrets = SecretBox(world.settings.security.secret_key).seal(secrets)
    world.take_up(job_id)
    return world.wait_for_end(job_id)


def leaks(world: World, *secrets: str) -> list[str]:
    """Files of the installation (its database among them), log lines and events that hold one of them."""
    files = [path for path in world.data_dir.parent.rglob("*") if path.is_file() and os.access(path, os.R_OK)]
    found = [str(path) for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]
    with world.db.read() as session:
        jobs = [job.id for job in session.query(Job).all()]
    shown = json.dumps([[world.log(job), [event.message for event in world.events(job)]] for job in jobs])
    return [*found, *(["shown"] if any(secret in shown for secret in secrets) else [])]


@pytest.mark.long
def test_job_reads_two_sources_with_two_credentials_and_leaves_none_of_them(world, web, one):
    web.answers["/b.jsonl"] = only("Authorization", "Bearer tok-canary-two")

    job = run(world, ("s3://bucket-one/a.jsonl", one), (web.url("/b.jsonl"), {"token": "tok-canary-two"}))

    assert job.state is JobState.COMPLETED, world.describe(job.id)
    assert world.log(job.id) == ['{"text": "of one"}', LINES.decode().strip()]
    assert leaks(world, one["secret_access_key"], "tok-canary-two") == []


def test_job_with_a_wrong_one_fails_with_its_cause(world, one, two):
    job = run(
        world, ("s3://bucket-one/a.jsonl", one), ("s3://bucket-two/a.jsonl", {**two, "secret_access_key": "x" * 40})
    )

    assert (job.state, job.error_type) == (JobState.FAILED, "DATA_NOT_FOUND")
    assert (job.error_message or "").startswith(
        "data source s3://bucket-two/a.jsonl: the service does not accept the credentials"
    )
    assert leaks(world, one["secret_access_key"], "x" * 40) == []
