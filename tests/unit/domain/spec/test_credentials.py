"""Which credentials and options a place may have, and how a place is opened with them."""

from typing import Any

import pytest

from app.domain.errors import BadSpec
from app.domain.spec.credentials import Access, access_of, check_access, kind_of_place, texts_of
from app.domain.spec.job_spec import comparable_data
from app.domain.spec.model import JobDocument, Located
from app.domain.spec.secrets import take_secrets, with_secrets
from tests.builders.factories import make_document

S3 = {"access_key_id": "AKIA", "secret_access_key": "secret"}
AT = "data_config.sources.0"


def refusal(location: str, credentials: dict[str, str] | None = None, **options: str) -> BadSpec:
    kind = kind_of_place(location, field="")
    part = Located.from_json({"credentials": credentials, "storage_options": options})
    with pytest.raises(BadSpec) as refused:
        check_access(part, location, kind, (), at=AT)
    return refused.value


GOOD = [
    ("s3://b/k", S3, {"region": "eu-west-1"}),
    ("s3://b/k", {**S3, "session_token": "x", "endpoint_url": "https://[2001:db8::1]:9000", "region": "r"}, {}),
    ("oci://b/k", None, {"namespace": "space", "region": "us-phoenix-1"}),
    ("obs://b/k", S3, {"endpoint_url": "http://10.0.0.1:9000/"}),
    ("obs://b/k", S3, {"endpoint_url": "http://[fd00::1]"}),
    ("https://h/k", {"token": "x"}, {}),
    ("http://10.0.0.1:80/k", {"username": "a", "password": "b c:d"}, {}),
    ("https://h/k", {"headers": '{"X-Key": "v"}'}, {}),
    ("hf://datasets/a/b", {"token": "hf_x"}, {}),
]


@pytest.mark.parametrize(("location", "credentials", "options"), GOOD)
def test_what_opens_a_place_is_taken(location: str, credentials: Any, options: Any) -> None:
    part = Located.from_json({"credentials": credentials, "storage_options": options})
    kind = kind_of_place(location, field="")

    check_access(part, location, kind, ("2001:db8::/32", "fd00::/8", "10.0.0.0/8"), at=AT)


BAD = [
    ("/srv/a", S3, "credentials", "a place on the disks of this cluster is read without credentials"),
    ("ipfs://bafyx/a", {"token": "x"}, "credentials", "ipfs:// is read without credentials"),
    ("s3://b/k", {"token": "x"}, "credentials.token", "unknown key 'token'; s3:// knows access_key_id"),
    ("s3://b/k", {"access_key_id": "a"}, "credentials", "secret_access_key; given: access_key_id"),
    ("s3://b/k", {"region": "eu-west-1"}, "credentials", "given: none of them"),
    ("s3://b/k", {**S3, "access_key_id": "a b"}, "credentials.access_key_id", "of ASCII letters"),
    ("s3://b/k", {**S3, "secret_access_key": "***"}, "credentials.secret_access_key", "masks a secret"),
    ("https://h/k", {"token": "a", "username": "b"}, "credentials", "username and password, or headers"),
    ("https://h/k", {"username": "a:b", "password": "c"}, "credentials.username", "no colon"),
    ("https://h/k", {"headers": "X-Key: v"}, "credentials.headers", "is a JSON object of texts"),
    ("https://h/k", {"headers": "[" * 8000}, "credentials.headers", "is a JSON object of texts"),
    ("https://h/k", {"username": "a", "password": "\ud800"}, "credentials.password", "without line breaks"),
    ("https://h/k", {"headers": '{"Host": "evil"}'}, "credentials.headers", "'Host' is no header that"),
    ("https://h/k", {"headers": '{"X-Key": "a\\r\\nHost: b"}'}, "credentials.headers", "line breaks"),
    ("https://h/k", {"token": "a\r\nHost: b"}, "credentials.token", "of ASCII letters"),
    ("http://h/k", {"token": "x"}, "credentials", "would be readable on the way"),
]


@pytest.mark.parametrize(("location", "credentials", "field", "rule"), BAD)
def test_credentials_that_do_not_fit_are_refused(location: str, credentials: Any, field: str, rule: str) -> None:
    refused = refusal(location, credentials)

    assert refused.field == f"{AT}.{field}"
    assert rule in refused.message


def test_service_in_an_ipv6_network_that_is_not_listed_is_refused() -> None:
    refused = refusal("s3://b/k", S3, endpoint_url="http://[fd00::1]:9000")

    assert refused.field == f"{AT}.storage_options.endpoint_url"
    assert "private address" in refused.message


@pytest.mark.parametrize(
    ("access", "endpoint"),
    [
        (Access(), ""),
        (Access(options={"endpoint_url": "https://s3.x"}), "https://s3.x"),
        (Access(credentials={**S3, "endpoint_url": "https://s3.y"}), "https://s3.y"),
        (Access(options={"namespace": "n", "region": "us-x"}), ""),
        (
            Access(credentials=S3, options={"namespace": "n", "region": "us-x"}),
            "https://n.compat.objectstorage.us-x.oraclecloud.com",
        ),
    ],
)
def test_service_is_the_one_that_is_named(access: Access, endpoint: str) -> None:
    assert access.endpoint == endpoint


def test_credentials_leave_the_document_and_come_back() -> None:
    document = make_document(data_config={"sources": [{"path": "s3://b/k", "credentials": dict(S3)}]})
    document.setdefault("output_config", {})["credentials"] = {"token": "x"}

    masked, secrets = take_secrets(JobDocument.from_json(document))

    (source,) = masked.data_config.sources
    assert source.credentials == dict.fromkeys(S3, "***")
    assert access_of(source, AT, secrets).credentials == S3
    assert access_of(masked.output_config, "output_config", secrets).credentials == {"token": "x"}
    assert with_secrets(masked, secrets).data_config.sources[0].credentials == S3


def test_renewed_credentials_make_no_other_data() -> None:
    before, after = (
        make_document(data_config={"sources": [{"path": "s3://b/k", "credentials": {"token": token}}]})
        for token in ("a", "b")
    )
    after["data_config"]["sources"][0]["storage_options"] = {"region": "x"}

    assert comparable_data(JobDocument.from_json(before)) == comparable_data(JobDocument.from_json(after))


def test_headers_are_secrets_one_by_one() -> None:
    secrets = {"data_config.sources.0.credentials.headers": '{"X-Key": "v-one"}', "output_config.hub_token": "t"}

    assert set(texts_of(secrets)) == {'{"X-Key": "v-one"}', "v-one", "t"}
