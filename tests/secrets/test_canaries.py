"""A whole system with a secret in every place that takes one: afterwards none is found where it should not be."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.hub import running_hub
from tests.secrets.evidence import Evidence, Run
from tests.systems.places import running_web
from tests.systems.servers import PostgresServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]  # the first of them waits for the whole run
# What a process of the platform needs, and nothing that a job runs may have.
PLATFORM = {
    "storage secret",
    "exchange secret",
    "secret key",
    "flower password",
    "redis password",
    "database password",
    "operator's storage secret",
    "operator's hub token",
    "storage key",
}
ENVIRONMENT = {"environment by name", "environment by form"}


@pytest.fixture(scope="module")
def evidence(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer, migrated_postgres: str, demo_assets: Path
) -> Iterator[Evidence]:
    """The system has run and is gone."""
    folder = tmp_path_factory.mktemp("canaries")
    assets = folder / "assets"
    shutil.copytree(demo_assets / "model", assets / "model")
    (assets / "train.jsonl").write_text('{"text": "a line of text"}\n' * 16)
    with running_web(assets) as web, running_hub() as hub:
        run = Run(folder / "canaries_run", assets, web, hub, postgres_server)
        postgres_server.execute(f"CREATE DATABASE {run.database} TEMPLATE {migrated_postgres}")
        yield run.run()
        postgres_server.execute(f"DROP DATABASE {run.database} WITH (FORCE)")


def test_the_jobs_got_their_secrets_and_used_them(evidence: Evidence) -> None:
    tells, trains, fetches = (evidence.jobs[name] for name in ("tells", "trains", "fetches"))

    assert (tells["status"], tells["error_type"]) == ("FAILED", "SCRIPT_ERROR"), tells
    assert trains["status"] == "COMPLETED", trains
    assert fetches["status"] == "FAILED", fetches
    mine = {seen for seen in evidence.processes if seen.job_id == evidence.environment_of}
    assert any(evidence.canaries.found_in(seen.environment) >= ENVIRONMENT for seen in mine)


def test_no_command_line_holds_a_secret(evidence: Evidence) -> None:
    lines = {f"{seen.pid} {seen.command!r}": seen.command for seen in evidence.processes}

    assert len(lines) > 10
    assert evidence.canaries.found_in_texts(dict(lines)) == {}


def test_ranks_have_their_own_jobs_environment_and_nothing_of_the_platform(evidence: Evidence) -> None:
    ranks = [seen for seen in evidence.processes if seen.is_of_a_rank]
    allowed = {evidence.environment_of: ENVIRONMENT}

    leaked = {seen: evidence.canaries.found_in(seen.environment) - allowed.get(seen.job_id, set()) for seen in ranks}

    assert len(ranks) >= 4
    assert {seen.command: found for seen, found in leaked.items() if found} == {}


def test_the_platforms_processes_have_its_own_secrets_and_no_jobs(evidence: Evidence) -> None:
    ours = [seen for seen in evidence.processes if not seen.is_of_a_rank]

    leaked = {seen: evidence.canaries.found_in(seen.environment) - PLATFORM for seen in ours}

    assert {seen.command: found for seen, found in leaked.items() if found} == {}


def test_redis_receives_no_secret(evidence: Evidence) -> None:
    assert len(evidence.redis_commands) > 10_000
    assert evidence.canaries.found_in(evidence.redis_commands) == set()


def test_redis_keeps_no_secret(evidence: Evidence) -> None:
    assert any("celery-task-meta-job-" in key for key in evidence.redis_content)
    assert evidence.canaries.found_in_texts(evidence.redis_content) == {}


def test_a_dump_of_the_database_holds_no_secret_in_clear(evidence: Evidence) -> None:
    assert b"COPY public.job " in evidence.dump["pg_dump"]
    assert evidence.canaries.found_in_texts(evidence.dump) == {}


def test_no_answer_of_the_api_holds_a_secret(evidence: Evidence) -> None:
    assert len(evidence.answers) > 80
    refused = {name: text for name, text in evidence.answers.items() if name.startswith("refused")}
    assert [name for name, text in refused.items() if b'"status":"error"' not in text] == []
    assert evidence.canaries.found_in_texts(evidence.answers) == {}


def test_what_is_masked_is_shown_as_masked(evidence: Evidence) -> None:
    custom, trained = evidence.jobs["tells"], evidence.jobs["trains"]

    assert custom["training_config"]["environment"] == {"WANDB_API_KEY": "***", "RESULTS_STORE": "***"}
    assert b"'WANDB_API_KEY': '***'" in evidence.answers[f"GET /v1/jobs/{custom['job_id']}/report"]
    assert trained["output_config"]["hub_token"] == "***"
    assert trained["data_config"]["sources"][0]["path"].endswith("?X-Amz-Signature=***&token=***")


def test_no_command_of_the_operators_tells_a_secret(evidence: Evidence) -> None:
    assert all(len(said) > 200 for said in evidence.commands.values())
    assert evidence.canaries.found_in_texts(evidence.commands) == {}


def test_flower_shows_no_secret(evidence: Evidence) -> None:
    assert b"SFT:canaries" in evidence.flower[f"/task/{evidence.environment_of}"]
    assert evidence.canaries.found_in_texts(evidence.flower) == {}


def test_no_file_holds_a_secret(evidence: Evidence) -> None:
    """Logs, artifacts, checkpoints, caches, what runs left behind; all but the administrator's own key."""
    assert (evidence.data_dir / "log" / "supervisors.log").stat().st_size > 0
    assert evidence.canaries.found_below(evidence.data_dir, but=[evidence.admin_key_file]) == {}
    assert evidence.admin_key_file.stat().st_mode & 0o077 == 0


def test_nothing_is_left_of_the_runs(evidence: Evidence) -> None:
    assert list((evidence.data_dir / "run" / "jobs").glob("*/*")) == []
