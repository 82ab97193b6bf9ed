"""Which jobs a project's quota lets start, and the project's place in the serving order."""

import pytest

from app.domain.errors import InvalidRequest
from app.domain.scheduling.fair_share import (
    DeviceQuota,
    ProjectQuota,
    QuotaUsage,
    document_of,
    merged,
    never_fits,
    quota_of,
    refusal,
)


def standing(
    used: float = 0,
    *,
    fixed: float = 0,
    running: int = 0,
    spent: str = "",
    max_running: int | None = None,
    **quota: float | None,
) -> QuotaUsage:
    devices = {"cuda": DeviceQuota(**quota)}  # type: ignore[arg-type]
    whole = ProjectQuota(devices=devices, max_running_jobs=max_running)
    return QuotaUsage(quota=whole, used={"cuda": used}, fixed={"cuda": fixed}, running=running, spent=spent)


def refused(who: QuotaUsage, count: float = 1, *, preemptible: bool = False) -> str:
    return refusal("team", who, "cuda", count, preemptible=preemptible)


def test_without_a_quota_nothing_is_refused() -> None:
    assert refusal("team", QuotaUsage(), "cuda", 1000, preemptible=False) == ""


def test_a_limit_holds_for_preemptible_jobs_too() -> None:
    who = standing(6, limit=8)

    assert refused(who, 2) == refused(who, 2, preemptible=True) == ""
    assert refused(who, 3) == "the project team uses 6 of at most 8 GPUs, and the job needs 3"
    assert refused(who, 3, preemptible=True)


def test_what_it_deserves_is_all_that_jobs_get_that_are_not_preemptible() -> None:
    who = standing(6, fixed=3, deserved=4, limit=8)

    assert refused(who, 1) == "", "what its preemptible jobs use can come back"
    assert refused(who, 2) == (
        "jobs of the project team that are not preemptible use 3 of the 4 GPUs that it deserves, and the job needs 2: "
        "set preemptible to true, for only such jobs are lent more"
    )
    assert refused(who, 2, preemptible=True) == ""
    assert "at most 8 GPUs" in refused(who, 3, preemptible=True)


def test_hundredths_of_devices_are_summed_up_exactly() -> None:
    assert refused(standing(0.33 + 0.56, limit=1), 0.11) == ""
    assert standing(1.0, limit=1).excess("cuda", 0.3) == 0.3
    assert standing(0.1 + 0.2, deserved=1).is_deserved("cuda", 0.7)


def test_with_a_weight_of_0_nothing_is_lent() -> None:
    who = standing(4, deserved=4, over_quota_weight=0)

    assert "over_quota_weight 0" in refused(who, preemptible=True)
    assert "at most 0 GPUs" in refused(standing(over_quota_weight=0)), "and where nothing is deserved, nothing is given"


def test_what_is_spent_or_runs_already_is_said_first() -> None:
    assert refused(standing(spent="no hours left", limit=1, used=1)) == "no hours left"
    assert refused(standing(running=2, max_running=2)) == "the project team runs 2 of at most 2 jobs"
    assert refused(standing(running=1, max_running=2)) == ""


def test_a_job_that_never_fits_is_refused_with_a_remedy() -> None:
    quota = ProjectQuota(devices={"cuda": DeviceQuota(deserved=2, limit=4)})

    def limit_message(count: int, *, preemptible: bool) -> str:
        return never_fits("team", quota, "cuda", count, preemptible=preemptible)

    assert limit_message(2, preemptible=False) == limit_message(4, preemptible=True) == ""
    assert (
        "at most 2 GPUs at a time for jobs that are not preemptible, and the job needs 3: ask for fewer, or set"
        in limit_message(3, preemptible=False)
    )
    assert "at most 4 GPUs at a time, and the job needs 5: ask for fewer, or have" in limit_message(5, preemptible=True)
    assert never_fits("team", quota, "cpu", 99, preemptible=False) == ""


def test_within_its_guarantee_a_project_stands_before_all_that_borrow() -> None:
    in_order = [
        standing(0, deserved=8),
        standing(1, deserved=8),
        standing(1, deserved=4),
        standing(0),
        standing(4, deserved=4, over_quota_weight=2),
        standing(1, over_quota_weight=4),
        standing(5, deserved=4, over_quota_weight=2),
        standing(1),
    ]

    ranks = [who.serving_key("cuda") for who in in_order]

    assert ranks == sorted(ranks)
    assert [tier for tier, _ in ranks] == [0, 0, 0, 1, 1, 1, 1, 1]


def test_a_job_that_goes_beyond_the_guarantee_borrows() -> None:
    assert standing(3, deserved=4).is_deserved("cuda", 1)
    assert not standing(3, deserved=4).is_deserved("cuda", 2)
    assert standing(5, deserved=4).borrowed("cuda", clearing=0) == 1
    assert standing(5, deserved=4).borrowed("cuda", clearing=2) == 0


def test_limits_are_changed_one_by_one_and_null_takes_them_away() -> None:
    stored = merged({}, {"gpus": {"deserved": 2, "limit": 8}, "max_running_jobs": 3})

    assert stored == {"gpus": {"deserved": 2, "limit": 8}, "max_running_jobs": 3}
    assert merged(stored, {"gpus": {"limit": None}}) == {"gpus": {"deserved": 2}, "max_running_jobs": 3}
    assert merged(stored, {"gpus": {"limit": None, "deserved": None}, "max_running_jobs": None}) == {}
    assert merged(stored, {"storage_gb": 0.5})["gpus"] == {"deserved": 2, "limit": 8}


def test_a_guarantee_beyond_the_limit_is_refused_also_in_two_steps() -> None:
    with pytest.raises(InvalidRequest, match="can't be more than it may use") as caught:
        merged({"cpu_slots": {"limit": 2}}, {"cpu_slots": {"deserved": 3}})

    assert caught.value.field == "quota.cpu_slots.deserved"


def test_a_quota_is_shown_whole_and_read_back_the_same() -> None:
    quota = quota_of({"gpus": {"deserved": 2}, "gpu_hours_per_month": 10.5})

    shown = document_of(quota)

    assert shown["cpu_slots"] == {"deserved": None, "limit": None, "over_quota_weight": 1.0}
    assert (shown["gpus"]["deserved"], shown["gpu_hours_per_month"], shown["storage_gb"]) == (2, 10.5, None)
    assert document_of(quota_of(shown)) == shown
