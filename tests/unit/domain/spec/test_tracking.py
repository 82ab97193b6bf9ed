"""Rules of tracking: what a job may name as a service that receives its metrics, and how its token is kept."""

from typing import Any

import pytest

from app.domain.errors import BadSpec, InvalidRequest
from app.domain.spec.frameworks.requirements import how_to_offer, needed
from app.domain.spec.job_spec import from_document
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument
from app.domain.spec.secrets import with_secrets
from app.domain.sweeps.rules.paths import kind_of
from tests.builders.submitted import changed, refusal, spec_of

URL = "https://mlflow.example/tracking"


def tracked(*trackers: dict[str, Any]) -> dict[str, Any]:
    return changed(("tracking", list(trackers)))


def mlflow(**values: Any) -> dict[str, Any]:
    return {"kind": "mlflow", "url": URL, **values}


def trackio(**values: Any) -> dict[str, Any]:
    return {"kind": "trackio", "url": "https://trackio.example", "token": "x", **values}


def wandb(**values: Any) -> dict[str, Any]:
    return {"kind": "wandb", "token": "k" * 40, **values}


def test_token_is_a_secret_that_is_masked_and_can_be_put_back() -> None:
    spec = spec_of(tracked(mlflow(token="first"), mlflow(experiment="other", username="me", token="second")))

    assert [tracker.token for tracker in spec.document.tracking] == ["***", "***"]
    assert spec.secrets == {"tracking.0.token": "first", "tracking.1.token": "second"}
    assert [each.token for each in with_secrets(spec.document, spec.secrets).tracking] == ["first", "second"]
    assert "first" not in repr(with_secrets(spec.document, spec.secrets))


def test_masked_token_is_refused() -> None:
    assert refusal(tracked(mlflow(token="***"))).field == "tracking.0.token"


def test_document_without_tracking_is_stored_without_it() -> None:
    assert "tracking" not in spec_of(changed()).document.to_json()


@pytest.mark.parametrize(
    ("tracker", "field", "why"),
    [
        ({"kind": "wandb"}, "token", "kind wandb needs token"),
        ({"kind": "wandb"}, "token", "/wandb/api_key below TRAINYARD_SECURITY_SECRETS_DIR"),
        (wandb(mode="offline"), "token", "no effect with mode offline"),
        ({"kind": "wandb", "mode": "offline", "url": "https://wandb.example"}, "url", "no effect with mode offline"),
        ({"kind": "wandb", "mode": "offline", "username": "me"}, "username", "no effect with mode"),
        ({"kind": "wandb", "mode": "offline", "experiment": "a/b"}, "experiment", "none of the characters"),
        (mlflow(mode="offline"), "mode", "only kind wandb has a mode"),
        (mlflow(tags=["a"]), "tags", "labels of the job are tags of all kinds"),
        (wandb(username="me"), "username", "give the API key as token"),
        (wandb(experiment="a/b"), "experiment", "none of the characters"),
        (wandb(entity="my team"), "entity", "no spaces and none of the characters"),
        (wandb(experiment="a" * 129), "experiment", "at most 128 characters"),
        (wandb(token="***"), "token", "stands for a secret"),
        *(
            (wandb(token=token), "token", "at least 40 letters")
            for token in ("k" * 39, "k" * 40 + "!", "local-" + "k" * 39, "k" * 40 + "-k", "k" * 40 + "-", "-", "a.b")
        ),
        *(
            (wandb(url=url), "url", "https://api.wandb.ai, the default")
            for url in (
                "https://wandb.ai",
                "https://www.wandb.ai/",
                "https://WANDB.ai",
                "https://API.wandb.ai",
                "https://wandb.ai./me",
                "https://wandb.ai/api.html",
                "https://proxy.example/wandb.ai",
                "https://app.wandb.ai:443",
                "http://api.wandb.ai",
                "https://forge.coreweave.com",
                "https://forge.coreweave.com/api/wandb",
                "https://qa.forge.coreweave.com",
            )
        ),
        (wandb(url="https://wandb.example/?x"), "url", "below which /graphql is"),
        (wandb(url="http://wandb.example"), "url", "use https"),
        (wandb(url="https://127.0.0.1"), "url", "TRAINYARD_TRACKING_ALLOW"),
        (wandb(url="https://[2606:4700::1111]"), "url", "takes names and IPv4 addresses"),
        (mlflow(entity="me"), "entity", "only kind wandb has an entity"),
        ({"kind": "trackio"}, "url", "kind trackio needs url"),
        (trackio(token=None), "token", "which trackio show prints"),
        (trackio(username="me"), "username", "give the write token as token"),
        (trackio(entity="me"), "entity", "only kind wandb"),
        (trackio(experiment="a b"), "experiment", "drops the rest"),
        (trackio(url="https://me-p.hf.space"), "url", "trackio show --host"),
        (trackio(url="https://huggingface.co/spaces/me/p"), "url", "trackio show --host"),
        (trackio(url="https://HF.co./%73paces/me/p/"), "url", "trackio show --host"),
        (trackio(url="https://trackio.example/?write_token=x"), "url", "a token as token"),
        ({"kind": "mlfow", "url": URL}, "kind", "known: mlflow, trackio, wandb (did you mean mlflow?)"),
        ({"kind": "mlflow"}, "url", "needs url"),
        (mlflow(url="ftp://mlflow.example"), "url", "other schemes are not served"),
        (mlflow(url="https://me:pass@mlflow.example"), "url", "no user, password or fragment"),
        (mlflow(url=f"{URL}?token=x"), "url", "the URL has no query"),
        (mlflow(url=f"{URL}#x"), "url", "no user, password or fragment"),
        (mlflow(url="https://mlflow.example/a/../b"), "url", "leads up"),
        (mlflow(url="https://ümlflow.example"), "url", "in ASCII"),
        *(
            (mlflow(url=f"http://{host}:5000"), "url", "TRAINYARD_TRACKING_ALLOW")
            for host in ("127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.1.2.3", "0x7f.1", "2130706433")
        ),
        (mlflow(url="http://mlflow.example", token="x"), "url", "use https, or have the administrator list this host"),
        (mlflow(url="HTTP://mlflow.example:443", token="x"), "url", "TRAINYARD_TRACKING_ALLOW"),
        (mlflow(token="two words"), "token", "no spaces"),
        (mlflow(token="line\nbreak"), "token", "no spaces"),
        (mlflow(username="a:b", token="x"), "username", "no colon"),
        (mlflow(username="me"), "token", "needs its password"),
    ],
)
def test_service_that_cannot_be_served_is_refused_with_a_way_out(tracker: dict[str, Any], field: str, why: str) -> None:
    error = refusal(tracked(mlflow(experiment="good"), tracker))

    assert error.field == f"tracking.1.{field}"
    assert why in error.message
    assert "pass@" not in error.message


def test_same_place_twice_is_refused() -> None:
    error = refusal(tracked(mlflow(), mlflow(url=f"{URL}/")))

    assert (error.field, "same url and experiment" in error.message) == ("tracking.1", True)


def test_run_of_wandb_needs_a_key_alone_and_nodes_with_the_client() -> None:
    spec = spec_of(tracked(wandb(), wandb(entity="team"), wandb(url="https://wandb.example")))

    assert spec.secrets["tracking.0.token"] == "k" * 40
    assert "wandb" in needed(spec.document)
    assert "pip install 'trainyard[wandb]'" in how_to_offer("wandb")
    assert "wandb" not in needed(spec_of(tracked(mlflow())).document)


@pytest.mark.parametrize("second", [wandb(url="https://api.wandb.ai/"), {"kind": "wandb", "mode": "offline"}])
def test_same_run_of_wandb_is_refused(second: dict[str, Any]) -> None:
    error = refusal(tracked(wandb(), second))

    assert error.field == "tracking.1"


def test_offline_run_needs_neither_key_nor_client_and_is_one() -> None:
    offline = {"kind": "wandb", "mode": "offline", "experiment": "a"}
    spec = spec_of(tracked(offline))

    assert (spec.secrets, "wandb" in needed(spec.document)) == ({}, False)
    assert refusal(tracked(offline, {**offline, "experiment": "b"})).field == "tracking.1.mode"


@pytest.mark.parametrize(
    "tracker",
    [
        wandb(url="https://api.wandb.ai"),
        wandb(url="https://api.forge.coreweave.com"),
        wandb(url="https://wandb.ai.example"),
        wandb(url="https://proxy.example/api.wandb.ai"),
        wandb(token="local-" + "k" * 40),
        wandb(token="wandb_v1_" + "k" * 40),
        wandb(token="head.body-part.signature"),
        wandb(experiment="a" * 128),
    ],
)
def test_what_the_client_of_wandb_takes_is_accepted(tracker: dict[str, Any]) -> None:
    assert spec_of(tracked(tracker)).document.tracking[0].kind == "wandb"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_loopback_is_out_of_reach_for_wandb_even_if_it_is_allowed(host: str) -> None:
    rules = ReadingRules(roots=("/srv",), tracking_allow=(host,))

    with pytest.raises(BadSpec, match="past every proxy"):
        from_document(JobDocument.from_json(tracked(wandb(url=f"http://{host}:8080"))), rules)


OF_SUPPORT = ReadingRules(roots=("/srv",)).of("support")


@pytest.mark.parametrize(
    "tracker",
    [
        mlflow(url="https://MLflow.example:443/tracking/"),
        mlflow(experiment="support"),
        mlflow(url="https://mlflow.example./tracking", experiment="support"),
    ],
)
def test_same_run_is_refused_however_it_is_written(tracker: dict[str, Any]) -> None:
    with pytest.raises(BadSpec, match="without an experiment it is the project"):
        from_document(JobDocument.from_json(tracked(mlflow(), tracker)), OF_SUPPORT)


@pytest.mark.parametrize(
    "tracker",
    [
        mlflow(experiment="other"),
        mlflow(url="https://mlflow.example:8443/tracking"),
        mlflow(url="https://mlflow.example/another"),
    ],
)
def test_two_runs_are_accepted(tracker: dict[str, Any]) -> None:
    spec = from_document(JobDocument.from_json(tracked(mlflow(), tracker)), OF_SUPPORT)

    assert len(spec.document.tracking) == 2


def test_token_over_http_goes_to_hosts_that_the_operator_lists() -> None:
    rules = ReadingRules(roots=("/srv",), tracking_allow=("10.0.0.0/8", "mlflow.internal"))

    for url in ("http://10.1.2.3:5000", "http://MLflow.internal"):
        spec = from_document(JobDocument.from_json(tracked(mlflow(url=url, token="x"))), rules)
        assert spec.secrets == {"tracking.0.token": "x"}


def test_private_server_that_the_operator_allows_is_accepted() -> None:
    rules = ReadingRules(roots=("/srv",), tracking_allow=("10.0.0.0/8", "mlflow.internal"))

    for url in ("http://10.1.2.3:5000", "http://mlflow.internal"):
        spec = from_document(JobDocument.from_json(tracked(mlflow(url=url))), rules)
        assert spec.document.tracking[0].url == url

    with pytest.raises(InvalidRequest):
        from_document(JobDocument.from_json(tracked(mlflow(url="http://192.168.1.1"))), rules)


def test_hosts_that_data_may_come_from_are_no_tracking_servers() -> None:
    rules = ReadingRules(roots=("/srv",), fetch_allow=("10.0.0.0/8",))

    with pytest.raises(BadSpec):
        from_document(JobDocument.from_json(tracked(mlflow(url="http://10.1.2.3"))), rules)


@pytest.mark.parametrize("path", ["tracking.0.token", "tracking.0.url", "tracking"])
def test_no_sweep_varies_it(path: str) -> None:
    with pytest.raises(BadSpec, match="may not vary"):
        kind_of(path, tracked(mlflow(token="x")))
