"""Serving order, backoff and giving up of deliveries, on both databases, with an injected clock."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.ids import new_id
from app.domain.webhooks import TRIES_IN_LINE
from app.models import Webhook, WebhookDelivery
from app.services.webhooks.delivery_queue import CLAIM_MARGIN_SECONDS, DeliveryAttempt, Due, Turns
from app.services.webhooks.http_post import Posted
from tests.builders.factories import make_webhook
from tests.systems.apps import SECRET_KEY

pytestmark = pytest.mark.both_databases

BEGIN = datetime(2026, 5, 17, 9, 30, tzinfo=UTC)
TAKEN = Posted(status_code=204)
FAILED = Posted(status_code=500, problem="it answers 500")
TIMEOUT = 10.0
A_TURN = TIMEOUT + CLAIM_MARGIN_SECONDS


class Clock:
    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self, _session: Session) -> datetime:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def pass_until(self, *moments: datetime | None) -> None:
        """To the latest of them that there is."""
        self.now = max([self.now, *(moment for moment in moments if moment is not None)])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turns(database: Database, clock: Clock) -> Turns:
    return Turns(database, secret_key=SECRET_KEY, timeout_seconds=TIMEOUT, clock=clock)


def make_deliveries(
    db: Database, count: int = 1, *, project: str = "default", of_hook: dict[str, Any] | None = None, **columns: object
) -> tuple[Due, list[str]]:
    """A webhook with so many deliveries waiting, created at the beginning."""
    with db.write() as session:
        values = {"secret": "very-secret-value", "key": SECRET_KEY, **(of_hook or {})}
        hook = make_webhook(session, project=project, **values)
        rows = [
            WebhookDelivery(
                id=new_id("dlv"),
                webhook_id=hook.id,
                event_id=new_id("evt"),
                event_type="job.status",
                payload={"n": number},
                created_at=BEGIN,
                **columns,
            )
            for number in range(count)
        ]
        session.add_all(rows)
        return Due(webhook_id=hook.id, project=project), [row.id for row in rows]


def due(turns: Turns, limit: int = 10) -> list[str]:
    return [each.webhook_id for each in turns.due(besides=[], besides_projects=[], limit=limit)]


def taken(turns: Turns, each: Due) -> DeliveryAttempt:
    parcel = turns.take(each)
    assert parcel is not None
    return parcel


def delivery(db: Database, delivery_id: str) -> WebhookDelivery:
    with db.read() as session:
        return session.get_one(WebhookDelivery, delivery_id)


def webhook(db: Database, each: Due) -> Webhook:
    with db.read() as session:
        return session.get_one(Webhook, each.webhook_id)


# ---- a turn


def test_turn_sends_what_waits_one_after_the_other(database: Database, turns: Turns, clock: Clock) -> None:
    hook, ids = make_deliveries(database, 3)
    parcel = turns.take(hook)

    sent = []
    while parcel is not None:
        sent.append((parcel.delivery_id, parcel.body))
        parcel = turns.settle(parcel, TAKEN, go_on=True)

    assert sent == [(each, f'{{"n":{number}}}'.encode()) for number, each in enumerate(ids)]
    row = delivery(database, ids[0])
    assert (row.state, row.tries, row.status_code, row.problem) == ("delivered", 1, 204, "")
    assert row.finished_at == clock.now
    assert due(turns) == []
    assert webhook(database, hook).turn == ""


def test_parcel_has_what_a_delivery_attempt_needs(database: Database, turns: Turns, clock: Clock) -> None:
    hook, (first,) = make_deliveries(database)

    parcel = taken(turns, hook)

    assert (parcel.url, parcel.secret) == ("https://receiver.example/hook", "very-secret-value")
    assert (parcel.delivery_id, parcel.event_type, parcel.at) == (first, "job.status", clock.now)
    assert "very-secret-value" not in webhook(database, hook).sealed_secret


def test_second_coordinator_finds_nothing_while_the_first_has_the_turn(
    database: Database, turns: Turns, clock: Clock
) -> None:
    hook, _ = make_deliveries(database, 2)
    other = Turns(database, secret_key=SECRET_KEY, timeout_seconds=TIMEOUT, clock=clock)
    parcel = taken(turns, hook)

    assert due(other) == []
    assert other.take(hook) is None

    turns.settle(parcel, TAKEN, go_on=False)
    assert due(other) == [hook.webhook_id]
    assert other.take(hook) is not None


def test_turn_of_one_that_is_gone_is_over_after_a_while(database: Database, turns: Turns, clock: Clock) -> None:
    hook, (first,) = make_deliveries(database)
    taken(turns, hook)

    clock.pass_seconds(A_TURN - 1)
    assert due(turns) == []

    clock.pass_seconds(1)
    assert due(turns) == [hook.webhook_id]
    assert taken(turns, hook).delivery_id == first


def test_each_success_prolongs_the_turn(database: Database, turns: Turns, clock: Clock) -> None:
    hook, _ = make_deliveries(database, 3)
    parcel = taken(turns, hook)

    clock.pass_seconds(A_TURN - 1)
    turns.settle(parcel, TAKEN, go_on=True)
    clock.pass_seconds(A_TURN - 1)

    assert due(turns) == []


def test_late_success_counts_and_does_not_end_the_current_turn(database: Database, turns: Turns, clock: Clock) -> None:
    hook, (first,) = make_deliveries(database)
    late = taken(turns, hook)
    clock.pass_seconds(A_TURN)
    current = taken(turns, hook)

    assert turns.settle(late, TAKEN, go_on=True) is None

    assert delivery(database, first).state == "delivered"
    assert webhook(database, hook).turn == current.turn
    assert turns.settle(current, FAILED, go_on=True) is None
    assert delivery(database, first).state == "delivered"


def test_late_failure_changes_nothing(database: Database, turns: Turns, clock: Clock) -> None:
    hook, (first,) = make_deliveries(database)
    late = taken(turns, hook)
    clock.pass_seconds(A_TURN)
    current = taken(turns, hook)

    turns.settle(late, FAILED, go_on=True)

    assert delivery(database, first).tries == 0
    assert (webhook(database, hook).turn, webhook(database, hook).failures) == (current.turn, 0)


def test_webhook_deleted_during_its_turn_is_no_trouble(database: Database, turns: Turns) -> None:
    hook, _ = make_deliveries(database, 2)
    parcels = [taken(turns, hook)]
    with database.write() as session:
        session.delete(session.get_one(Webhook, hook.webhook_id))

    assert turns.settle(parcels[0], TAKEN, go_on=True) is None
    assert turns.settle(parcels[0], FAILED, go_on=True) is None
    assert turns.take(hook) is None


def test_webhook_switched_off_during_its_turn_gets_no_more(database: Database, turns: Turns) -> None:
    hook, ids = make_deliveries(database, 2)
    parcel = taken(turns, hook)
    with database.write() as session:
        session.get_one(Webhook, hook.webhook_id).is_active = False

    assert turns.settle(parcel, TAKEN, go_on=True) is None

    assert due(turns) == []
    assert delivery(database, ids[1]).state == "waiting"


def test_changed_address_and_secret_hold_from_the_next_try_on(database: Database, turns: Turns) -> None:
    hook, _ = make_deliveries(database, 2)
    parcel = taken(turns, hook)
    with database.write() as session:
        session.get_one(Webhook, hook.webhook_id).url = "https://other.example/hook"

    following = turns.settle(parcel, TAKEN, go_on=True)

    assert following is not None
    assert following.url == "https://other.example/hook"


def test_unreadable_secret_is_reported_with_the_delivery_attempt(database: Database, turns: Turns) -> None:
    hook, _ = make_deliveries(database)
    with database.write() as session:
        session.get_one(Webhook, hook.webhook_id).sealed_secret = make_webhook(
            session, key="dGhlLWtleS1vZi1hbm90aGVyLWluc3RhbGxhdGlvbi0="
        ).sealed_secret

    assert "give it a new one" in taken(turns, hook).problem


# ---- who is next


def test_least_recently_served_webhook_is_first(database: Database, turns: Turns, clock: Clock) -> None:
    hooks = [make_deliveries(database, 2)[0] for _ in range(3)]
    for hook in (hooks[1], hooks[0], hooks[2]):
        turns.settle(taken(turns, hook), TAKEN, go_on=False)
        clock.pass_seconds(1)

    assert due(turns) == [hooks[1].webhook_id, hooks[0].webhook_id, hooks[2].webhook_id]
    assert due(turns, limit=1) == [hooks[1].webhook_id]


def test_those_at_work_and_projects_with_their_share_are_left_out(database: Database, turns: Turns) -> None:
    first, second, third = (make_deliveries(database, project=name)[0] for name in ("default", "default", "other"))

    left = turns.due(besides=[first.webhook_id], besides_projects=["other"], limit=10)

    assert left == [second]
    assert turns.due(besides=[], besides_projects=["default"], limit=10) == [third]


# ---- failures


def test_failed_delivery_stays_first_and_its_webhook_rests(database: Database, turns: Turns, clock: Clock) -> None:
    hook, ids = make_deliveries(database, 2)

    assert turns.settle(taken(turns, hook), FAILED, go_on=True) is None

    row = delivery(database, ids[0])
    assert (row.state, row.tries, row.status_code, row.problem) == ("waiting", 1, 500, "it answers 500")
    assert due(turns) == []
    clock.pass_seconds(5)
    assert taken(turns, hook).delivery_id == ids[0]


def test_pauses_follow_the_documented_schedule(database: Database, turns: Turns, clock: Clock) -> None:
    hook, (first,) = make_deliveries(database)
    at = []

    while delivery(database, first).state == "waiting":
        at.append((clock.now - BEGIN).total_seconds())
        turns.settle(taken(turns, hook), FAILED, go_on=True)
        clock.pass_until(webhook(database, hook).rests_until, delivery(database, first).next_try_at)

    assert at[:8] == [0, 5, 20, 320, 1220, 3020, 6620, 10220]
    assert at[-1] - at[-2] == 3600
    assert at[-2] < 24 * 3600 <= at[-1]
    row = delivery(database, first)
    assert row.state == "given_up"
    assert row.problem == "not taken within 24 hours; the last try: it answers 500"
    assert (row.tries, row.finished_at) == (len(at), BEGIN + timedelta(seconds=at[-1]))


def test_event_that_its_receiver_does_not_take_steps_aside(database: Database, turns: Turns, clock: Clock) -> None:
    hook, ids = make_deliveries(database, 2)
    tried = []
    for _ in range(TRIES_IN_LINE):
        parcel = taken(turns, hook)
        tried.append(parcel.delivery_id)
        turns.settle(parcel, FAILED, go_on=True)
        clock.pass_until(webhook(database, hook).rests_until)

    following = taken(turns, hook)

    assert tried == [ids[0]] * TRIES_IN_LINE
    assert following.delivery_id == ids[1]
    assert clock.now - BEGIN == timedelta(seconds=80)
    assert turns.settle(following, TAKEN, go_on=True) is None
    assert (webhook(database, hook).failures, webhook(database, hook).rests_until) == (0, None)
    clock.pass_seconds(240)
    assert taken(turns, hook).delivery_id == ids[0]


def test_receiver_that_comes_back_gets_everything(database: Database, turns: Turns, clock: Clock) -> None:
    hook, ids = make_deliveries(database, 5)
    while clock.now < BEGIN + timedelta(hours=2):
        turns.settle(taken(turns, hook), FAILED, go_on=True)
        clock.pass_until(webhook(database, hook).rests_until)

    clock.pass_seconds(3600)  # the longest pause of each of them
    parcel = turns.take(hook)
    while parcel is not None:
        parcel = turns.settle(parcel, TAKEN, go_on=True)

    assert [delivery(database, each).state for each in ids] == ["delivered"] * 5


def test_receiver_that_asks_for_time_gets_it_within_bounds(database: Database, turns: Turns, clock: Clock) -> None:
    hook, _ = make_deliveries(database)

    turns.settle(taken(turns, hook), Posted(status_code=429, problem="x", retry_after_seconds=300), go_on=True)

    assert webhook(database, hook).rests_until == clock.now + timedelta(seconds=300)


def test_dead_receiver_leaves_nothing_waiting_for_ever(database: Database, turns: Turns, clock: Clock) -> None:
    hook, ids = make_deliveries(database, 30)
    other, (foreign,) = make_deliveries(database)
    clock.pass_seconds(24 * 3600)

    turns.settle(taken(turns, hook), FAILED, go_on=True)

    assert {delivery(database, each).state for each in ids} == {"given_up"}
    assert delivery(database, ids[7]).problem == "not taken within 24 hours"
    assert delivery(database, ids[7]).tries == 0
    assert delivery(database, foreign).state == "waiting"
    assert due(turns) == [other.webhook_id]


def test_what_waited_a_day_without_a_running_deliverer_is_tried_first(
    database: Database, turns: Turns, clock: Clock
) -> None:
    hook, (first,) = make_deliveries(database)
    clock.pass_seconds(30 * 3600)

    turns.settle(taken(turns, hook), TAKEN, go_on=True)

    assert delivery(database, first).state == "delivered"


def test_clock_that_is_set_back_holds_nothing_up(database: Database, turns: Turns, clock: Clock) -> None:
    resting, stuck = make_deliveries(database)[0], make_deliveries(database)[0]
    for _ in range(TRIES_IN_LINE):
        turns.settle(taken(turns, resting), FAILED, go_on=True)
        clock.pass_until(webhook(database, resting).rests_until)
    taken(turns, stuck)  # and its coordinator is gone

    clock.pass_seconds(-86_400)

    assert set(due(turns)) == {resting.webhook_id, stuck.webhook_id}
