"""What gateways count of services: each writes one row for each service, which is out of date after some seconds."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.serving import first_tokens
from app.models import Service, ServiceLoad
from app.models.base import utc_now

FRESH_FOR = timedelta(seconds=10)
_NOTED_AFTER = timedelta(seconds=1)  # requested_at is not written more often


@dataclass(frozen=True)
class Load:
    """``requests``: that have come in since the gateway started. ``first_tokens``: see domain.serving.first_tokens."""

    in_flight: int = 0
    waiting: int = 0
    requests: int = 0
    first_tokens: tuple[int, ...] = ()


def report(db: Database, gateway_id: str, loads: Mapping[str, Load]) -> None:
    """Store what a gateway counts now, by service; services that are not there any more are left out."""
    if not loads:
        return
    now = utc_now()
    with db.write() as session:
        # In the order of ids, so that gateways wait for each other in one order.
        known = session.scalars(select(Service.id).where(Service.id.in_(loads)).order_by(Service.id)).all()
        before = _requests(session, gateway_id, known)
        for service_id in known:
            _write(session, gateway_id, service_id, loads[service_id], now)
        _note_requests(session, [each for each in known if _has_news(loads[each], before.get(each))], now)


def _requests(session: Session, gateway_id: str, ids: Collection[str]) -> dict[str, int]:
    of_gateway = (ServiceLoad.gateway == gateway_id, ServiceLoad.service_id.in_(ids))
    found = session.execute(select(ServiceLoad.service_id, ServiceLoad.requests).where(*of_gateway))
    return {row.service_id: row.requests for row in found}


def _has_news(load: Load, before: int | None) -> bool:
    return bool(load.in_flight or load.waiting) or load.requests != (before or 0)


def _write(session: Session, gateway_id: str, service_id: str, load: Load, now: datetime) -> None:
    values: dict[str, Any] = {"in_flight": load.in_flight, "waiting": load.waiting, "requests": load.requests}
    values |= {"first_tokens": list(load.first_tokens), "at": now}
    insert: Any = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    new = insert(ServiceLoad).values(service_id=service_id, gateway=gateway_id, **values)
    session.execute(new.on_conflict_do_update(index_elements=["service_id", "gateway"], set_=values))


def _note_requests(session: Session, ids: Collection[str], now: datetime) -> None:
    is_old = or_(Service.requested_at.is_(None), Service.requested_at < now - _NOTED_AFTER)
    for service_id in ids:
        session.execute(
            update(Service)
            .where(Service.id == service_id, is_old)
            .values(requested_at=now)
            .execution_options(synchronize_session=False)
        )


def of(session: Session, service_ids: Collection[str]) -> dict[str, Load]:
    """By service, what all gateways count now; services without any are left out."""
    fresh = (ServiceLoad.service_id.in_(service_ids), ServiceLoad.at >= utc_now() - FRESH_FOR)
    sums = (func.sum(ServiceLoad.in_flight), func.sum(ServiceLoad.waiting), func.sum(ServiceLoad.requests))
    found = session.execute(select(ServiceLoad.service_id, *sums).where(*fresh).group_by(ServiceLoad.service_id))
    return {row[0]: Load(in_flight=int(row[1]), waiting=int(row[2]), requests=int(row[3])) for row in found}


def first_tokens_of(session: Session, service_ids: Collection[str]) -> dict[str, tuple[int, ...]]:
    """By service, recent streams of all gateways by the time to their first token; those without any are left out."""
    recent = ServiceLoad.at >= utc_now() - timedelta(seconds=first_tokens.WINDOW_SECONDS)
    query = select(ServiceLoad.service_id, ServiceLoad.first_tokens).where(
        ServiceLoad.service_id.in_(service_ids), recent
    )
    found: dict[str, tuple[int, ...]] = {}
    for service_id, counts in session.execute(query):
        if counts:
            found[service_id] = first_tokens.added(found.get(service_id, ()), counts)
    return found
