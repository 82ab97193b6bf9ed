"""Secrets are taken out of text however they are written, and nothing else is."""

import base64
import html
import json
import re
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.redaction import MASK, PREFILTER_LINES_ABOVE, Redaction, masked_forms
from config.secrets import secrets_of
from config.settings import SettingsError, load_settings

SECRET = "s3cr3t/with+odd=chars&é"
SPECIAL = "s3cr3t/wïth \"quotes\" & 'more' <é>"


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        repr({"token": SECRET}),
        json.dumps({"token": SECRET}),
        quote(SECRET, safe=""),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        *(base64.b64encode(f"{'x' * n}{SECRET}{'y' * m}".encode()).decode() for n in range(3) for m in range(3)),
        *(base64.urlsafe_b64encode(f"{'x' * n}{SECRET}".encode()).decode() for n in range(3)),
    ],
)
def test_a_known_secret_is_masked_however_it_is_written(written: str) -> None:
    shown = Redaction([SECRET])(f"before {written} after")

    assert MASK in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert not any(part in shown for part in ("s3cr3t", "odd", quote(SECRET, safe="")[:10], SECRET.encode().hex()[:12]))
    assert written not in shown


@pytest.mark.parametrize(
    "written",
    [
        ascii(SPECIAL)[1:-1],
        repr(SPECIAL.encode())[2:-1],
        json.dumps(json.dumps(SPECIAL)[1:-1])[1:-1],
        json.dumps(SPECIAL)[1:-1].replace("/", "\\/"),
        html.escape(SPECIAL),
        re.sub("%..", lambda found: found[0].lower(), quote(SPECIAL, safe="")),
    ],
)
def test_other_programs_ways_of_writing_a_secret_are_masked(written: str) -> None:
    assert Redaction([SPECIAL])(f"<{written}>") == f"<{MASK}>"


def test_secret_that_is_no_unicode_is_masked_too() -> None:
    latin = b"p\xe4ssw\xf6rter".decode("utf-8", "surrogateescape")  # as the environment gives it

    assert Redaction([latin])(f"it is {latin}") == f"it is {MASK}"


def test_each_line_of_a_secret_with_several_is_masked() -> None:
    redaction = Redaction(["-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----\n"])

    assert redaction("first MIIEvQIBADANBg") == f"first {MASK}"
    assert redaction("  kqhkiG9w0BAQEF") == f"  {MASK}"


@pytest.mark.parametrize("short", ["", "a", "true", "12345", "100000000"])
def test_what_is_too_short_to_differ_from_ordinary_words_is_not_masked(short: str) -> None:
    text = "a true 12345 of 100000000"

    assert Redaction([short])(text) == text


def test_secrets_can_be_added() -> None:
    redaction = Redaction()
    redaction.add(["hunter2-first"])
    redaction.add(["hunter2-second"])

    assert redaction("hunter2-first, hunter2-second") == f"{MASK}, {MASK}"


def test_the_longer_of_two_secrets_is_masked_whole() -> None:
    assert Redaction(["abcdef", "abcdefghij"])("abcdefghij") == MASK


def test_beginning_of_a_secret_at_the_end_of_a_cut_text_is_masked() -> None:
    redaction = Redaction(["hunter2-is-long"])

    assert redaction.redact_truncated("it is hunter2-is") == f"it is {MASK}"
    assert redaction.redact_truncated("it is hunter2-is-long, and hun") == f"it is {MASK}, and hun"


@pytest.mark.long
def test_long_secrets_cost_little() -> None:
    redaction = Redaction(["\n".join(f"line {n} of a long key" for n in range(5000)), "xy" * 30_000])

    began = time.process_time()
    for _ in range(20):
        redaction.redact_truncated("line 1 of a " * 1300)
        redaction.redact_truncated("xy" * 7999 + "x" + "z")

    assert time.process_time() - began < 10.0  # 2 at most; a search for every beginning of a secret takes minutes
    assert redaction.redact_truncated("it is line 17 of a lo") == f"it is {MASK}"


def test_secret_cut_within_a_character_is_masked() -> None:
    cut = "it is geheimnisvöll".encode()[:-3].decode("utf-8", "replace")

    assert Redaction(["geheimnisvöll"]).redact_truncated(cut) == f"it is {MASK}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("key ty_0123456789ab_" + "A1" * 19, "key ty_0123456789ab_***"),
        ("HF_TOKEN is hf_abcdefghijklmnopqrstuvwxyz012345", "HF_TOKEN is hf_***"),
        ("whsec_c2VjcmV0LXNlY3JldC0xMjM0", "whsec_***"),
        ("a eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl b", "a *** b"),
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("{'Authorization': 'Basic YWRtaW46cGFzc3dvcmQ='}", "{'Authorization': 'Basic ***'}"),
        ("authorization=Token abc123", "authorization=Token ***"),
        ('{"authorization": "abc"}', '{"authorization": "***"}'),
        ("sent bearer abc123def456ghi", "sent bearer ***"),
        ("X-User-Token: abc", "X-User-Token: ***"),
        ("('x-api-key', 'abc') x-api-key=abc", "('x-api-key', 'abc') x-api-key=***"),
        ("redis://:pa55@127.0.0.1:6379/0", "redis://***@127.0.0.1:6379/0"),
        ("redis://:p@55@127.0.0.1:6379/0", "redis://***@127.0.0.1:6379/0"),
        ("postgresql+psycopg://me:p%40ss@db/x failed", "postgresql+psycopg://***@db/x failed"),
        ("git clone https://ghp_abc@example.org/x", "git clone https://***@example.org/x"),
        ("GET /a?X-Amz-Signature=ab12&b=1&sig=x", "GET /a?X-Amz-Signature=***&b=1&sig=***"),
        ("/v1/jobs?api_key=abc HTTP/1.1", "/v1/jobs?api_key=*** HTTP/1.1"),
        ("https://h/a?page=2&X-Amz-Security-Token=x/y%3D&n=1", "https://h/a?page=2&X-Amz-Security-Token=***&n=1"),
        ("host=db password=abc dbname=x", "host=db password=*** dbname=x"),
    ],
)
def test_what_has_the_form_of_a_secret_is_masked(text: str, shown: str) -> None:
    assert masked_forms(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "step 5 loss 0.25 lr 1e-4 tokens 100000",
        "workers.trainers.hf_trainer.trl_trainer_with_a_long_name",
        "file:///srv/files/jobs/job-1/model and https://example.org/a@b/c?page=2&size=3",
        "a bearer of understanding; basic understanding; the tokenizer's key is x-axis",
        "password is required",
        "ty_short hf_short eyJ.x",
        "mail to a@example.org",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert Redaction(["hunter2"])(text) == text


def test_many_secrets_are_masked_as_few_are() -> None:
    secrets = [f"secret-number-{n}-of-many" for n in range(300)]
    redaction = Redaction([*secrets, "secret"])

    shown = redaction(f"{secrets[7]} and {secrets[299].encode().hex()}, {quote('secret-number-8-of-many')}")

    assert shown == f"{MASK} and {MASK}, {MASK}"
    assert redaction("nothing of it") == "nothing of it"


@pytest.mark.long
@given(
    st.lists(
        st.sampled_from(
            [
                *("\n", " ", "loss 0.5", "max_x-y", "a=b", "?x=1&sig=abc", "https://a:b@c", "***", "'"),
                *(
                    "Authorization:",
                    "authorization = secret",
                    "bearer",
                    "abc123def456ghi",
                    "x-api-key",
                    ":",
                    "pwd=",
                    "a1",
                ),
                *("first line\nsecond line", "first line", "second", "hunter2hunter2", "hf_", "0123456789abcdefghijk"),
            ]
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_lines_are_masked_together_as_each_by_itself(pieces: list[str], has_many: bool) -> None:  # noqa: FBT001
    many = [f"secret-number-{n}-of-many" for n in range(PREFILTER_LINES_ABOVE)] if has_many else []
    redaction, text = Redaction(["hunter2hunter2", "first line\nsecond line", *many]), "".join(pieces)

    assert redaction.lines(text) == "\n".join(redaction(line) for line in text.split("\n"))


@pytest.mark.timeout(20)  # each takes a few milliseconds; minutes, if it were looked at again and again
@pytest.mark.parametrize(
    "piece",
    [
        "?sig",
        "x-",
        "eyJaaaaaaaaa-",
        "eyJaaaaaaaa.",
        "authorization=",
        "authorization a",
        "://a:",
        "bearer a1",
        "password ",
        "ty_000000000000_",
        "whsec_-",
        "?a=b&sig",
        "hf_a",
    ],
)
def test_no_line_takes_long(piece: str) -> None:
    line = piece * (1_000_000 // len(piece))

    shown = masked_forms(line)

    assert len(shown) <= len(line) * 2


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["authorization\n", "authorization:\n", "bearer\n", "x-key:\n\n", "password\n=\n"])
def test_no_lines_take_long(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))

    assert Redaction().lines(text).count("\n") == text.count("\n")


def test_every_secret_of_the_settings_is_known() -> None:
    settings = load_settings(
        {
            "TRAINYARD_DATA_DIR": "/nonexistent",
            "TRAINYARD_DATABASE_URL": "postgresql+psycopg://me:db%2Dpassword@db/x",
            "TRAINYARD_BROKER_URL": "redis://:redis-password@r:6379/0",
            "TRAINYARD_STORAGE_URL": "ftp://user:ftp-password@host/x",
            "TRAINYARD_FETCH_S3_KEY": "access-key",
            "TRAINYARD_FETCH_S3_SECRET": "s3-secret",
            "TRAINYARD_FETCH_TOKEN_EXCHANGE_SECRET": "exchange-secret",
            "TRAINYARD_SECURITY_SECRET_KEY": "fernet-key",
            "TRAINYARD_FLOWER_PASSWORD": "flower-password",
        }
    )

    shown = Redaction(secrets_of(settings))(
        "db%2Dpassword db-password redis-password ftp-password s3-secret exchange-secret fernet-key flower-password "
        "access-key /nonexistent"
    )

    assert shown == f"{MASK} {MASK} {MASK} {MASK} {MASK} {MASK} {MASK} {MASK} access-key /nonexistent"


def test_a_refused_setting_is_reported_without_its_password() -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({"TRAINYARD_FETCH_S3_ENDPOINT": "https://me:hunter2@host/"})

    assert "TRAINYARD_FETCH_S3_ENDPOINT='https://***@host/'" in str(refused.value)
