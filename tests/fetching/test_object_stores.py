"""s3://, oci:// and obs:// against a real S3 server: single objects, folders, globs, models, and refusals."""

import pytest

from workers.attempt_failed import AttemptFailed
from workers.fetching.fetch import TooLargeHere
from workers.prepare.inputs.resolve_inputs import DataRequest, ModelRequest, find, find_data, find_model

LINES = b'{"text": "hello"}\n'


@pytest.fixture
def service(bucket):
    """Settings of a scheme whose service is the S3 server."""

    def service(scheme="s3", **more):
        names = {"endpoint": bucket.url, "region": "us-east-1", "key": "key", "secret": "secret", **more}
        return {f"{scheme}_{name}": value for name, value in names.items()}

    return service


def put(bucket, *names, body=LINES):
    for name in names:
        bucket.put_object(Key=name, Body=body + name.encode())


def refusal(library, location, **options):
    with pytest.raises(AttemptFailed) as refused:
        find_data(library, DataRequest(location=location, **options))
    return refused.value


@pytest.mark.long
def test_object_is_fetched_by_each_scheme(bucket, service, make_library):
    put(bucket, "chat/train.jsonl")
    library = make_library(**service("s3"), **service("oci"), **service("obs"))
    requests = [DataRequest(location=f"{scheme}://data/chat/train.jsonl") for scheme in ("s3", "oci", "obs")]

    for data in find(library, [], requests)[1]:
        assert [file.name for file in data.files] == ["train.jsonl"]
        assert data.path.read_bytes() == LINES + b"chat/train.jsonl"
        assert data.path.is_relative_to(data.visible[0])


FOLDERS = [
    (DataRequest(location="s3://data/d"), ["a.jsonl", "b.jsonl.gz"]),
    (DataRequest(location="s3://data/d/", format="jsonl"), ["a.jsonl", "b.jsonl.gz"]),
    (DataRequest(location="s3://data/d/*.jsonl"), ["a.jsonl"]),
    (DataRequest(location="s3://data/*/[ab].*"), ["d/a.jsonl", "d/b.jsonl.gz"]),
    (DataRequest(location="s3://data/d", custom=True), ["README.md", "a.jsonl", "b.jsonl.gz", "sub/c.jsonl"]),
    (DataRequest(location="s3://data/odd/x[1].jsonl"), ["x[1].jsonl"]),
    (
        DataRequest(location="s3://data/.", custom=True),
        ["d/README.md", "d/a.jsonl", "d/b.jsonl.gz", "d/sub/c.jsonl", "e/x.jsonl", "odd/x[1].jsonl"],
    ),
]


@pytest.mark.long
def test_folder_or_glob_names_its_files(bucket, service, make_library):
    put(bucket, "d/b.jsonl.gz", "d/a.jsonl", "d/README.md", "d/sub/c.jsonl", "e/x.jsonl", "odd/x[1].jsonl")
    bucket.put_object(Key="d/", Body=b"")  # as consoles make them

    found = find(make_library(**service()), [], [request for request, _ in FOLDERS])[1]

    assert [[file.name for file in data.files] for data in found] == [names for _, names in FOLDERS]
    files = [file for data in found for file in data.files]
    assert all(file.path.read_bytes().endswith(file.name.rpartition("/")[2].encode()) for file in files)


@pytest.mark.long
@pytest.mark.parametrize(
    ("location", "is_folder"),
    [
        ("s3://data/one/", True),
        ("s3://data/one", True),
        ("s3://data/one/words.jsonl", False),
        ("s3://data/one/*.jsonl", False),
    ],
)
def test_script_gets_a_folder_of_one_file_as_a_folder(bucket, service, make_library, location, is_folder):
    put(bucket, "one/words.jsonl")

    found = find(make_library(**service()), [], [DataRequest(location=location, custom=True)])[1][0]

    assert (found.path.is_dir(), [file.name for file in found.files]) == (is_folder, ["words.jsonl"])
    assert found.path == (found.visible[0] if is_folder else found.files[0].path)


@pytest.mark.long
def test_names_that_no_directory_can_hold_are_refused(bucket, service, make_library):
    put(bucket, "x/a", "x/a/b")

    refused = refusal(make_library(**service()), "s3://data/x", custom=True)

    assert refused.error_type == "INVALID_CONFIG"
    assert "rename" in refused.message


@pytest.mark.long
def test_model_directory_is_fetched_with_its_code(bucket, service, make_library):
    put(bucket, "m/config.json", "m/model.safetensors", "m/modeling_own.py", "m/model.onnx", "m/sub/tokenizer.json")

    model = find_model(make_library(**service()), ModelRequest(model_id="s3://data/m"))

    found = sorted(str(path.relative_to(model.path)) for path in model.path.rglob("*") if path.is_file())
    assert found == ["config.json", "model.safetensors", "modeling_own.py", "sub/tokenizer.json"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("location", "error_type", "said"),
    [
        ("s3://data/gone.jsonl", "DATA_NOT_FOUND", "does not exist"),
        ("s3://elsewhere/a.jsonl", "INVALID_CONFIG", "TRAINYARD_FETCH_S3_BUCKETS"),
        ("s3://data/empty.jsonl", "DATA_INVALID", "empty"),
        ("oci://data/a.jsonl", "INVALID_CONFIG", "TRAINYARD_FETCH_OCI_ENDPOINT"),
    ],
)
def test_unavailable_object_is_reported_with_its_location(bucket, service, make_library, location, error_type, said):
    bucket.put_object(Key="empty.jsonl", Body=b"")

    refused = refusal(make_library(**service(buckets=("data",))), location)

    assert refused.error_type == error_type
    assert said in refused.message
    assert location in refused.message


@pytest.mark.long
def test_object_that_only_others_may_read_is_not_found(bucket, service, make_library, s3_server):
    put(bucket, "a.jsonl")
    bucket.meta.client.put_bucket_policy(
        Bucket="data",
        Policy='{"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Principal": "*", "Action": "s3:*",'
        ' "Resource": "arn:aws:s3:::data/*"}]}',
    )

    refused = refusal(make_library(**service(key="", secret="")), "s3://data/a.jsonl")
    bucket.meta.client.delete_bucket_policy(Bucket="data")

    assert refused.error_type == "DATA_NOT_FOUND"
    assert "TRAINYARD_FETCH_S3_KEY" in refused.message


@pytest.mark.long
def test_limits_of_bytes_are_named_by_their_setting(bucket, service, make_library):
    put(bucket, "d/a.jsonl", "d/b.jsonl", "d/c.jsonl")

    large = refusal(make_library(max_bytes=60, **service()), "s3://data/d")
    assert large.error_type == "DATA_INVALID"
    assert "TRAINYARD_FETCH_MAX_BYTES" in large.message
    with pytest.raises(TooLargeHere, match="TRAINYARD_PREFLIGHT_FETCH_BYTES"):
        find_data(make_library(fetch_bytes=60, **service()), DataRequest(location="s3://data/d"))


@pytest.mark.long
def test_unchanged_object_is_used_again_and_a_changed_one_is_not(bucket, service, make_library, objects):
    put(bucket, "a.jsonl", body=b"one ")
    library = make_library(**service())
    request = DataRequest(location="s3://data/a.jsonl")
    first, again = find(library, [], [request, request])[1]
    put(bucket, "a.jsonl", body=b"two ")
    changed = find_data(library, request)

    assert first.path.samefile(again.path)
    assert first.sha256 == again.sha256 != changed.sha256
    assert changed.path.read_bytes() == b"two a.jsonl"
    assert len(objects()) == 2


@pytest.mark.long
def test_unreachable_service_may_be_tried_again(bucket, service, make_library):
    refused = refusal(make_library(**service(endpoint="http://127.0.0.1:1")), "s3://data/a.jsonl")

    assert refused.error_type == "STORAGE_ERROR"
    assert "secret" not in refused.message


@pytest.mark.long
def test_names_that_climb_out_are_refused(bucket, service, make_library):
    put(bucket, "d/sub/../../x.jsonl")

    refused = refusal(make_library(**service()), "s3://data/d", custom=True)

    assert refused.error_type == "INVALID_CONFIG"
    assert "rename" in refused.message
