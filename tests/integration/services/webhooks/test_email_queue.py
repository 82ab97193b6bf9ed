"""Delivery leases of webhooks that send emails: refused recipients, emails given up at once, and how many an hour."""

from datetime import timedelta
from typing import Any

import pytest

from app.database.engine import Database
from app.services.webhooks.delivery_queue import Turns
from app.services.webhooks.http_post import Posted
from tests.integration.services.webhooks.test_delivery_queue import (
    A_TURN,
    BEGIN,
    TIMEOUT,
    Clock,
    delivery,
    due,
    make_deliveries,
    taken,
    webhook,
)
from tests.systems.apps import SECRET_KEY

pytestmark = pytest.mark.both_databases

ANA, BO = "ana@example.org", "bo@example.org"
OF_EMAILS: dict[str, Any] = {"format": "email", "url": "", "key": "", "recipients": [ANA, BO]}
SENT = Posted(status_code=250, reached=(ANA, BO))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turns(database: Database, clock: Clock) -> Turns:
    return Turns(database, secret_key=SECRET_KEY, timeout_seconds=TIMEOUT, emails_per_hour=3, clock=clock)


def test_an_email_is_tried_again_only_for_those_whom_it_has_not_reached(
    database: Database, turns: Turns, clock: Clock
) -> None:
    hook, (first,) = make_deliveries(database, of_hook=OF_EMAILS)
    parcel = taken(turns, hook)
    assert (parcel.recipients, parcel.reached, parcel.problem) == ((ANA, BO), (), "")

    turns.settle(parcel, Posted(status_code=250, problem=f"not to {BO}: 452 full", reached=(ANA,)), go_on=True)

    assert delivery(database, first).state == "waiting"
    clock.pass_until(webhook(database, hook).rests_until)
    parcel = taken(turns, hook)
    assert parcel.reached == (ANA,)
    refusal = Posted(status_code=550, problem=f"not to {BO}: 550 gone", is_final=True)
    turns.settle(parcel, refusal, go_on=True)
    row = delivery(database, first)
    assert (row.state, row.tries, row.problem, row.finished_at) == ("delivered", 2, refusal.problem, clock.now)
    assert webhook(database, hook).failures == 0


def test_who_is_refused_for_good_stays_noted_while_others_wait(database: Database, turns: Turns, clock: Clock) -> None:
    hook, (first,) = make_deliveries(database, of_hook=OF_EMAILS)
    problem = f"not to {ANA}: 550 gone; not to {BO}: 450 later"
    turns.settle(taken(turns, hook), Posted(status_code=550, problem=problem, refused={ANA: "550 gone"}), go_on=True)

    clock.pass_until(webhook(database, hook).rests_until)
    parcel = taken(turns, hook)
    assert (parcel.reached, parcel.refused) == ((), {ANA: "550 gone"})
    end = Posted(status_code=250, problem=f"not to {ANA}: 550 gone", reached=(BO,), is_final=True)
    turns.settle(parcel, end, go_on=True)

    row = delivery(database, first)
    assert (row.state, row.tries, row.problem) == ("delivered", 2, end.problem)


def test_whom_another_turn_has_reached_stays_noted(database: Database, turns: Turns, clock: Clock) -> None:
    hook, (first,) = make_deliveries(database, of_hook=OF_EMAILS)
    late = taken(turns, hook)
    clock.pass_seconds(A_TURN + 1)
    turns.settle(taken(turns, hook), Posted(status_code=250, problem="452 full", reached=(ANA,)), go_on=True)

    turns.settle(late, Posted(status_code=250, problem="452 full", reached=(BO,)), go_on=True)

    assert delivery(database, first).reached == [ANA, BO]


def test_an_email_that_is_refused_for_good_is_given_up_at_once_and_the_webhook_rests(
    database: Database, turns: Turns, clock: Clock
) -> None:
    hook, (first, second) = make_deliveries(database, 2, of_hook=OF_EMAILS)

    turns.settle(taken(turns, hook), Posted(status_code=554, problem="554 spam", is_final=True), go_on=True)

    row = delivery(database, first)
    assert (row.state, row.tries, row.problem, row.finished_at) == ("given_up", 1, "554 spam", clock.now)
    assert due(turns) == []
    clock.pass_until(webhook(database, hook).rests_until)
    assert taken(turns, hook).delivery_id == second


def test_emails_of_one_webhook_are_bounded_in_an_hour(database: Database, turns: Turns, clock: Clock) -> None:
    hook, ids = make_deliveries(database, 5, of_hook=OF_EMAILS)
    posts, _ = make_deliveries(database, 5, project="other")
    for each in (hook, posts):
        parcel, sent = turns.take(each), []
        while parcel is not None:
            sent.append(parcel.delivery_id)
            clock.pass_seconds(1)
            parcel = turns.settle(parcel, SENT, go_on=True)
        assert len(sent) == (3 if each is hook else 5)

    assert due(turns) == []
    assert webhook(database, hook).rests_until == BEGIN + timedelta(hours=1, seconds=1)
    clock.pass_until(webhook(database, hook).rests_until)
    assert taken(turns, hook).delivery_id == ids[3]


def test_webhooks_of_one_project_share_its_hour(database: Database, turns: Turns, clock: Clock) -> None:
    one, _ = make_deliveries(database, 2, of_hook=OF_EMAILS)
    two, (third, fourth) = make_deliveries(database, 2, of_hook=OF_EMAILS)
    foreign, _ = make_deliveries(database, 1, project="other", of_hook=OF_EMAILS)
    for _ in range(2):
        turns.settle(taken(turns, one), SENT, go_on=False)

    parcel = taken(turns, two)
    assert parcel.delivery_id == third
    assert turns.settle(parcel, SENT, go_on=True) is None
    assert webhook(database, two).rests_until == BEGIN + timedelta(hours=1)
    assert due(turns) == [foreign.webhook_id]
    taken(turns, foreign)
    clock.pass_until(webhook(database, two).rests_until)
    assert taken(turns, two).delivery_id == fourth


def test_emails_that_wait_for_a_day_are_given_up_also_where_none_fails(database: Database, clock: Clock) -> None:
    turns = Turns(database, secret_key=SECRET_KEY, timeout_seconds=TIMEOUT, emails_per_hour=1, clock=clock)
    hook, (first, second) = make_deliveries(database, 2, of_hook=OF_EMAILS)
    clock.pass_seconds(24 * 3600)
    parcel = taken(turns, hook)

    assert turns.settle(parcel, SENT, go_on=True) is None

    assert (delivery(database, first).state, delivery(database, second).state) == ("delivered", "given_up")
