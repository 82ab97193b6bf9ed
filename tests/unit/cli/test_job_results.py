"""download, metrics, report, open and validate, against a small real HTTP server."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.main import main
from tests.doubles.scripted_server import Answer, Handler, ScriptedServer, failure, success

JOB_ID = "job-00000000-0000-7000-8000-000000000001"
FILES = {"model/weights.bin": b"weights" * 1000, "model/config.json": b"{}", "logs/a.txt": b"a"}
SERIES = {"loss": [[step, "2026-05-17T09:30:00.000Z", 3.0 / step] for step in range(1, 20)] + [[20, "…", "NaN"]]}


class Files:
    """A server of one job's files, as ours: with ranges under If-Range."""

    def __init__(self, **content: bytes) -> None:
        self.content = {**FILES, **content}
        self.listed = [
            {"path": path, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for path, data in self.content.items()
        ]
        self.cut_once = ""
        self.ranges: list[str] = []

    def __call__(self, handler: Handler) -> None:
        path = handler.path.partition("?")[0]
        if path.endswith(f"/jobs/{JOB_ID}/artifacts"):
            success({"artifacts": self.listed})(handler)
        elif path.endswith(f"/jobs/{JOB_ID}"):
            success({"job_id": JOB_ID, "name": "tiny sft", "status": "COMPLETED"})(handler)
        else:
            self._send(handler, path.partition("/artifacts/")[2])

    def _send(self, handler: Handler, path: str) -> None:
        data = self.content[path]
        tag = f'"{next(each["sha256"] for each in self.listed if each["path"] == path)}"'
        self.ranges.append(handler.headers.get("Range") or "whole")
        asked = re.fullmatch(r"bytes=(\d+)-", self.ranges[-1])
        start = int(asked[1]) if asked and handler.headers.get("If-Range") == tag else 0
        sent = data[start:]
        headers = {"ETag": tag, "Content-Length": str(len(sent))}
        if path == self.cut_once:
            self.cut_once, sent = "", sent[: len(sent) // 2]
        handler.reply(206 if start else 200, sent, "application/octet-stream", **headers)
        handler.close_connection = True


@pytest.fixture
def server(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptedServer:
    monkeypatch.chdir(tmp_path)
    return server


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_download_saves_every_file_under_the_jobs_name(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(Files())

    answer = run("download", JOB_ID)

    assert answer.exit_code == 0, answer.stderr
    assert contents(tmp_path) == {f"tiny sft/{path}": data for path, data in FILES.items()}
    assert answer.stdout == "tiny sft: 3 of 3 files, 0.0 MB in all, hashes checked\n"


def test_download_continues_after_a_cut_where_it_broke(server: ScriptedServer, tmp_path: Path) -> None:
    files = Files()
    files.cut_once = "model/weights.bin"
    server.script(files)

    answer = run("download", JOB_ID, "model/weights.bin", "--to", "out")

    assert answer.exit_code == 0, answer.stderr
    assert contents(tmp_path / "out") == {"model/weights.bin": FILES["model/weights.bin"]}
    assert files.ranges == ["whole", "bytes=3500-"]


def test_download_again_asks_only_for_what_is_missing(server: ScriptedServer, tmp_path: Path) -> None:
    files = Files()
    server.script(files)
    run("download", JOB_ID, "--to", "out")
    (tmp_path / "out/logs/a.txt").unlink()
    files.ranges.clear()

    assert run("download", JOB_ID, "--to", "out").exit_code == 0

    assert files.ranges == ["whole"]
    assert contents(tmp_path / "out") == FILES


def test_file_with_a_wrong_hash_is_not_saved_and_the_others_are(server: ScriptedServer, tmp_path: Path) -> None:
    files = Files()
    files.content["model/config.json"] = b"[]"
    server.script(files)

    answer = run("download", JOB_ID, "--to", "out")

    assert answer.exit_code == 1
    assert re.search("config.json arrived with the SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}", answer.stderr)
    assert set(contents(tmp_path / "out")) == {"model/weights.bin", "logs/a.txt"}


def test_files_named_like_parts_of_others_are_saved(server: ScriptedServer, tmp_path: Path) -> None:
    named = {"m": b"x" * 9000, "m.part": b"y" * 5000, "m.part.etag": b"z"}
    server.script(Files(**named))

    answer = run("download", JOB_ID, "m", "m.part", "m.part.etag", "--to", "out")

    assert answer.exit_code == 0, answer.stderr
    assert contents(tmp_path / "out") == named


def test_file_of_another_content_is_not_overwritten(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(Files())
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.txt").write_text("mine")

    answer = run("download", JOB_ID, "logs", "--to", ".")

    assert (answer.exit_code, "exists with another content" in answer.stderr) == (1, True)
    assert (tmp_path / "logs/a.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "path",
    ["../outside", "/etc/outside", "a/../../outside", "a\\..\\outside", "C:outside", "link/x", ".m.trainyard-part"],
)
def test_path_that_leads_out_of_the_folder_is_not_saved(server: ScriptedServer, tmp_path: Path, path: str) -> None:
    server.script(Files(**{path: b"evil"}))
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/link").symlink_to(tmp_path / "elsewhere")

    answer = run("download", JOB_ID, "--to", "out")

    assert (answer.exit_code, "it is not saved" in answer.stderr) == (1, True)
    assert set(contents(tmp_path)) == {f"out/{each}" for each in FILES}


def test_second_job_of_a_name_gets_a_folder_of_its_own(server: ScriptedServer, tmp_path: Path) -> None:
    files = Files(**{"model/config.json": b"[]"})
    server.script(files)
    first = tmp_path / "tiny sft/model/config.json"
    first.parent.mkdir(parents=True)
    first.write_text("{}")

    answers = [run("download", JOB_ID) for _ in range(2)]

    assert [each.exit_code for each in answers] == [0, 0], answers[0].output
    assert first.read_text() == "{}"
    assert set(contents(tmp_path)) == {"tiny sft/model/config.json", *(f"tiny sft-00000001/{path}" for path in FILES)}
    assert files.ranges == ["whole"] * 3  # the second command finds them


def test_where_one_file_is_in_the_way_none_is_saved(server: ScriptedServer, tmp_path: Path) -> None:
    server.script(Files())
    (tmp_path / "out/logs").mkdir(parents=True)
    (tmp_path / "out/logs/a.txt").write_text("b")

    answer = run("download", JOB_ID, "--kind", "all", "--to", "out")

    assert answer.exit_code == 1
    assert "out/logs/a.txt exists with another content; nothing is saved" in answer.stderr
    assert contents(tmp_path / "out") == {"logs/a.txt": b"b"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the job has no such files; `--kind all` selects every kind"),
        (("--kind", "all"), "the job left no files; a script writes them to $TRAINYARD_OUTPUT_DIR"),
        (("a.txt",), "the job left no files; a script writes them to $TRAINYARD_OUTPUT_DIR"),
    ],
)
def test_download_without_files_says_why(server: ScriptedServer, arguments: tuple[str, ...], message: str) -> None:
    server.script(success({"artifacts": []}))

    assert run("download", JOB_ID, *arguments).stderr == f"Error: {message}\n"


def test_job_is_shown_with_the_message_of_its_memory_estimate(server: ScriptedServer) -> None:
    estimate = {"verdict": "fits", "message": "needs about 14 GB", "parts": {"weights": 1}, "ways_out": [], "notes": []}
    job = {"job_id": JOB_ID, "name": "n", "status": "RUNNING", "memory_estimate": estimate}
    events = success({"events": [], "total_count": 0, "page": 1, "page_size": 21, "total_pages": 0})
    server.script(success(job), events)

    lines = run("jobs", "show", JOB_ID).stdout.splitlines()

    assert [line.split(maxsplit=1)[1] for line in lines if "memory" in line] == ["needs about 14 GB"]


def test_download_of_an_unknown_path_names_those_there_are(server: ScriptedServer) -> None:
    server.script(Files())

    answer = run("download", JOB_ID, "weights")

    assert answer.exit_code == 1
    assert "no file 'weights'; it has: model/weights.bin, model/config.json" in answer.stderr


def test_metrics_are_shown_drawn_and_printed(server: ScriptedServer) -> None:
    server.script(success({"latest": {"loss": "NaN", "grad_norm": 0.5}, "series": SERIES, "checkpoints": []}))

    table = run("metrics", JOB_ID).stdout
    plot = run("metrics", JOB_ID, "--name", "loss", "--plot").stdout
    lines = run("metrics", JOB_ID, "--csv").stdout.splitlines()
    unknown = run("metrics", JOB_ID, "--name", "accuracy")
    server.script(success({"latest": {"=1+1": 1.0}, "series": {"=1+1": SERIES["loss"]}, "checkpoints": []}))
    formula = run("metrics", JOB_ID, "--csv").stdout

    assert [line.split() for line in table.splitlines()] == [
        ["metric", "latest", "step"],
        ["loss", "NaN", "20"],
        ["grad_norm", "0.5"],
    ]
    assert "loss by step" in plot
    assert plot.count("*") >= 19
    assert (lines[0], lines[1], len(lines)) == ("name,step,at,value", "loss,1,2026-05-17T09:30:00.000Z,3.0", 21)
    assert "'=1+1,1," in formula
    assert (unknown.exit_code, "no metric accuracy; it has: grad_norm, loss" in unknown.stderr) == (1, True)


def test_open_prints_the_address_of_the_tensorboard(server: ScriptedServer) -> None:
    server.script(success({"url": "http://boards/job-1/", "token": "t"}))

    assert run("open", JOB_ID, "--tensorboard", "--print").stdout == "http://boards/job-1/?token=t\n"


def test_open_prints_the_address_of_the_dashboard_and_of_a_job_in_it(server: ScriptedServer) -> None:
    assert run("open", "--print").stdout == f"{server.url}/ui/\n"
    assert run("open", JOB_ID, "--print").stdout == f"{server.url}/ui/jobs/{JOB_ID}\n"
    refused = run("open", "--tensorboard")
    assert (refused.exit_code, "--tensorboard needs a JOB" in refused.stderr) == (2, True)


def test_validate_prints_what_is_wrong_and_exits_with_1(server: ScriptedServer, tmp_path: Path) -> None:
    report: dict[str, Any] = {
        "valid": False,
        "errors": [{"field": "data_config.sources.0", "error_type": "DATA_ERROR", "message": "no such file"}],
        "warnings": ["few records"],
        "left_out": ["the model: no training_config.base_model"],
        "sources": [{"index": 0, "location": "/srv/a.jsonl", "records_read": 3, "complete": True}],
        "lengths": {"p50": 10},
    }
    (tmp_path / "job.yaml").write_text("data_config: {sources: []}\ntraining_config: {training_type: SFT}\n")
    server.script(success(report), success({**report, "valid": True, "errors": []}))

    wrong, right = (run("validate", "job.yaml") for _ in range(2))

    assert server.seen[0][:2] == ("POST", "/v1/data/validate")
    assert json.loads(server.seen[0][3]) == {
        "data_config": {"sources": []},
        "training_config": {"training_type": "SFT"},
    }
    assert (wrong.exit_code, right.exit_code) == (1, 0)
    assert wrong.stderr.splitlines() == [
        "Error: data_config.sources.0: no such file",
        "Warning: few records",
        "Not checked: the model: no training_config.base_model",
    ]
    assert "/srv/a.jsonl" in wrong.stdout
    assert "Tokens of a record: p50 10" in right.stdout
    assert "The data is valid" in right.stdout.splitlines()[-1]


def test_validate_sets_values_and_needs_no_data_of_a_script(server: ScriptedServer, tmp_path: Path) -> None:
    report = {"valid": True, "errors": [], "warnings": [], "left_out": [], "sources": [{"index": 0}]}
    server.script(success(report))
    (tmp_path / "job.yaml").write_text("training_config: {framework: {type: CUSTOM, custom_command: [a]}}\n")

    without = run("validate", "job.yaml")
    with_data = run("validate", "job.yaml", "--set", "data_config.sources.0.path=a.jsonl")

    assert (without.exit_code, with_data.exit_code) == (0, 0), without.output
    assert without.stderr == "Not checked: the job is a script and names no data\n"
    assert "by --code, or submit --dry-run" in without.stdout
    assert [json.loads(seen[3])["data_config"] for seen in server.seen] == [{"sources": [{"path": "a.jsonl"}]}]


def test_validate_with_code_reports_what_admission_would_refuse(server: ScriptedServer, tmp_path: Path) -> None:
    said = ["admission would fail it with DATA_ERROR: no a.jsonl", "ttl has no effect"]
    report = {"valid": True, "errors": [], "warnings": ["few"], "left_out": [], "sources": [{"index": 0}]}
    nothing = b'{"object": "list", "data": [], "has_more": false}'
    server.script(lambda handler: handler.reply(200, nothing), success({"warnings": said}), success(report))
    (tmp_path / "train.py").write_text("")
    (tmp_path / "job.yaml").write_text(
        "training_config: {framework: {custom_script_path: train.py}}\ndata_config: {sources: [{path: a.jsonl}]}\n"
    )

    answer = run("validate", "job.yaml", "--code", ".", "--json")

    found = json.loads(answer.stdout)
    assert [seen[:2] for seen in server.seen[1:]] == [("POST", "/v1/jobs?dry_run=true"), ("POST", "/v1/data/validate")]
    assert (answer.exit_code, found["valid"], found["errors"]) == (1, False, [{"message": said[0]}])
    assert found["warnings"] == [said[1], "few"]


def test_report_of_a_running_job_says_so(server: ScriptedServer) -> None:
    server.script(failure(404, {"code": "NOT_FOUND", "message": "the job has no report yet"}))

    answer = run("report", JOB_ID)

    assert (answer.exit_code, "no report yet" in answer.stderr) == (1, True)


def test_wait_of_cancel_tells_how_the_job_ended(server: ScriptedServer) -> None:
    def job(status: str, requested: str | None = None) -> Answer:
        return success({"job_id": JOB_ID, "status": status, "requested": requested})

    server.script(job("TRAINING", "cancel"), job("TRAINING", "cancel"), job("CANCELLED"))
    cancelled = run("cancel", JOB_ID, "--wait")
    server.script(job("TRAINING", "cancel"), job("COMPLETED"))
    completed = run("cancel", JOB_ID, "--wait")

    assert (cancelled.exit_code, cancelled.stdout) == (0, f"{JOB_ID} CANCELLED\n")
    assert (completed.exit_code, completed.stdout) == (3, f"{JOB_ID} COMPLETED\n")


def test_wait_of_resume_and_retry(server: ScriptedServer) -> None:
    def job(status: str) -> Answer:
        return success({"job_id": JOB_ID, "status": status})

    server.script(job("QUEUED"), job("PREPARING"), job("TRAINING"))
    resumed = run("resume", JOB_ID, "--wait")
    server.script(job("QUEUED"), job("FAILED"))
    failed = run("resume", JOB_ID, "--wait")
    server.script(job("PENDING"), job("FAILED"))
    retried = run("retry", JOB_ID, "--wait")

    assert (resumed.exit_code, resumed.stdout) == (0, f"{JOB_ID} TRAINING\n")
    assert (failed.exit_code, failed.stdout) == (3, f"{JOB_ID} FAILED\n")
    assert (retried.exit_code, "FAILED" in retried.stdout) == (3, True)
