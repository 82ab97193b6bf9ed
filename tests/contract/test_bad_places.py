"""Places that no job may name, in every field that takes one: refused at submit, and the error reveals little."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from app.models import Artifact
from tests.builders.factories import make_document, make_job
from tests.systems.apps import Api

INNER = [
    "http://169.254.169.254/latest/meta-data/x",
    "http://[fd00:ec2::254]/x",
    "http://100.100.100.200/x",
    "http://127.0.0.1:6379/x",
    "http://localhost/x",
    "http://127.1/x",
    "http://0/x",
    "http://0.0.0.0/x",
    "http://2130706433/x",
    "http://0x7f000001/x",
    "http://0177.0.0.1/x",
    "http://[::1]/x",
    "http://[::]/x",
    "http://[::ffff:127.0.0.1]/x",
    "http://[64:ff9b::7f00:1]/x",
    "http://\uff11\uff12\uff17.0.0.1/x",
    "http://10.0.0.1/x",
    "http://172.31.255.255/x",
    "http://192.168.1.1/x",
    "http://100.64.0.1/x",
    "http://192.0.0.1/x",
    "http://198.18.0.1/x",
    "http://224.0.0.1/x",
    "http://[fe80::1%25eth0]/x",
    "http://[fc00::1]/x",
    "http://255.255.255.255/x",
]
MALFORMED = [
    "http://good@127.0.0.1/x",
    "http://127.0.0.1#@good/x",
    "http://good\\@127.0.0.1/x",
    "http://exa\tmple/x",
    "http://exa\r\nmple/x",
    "http://exa mple/x",
    "http:/x",
    "http:///x",
    "http://example.org:99999/x",
    "http://a@b@c/x",
    "http://example.org/../x",
    "http://example.org/%2e%2e/x",
    "https://user:pass@example.org/x",
    "http://%31%32%37.0.0.1/x",
]
UNKNOWN = [
    f"{scheme}://example.org/x"
    for scheme in (
        "gopher",
        "dict",
        "ftp",
        "ldap",
        "jar",
        "ssh",
        "git",
        "nfs",
        "smb",
        "tftp",
        "sftp",
        "file+git",
        "git+ssh",
        "ext",
        "HTTP+UNIX",
        "netdoc",
        "phar",
        "expect",
    )
] + ["data:text/plain,x", "javascript:alert(1)", "unix:/run/x", "ext::sh -c id", "EXT::sh -c id", "fd::7"]
LOCAL = [
    "file:///etc/shadow",
    "/proc/self/environ",
    "/proc/1/root/etc/passwd",
    "//host/share",
    "file:/srv/x/../../etc/passwd",
    "file://host/srv/x",
    "/dev/zero",
    "~root/x",
    "C:\\x",
    "..\\..\\x",
    "../../etc",
    "/srv/../etc/passwd",
]
STORES = [
    "s3://bucket/../x",
    "s3://bucket/a/%2e%2e/x",
    "s3://169.254.169.254/x",
    "s3://key:secret@bucket/x",
    "s3:///x",
    "s3://bucket?endpoint=http://127.0.0.1/x",
    "oci://bucket/../x",
    "obs://bucket/..",
    "pvc://../x",
    "pvc://ns/../x",
    "pvc://claim",
    "hf://../../x",
    "hf://datasets/../x",
    "hf://datasets/org/set@../main/x",
    "hf://datasets/org/set@-x/y",
    "ipfs://x/y",
    "scaidrive://../x",
    "scaiatlas://share/../x",
]


def test_no_source_is_accepted_at_a_bad_place(sqlite_api: Api):
    for place in (*INNER, *MALFORMED, *UNKNOWN, *LOCAL, *STORES):
        document = make_document(data_config={"sources": [{"path": place, "format": "jsonl"}]})
        problem = sqlite_api.problem(sqlite_api.post("/v1/jobs", document), 400)
        assert problem["details"][0]["field"] == "data_config.sources.0.path", place
        assert sqlite_api.get("/v1/jobs")["total_count"] == 0, place


FIELDS: dict[str, dict[str, Any]] = {
    "training_config.base_model.model_id": {"training_config": {"base_model": {"model_id": "PLACE"}}},
    "training_config.base_model.tokenizer_id": {"training_config": {"base_model": {"tokenizer_id": "PLACE"}}},
    "training_config.framework.custom_script_path": {
        "training_config": {"framework": {"type": "CUSTOM", "custom_script_path": "PLACE"}}
    },
    "output_config.output_path": {"output_config": {"output_path": "PLACE"}},
    "output_config.log_path": {"output_config": {"log_path": "PLACE"}},
}


def test_no_other_field_accepts_a_bad_place(sqlite_api: Api):
    places = [
        "http://169.254.169.254/x",
        "http://good@127.0.0.1/x",
        "gopher://x/y",
        "file:///etc/x",
        "/etc/x",
        "../../x",
        "s3://b/../x",
    ]
    for field, changes in FIELDS.items():
        for place in places:
            answer = sqlite_api.post("/v1/jobs", make_document(**_with(changes, place)))
            assert sqlite_api.problem(answer, 400)["details"][0]["field"] == field, place


def test_no_webhook_is_accepted_to_a_bad_place(sqlite_api: Api):
    for place in (*INNER, *MALFORMED, "gopher://x/y", "file:///etc/passwd", "unix:///run/x"):
        answer = sqlite_api.post("/v1/webhooks", {"url": place, "event_types": ["job.status"]})
        assert sqlite_api.problem(answer, 400)["details"][0]["field"] == "url", place
        assert sqlite_api.get("/v1/webhooks")["total_count"] == 0, place


def test_refusals_do_not_reveal_what_exists(sqlite_api: Api, tmp_path: Path):
    """Whether a port is open or a file exists is asked nowhere at submit: the words are the same."""
    (tmp_path / "there.jsonl").write_text("{}\n")
    pairs = [
        ("http://127.0.0.1:1/x", "http://127.0.0.1:6379/x"),
        (str(tmp_path / "there.jsonl"), str(tmp_path / "gone.jsonl")),
        ("/etc/passwd", "/etc/nothing"),
    ]

    for first, second in pairs:
        problems = [
            sqlite_api.problem(
                sqlite_api.post("/v1/jobs", make_document(data_config={"sources": [{"path": place}]})), 400
            )
            for place in (first, second)
        ]
        assert problems[0]["message"].replace(first, "X") == problems[1]["message"].replace(second, "X")


def test_secrets_of_a_place_are_shown_nowhere(sqlite_api: Api):
    signed = "https://example.org/x.jsonl?X-Amz-Signature=canary1234&X-Amz-Credential=canary1234"
    job_id = sqlite_api.submit(data_config={"sources": [{"path": signed}]})
    refused = sqlite_api.post(
        "/v1/jobs", make_document(data_config={"sources": [{"path": "https://u:canary1234@example.org/x"}]})
    )

    shown = sqlite_api.call("GET", f"/v1/jobs/{job_id}").text

    assert "canary1234" not in shown
    assert refused.status_code == 400
    assert "canary1234" not in refused.text


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE"])
def test_nothing_is_uploaded(sqlite_api: Api, method: str):
    """No archive and no part of one comes in: what is not there needs no unpacking."""
    job_id = sqlite_api.submit()

    answer = sqlite_api.call(method, f"/v1/jobs/{job_id}/artifacts/x.tar", data=b"x")

    assert answer.status_code == 405


@pytest.mark.parametrize("kind", ["link out", "relative link", "pipe", "folder", "device", "changed"])
def test_only_the_recorded_file_itself_is_downloaded(sqlite_api: Api, kind: str):
    with sqlite_api.db.write() as session:
        job_id = make_job(session).id
        session.add(Artifact(job_id=job_id, path="file", size_bytes=6, sha256="5" * 64))
    storage = sqlite_api.app.extensions["trainyard"].plane.storage
    storage.write(f"jobs/{job_id}/artifacts/other", b"secret")
    file = next(sqlite_api.folder.rglob("artifacts/other")).with_name("file")
    secret = sqlite_api.folder / "secret"
    secret.write_text("secret")
    _put(kind, file, secret)

    answer = sqlite_api.call("GET", f"/v1/jobs/{job_id}/artifacts/file")

    assert answer.status_code == (404 if kind != "changed" else 200)
    assert (b"secret" in answer.get_data()) == (kind == "changed")


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "..%2f..%2fx",
        "%2e%2e/x",
        "%252e%252e%252fx",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "a/../../x",
        "a\\..\\x",
        "x%00",
        ";/../x",
        "#/../x",
        "C:%5cx",
        "file:%2f%2f/etc/passwd",
        "a//b",
        "./x",
        "x/",
        "\u202ex",
    ],
)
def test_no_other_path_is_an_artifact(sqlite_api: Api, path: str):
    job_id = sqlite_api.submit()

    assert sqlite_api.call("GET", f"/v1/jobs/{job_id}/artifacts/{path}").status_code == 404


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("bytes=-0", 416),
        ("bytes=6-", 416),
        ("bytes=-1--2", 200),
        ("bytes=0-0,1-1", 200),
        ("bytes=" + ",".join(["0-0"] * 10_000), 200),
        ("bytes=" + "9" * 5000 + "-", 200),
        ("bytes=0-999999999999999999", 206),
        ("bits=0-1", 200),
        ("bytes=a-b", 200),
    ],
)
def test_odd_ranges_cost_nothing(sqlite_api: Api, header: str, status: int):
    with sqlite_api.db.write() as session:
        job_id = make_job(session).id
        session.add(Artifact(job_id=job_id, path="file", size_bytes=6, sha256="5" * 64))
    sqlite_api.app.extensions["trainyard"].plane.storage.write(f"jobs/{job_id}/artifacts/file", b"abcdef")

    answer = sqlite_api.call("GET", f"/v1/jobs/{job_id}/artifacts/file", headers={"Range": header})

    assert answer.status_code == status
    if status < 400:
        assert answer.get_data() == b"abcdef"


def test_a_page_that_was_trained_is_downloaded_and_not_shown(sqlite_api: Api):
    with sqlite_api.db.write() as session:
        job_id = make_job(session).id
        session.add(Artifact(job_id=job_id, path="x.html", size_bytes=8, sha256="5" * 64))
    sqlite_api.app.extensions["trainyard"].plane.storage.write(f"jobs/{job_id}/artifacts/x.html", b"<script>")

    answer = sqlite_api.call("GET", f"/v1/jobs/{job_id}/artifacts/x.html")

    assert answer.content_type == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == "attachment"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert re.search(r"default-src 'none'", answer.headers["Content-Security-Policy"])


def _with(changes: Any, place: str) -> Any:
    if isinstance(changes, dict):
        return {name: _with(inner, place) for name, inner in changes.items()}
    return place if changes == "PLACE" else changes


def _put(kind: str, file: Path, secret: Path) -> None:
    if kind == "link out":
        file.symlink_to(secret)
    elif kind == "relative link":
        file.symlink_to("../../../../secret")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.write_bytes(b"secret")
