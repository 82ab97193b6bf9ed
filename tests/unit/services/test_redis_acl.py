"""The files for Redis's users: who is in them, what is kept, and what is refused."""

import hashlib
import stat
from pathlib import Path

import pytest

from app.services.operations.redis_acl import RedisUsersError, acl_file, write_users

ADDRESS = "rediss://redis.example.com:6379/0?ssl_cert_reqs=required"


def urls(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text().strip() for path in folder.glob("*.url")}


def test_each_process_gets_a_url_with_a_password_that_the_server_has_as_hash(tmp_path: Path) -> None:
    write_users(tmp_path / "redis", ["a", "b.c"], address=ADDRESS)

    found = urls(tmp_path / "redis")
    assert found.keys() == {"admin", "api", "coordinator", "flower", "node-a", "node-b.c"}
    text = (tmp_path / "redis" / "users.acl").read_text()
    assert text.startswith("user default off ")
    for name, url in found.items():
        scheme, _, rest = url.partition("://")
        user, _, password = rest.partition("@")[0].partition(":")
        assert (scheme, user, rest.partition("@")[2]) == ("rediss", name, ADDRESS.partition("://")[2])
        assert f"user {name} on #{hashlib.sha256(password.encode()).hexdigest()} " in text
        assert password not in text


def test_files_are_the_owners_alone(tmp_path: Path) -> None:
    write_users(tmp_path / "redis", ["a"], address=ADDRESS)

    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "redis").iterdir()} == {0o600}


def test_a_second_run_adds_a_node_and_keeps_all_passwords(tmp_path: Path) -> None:
    write_users(tmp_path, ["a"], address=ADDRESS)
    before = urls(tmp_path)
    (tmp_path / "flower.url").unlink()

    write_users(tmp_path, ["a", "b"], address=ADDRESS)

    after = urls(tmp_path)
    assert after.keys() - before.keys() == {"node-b"}
    assert {name for name, url in before.items() if after[name] != url} == {"flower"}


def test_only_the_administrator_may_everything() -> None:
    names = ("admin", "api", "coordinator", "flower", "node-a")
    lines = acl_file(dict.fromkeys(names, "x"), ["a"]).splitlines()[1:]

    assert [line.split()[1] for line in lines if "+@all" in line or "~* " in line or "&* " in line] == ["admin"]


@pytest.mark.parametrize(
    ("nodes", "address", "reason"),
    [
        (["a", "a"], ADDRESS, "a node is named twice"),
        (["box", "x.box"], ADDRESS, "node box could read messages for x.box"),
        (["*"], ADDRESS, "node '\\*': expected 1 to 63 letters"),
        ([], "redis://:secret@host:6379/0", "without user and password"),
        ([], "host:6379", "the address must be redis://"),
        ([], "redis://host:6379/1", "end with /0"),
    ],
)
def test_what_cannot_be_described_is_refused(tmp_path: Path, nodes: list[str], address: str, reason: str) -> None:
    with pytest.raises(RedisUsersError, match=reason):
        write_users(tmp_path / "redis", nodes, address=address)

    assert not (tmp_path / "redis").exists()
