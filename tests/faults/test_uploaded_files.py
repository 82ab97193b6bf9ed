"""The API is killed at each moment of an upload: the file is whole or not there, and sent again it is there once."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from sqlalchemy import update

from app.database.from_settings import open_database
from app.domain.files.purposes import RECEIVING
from app.models import File, Upload
from app.models.base import utc_now
from app.services.files import expiry
from app.services.operations.orphan_cleanup import OrphanSweep
from app.storage.storage import Storage
from config.settings import load_settings
from tests.faults.crash_points import CrashPoints, Point
from tests.lazy_imports import lazily_imported
from tests.systems.system import System, wait_for

if TYPE_CHECKING:
    import openai
else:
    openai = lazily_imported("openai")

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

INCOMING, UPLOADS = "app.services.files.incoming:Incoming", "app.services.files.uploads"
WRITER = "app.storage.pending:PendingWriter"
# What is killed before the commit has made nothing, what is killed after it has made everything.
BEFORE = (
    Point("receiving", "f1", f"{INCOMING}.write", "after"),
    Point("received", "f2", f"{INCOMING}.finish", "before"),
    Point("row-hidden", "f3", "app.services.files.hidden_rows:add", "after"),
    Point("before-rename", "f4", f"{WRITER}.commit", "before"),
    Point("renamed", "f5", f"{WRITER}.commit", "after"),
    Point("row-shown", "f6", "app.services.files.creation:added", "after"),
)
AFTER = (Point("committed", "f7", "app.services.files.creation:create", "after"),)
PARTS_BEFORE = (
    Point("parts-copied", "f8", f"{UPLOADS}:_copy", "after"),
    Point("parts-recorded", "f9", f"{UPLOADS}:_completed", "after"),
)
PARTS_AFTER = (Point("parts-completed", "f10", f"{UPLOADS}:complete", "after"),)
POINTS = (*BEFORE, *AFTER, *PARTS_BEFORE, *PARTS_AFTER)
CONTENT = os.urandom(1 << 20)  # arrives in several pieces
AGAIN = {"x-stainless-retry-count": "1"}  # as the client says when it sends a request again


class Killed(System):
    """An API that is killed at moments of uploads."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.points = CrashPoints(folder / "points", POINTS)

    def environment_of(self, process: str) -> dict[str, str]:
        return super().environment_of(process) | self.points.environment

    def answers(self) -> bool:
        try:
            return self.call("GET", "/health")[0] == 200
        except OSError:
            return False

    def pids(self) -> set[int]:
        api = psutil.Process(self.pid("api"))
        return {self.redis.pid, api.pid, *(child.pid for child in api.children(recursive=True))}

    def expire_hidden(self) -> None:
        """As if a day had passed since the API was killed: what it left is deleted."""
        settings = load_settings(self.environment)
        with closing(open_database(settings.database)) as db:
            with db.write() as session:
                session.execute(update(File).where(File.status == RECEIVING).values(expires_at=utc_now()))
            expiry.drop_expired(db, Storage(settings.storage.url))
            OrphanSweep(db, settings.storage.url, age_limit=timedelta(0)).run_round()

    def release_uploads(self) -> None:
        """As if the time had passed for which a request that completes an upload holds it."""
        with closing(open_database(load_settings(self.environment).database)) as db, db.write() as session:
            session.execute(update(Upload).values(completing_since=None))

    def stored(self) -> set[str]:
        """Names of the files of users in the storage, unfinished ones and parts too."""
        roots = [self.data_dir / "files" / name for name in ("user-files", "uploads")]
        return {path.name for root in roots for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    system = Killed(tmp_path_factory.mktemp("uploads") / "system")
    try:
        system.redis.start()
        system.prepare()
        system.start_api()
        wait_for(system.answers, seconds=30, what="the API")
        yield system
    finally:
        system.stop()


@pytest.fixture
def client(killed: Killed, owned_pids: set[int]) -> Iterator["openai.OpenAI"]:
    """What it asks is not asked again by itself."""
    _, made = killed.call("POST", "/v1/keys", {"role": "user", "project": "default", "name": "uploads"})
    base_url = f"http://127.0.0.1:{killed.port}/v1"
    with openai.OpenAI(base_url=base_url, api_key=made["data"]["key"], max_retries=0) as client:
        yield client
        killed.expire_hidden()
        there = {file.id for file in client.files.list()}
        assert killed.stored() == there, "nothing is left of what was not completed"
        for file_id in there:
            client.files.delete(file_id)
    owned_pids.update(killed.pids())


def files_named(client: "openai.OpenAI", name: str) -> list[str]:
    """Their ids; each of them is whole."""
    found = [file for file in client.files.list() if file.filename == name]
    for file in found:
        assert file.bytes == len(CONTENT)
        assert client.files.content(file.id).read() == CONTENT
    return [file.id for file in found]


def die_over(killed: Killed, point: Point, ask: Callable[[], object]) -> None:
    killed.points.arm(point.name)
    with pytest.raises(openai.APIConnectionError):
        ask()
    killed.points.wait_until_fired(point.name)
    wait_for(killed.answers, seconds=30, what="the API is back")


@pytest.mark.parametrize("point", [*BEFORE, *AFTER], ids=lambda point: point.name)
def test_a_file_is_whole_or_not_there_whenever_the_api_is_killed(
    killed: Killed, client: "openai.OpenAI", point: Point
) -> None:
    name = f"{point.name}.bin"
    create = partial(client.files.create, file=(name, CONTENT), purpose="user_data")

    die_over(killed, point, create)
    left = files_named(client, name)
    again = create(extra_headers=AGAIN)

    assert len(left) == (point in AFTER)
    assert files_named(client, name) == [again.id]
    assert left in ([], [again.id])


@pytest.mark.parametrize("point", [*PARTS_BEFORE, *PARTS_AFTER], ids=lambda point: point.name)
def test_a_file_of_parts_is_whole_or_not_there_whenever_the_api_is_killed(
    killed: Killed, client: "openai.OpenAI", point: Point
) -> None:
    name, half = f"{point.name}.bin", len(CONTENT) // 2
    upload = client.uploads.create(
        filename=name, bytes=len(CONTENT), mime_type="application/octet-stream", purpose="user_data"
    )
    parts = [client.uploads.parts.create(upload.id, data=data).id for data in (CONTENT[:half], CONTENT[half:])]
    complete = partial(client.uploads.complete, upload.id, part_ids=parts)

    die_over(killed, point, complete)
    left = files_named(client, name)
    killed.release_uploads()
    done = complete(extra_headers=AGAIN)

    assert len(left) == (point in PARTS_AFTER)
    assert done.file is not None
    assert files_named(client, name) == [done.file.id]
    assert left in ([], [done.file.id])
