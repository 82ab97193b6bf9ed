"""Fixtures for every level: real servers, a fresh migrated database for each test, and guards against leaks."""

import gc
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import hypothesis
import pytest
import pytest_randomly

from app.database.engine import Database, make_engine
from app.migrations.runner import upgrade
from scripts import lanes
from tests import guards
from tests.compiling import compile_tests
from tests.doubles.bubblewraps import put_forbidden_bubblewrap
from tests.nightly import is_nightly
from tests.systems.databases import ReusedDatabases
from tests.systems.engines import engine_on
from tests.systems.forked_agents import ForkedAgents
from tests.systems.forked_supervisors import ForkedSupervisors
from tests.systems.once import build_demo, once
from tests.systems.servers import PostgresServer, RedisServer

TEMPLATE = "template_migrated"
SQLITE_FILE = "trainyard.db"
# The fixture of each kind. PostgreSQL is the stricter one, and what a larger installation has.
DATABASES = {"sqlite": "sqlite_url", "postgresql": "postgres_url"}
DEFAULT_DATABASE = "postgresql"

# It would import every library that offers to be seeded: DeepSpeed does, which takes seconds and torch with it.
pytest_randomly.entrypoint_reseeds = []

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-databases", action="store_true", help="run every test of a database on each kind, marked or not"
    )
    parser.addoption(
        "--lanes", default=lanes.EVERYTHING, help="the lanes of tests/lanes.toml to run, with commas between"
    )


def pytest_configure(config: pytest.Config) -> None:
    if unknown := set(_chosen_lanes(config)) - set(lanes.table().lanes) - {lanes.EVERYTHING}:
        known = ", ".join([lanes.EVERYTHING, *lanes.table().lanes])
        raise pytest.UsageError(f"--lanes: {', '.join(sorted(unknown))} is not in {lanes.TABLE}, which has {known}")
    compile_tests(config, lambda path: _is_in_lanes(path, config))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What no lane holds is not even read."""
    return None if _is_in_lanes(collection_path, config) else True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A lane may have no tests of a kind: none that are long, for instance."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and lanes.EVERYTHING not in _chosen_lanes(session.config):
        session.exitstatus = pytest.ExitCode.OK


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database_url" in metafunc.fixturenames:
        of_each = metafunc.config.getoption("all_databases") or metafunc.definition.get_closest_marker("both_databases")
        metafunc.parametrize("database_url", list(DATABASES) if of_each else [DEFAULT_DATABASE], indirect=True)


# New objects until garbage is collected. Python's 700 are fewer than what most tests make, and cost 4% of their time.
GARBAGE_OBJECTS = 10_000


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests and their modules are millions of objects, which garbage collection then passes over."""
    gc.disable()
    # trl would import it, which takes seconds of every process. Trainers leave it out as well.
    sys.modules["wandb"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        return (yield)
    finally:
        sys.modules.pop("wandb", None)
        gc.freeze()
        gc.set_threshold(GARBAGE_OBJECTS)
        gc.enable()


# A training starts cold in several processes, and the first test of a module waits for all the runs that it shares:
# only minutes distinguish a hang from a busy machine.
PATIENT = {"trainers", "conformance", "e2e", "gpu"}
PATIENCE_SECONDS = 330


@pytest.hookimpl(tryfirst=True)  # -m reads the marks after it
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # A file that the command names is read all the same.
    config.hook.pytest_deselected(items=[item for item in items if not _is_in_lanes(item.path, config)])
    items[:] = [item for item in items if _is_in_lanes(item.path, config)]
    for item in items:
        if _is_patient(item.path) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE_SECONDS))
        if is_nightly(item.nodeid):
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> None:
    """What the person at the keyboard has configured must not reach the tests."""
    for name in [name for name in os.environ if name.startswith("TRAINYARD_")]:
        del os.environ[name]
    guards.mark_descendants()


@pytest.fixture(scope="session")
def owned_pids() -> set[int]:
    """Processes that outlive one test. The fixture that starts one adds it here and ends it."""
    return set()


@pytest.fixture(autouse=True)
def _leave_nothing_behind(
    request: pytest.FixtureRequest, _clean_environment: None, owned_pids: set[int]
) -> Iterator[None]:
    with ExitStack() as stack:
        if request.node.get_closest_marker("network") is None:
            stack.enter_context(guards.loopback_only())
        stack.enter_context(guards.no_leaked_processes(owned_pids))
        stack.enter_context(guards.no_leaked_threads())
        stack.enter_context(guards.no_leaked_app_context())
        yield


@pytest.fixture(scope="session")
def run_directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What all processes of this run of pytest share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if hasattr(request.config, "workerinput") else base


@pytest.fixture(scope="session")
def demo_assets(run_directory: Path) -> Path:
    """The demo's model and data, to read or to copy."""
    return once(run_directory / "demo", build_demo)


@pytest.fixture
def no_memory_kills(run_directory: Path) -> Iterator[None]:
    """Serializes tests of OOM kills and of other kills."""
    with guards.memory_kills_alone(run_directory):
        yield


@pytest.fixture
def no_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory of programs, which has none."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return programs


@pytest.fixture
def forbidden_bubblewrap(no_bubblewrap: Path) -> None:
    put_forbidden_bubblewrap(no_bubblewrap)


@pytest.fixture(scope="session")
def redis_server(owned_pids: set[int]) -> Iterator[RedisServer]:
    """One Redis for the session; a test that stops or kills its server makes a `RedisServer` of its own."""
    server = RedisServer()
    try:
        server.start()
        owned_pids.add(server.pid)
        yield server
    finally:
        server.close()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The session's Redis, emptied."""
    with redis_server.client() as client:
        client.flushall()
    return redis_server.url


@pytest.fixture(scope="session")
def postgres_server(owned_pids: set[int]) -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        owned_pids.add(server.pid)
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def forked_supervisors(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[ForkedSupervisors]:
    """What spawns supervisors without their imports."""
    forks = ForkedSupervisors(tmp_path_factory.mktemp("supervisors"), owned_pids)
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def forked_agents(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[ForkedAgents]:
    """What spares systems that train the imports of each rank and inspection."""
    forks = ForkedAgents(tmp_path_factory.mktemp("agents") / "server", owned_pids)
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def migrated_sqlite(run_directory: Path) -> Path:
    """A migrated SQLite file to copy."""
    return once(run_directory / "migrated-sqlite", _make_migrated_sqlite) / SQLITE_FILE


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: PostgresServer) -> str:
    """The name of a migrated PostgreSQL database to clone."""
    postgres_server.execute(f"CREATE DATABASE {TEMPLATE}")
    _migrate(postgres_server.url(TEMPLATE))
    return TEMPLATE


@pytest.fixture
def sqlite_url(migrated_sqlite: Path, tmp_path: Path) -> str:
    """A fresh migrated SQLite database."""
    path = tmp_path / SQLITE_FILE
    shutil.copyfile(migrated_sqlite, path)
    return f"sqlite:///{path}"


@pytest.fixture(scope="session")
def reused_postgres(postgres_server: PostgresServer, migrated_postgres: str) -> Iterator[ReusedDatabases]:
    databases = ReusedDatabases(postgres_server, migrated_postgres)
    yield databases
    databases.close()


@pytest.fixture
def copied_postgres(postgres_server: PostgresServer, migrated_postgres: str) -> Iterator[str]:
    """The name of a migrated PostgreSQL database that no other test uses."""
    name = f"test_{os.urandom(6).hex()}"
    postgres_server.clone(migrated_postgres, name)
    yield name
    postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[str]:
    """A migrated PostgreSQL database without rows; a new one for a test that is marked `new_database`."""
    if request.node.get_closest_marker("new_database"):
        yield postgres_server.url(request.getfixturevalue("copied_postgres"))
        return
    databases: ReusedDatabases = request.getfixturevalue("reused_postgres")
    name = databases.take()
    yield postgres_server.url(name)
    databases.give_back(name)


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh migrated database: PostgreSQL, or one of each kind in turn where a test is marked `both_databases`."""
    return str(request.getfixturevalue(DATABASES[request.param]))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """The same, bound and ready for `write` and `read`."""
    bound = Database().bind(engine_on(database_url))
    yield bound
    bound.close()


@cache
def _is_patient(path: Path) -> bool:
    here = Path(__file__).parent
    return path.is_relative_to(here) and path.relative_to(here).parts[0] in PATIENT


def _is_in_lanes(path: Path, config: pytest.Config) -> bool:
    chosen = _chosen_lanes(config)
    if lanes.EVERYTHING in chosen or not path.name.startswith("test_"):
        return True
    return lanes.has_test(chosen, path.relative_to(lanes.ROOT).as_posix())


def _chosen_lanes(config: pytest.Config) -> list[str]:
    return str(config.getoption("lanes")).split(",")


def _make_migrated_sqlite(directory: Path) -> None:
    directory.mkdir()
    _migrate(f"sqlite:///{directory / SQLITE_FILE}")


def _migrate(url: str) -> None:
    engine = make_engine(url)
    upgrade(engine)
    engine.dispose()
