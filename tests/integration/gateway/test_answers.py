"""Requests that a replica answers: what the engine gets, what the client gets, and what is counted."""

import pytest
from sqlalchemy import select

from app.models import ModelUsage, ServiceLoad
from app.security.permissions import Role
from tests.systems.gateways import GatewaySite
from tests.systems.system import wait_for


def test_an_answer_is_passed_on_and_the_engine_gets_what_was_asked(site: GatewaySite) -> None:
    engine, place = site.engine()
    site.replica(site.service(), place)

    answer = site.chat("say hello you", temperature=0.5)

    assert answer.status == 200, answer.raw
    assert answer.json["choices"][0]["message"]["content"] == "hello you"
    assert answer.headers["X-Request-ID"].startswith("req_")
    headers, body = engine.requests[0]
    assert headers["X-Request-Id"] == answer.headers["X-Request-ID"]
    assert "X-Trainyard-Adapter" not in headers
    assert (body["model"], body["temperature"]) == ("support", 0.5)
    assert "Authorization" not in headers


def test_a_stream_is_passed_on_without_the_usage_that_was_not_asked_for(site: GatewaySite) -> None:
    engine, place = site.engine()
    site.replica(site.service(), place)

    answer = site.chat("say one two three", stream=True)

    assert answer.headers["Content-Type"].startswith("text/event-stream")
    *events, done = answer.events
    assert [event["choices"][0]["delta"]["content"] for event in events] == ["one", "two", "three"]
    assert done == "[DONE]"
    assert engine.bodies[0]["stream_options"] == {"include_usage": True}


def test_a_stream_has_the_usage_that_was_asked_for(site: GatewaySite) -> None:
    _, place = site.engine()
    site.replica(site.service(), place)

    answer = site.chat("say one", stream=True, stream_options={"include_usage": True})

    assert answer.events[-2]["usage"] == {"prompt_tokens": 3, "completion_tokens": 1}


def test_all_paths_are_served_and_also_below_openai(site: GatewaySite) -> None:
    engine, place = site.engine()
    site.replica(site.service(), place)
    _, other = site.engine("vectors")
    site.replica(site.service("vectors", task="embed"), other)
    reranker, third = site.engine("scores")
    site.replica(site.service("scores", task="score"), third)

    completion = site.ask("POST", "/openai/v1/completions", {"model": "support", "prompt": "say yes"})
    embedding = site.ask("POST", "/v1/embeddings", {"model": "vectors", "input": "say something"})
    asked = {"model": "scores", "query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}
    reranked = site.ask("POST", "/v1/rerank", asked)

    assert (completion.status, embedding.status) == (200, 200), (completion.raw, embedding.raw)
    assert (reranked.status, reranker.bodies) == (200, [asked]), reranked.raw
    assert site.ask("POST", "/v1/rerank", {**asked, "model": "support"}).status == 409
    assert engine.bodies[0]["prompt"] == "say yes"
    assert site.ask("POST", "/v1/responses", {}).status == 404
    assert site.ask("GET", "/v1/completions").status == 405


def test_connections_to_engines_are_used_again(site: GatewaySite) -> None:
    engine, place = site.engine()
    site.replica(site.service(), place)

    for _ in range(5):
        assert site.chat("say yes").status == 200

    assert len({headers["X-Request-Id"] for headers, _ in engine.requests}) == 5


def test_what_the_engine_refuses_is_refused_in_its_words(site: GatewaySite) -> None:
    _, place = site.engine()
    site.replica(site.service(), place)

    answers = [site.chat("long text", stream=streams) for streams in (False, True)]

    assert [answer.status for answer in answers] == [400, 400]
    assert answers[1].error["message"] == "the prompt has 9 of 8 tokens"


@pytest.mark.long
@pytest.mark.both_databases
def test_usage_is_counted_by_key_model_and_day(site: GatewaySite) -> None:
    _, place = site.engine()
    service_id = site.service()
    site.replica(service_id, place)

    site.chat("say one two")
    site.chat("say one two", stream=True)
    site.chat("long text")

    def counted() -> list[ModelUsage]:
        with site.db.read() as session:
            return list(session.scalars(select(ModelUsage)))

    wait_for(lambda: sum(row.requests for row in counted()) == 3, seconds=10, what="usage is written")
    row = counted()[0]
    assert (row.model, row.project, row.service_id) == ("support", "default", service_id)
    assert (row.failures, row.prompt_tokens, row.completion_tokens) == (1, 6, 4)


@pytest.mark.long
def test_whole_answer_whose_client_leaves_counts_what_was_made_of_it(site: GatewaySite) -> None:
    engine, place = site.engine()
    site.replica(site.service(), place)
    body = {"model": "support", "messages": [{"role": "user", "content": "hang"}]}
    with site.asking("POST", "/v1/chat/completions", body):
        wait_for(lambda: engine.open == 1, seconds=10, what="it is being answered")

    def counted() -> list[tuple[int, int, int, int]]:
        with site.db.read() as session:
            rows = session.scalars(select(ModelUsage))
            return [(row.requests, row.failures, row.prompt_tokens, row.completion_tokens) for row in rows]

    wait_for(lambda: counted() == [(1, 1, 3, 2)], seconds=10, what="its tokens are counted")


@pytest.mark.long
@pytest.mark.both_databases
def test_counts_of_requests_are_reported_for_scaling(site: GatewaySite) -> None:
    _, place = site.engine()
    service_id = site.service()
    site.replica(service_id, place)
    streams: list[int] = []

    def load() -> tuple[int, int, int]:
        nonlocal streams
        with site.db.read() as session:
            rows = list(session.scalars(select(ServiceLoad).where(ServiceLoad.service_id == service_id)))
            streams = [each for row in rows for each in row.first_tokens]
        return (rows[0].in_flight, rows[0].waiting, rows[0].requests) if rows else (0, 0, 0)

    body = {"model": "support", "messages": [{"role": "user", "content": "hang"}]}
    with site.asking("POST", "/v1/chat/completions", body):
        wait_for(lambda: load() == (1, 0, 1), seconds=10, what="the request is reported")
    wait_for(lambda: load() == (0, 0, 1), seconds=10, what="its end is reported")
    assert streams == []
    site.chat("say yes", stream=True)
    wait_for(lambda: load() == (0, 0, 2) and sum(streams) == 1, seconds=10, what="its first token is reported")


def test_requests_go_to_the_replica_with_the_least_to_do(site: GatewaySite) -> None:
    engines = [site.engine(f"engine-{number}") for number in range(2)]
    service_id = site.service()
    for number, (_, place) in enumerate(engines):
        site.replica(service_id, place, number=number)
    body = {"model": "support", "messages": [{"role": "user", "content": "hang"}]}

    with site.asking("POST", "/v1/chat/completions", body), site.asking("POST", "/v1/chat/completions", body):
        wait_for(lambda: [engine.open for engine, _ in engines] == [1, 1], seconds=10, what="each has one")


def test_figures_count_requests(site: GatewaySite) -> None:
    _, place = site.engine()
    site.replica(site.service(), place)
    site.chat("say yes")
    site.chat("say yes", stream=True)

    figures = site.ask("GET", "/metrics").raw.decode()

    assert 'trainyard_gateway_requests_total{path="/v1/chat/completions",status="200"} 2.0' in figures
    assert 'trainyard_gateway_first_token_seconds_count{path="/v1/chat/completions"} 1.0' in figures
    assert "trainyard_gateway_in_flight 0.0" in figures
    assert int(site.chat("say yes").headers["OpenAI-Processing-Ms"]) >= 0


def test_keys_without_the_permission_and_without_credentials_are_refused(site: GatewaySite) -> None:
    site.service()
    body = {"model": "support", "messages": [{"role": "user", "content": "say yes"}]}

    refused = [
        site.ask("POST", "/v1/chat/completions", body, key=key).status
        for key in (site.make_key(Role.VIEWER), "", "ty_wrong")
    ]
    foreign = site.ask("POST", "/v1/chat/completions", body, key=site.make_key(Role.USER, "other"))

    assert refused == [403, 401, 401]
    assert (foreign.status, foreign.error["code"]) == (404, "model_not_found")


def test_a_revoked_key_is_refused_within_a_second(site: GatewaySite) -> None:
    _, place = site.engine()
    site.replica(site.service(), place)
    assert site.chat("say yes").status == 200

    site.revoke_key()

    wait_for(lambda: site.chat("say yes").status == 401, seconds=3, what="the key is refused")


def test_the_project_that_a_request_names_must_be_the_keys(site: GatewaySite) -> None:
    _, place = site.engine()
    site.replica(site.service(), place)
    body = {"model": "support", "messages": [{"role": "user", "content": "say yes"}]}

    own, other = (
        site.ask("POST", "/v1/chat/completions", body, **{"OpenAI-Project": project}).status
        for project in ("default", "other")
    )

    assert (own, other) == (200, 404)
