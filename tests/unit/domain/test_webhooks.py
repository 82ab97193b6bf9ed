"""Which events a webhook wants, its pauses, its signature, and which addresses it may have."""

from datetime import timedelta

import pytest

from app.domain.batches.events import BatchEventType
from app.domain.batches.states import ENDED
from app.domain.errors import BadSpec
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.serving.events import ServiceEventType
from app.domain.sweeps.events import SweepEventType
from app.domain.webhooks import (
    EVENT_NAMES,
    GIVEN_UP_AFTER,
    PAUSES_SECONDS,
    RESTS_SECONDS,
    TRIES_IN_LINE,
    check_recipients,
    check_url,
    pause_after,
    rest_after,
    signature,
    wants,
)


@pytest.mark.parametrize(
    ("names", "kind", "to_status", "wanted"),
    [
        ((), "job.warning", None, True),
        (("job.status",), "job.status", "FAILED", True),
        (("FAILED",), "job.status", "FAILED", True),
        (("FAILED",), "job.status", "COMPLETED", False),
        (("PENDING",), "job.submitted", "PENDING", True),
        (("checkpoint.saved",), "job.status", "COMPLETED", False),
        (("COMPLETED", "checkpoint.saved"), "checkpoint.saved", None, True),
    ],
)
def test_webhook_receives_the_kinds_and_states_that_it_names(names, kind, to_status, wanted):
    assert wants(names, kind, to_status) is wanted


def test_every_kind_of_event_and_every_state_can_be_named():
    every = [*EventType, *SweepEventType, *ServiceEventType, *BatchEventType, *JobState]
    assert set(EVENT_NAMES) == set(every)
    assert len(EVENT_NAMES) == len(every)
    assert {f"batch.{state}" for state in ENDED} == set(BatchEventType)


def test_pauses_grow_and_the_last_one_is_repeated():
    pauses = [pause_after(failures).total_seconds() for failures in range(1, len(PAUSES_SECONDS) + 3)]

    assert pauses == [*PAUSES_SECONDS, PAUSES_SECONDS[-1], PAUSES_SECONDS[-1]]
    assert pauses == sorted(pauses)
    assert pauses[TRIES_IN_LINE - 1] > RESTS_SECONDS[TRIES_IN_LINE - 1]  # later events get their chance meanwhile
    assert timedelta(seconds=pauses[-1]) < GIVEN_UP_AFTER


def test_receiver_may_ask_for_a_longer_rest_within_bounds():
    assert rest_after(1) == timedelta(seconds=5)
    assert rest_after(1, asked_seconds=2) == timedelta(seconds=5)
    assert rest_after(1, asked_seconds=120) == timedelta(seconds=120)
    assert rest_after(1, asked_seconds=10**8) == timedelta(minutes=15)
    assert rest_after(50) == timedelta(minutes=15)


def test_signature_covers_time_and_body():
    # printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac shared-secret-of-16
    known = "t=1700000000,v1=3bd4d2fcc8eac37055633b6c39abb2e8de4df67105787bca933f7a4506157070"

    assert signature("shared-secret-of-16", 1_700_000_000, b'{"a":1}') == known
    assert signature("shared-secret-of-16", 1_700_000_001, b'{"a":1}').partition("v1=")[2] not in known
    assert signature("shared-secret-of-17", 1_700_000_000, b'{"a":1}') != known


@pytest.mark.parametrize(
    "url",
    [
        "https://receiver.example/hook",
        "http://receiver.example:8080/hook?team=a&b=%20",
        "https://receiver.example",
        "https://xn--bcher-kva.example/",
        "https://[2606:4700::1111]/x",
        "HTTPS://Receiver.example/x",
        "https://receiver.example/@me",
        "https://receiver.example?to=me@receiver.example",
    ],
)
def test_public_address_is_taken(url):
    assert check_url(url, (), field="url") is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://receiver.example/x", "http"),
        ("file:///etc/passwd", "http"),
        ("receiver.example/x", "http"),
        ("", "http"),
        ("https://", "host"),
        ("https:///x", "host"),
        ("https://user:secret@receiver.example/x", "password"),
        ("https://user@receiver.example/x", "user"),
        ("https://receiver.example/x#part", "fragment"),
        ("https://receiver.example:99999/x", "port"),
        ("https://receiver.example:x/x", "port"),
        ("https://receiver.example/a b", "malformed"),
        ("https://receiver.example/a\r\nHost: other", "malformed"),
        ("https://receiver.example\\@10.0.0.1/", "password"),
        ("https://b\u00fccher.example/", "punycode"),
        ("http://[::1", ""),
        ("https://receiver.example/../x", "leads up"),
        ("https://receiver.example/a/%2e%2E/x", "leads up"),
        ("https://receiver]example/x", "host name"),
    ],
)
def test_what_is_no_address_of_a_receiver_is_refused_with_the_field(url, said):
    with pytest.raises(BadSpec) as caught:
        check_url(url, (), field="url")

    assert said in caught.value.message
    assert caught.value.field == "url"


@pytest.mark.parametrize(
    "host",
    [
        "a" * 63 + ".example",
        ".".join(["a" * 61, "b" * 63, "c" * 63, "d" * 63]),
        "receiver.example.",
        "my_receiver",
        "3com.example",
        "1e100.net",
        "ab--cd.example",
        "1.2.3.4x",
        "8.8.8.8",
        "receiver.example:0443",
        "receiver.example:",
        "[2606:4700:0::1111]:8443",
        "xn--strae-oqa.example",
    ],
)
def test_host_in_one_of_its_usual_forms_is_taken(host):
    assert check_url(f"https://{host}/x", (), field="url") is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("a" * 64 + ".example", "1 to 63"),
        (".".join(["a" * 62, "b" * 63, "c" * 63, "d" * 63]), "at most 253"),
        ("a..example", "1 to 63"),
        (".example", "1 to 63"),
        ("receiver.example..", "1 to 63"),
        ("-a.example", "dash at its ends"),
        ("a.example-", "dash at its ends"),
        ("*.example", "letters, digits"),
        ("a|b.example", "letters, digits"),
        ("a,b", "letters, digits"),
        ("receiver%2Eexample", "not percent-encoded"),
        ("xn--", "dash at its ends"),
        ("xn--99999999999", "1 to 63"),
        *(
            (host, "four decimal numbers")
            for host in (
                "134744072",
                "0x08080808",
                "0X8.8.8.8",
                "010.8.8.8",
                "08.8.8.8",
                "8.8.8",
                "8.8.8.8.",
                "8.8.8.8.8",
                "8.8.8.256",
                "receiver.123",
                "receiver.example.0x1f",
                "receiver.0x",
                "8.8.8.8..",
            )
        ),
        ("[2606:4700::1111%25eth0]", "without a zone"),
        ("[v1.abc]", "IPv6"),
        ("[receiver.example]", "IPv6"),
        ("[8.8.8.8]", "IPv6"),
        ("[2606:4700::1111.8.8.8]", "IPv6"),
    ],
)
def test_reserved_or_ambiguous_host_is_refused(host, said):
    with pytest.raises(BadSpec, match=said) as caught:
        check_url(f"https://{host}/x", ("0.0.0.0/0",), field="url")

    assert caught.value.field == "url"


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1"])
def test_address_in_disguise_is_refused_though_its_network_is_listed(host):
    with pytest.raises(BadSpec, match="four decimal numbers"):
        check_url(f"http://{host}/x", ("127.0.0.0/8",), field="url")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "10.1.2.3", "169.254.169.254", "[::1]", "2130706433", "0x7f.1", "[::ffff:10.0.0.1]"],
)
def test_private_address_is_refused_unless_listed(host):
    with pytest.raises(BadSpec, match="TRAINYARD_WEBHOOK_ALLOW"):
        check_url(f"http://{host}:8080/x", (), field="url")


def test_listed_hosts_and_networks_may_be_private():
    check_url("http://10.1.2.3/x", ("10.0.0.0/8",), field="url")
    check_url("http://localhost:8080/x", ("localhost",), field="url")
    with pytest.raises(BadSpec):
        check_url("http://192.168.0.1/x", ("10.0.0.0/8", "localhost"), field="url")


@pytest.mark.parametrize("address", ["ana@example.org", "Ana.B+lab_1=x'y-z@Example.ORG", "_@a-b.xn--p1ai.example.org"])
def test_plain_addresses_are_taken(address):
    check_recipients([address], ("*",), field="recipients")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ana",
        "@example.org",
        "ana@",
        "ana@localhost",
        "Ana <ana@example.org>",
        '"ana"@example.org',
        "ana@example.org,bo@example.org",
        "ana@example.org\n",
        "ana@example.org\r\nRCPT TO:<x@evil.example>",
        "ana\x00@example.org",
        "ana%evil.example@example.org",
        "evil.example!ana@example.org",
        ".ana@example.org",
        "ana.@example.org",
        "a..b@example.org",
        "ana@-example.org",
        "ana@[192.0.2.1]",
        "anä@example.org",
        "ana@exämple.org",
        "a" * 65 + "@example.org",
        "a@" + "b" * 64 + ".org",
        "a@" + "b.c" * 100 + ".org",
    ],
)
def test_what_is_no_plain_address_is_refused(address):
    with pytest.raises(BadSpec, match="not a plain email address") as refused:
        check_recipients(["fine@example.org", address], ("*",), field="recipients")
    assert refused.value.field == "recipients.1"


@pytest.mark.parametrize("address", ["ana@other.example", "ana@sub.example.org", "ana@notexample.org"])
def test_domains_that_are_not_allowed_are_refused_with_the_setting(address):
    check_recipients(["ana@EXAMPLE.org"], ("example.org",), field="recipients")
    with pytest.raises(BadSpec, match=r"TRAINYARD_SMTP_DOMAINS are example\.org"):
        check_recipients([address], ("example.org",), field="recipients")


def test_a_recipient_is_named_once():
    with pytest.raises(BadSpec, match="listed twice"):
        check_recipients(["ana@example.org", "Ana@example.org"], ("*",), field="recipients")
