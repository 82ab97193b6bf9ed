"""Requests of ranks to models: which are passed on, how many at a time, and how a gateway is asked."""

import http.server
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.systems.system import wait_for
from trainyard.protocol.channel import MAX_LINE_BYTES, encode
from trainyard.protocol.commands import ModelAnswered, to_message
from trainyard.protocol.messages import AskModel
from workers.supervisor.model_requests import forwarding, gateway_client
from workers.supervisor.model_requests.forwarding import MOST_AT_ONCE, ModelRequests
from workers.supervisor.model_requests.gateway_client import GatewayClient

PATH = "/v1/chat/completions"


class HeldGateway:
    """Answers once the test lets it."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.may_answer, self.closed = threading.Event(), threading.Event()
        self.problem: Exception | None = None

    def post(self, path: str, body: str) -> tuple[int, str]:
        self.bodies.append(body)
        self.may_answer.wait(20)
        if self.problem is not None:
            raise self.problem
        return 200, '{"choices": []}'

    def close(self) -> None:
        self.closed.set()
        self.may_answer.set()


@pytest.fixture
def gateway() -> HeldGateway:
    return HeldGateway()


@pytest.fixture
def requests(gateway: HeldGateway) -> Iterator[ModelRequests]:
    made = ModelRequests({"judge"}, lambda: gateway)
    yield made
    made.close()
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "model-requests"], seconds=10, what="the end")


class Answers:
    """What a rank gets; it reads at once unless the test says otherwise."""

    def __init__(self, *, reads: bool = True) -> None:
        self.reads = reads
        self.got: dict[int, ModelAnswered] = {}
        self.unread: list[Callable[[], None]] = []

    def __call__(self, answer: ModelAnswered, sent: Callable[[], None] | None) -> None:
        self.got[answer.number] = answer
        if sent is None:
            return
        if self.reads:
            sent()
        else:
            self.unread.append(sent)

    def of(self, number: int) -> ModelAnswered:
        wait_for(lambda: number in self.got, seconds=10, what=f"answer {number}")
        return self.got[number]


def asked(number: int = 0, path: str = PATH, **body: Any) -> AskModel:
    return AskModel(number=number, path=path, body=json.dumps({"model": "judge", "messages": [], **body}))


def test_an_answer_goes_to_who_asked(requests: ModelRequests, gateway: HeldGateway) -> None:
    answers = Answers()
    gateway.may_answer.set()

    requests.ask(asked(7, n=2), answers)

    assert answers.of(7) == ModelAnswered(number=7, status=200, body='{"choices": []}')
    assert [json.loads(body) for body in gateway.bodies] == [{"model": "judge", "messages": [], "n": 2}]


@pytest.mark.parametrize(
    ("request_", "status", "said"),
    [
        (asked(model="other"), 403, "its document names judge"),
        (asked(model=None), 403, "may not ask None"),
        (asked(model=["judge"]), 403, "may not ask"),
        (asked(path="/v1/models"), 404, "no path /v1/models"),
        (asked(path="/v1/../v1/chat/completions"), 404, "no path"),
        (asked(stream=True), 400, "leave stream out"),
        (AskModel(number=0, path=PATH, body="{"), 400, "not JSON"),
        (AskModel(number=0, path=PATH, body="[" * 100_000), 400, "not JSON"),
        (AskModel(number=0, path=PATH, body='["judge"]'), 400, "a JSON object"),
    ],
)
def test_what_is_not_allowed_never_leaves(
    requests: ModelRequests, gateway: HeldGateway, request_: AskModel, status: int, said: str
) -> None:
    answers = Answers()

    requests.ask(request_, answers)

    assert answers.of(0).status == status
    assert said in json.loads(answers.of(0).body)["error"]["message"]
    assert gateway.bodies == []


def test_the_gateway_reads_what_was_checked(requests: ModelRequests, gateway: HeldGateway) -> None:
    answers = Answers()
    gateway.may_answer.set()

    requests.ask(AskModel(number=1, path=PATH, body='{"model": "other", "model": "judge"}'), answers)

    assert answers.of(1).status == 200
    assert gateway.bodies == ['{"model": "judge"}']


def test_job_that_names_none_may_ask_none() -> None:
    answers, made = Answers(), ModelRequests((), HeldGateway)

    made.ask(asked(), answers)

    assert "its document names none" in answers.of(0).body
    made.close()


@pytest.mark.long
def test_only_so_many_are_sent_at_a_time_and_a_flood_is_refused(
    requests: ModelRequests, gateway: HeldGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "MOST_WAITING", 10)
    answers = Answers()
    for number in range(MOST_AT_ONCE):
        requests.ask(asked(number), answers)
        wait_for(lambda n=number: len(gateway.bodies) == n + 1, seconds=10, what="it is sent")  # type: ignore[misc]

    for number in range(MOST_AT_ONCE, MOST_AT_ONCE + 11):
        requests.ask(asked(number), answers)

    assert {each.status for each in answers.got.values()} == {429}
    assert list(answers.got) == [MOST_AT_ONCE + 10]
    assert len(gateway.bodies) == MOST_AT_ONCE
    gateway.may_answer.set()
    for number in range(MOST_AT_ONCE + 10):
        assert answers.of(number).status == 200


def test_a_rank_that_does_not_read_holds_only_its_places(requests: ModelRequests, gateway: HeldGateway) -> None:
    answers = Answers(reads=False)
    gateway.may_answer.set()

    for number in range(MOST_AT_ONCE + 5):
        requests.ask(asked(number), answers)

    wait_for(lambda: len(answers.unread) == MOST_AT_ONCE, seconds=10, what="all places are held")
    assert len(gateway.bodies) == MOST_AT_ONCE
    answers.reads = True
    for sent in answers.unread:
        sent()
    assert answers.of(MOST_AT_ONCE + 4).status == 200


def test_an_error_of_ours_is_an_answer(requests: ModelRequests, gateway: HeldGateway) -> None:
    answers = Answers()
    gateway.problem = RuntimeError("a bug")
    gateway.may_answer.set()

    requests.ask(asked(), answers)

    assert answers.of(0).status == 502


def test_the_end_closes_what_is_open(gateway: HeldGateway) -> None:
    made, answers = ModelRequests({"judge"}, lambda: gateway), Answers()
    made.ask(asked(), answers)
    wait_for(lambda: len(gateway.bodies) == 1, seconds=10, what="it is sent")

    made.close()

    assert gateway.closed.is_set()
    made.ask(asked(1), answers)
    assert 1 not in answers.got


def test_a_request_that_was_taken_before_the_end_opens_no_gateway_after_it() -> None:
    """The end comes between taking a request and connecting for it."""
    opened = list[HeldGateway]()

    class Closing(set[str]):
        def __contains__(self, model: object) -> bool:
            made.close()
            return super().__contains__(model)

    def connect() -> HeldGateway:
        opened.append(HeldGateway())
        opened[-1].may_answer.set()
        return opened[-1]

    made, answers = ModelRequests(Closing({"judge"}), connect), Answers()

    made.ask(asked(), answers)

    assert answers.of(0).status == 503
    assert opened == []


# ---- the gateway's client


@contextmanager
def serving(*replies: tuple[int, bytes, dict[str, str]]) -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """(URL, what was asked) of a server with these answers, of which the last one is repeated."""
    left, heard = list(replies), []

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append((self.path, self.headers["Authorization"], body))
            status, content, headers = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/openai", heard
        server.shutdown()
        thread.join()


def client_of(url: str) -> GatewayClient:
    return GatewayClient(url, "token", silence_seconds=10)


def test_the_token_goes_to_the_path_below_the_gateways() -> None:
    with serving((200, b'{"ok": true}', {})) as (url, heard):
        assert client_of(url).post(PATH, '{"a": 1}') == (200, '{"ok": true}')

    assert heard == [("/openai/v1/chat/completions", "Bearer token", b'{"a": 1}')]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_gateway_that_can_not_answer_for_now_is_asked_again(status: int) -> None:
    with serving((status, b"{}", {}), (200, b'{"ok": true}', {})) as (url, heard):
        assert client_of(url).post(PATH, "{}") == (200, '{"ok": true}')

    assert len(heard) == 2


@pytest.mark.parametrize("status", [400, 401, 404, 409, 500])
def test_other_refusals_are_the_answer(status: int) -> None:
    with serving((status, b'{"error": {}}', {})) as (url, heard):
        assert client_of(url).post(PATH, "{}") == (status, '{"error": {}}')

    assert len(heard) == 1


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_client, "GIVE_UP_SECONDS", 0.0)

    status, body = client_of("http://127.0.0.1:9").post(PATH, "{}")

    assert (status, "has not answered" in body) == (503, True)


def test_an_answer_that_is_too_large_is_refused() -> None:
    with serving((200, b"x" * (gateway_client.MOST_BYTES + 1), {})) as (url, _):
        status, body = client_of(url).post(PATH, "{}")

    assert (status, "ask for less" in body) == (413, True)


@pytest.mark.parametrize("text", ["é", "\0", "\x80", "語"])
def test_an_answer_that_is_too_large_on_the_channel_is_refused_and_a_smaller_one_passes(text: str) -> None:
    content = text.encode("latin-1") if text == "\x80" else text.encode()
    large = content * (MAX_LINE_BYTES // 6 + 1)
    with serving((200, large, {}), (200, large[: 100 * len(content)], {})) as (url, _):
        (status, body), (_, small) = (client_of(url).post(PATH, "{}") for _ in range(2))

    assert (status, "ask for less" in body) == (413, True)
    assert small == content.decode(errors="replace") * 100


def test_the_largest_answer_fits_a_line_of_the_channel() -> None:
    content = b"x" * (gateway_client.MOST_BYTES - 2)
    with serving((200, content, {})) as (url, _):
        status, body = client_of(url).post(PATH, "{}")

    answer = ModelAnswered(number=1 << 53, status=status, body=body)
    assert (status, len(encode(to_message(answer))) <= MAX_LINE_BYTES) == (200, True)


def test_closing_ends_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_client, "FIRST_WAIT_SECONDS", 60.0)
    client, found = client_of("http://127.0.0.1:9"), list[tuple[int, str]]()
    thread = threading.Thread(target=lambda: found.append(client.post(PATH, "{}")))
    thread.start()

    client.close()
    thread.join(10)

    assert found[0][0] == 503
