"""Requests that are signed as Huawei Cloud's SDKs sign them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.compat.modelarts.signatures import SignedRequest, read_signature
from app.domain.errors import CredentialsInvalid

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AUTHORIZATION = "SDK-HMAC-SHA256 Access=TYAKTEST, SignedHeaders=content-type;host;x-sdk-date, Signature={signature}"


def signed(**changes: Any) -> SignedRequest:
    values: dict[str, Any] = {
        "method": "POST",
        "path": "/v2/default/training-jobs",
        "query": [("b", "2 x"), ("a", "ä")],
        "headers": {"host": "127.0.0.1:8080", "content-type": "application/json", "x-sdk-date": "20260101T120000Z"},
        "body": b'{"kind": "job"}',
    }
    return SignedRequest(**{**values, **changes})


# Made by huaweicloudsdkcore 3.1.219 for this request with the secret key "secret".
SIGNATURE = "769d0fbeb07b9f2730a09ad9347bbd18c4e8d655941a197356b741fb46039a78"


def test_signature_is_that_of_the_real_client():
    signature = read_signature(AUTHORIZATION.format(signature=SIGNATURE), signed(), now=NOW)

    assert signature.access_key == "TYAKTEST"
    assert signature.is_made_with("secret")
    assert not signature.is_made_with("other")


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "PUT"},
        {"path": "/v2/other/training-jobs"},
        {"query": []},
        {"body": b"{}"},
        {"headers": {"host": "evil", "content-type": "application/json", "x-sdk-date": "20260101T120000Z"}},
    ],
)
def test_no_part_of_a_signed_request_can_be_changed(changes):
    signature = read_signature(AUTHORIZATION.format(signature=SIGNATURE), signed(**changes), now=NOW)

    assert not signature.is_made_with("secret")


@pytest.mark.parametrize(
    ("authorization", "now", "said"),
    [
        ("SDK-HMAC-SHA256 Access=x", NOW, "must be"),
        (AUTHORIZATION.format(signature=SIGNATURE), NOW + timedelta(minutes=16), "another time"),
        (AUTHORIZATION.format(signature=SIGNATURE), NOW - timedelta(minutes=16), "another time"),
        (AUTHORIZATION.format(signature=SIGNATURE).replace("host", "host;x-more"), NOW, "x-more"),
    ],
)
def test_what_is_malformed_or_old_is_refused(authorization, now, said):
    with pytest.raises(CredentialsInvalid, match=said):
        read_signature(authorization, signed(), now=now)
