"""When waiting jobs can start, by what the running ones say."""

from app.domain.scheduling.resources import Device, NodeCapacity, Quantities, Request
from app.domain.scheduling.start_estimates import DeviceRelease, starts


def node(name: str = "a", *, devices: int = 2, free: set[int] = frozenset(), **more: object) -> NodeCapacity:  # type: ignore[assignment]
    slots = tuple(Device(index=index, type="cpu") for index in range(devices))
    return NodeCapacity(name=name, devices=slots, free=frozenset(free), cpu_cores=8, **more)  # type: ignore[arg-type]


def ending(seconds: float, *devices: int, on: str = "a", cpu_cores: int = 0) -> DeviceRelease:
    quantities = Quantities(cpu_cores=cpu_cores)
    return DeviceRelease(seconds=seconds, node=on, devices=frozenset(devices), quantities=quantities)


ONE, TWO = Request(device_count=1), Request(device_count=2)


def test_what_fits_now_starts_now() -> None:
    assert starts([ONE, ONE], [node(free={0, 1})], []) == [0.0, 0.0]


def test_a_waiting_job_starts_when_enough_is_given_back() -> None:
    assert starts([TWO], [node()], [ending(30, 0), ending(10, 1)]) == [30]


def test_the_line_is_served_in_order() -> None:
    assert starts([ONE, ONE], [node()], [ending(30, 0), ending(10, 1)]) == [10, 30]


def test_nothing_is_promised_behind_a_job_that_is_yet_to_start() -> None:
    assert starts([TWO, ONE], [node()], [ending(30, 0), ending(10, 1)]) == [None, 10]
    assert starts([ONE, ONE, ONE], [node(free={0, 1})], []) == [0.0, 0.0, None]


def test_job_without_a_node_or_an_end_in_sight_is_unknown() -> None:
    assert starts([ONE], [], []) == [None]
    assert starts([ONE], [node()], []) == [None]
    assert starts([Request(device_kind="cuda")], [node(free={0, 1})], []) == [None]
    assert starts([ONE], [node()], [ending(5, 0, on="gone")]) == [None]


def test_cores_that_a_job_set_aside_come_back_with_it() -> None:
    held = node(free={0}, held=Quantities(cpu_cores=6))
    wanted = Request(cpu_cores=4)

    assert starts([wanted], [held], [ending(7, 1, cpu_cores=6)]) == [7]
    assert starts([wanted], [held], [ending(7, 1)]) == [None]


def test_a_node_that_runs_all_the_jobs_it_may_starts_the_next_when_one_ends() -> None:
    full = node(free={0, 1}, max_jobs=1, active_jobs=1)

    assert starts([ONE, ONE], [full], [ending(9)]) == [9, None]
    assert starts([ONE, ONE], [node(free={0, 1}, max_jobs=1)], []) == [0.0, None]
