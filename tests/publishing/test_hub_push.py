"""What the hub's answers mean to a job, asked with the real client in this process."""

import huggingface_hub.constants
import pytest
from huggingface_hub import close_session

from tests.doubles.hub import OWNER, READ_TOKEN, STRANGER_TOKEN, TOKEN, Hub
from tests.publishing.conftest import FILES, make_order
from workers.publishing import hub as pushing
from workers.publishing.failures import NotPublished
from workers.publishing.hub import HubRepository

# The client's own: it hands its streams to httpx in a way that is about to go.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
NAME = f"{OWNER}/tiny"


@pytest.fixture
def near(hub, monkeypatch):
    """The hub, also for the client of this process."""
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", "/nonexistent")
    yield hub
    close_session()


def repository(token: str = TOKEN, name: str = NAME) -> HubRepository:
    return HubRepository(name=name, private=True, token=token)


@pytest.mark.parametrize(
    ("token", "name", "said"),
    [
        ("hf_unknown", NAME, "the hub answers 401.*give output_config.hub_token a token that may write"),
        (READ_TOKEN, NAME, "the token of acme is read-only"),
        (STRANGER_TOKEN, NAME, "belongs to stranger, who is no member of acme"),
        (TOKEN, "others/tiny", "no member of others"),
        ("", NAME, "there is no token; .* set HF_TOKEN on the nodes"),
    ],
)
def test_a_token_that_cannot_write_is_refused(near: Hub, token: str, name: str, said: str):
    with pytest.raises(NotPublished, match=said) as refused:
        pushing.check(repository(token, name))

    assert not refused.value.transient


@pytest.mark.parametrize("name", [NAME, "acme-labs/tiny"])
def test_a_token_of_the_owner_or_a_member_will_do(near: Hub, name: str):
    pushing.check(repository(name=name))

    # The client asks once in a process for the list by which it names its caller.
    assert [seen.path for seen in near.asked("^(?!GET /api/agent-harnesses$)")] == ["/api/whoami-v2"]


def test_what_the_hub_holds_otherwise_is_noticed(near: Hub, order):
    weights = next(file for file in order.files if file.path == "model.safetensors")
    near.repositories.objects[weights.sha256] = b"not what its name says"

    with pytest.raises(NotPublished, match=r"model\.safetensors on the hub does not match what was sent") as failed:
        pushing.push(repository(), order)

    assert failed.value.transient


def test_only_the_model_goes_there(near: Hub, order):
    (order.source / "notes.txt").write_text("left by a script")
    near.add(NAME, {"old.txt": b"of an earlier push"})

    pushing.push(repository(), order)

    assert near.files(NAME) == {**FILES, "old.txt": b"of an earlier push"}


def test_names_with_patterns_in_them_are_names(near: Hub, tmp_path):
    order = make_order(tmp_path / "odd", {"a[1].json": b"1", "a1.json": b"2", "b*.txt": b"3"})

    pushing.push(repository(), order)

    assert near.files(NAME) == {"a[1].json": b"1", "a1.json": b"2", "b*.txt": b"3"}


@pytest.mark.parametrize(("status", "transient"), [(500, True), (429, True), (400, False), (403, False)])
def test_transient_failures_are_distinguished_from_lasting_ones(near: Hub, order, status, transient):
    near.fail("POST /api/repos/create", status)

    with pytest.raises(NotPublished, match=f"acme/tiny: the hub answers {status}") as failed:
        pushing.push(repository(), order)

    assert failed.value.transient is transient


def test_a_hub_that_is_away_may_come_back(near: Hub, order, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")

    with pytest.raises(NotPublished, match="can't be reached") as failed:
        pushing.push(repository(), order)

    assert failed.value.transient
