"""Which places jobs may read from."""

import pytest

from app.domain.errors import BadSpec, InvalidRequest
from app.domain.spec.locations.paths import (
    KINDS,
    ReadingRules,
    candidates,
    check_model,
    check_output,
    check_script,
    check_source,
    is_hub_id,
    job_of_path,
    kind_of,
    local_path,
    output_directory,
    readable,
    refuse_private_host,
)
from app.domain.spec.locations.uris import SCHEMES, Use, check_uri

RULES = ReadingRules(roots=("/data/files", "/srv/a", "/home/me"), data_dir="/home/me/.trainyard")
OWN = ReadingRules(roots=("/d/files",), data_dir="/d")


@pytest.mark.parametrize(
    "location",
    [
        "/srv/a/x.jsonl",
        "file:///srv/a/x.jsonl",
        "file://localhost/srv/a/x",
        "x/y.jsonl",
        "./x",
        "/srv/a",
        "/srv/a/*.jsonl",
        "/srv/a/x..y",
    ],
)
def test_places_below_a_root_may_be_named(location: str) -> None:
    assert check_source(location, RULES, field="f") is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "/srv/ab/x",
        "/srv",
        "/srv/a/../../etc",
        "/srv/a/../a/x",
        "x/..",
        "../../../../etc/passwd",
        "~/x",
        "~root/x",
        "",
        "a\0b",
        "file:///etc/passwd",
        "file:///srv/a/%2e%2e/%2e%2e/etc",
        "file://host/srv/a/x",
        "file:/srv/a/x",
        "file:x",
        "C:\\x",
        "\\\\host\\share",
        "/srv/a/\nx",
        "//srv/ab",
        "/home/me/.trainyard/secret.key",
        "/home/me/.trainyard",
        "/home/me",
        "/home/me/.trainyard/files",
        "/home/me/.trainyard/files/jobs",
    ],
)
def test_places_elsewhere_and_the_platforms_own_may_not(location: str) -> None:
    with pytest.raises(BadSpec):
        check_source(location, RULES, field="f")


def test_results_of_jobs_may_be_named_and_tell_whose_they_are() -> None:
    assert readable("/d/files/jobs/job-1/artifacts", OWN)
    assert job_of_path("/d/files/jobs/job-1/artifacts", OWN) == "job-1"
    assert job_of_path("/d/files/models/x", OWN) is None
    assert job_of_path("/srv/x", ReadingRules(roots=("/srv",))) is None


@pytest.mark.parametrize(
    ("storage", "data"), [("/srv/store", "/d"), ("/d/store", "/d"), ("/srv/link/../store", "/srv/ty"), ("/srv", "/d")]
)
def test_results_in_a_storage_of_its_own_belong_to_their_project_too(storage: str, data: str) -> None:
    rules = ReadingRules(roots=("/srv", "/d"), data_dir=data, storage_dir=storage)
    store = rules.real_path(storage)

    assert job_of_path(f"{store}/jobs/job-1/artifacts/x", rules) == "job-1"
    assert readable(f"{store}/jobs/job-1/artifacts/x", rules)
    assert not readable(f"{store}/jobs", rules)
    assert not readable(store, rules)
    assert job_of_path(f"{store}/models", rules) is None


@pytest.mark.parametrize("storage", ["/srv/ty", "/srv", "/srv/ty/files", "/srv/ty/jobs"])
def test_a_storage_around_the_platforms_own_directory_opens_nothing_of_it(storage: str) -> None:
    rules = ReadingRules(roots=("/srv",), data_dir="/srv/ty", storage_dir=storage)

    assert not readable("/srv/ty/secret.key", rules)
    assert not readable("/srv/ty/run/x", rules)


def test_links_are_followed_where_the_disk_can_be_seen() -> None:
    rules = ReadingRules(roots=("/srv",), real_path=lambda path: path.replace("/srv/link", "/etc"))

    with pytest.raises(BadSpec):
        check_source("/srv/link/passwd", rules, field="f")


def test_a_relative_path_is_looked_for_below_every_root() -> None:
    assert list(candidates("x/../y", RULES)) == ["/data/files/y", "/srv/a/y", "/home/me/y"]
    assert local_path("file:///a%20b", field="f") == "/a b"
    assert local_path("https://x/y", field="f") is None


@pytest.mark.parametrize("model_id", ["gpt2", "org/model-8b", "Org.x/m_1.5"])
def test_hub_ids_need_no_root(model_id: str) -> None:
    assert is_hub_id(model_id)
    check_model(model_id, ReadingRules(roots=()), field="f")


@pytest.mark.parametrize("model_id", ["../x", "a/b/c", "/x", "./x", "org/..", "-x", "a b", "https://x"])
def test_other_models_are_places(model_id: str) -> None:
    assert not is_hub_id(model_id)


CID = "bafy" + "b" * 55
GOOD: dict[str, list[str]] = {
    "data": [
        "https://example.org/x",
        "HTTPS://example.org/x?y=/../*",
        "https://example.org:8443/a%20b.jsonl",
        "s3://bucket/x",
        "s3://bucket.with-dots/a/b/",
        "s3://bucket/a?/[ab]*.jsonl",
        "oci://bucket/a b",
        "obs://bucket/ü.jsonl",
        "pvc://claim-1/a/*",
        "hf://datasets/org/set",
        "hf://datasets/org/set/",
        "hf://datasets/org/set@main/a/*.parquet",
        "hf://datasets/org/set@refs/pr/1/x",
        "hf://datasets/org/set@refs%2Fpr%2F1/x",
        "scaidrive://team/a/b.jsonl",
        "scaidrive://team/a/",
        "scaiatlas://atlas.1/x",
        f"ipfs://{CID}",
        f"ipfs://{CID}/a.jsonl",
        "ipfs://Qm" + "1" * 44,
        "s3://bucket/a..b",
    ],
    "a model": [
        "s3://bucket/x",
        "oci://bucket/x/",
        "obs://bucket/x",
        "pvc://claim/x",
        "hf://org/model@v1",
        "hf://o/m",
        "scaidrive://team/x",
        "scaiatlas://team/models/a b/",
    ],
    "output": ["s3://bucket/x", "obs://bucket/x/", "pvc://claim/x/y", "scaidrive://team/out/", "scaiatlas://team/out"],
}
BAD: dict[str, list[str]] = {
    "data": [
        "https://example.org",
        "https://example.org/",
        "https://example.org/a/",
        "https://example.org/a#b",
        "https://example.org/a*",
        "https://example.org/[a]",
        "https://me:pass@example.org/x",
        "https://me@example.org/x",
        "https://me%40x@example.org/x",
        "https://%6de%40example.org/x",
        "https://example.org/../x",
        "http://x.org:99999/x",
        "https://example.org/a/%2e%2E/x",
        "https://example.org:port/x",
        "https:example.org/x",
        "https:/example.org/x",
        "s3://bucket",
        "s3://bucket/",
        "s3://b/x",
        "s3://Bücket/x",
        "s3://bucket//x",
        "s3://bucket/a//b",
        "s3://bucket/a/../b",
        "s3://key:secret@bucket/x",
        "s3://bucket/a\\b",
        "s3://bucket/a\nb",
        "s3://127.0.0.1/x",
        "s3://bucket:80/x",
        "pvc://claim",
        "pvc://claim/",
        "pvc://Claim/x",
        "pvc://../x",
        "pvc://claim/../x",
        "pvc://-claim/x",
        "hf://org/model",
        "hf://datasets/set",
        "hf://datasets/../set",
        "hf://datasets/org/set@",
        "hf://datasets/org/set@a b",
        "hf://datasets/org/set@v1/../x",
        "scaidrive://team",
        "scaidrive://team/a//",
        "scaidrive://team/*",
        "scaidrive:///x",
        "ipfs://cid/x",
        "ipfs://Qm/x",
        f"ipfs://{CID}/*",
        f"ipfs://{CID}/",
        "ipfs://127.0.0.1/x",
    ],
    "a model": [
        "https://example.org/x",
        f"ipfs://{CID}",
        "hf://model",
        "hf://org/model/file",
        "s3://bucket/*",
        "scaidrive://team",
        "scaidrive://team/",
        "scaidrive://team/x/*",
        "scaidrive://team/../x",
        "scaiatlas://team/a//b",
        "hf://datasets/org/set",
        "hf://spaces/org/x",
        "s3://bucket",
    ],
    "output": [
        "https://example.org/x",
        "hf://org/model",
        f"ipfs://{CID}",
        "s3://bucket/*",
        "s3://bucket",
        "pvc://claim",
    ],
}


def cases(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(use, uri) for use, uris in table.items() for uri in uris]


@pytest.mark.parametrize(("use", "uri"), cases(GOOD))
def test_every_scheme_has_a_form(use: str, uri: str) -> None:
    assert check_uri(uri, Use(use), (), field="f") is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(("use", "uri"), cases(BAD))
def test_location_against_the_form_or_use_of_its_scheme_is_refused(use: str, uri: str) -> None:
    with pytest.raises(BadSpec) as raised:
        check_uri(uri, Use(use), (), field="f")

    assert raised.value.field == "f"
    assert "pass" not in raised.value.message.replace("password", "")
    assert "secret" not in raised.value.message


def test_every_scheme_can_be_used_or_says_why_not() -> None:
    for name, scheme in SCHEMES.items():
        assert scheme.forms.keys() | scheme.refusals.keys() == set(Use), name
        assert not scheme.forms.keys() & scheme.refusals.keys(), name
    assert kind_of("HTTPS://example.org/x", field="f") == kind_of("http://x", field="f") == "http"
    assert set(KINDS) == {"file", "upload", *(scheme.kind for scheme in SCHEMES.values())}


def test_results_go_below_a_root_and_not_among_the_platforms_own() -> None:
    rules = ReadingRules(roots=("/ty/files", "/srv"), data_dir="/ty", storage_dir="/srv/store")

    assert output_directory("out/x", rules, field="f") == "/srv/out/x"
    assert check_output("file:///srv/out", rules, field="f") is None  # type: ignore[func-returns-value]
    for path in (
        "/ty",
        "/ty/files/x",
        "/ty/run/x",
        "/srv",
        "/srv/store",
        "/srv/store/x",
        "/etc",
        "/srv/../etc",
        "~",
        "",
    ):
        with pytest.raises(BadSpec):
            check_output(path, rules, field="f")


@pytest.mark.parametrize("location", ["s3://bucket/x.py", "hf://org/x", "javascript:x", "/etc/x.py", "a/../x.py"])
def test_scripts_are_local_files_below_a_root(location: str) -> None:
    with pytest.raises(InvalidRequest):
        check_script(location, RULES, field="f")


@pytest.mark.parametrize("uri", ["gopher://x/", "javascript:x", "data:text/plain,x", "unix:///x", "ssh://x/y", "jar:x"])
def test_other_schemes_are_unknown(uri: str) -> None:
    with pytest.raises(BadSpec, match="unknown scheme"):
        check_source(uri, RULES, field="f")


PRIVATE = [
    "127.0.0.1",
    "127.0.0.1:6379",
    "127.1",
    "0",
    "0.0.0.0",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "localhost",
    "LOCALHOST.",
    "a.localhost",
    "169.254.169.254",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "192.0.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "192.0.0.192",
    "168.63.129.16",
    "[::ffff:168.63.129.16]",
    "[3fff::1]",
    "[fd00:ec2::254]",
    "[fe80::1%25eth0]",
    "[2002:7f00:1::]",
    "\uff11\uff12\uff17.0.0.1",
    "good@127.0.0.1",
    "127.0.0.1#@good",
    "%31%32%37.0.0.1",
    "[::127.0.0.1]",
    "[fec0::1]",
    "[64:ff9b:1::a00:1]",
    "[::ffff:0:10.0.0.1]",
]


@pytest.mark.parametrize("host", PRIVATE)
def test_private_addresses_are_refused_however_they_are_written(host: str) -> None:
    with pytest.raises(BadSpec, match="private address"):
        refuse_private_host(f"http://{host}/x", (), field="f")


@pytest.mark.parametrize(
    "uri",
    [
        "http:///x",
        "http://",
        "http:/x",
        "http://a b/",
        "http://good\\@127.0.0.1/",
        "http://x\t/",
        "http://%00/x",
        "http://127.0.0.1%2f.example.org/x",
        "http://a%40b/x",
    ],
)
def test_malformed_uris_are_refused(uri: str) -> None:
    with pytest.raises(BadSpec):
        refuse_private_host(uri, (), field="f")


@pytest.mark.parametrize("host", ["example.org", "93.184.216.34", "[2606:4700::1]", "127.0.0.1.example.org"])
def test_public_hosts_pass(host: str) -> None:
    assert refuse_private_host(f"https://{host}/x", (), field="f") is None  # type: ignore[func-returns-value]


def test_what_the_operator_allows_passes() -> None:
    allow = ("10.0.0.0/8", "Mirror.local", "no network")

    refuse_private_host("http://10.1.2.3/x", allow, field="f")
    refuse_private_host("http://mirror.local/x", allow, field="f")
    with pytest.raises(InvalidRequest):
        refuse_private_host("http://192.168.0.1/x", allow, field="f")
