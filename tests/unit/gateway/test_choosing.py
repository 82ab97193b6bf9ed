"""Requests for one adapter go to the replica that has it, unless that one has too much to do."""

from collections import Counter

from app.gateway.choosing import BOUND, FEW, chosen
from app.services.serving.endpoints import Endpoint

REPLICAS = [
    Endpoint(job_id=f"job-{number}", attempt=1, fence=1, address="127.0.0.1", port=1, revision=1, number=number)
    for number in range(4)
]
ADAPTERS = [f"job-adapter-{number}" for number in range(200)]


def idle(_: Endpoint) -> int:
    return 0


def homes(replicas: list[Endpoint]) -> dict[str, str]:
    found = {adapter: chosen(replicas, idle, adapter) for adapter in ADAPTERS}
    return {adapter: replica.job_id for adapter, replica in found.items() if replica is not None}


def test_each_adapter_has_a_replica_of_its_own_and_no_replica_has_them_all() -> None:
    found = homes(REPLICAS)

    assert homes([*reversed(REPLICAS)]) == found  # as another gateway may list them
    assert all(25 <= count <= 75 for count in Counter(found.values()).values())
    assert set(found.values()) == {each.job_id for each in REPLICAS}


def test_only_the_adapters_of_a_replica_that_is_gone_move() -> None:
    before, after = homes(REPLICAS), homes(REPLICAS[1:])

    assert {adapter for adapter in ADAPTERS if before[adapter] != after[adapter]} == {
        adapter for adapter in ADAPTERS if before[adapter] == REPLICAS[0].job_id
    }


def test_many_requests_for_one_adapter_are_divided() -> None:
    loads: Counter[Endpoint] = Counter()
    for _ in range(100):
        replica = chosen(REPLICAS, lambda each: loads[each], ADAPTERS[0])
        assert replica is not None
        loads[replica] += 1

        assert len(loads) == 1 or loads.total() > FEW  # a few are answered together

    assert max(loads.values()) <= BOUND * 25 + 1
    assert len(loads) == 4


def test_a_request_without_an_adapter_goes_to_the_replica_with_the_least_to_do() -> None:
    loads = {each: 3 - each.number for each in REPLICAS}

    assert chosen(REPLICAS, lambda each: loads[each]) == REPLICAS[3]
    assert {chosen(REPLICAS, idle) for _ in range(200)} == {*REPLICAS}


def test_without_replicas_there_is_none() -> None:
    assert chosen([], idle) is None
    assert chosen([], idle, "a") is None
    assert chosen(REPLICAS[:1], lambda _: 1000, "a") == REPLICAS[0]
