"""A model that goes to a place with credentials of its own."""

from collections.abc import Iterator

import pytest

from tests.doubles.guarded_buckets import GuardedBuckets, running_guarded_buckets
from tests.publishing.conftest import FILES
from tests.publishing.test_publication import Node, node, publish  # noqa: F401 – fixtures
from workers.attempt_failed import AttemptFailed
from workers.publishing.preflight import check_output

OPERATOR = {"TRAINYARD_FETCH_S3_KEY": "operator", "TRAINYARD_FETCH_S3_SECRET": "operator-secret"}
ALLOW = {"TRAINYARD_FETCH_ALLOW": "127.0.0.1"}


@pytest.fixture(scope="module")
def buckets() -> Iterator[GuardedBuckets]:
    with running_guarded_buckets() as made:
        yield made


@pytest.fixture(scope="module")
def own(buckets: GuardedBuckets) -> dict[str, str]:
    return buckets.make("own-results")


@pytest.fixture
def checked(buckets: GuardedBuckets, own: dict[str, str]) -> Iterator[GuardedBuckets]:
    with buckets.checked():
        yield buckets


def asked(credentials: dict[str, str], **options: str) -> dict[str, object]:
    return {"credentials": dict.fromkeys(credentials, "***"), "storage_options": options}


def sealed(credentials: dict[str, str]) -> dict[str, str]:
    return {f"output_config.credentials.{name}": value for name, value in credentials.items()}


def written(checked: GuardedBuckets, own: dict[str, str], prefix: str) -> dict[str, bytes]:
    client = checked.client("s3", own)
    listed = client.list_objects_v2(Bucket="own-results", Prefix=prefix).get("Contents", [])
    keys = [each["Key"] for each in listed]
    found = {key: client.get_object(Bucket="own-results", Key=key)["Body"].read() for key in keys}
    return {key.removeprefix(prefix): data for key, data in found.items() if ".trainyard" not in key}


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["s3", "oci"])
def test_model_is_written_with_the_keys_of_the_job_to_the_service_it_names(publish, checked, own, scheme):  # noqa: F811
    done = publish(
        sealed(own),
        {**OPERATOR, **ALLOW},
        output_path=f"{scheme}://own-results/{scheme}/m",
        **asked(own, endpoint_url=checked.url, region="us-east-1"),
    )

    assert (done.failures, done.passing, done.uri) == ([], [], f"{scheme}://own-results/{scheme}/m")
    assert written(checked, own, f"{scheme}/m/") == FILES


@pytest.mark.long
def test_keys_of_the_job_go_to_the_service_of_the_operator(publish, checked, own):  # noqa: F811
    settings = {**OPERATOR, "TRAINYARD_FETCH_S3_ENDPOINT": checked.url, "TRAINYARD_FETCH_S3_REGION": "us-east-1"}

    done = publish(sealed(own), settings, output_path="s3://own-results/operators/m", **asked(own))

    assert done.failures == []
    assert written(checked, own, "operators/m/") == FILES


@pytest.mark.long
def test_wrong_keys_fail_the_attempt_before_it_trains(node, checked, own):  # noqa: F811
    wrong = {**own, "secret_access_key": "canary-wrong-secret"}
    settings = node.settings(**ALLOW, TRAINYARD_FETCH_S3_ENDPOINT=checked.url)
    work = node.work(sealed(wrong), output_path="s3://own-results/m", **asked(wrong))

    with pytest.raises(AttemptFailed) as failed:
        check_output(settings, work)

    assert failed.value.error_type == "INVALID_CONFIG"
    assert "output_path s3://own-results/m: the service refuses" in failed.value.message
    assert "canary" not in failed.value.message


@pytest.mark.long
def test_service_that_the_job_names_may_not_be_private(node, checked, own):  # noqa: F811
    work = node.work(sealed(own), output_path="s3://own-results/m", **asked(own, endpoint_url=checked.url))

    with pytest.raises(AttemptFailed, match="private address"):
        check_output(node.settings(), work)


@pytest.mark.long
def test_directory_takes_no_credentials(node: Node, own):  # noqa: F811
    settings = node.settings(TRAINYARD_FETCH_OCI_DIR=str(node.claims))

    with pytest.raises(AttemptFailed, match="a directory of this installation, which takes neither credentials"):
        check_output(settings, node.work(sealed(own), output_path="oci://team/m", **asked(own)))
