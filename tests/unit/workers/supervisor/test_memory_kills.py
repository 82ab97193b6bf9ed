"""Kills for want of memory are counted, whatever version of control groups a machine has."""

from pathlib import Path

import pytest

from workers.supervisor.ranks import oom_kills


def machine(root: Path, own_group: str, files: dict[str, str]) -> int:
    for path, text in {"proc/vmstat": "pgfault 12\noom_kill 3\n", "proc/self/cgroup": own_group, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return oom_kills.count(root / "proc", root / "cgroup")


@pytest.mark.parametrize(
    ("own_group", "files", "kills"),
    [
        ("0::/\n", {}, 3),
        ("0::/jobs\n", {"cgroup/jobs/memory.events": "low 0\noom 2\noom_kill 4\n"}, 7),
        ("0::/elsewhere\n", {"cgroup/memory.events": "oom_kill 4\n"}, 7),
        ("4:cpu,memory:/jobs\n", {"cgroup/memory/jobs/memory.oom_control": "under_oom 0\noom_kill 5\n"}, 8),
        ("4:memory:/docker/1\n", {"cgroup/memory/memory.oom_control": "oom_kill_disable 0\noom_kill 1\n"}, 4),
        ("", {}, 3),
    ],
)
def test_kills_are_counted(tmp_path, own_group, files, kills):
    assert machine(tmp_path, own_group, files) == kills


def test_only_recent_kills_count():
    kills = [3]
    recent = oom_kills.RecentKills(lambda: kills[-1])
    kills.append(4)
    assert recent.number == 1

    recent.look()
    assert recent.number == 1, "kills just before the last poll are recent, too"
    recent.look()
    assert recent.number == 0
    kills.append(6)
    assert recent.number == 2


def test_machine_that_tells_nothing_counts_none(tmp_path):
    assert oom_kills.count(tmp_path / "proc", tmp_path / "cgroup") == 0
