"""Every route that is described, by schemathesis with all its checks, as two tenants and as the super admin.

`make test-contract SECONDS=600` walks for longer, and each time other ways.
"""

import os
import secrets
from typing import Any

import pytest
from schemathesis.transport.wsgi import WSGITransport

from app.factory import FOREIGN
from app.http.dialect import Dialect
from tests.contract.tenants import make_tenant
from tests.contract.walking import Walk
from tests.systems.apps import Api

SECONDS = int(os.environ.get("CONTRACT_SECONDS", "10"))
SEED = int(os.environ.get("CONTRACT_SEED", "1")) or secrets.randbelow(2**31)  # 0: another one each time
# Hypothesis shows our whole description when it would explain a draw; that takes long, which is what it warns of.
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
    pytest.mark.timeout(3 * SECONDS + 60),
]


@pytest.fixture(autouse=True)
def _calls_without_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What schemathesis 4.32 gets wrong: it hands settings of sockets to an application in its own process."""
    send = WSGITransport.send

    def send_without(self: WSGITransport, case: Any, *, session: Any = None, **more: Any) -> Any:
        kept = {name: value for name, value in more.items() if name not in ("max_redirects", "verify", "cert")}
        return send(self, case, session=session, **kept)

    monkeypatch.setattr(WSGITransport, "send", send_without)


@pytest.mark.parametrize("caller", ["first tenant", "second tenant", "super admin"])
def test_every_answer_is_a_described_one_and_tells_nothing_of_others(sqlite_api: Api, caller: str):
    first, second = make_tenant(sqlite_api, "alpha"), make_tenant(sqlite_api, "beta")
    mine, other = (second, first) if caller == "second tenant" else (first, second)
    key = sqlite_api.key if caller == "super admin" else mine.key
    secret = other.mark if caller != "super admin" else sqlite_api.key
    own = key.rpartition("_")[0]
    own_key_id = next(row["key_id"] for row in sqlite_api.get("/v1/keys")["keys"] if row["prefix"] == own)
    ids = {name: [*mine.ids[name], *other.ids[name]] for name in mine.ids}

    walk = Walk(key=key, own_key_id=own_key_id, ids=ids, forbidden=secret, seconds=SECONDS, examples=3, seed=SEED)
    while walk.statuses[200] <= 20:  # how far it comes in its time depends on the machine
        walk.go(sqlite_api.app)
        assert walk.report() == "", f"CONTRACT_SEED={SEED}"


@pytest.mark.parametrize("dialect", FOREIGN, ids=lambda dialect: dialect.name)
def test_every_vocabulary_answers_as_it_describes_itself(sqlite_api: Api, dialect: Dialect):
    mine, other = make_tenant(sqlite_api, "alpha"), make_tenant(sqlite_api, "beta")
    ids = {name: [*mine.ids[name], *other.ids[name]] for name in mine.ids}

    walk = Walk(
        key=mine.key,
        own_key_id="",
        ids=ids,
        forbidden=other.mark,
        seconds=SECONDS,
        examples=10,
        seed=SEED,
        base=dialect.bases[0],
    )
    while walk.statuses[200] <= 20:
        walk.go(sqlite_api.app)
        assert walk.report() == "", f"CONTRACT_SEED={SEED}"
