"""The API that a command with `--local` serves itself: which of its modules serve a path."""

from pathlib import Path

import pytest
from flask import Flask, url_for
from werkzeug.routing import Map, Rule

from app.cli.own_api import SERVED_BY
from app.http.context import EXTENSION
from app.native import MODULES, native_app
from tests.systems.apps import Api
from tests.systems.commands import run_local


def routes_below(app: Flask, head: str) -> set[tuple[str, str]]:
    return {
        (rule.rule, rule.endpoint)
        for rule in app.url_map.iter_rules()
        if rule.rule == f"/v1/{head}" or rule.rule.startswith(f"/v1/{head}/")
    }


@pytest.mark.parametrize("head", SERVED_BY)
def test_modules_of_a_path_serve_all_that_is_below_it(sqlite_api: Api, head: str) -> None:
    backend = sqlite_api.app.extensions[EXTENSION]

    whole = routes_below(native_app(backend.settings, backend), head)

    assert whole
    assert routes_below(native_app(backend.settings, backend, modules=SERVED_BY[head]), head) == whole


def test_modules_of_the_native_api_are_those_with_a_blueprint(api: Api) -> None:
    named = {rule.endpoint.partition(".")[0] for rule in api.app.url_map.iter_rules() if rule.rule.startswith("/v1/")}

    assert set(MODULES) <= named


def test_command_says_what_its_api_lacks(sqlite_api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = sqlite_api.db.engine.url.render_as_string(hide_password=False)
    for name, value in {"DATA_DIR": str(tmp_path), "DATABASE_URL": url, "SECURITY_SECRET_KEY": "x"}.items():
        monkeypatch.setenv(f"TRAINYARD_{name}", value)

    answer = run_local("jobs", "list")

    assert (answer.exit_code, "TRAINYARD_SECURITY_SECRET_KEY is not a key" in answer.stderr) == (1, True)


def test_urls_are_built_as_werkzeug_builds_them(api: Api) -> None:
    """Routes compile that late."""
    for rule in api.app.url_map.iter_rules():
        values = dict.fromkeys(rule.arguments, "a b")
        plain = Rule(rule.rule, endpoint=rule.endpoint, methods=rule.methods)
        plain.bind(Map([]))

        more = {"page": 1, "rule": "x"}  # a name of our own arguments, too
        assert rule.build(values | more) == plain.build(values | more)


def test_urls_of_routes_are_compiled_when_one_is_built(sqlite_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_builder = Rule._compile_builder

    def counted(rule: Rule, append_unknown: bool = True) -> object:  # noqa: FBT001, FBT002 – Werkzeug's
        compiled.append(rule.rule)
        return compile_builder(rule, append_unknown)

    monkeypatch.setattr(Rule, "_compile_builder", counted)
    backend = sqlite_api.app.extensions[EXTENSION]
    app = native_app(backend.settings, backend)

    assert not compiled
    with app.test_request_context():
        assert url_for("jobs.get_job", job_id="job-1") == url_for("jobs.get_job", job_id="job-1") == "/v1/jobs/job-1"
    assert set(compiled) == {"/v1/jobs/<job_id>"}
