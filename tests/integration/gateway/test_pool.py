"""Connections of a gateway to a real relay."""

import asyncio
from collections.abc import Callable

from app.gateway import pool
from app.gateway.pool import NotConnected, Pool
from app.services.serving import endpoints
from app.services.serving.endpoints import Endpoint
from tests.systems.apps import SECRET_KEY
from tests.systems.gateways import GatewaySite


def endpoint_of(site: GatewaySite) -> Endpoint:
    _, place = site.engine()
    service_id = site.service()
    site.replica(service_id, place)
    with site.db.read() as session:
        return endpoints.of(session, service_id)[0]


def taken(endpoint: Endpoint, count: int) -> list[object]:
    """So many connections at once, or why there is none."""

    async def take() -> list[object]:
        connections = Pool(SECRET_KEY)
        found = await asyncio.gather(*(connections.take(endpoint) for _ in range(count)), return_exceptions=True)
        for each in found:
            if isinstance(each, pool.PooledConnection):
                each.stream.close()
        connections.close()
        return list(found)

    return asyncio.run(take())


def test_many_requests_at_once_all_get_a_connection(make_site: Callable[..., GatewaySite]) -> None:
    found = taken(endpoint_of(make_site()), 300)
    assert [each for each in found if not isinstance(each, pool.PooledConnection)] == []


def test_a_relay_that_has_ended_is_said_to_be_away(make_site: Callable[..., GatewaySite]) -> None:
    endpoint = endpoint_of(make_site())
    found = taken(Endpoint(**{**vars(endpoint), "port": 1}), 3)
    assert [type(each) for each in found] == [NotConnected] * 3
