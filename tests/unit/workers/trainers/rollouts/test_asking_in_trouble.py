"""Rollouts that are away, fail or load another model, and peers that do not know the secret."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.trainers.supervision import free_port
from tests.unit.workers.trainers.rollouts.asking import SAMPLED, SECRET, a_model, asking, prompts_of, stop
from workers.trainers.inference.engine.interface import Prompt
from workers.trainers.rollouts import client, handshake, wire
from workers.trainers.rollouts.client import RolloutClient, RolloutFailed, RolloutUnreachable
from workers.trainers.rollouts.completer import Completer, NotCompleted, SamplingOptions
from workers.trainers.rollouts.places import InstanceAddress
from workers.trainers.rollouts.request_handler import RequestHandler
from workers.trainers.rollouts.rollouts import BrokenOff
from workers.trainers.rollouts.server import RolloutServer
from workers.trainers.rollouts.weights import OtherModel, Weights
from workers.trainers.rollouts.wire import Wire, WireClosed

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


def test_base_model_that_differs_is_refused(start, spec):
    config = LoraConfig(r=2, target_modules=["q_proj"])
    rollouts = asking(start(get_peft_model(a_model(1), config)))

    with pytest.raises(RolloutFailed, match="have loaded different files; give base_model the same files") as failed:
        rollouts.complete(prompts_of(spec), SAMPLED, Weights("0.0", get_peft_model(a_model(), config)))

    assert failed.value.error_type == OtherModel.error_type
    rollouts.close()


def test_weights_of_another_size_are_refused_before_they_are_sent(start, tokenizer, spec):
    """They are more than the buffers of a connection hold."""
    rollouts = asking(place := start(own := a_model(1)))
    other = a_model()
    other.extra = torch.nn.Parameter(torch.zeros(6 << 20))
    expected, _ = rollouts.complete(prompts := prompts_of(spec), SAMPLED, Weights("0.0", own))

    with pytest.raises(RolloutFailed, match="different parameters, such as extra"):
        rollouts.complete(prompts, SAMPLED, Weights("1.0", other))

    follower = asking(place, rank=1)
    found, handed = follower.complete(prompts, SAMPLED, Weights("0.0", other))
    assert (found, handed.bytes) == (expected, 0)  # it has the weights from before
    rollouts.close()
    follower.close()


def test_rollout_that_ends_each_connection_is_given_up(start, spec, monkeypatch):
    monkeypatch.setattr(client, "MOST_LOST", 3)
    monkeypatch.setattr(RequestHandler, "answer", lambda *_: (_ for _ in ()).throw(OSError))

    with pytest.raises(RolloutUnreachable, match=r"rollout rollout 0 at .* has ended 3 connections"):
        asking(start(a_model(1)), away=60).complete(prompts_of(spec), SAMPLED, Weights("0.0", a_model()))


def test_prompt_that_can_not_be_completed_fails_the_training(start, spec):
    model = a_model()
    rollouts = asking(start(a_model()))

    with pytest.raises(
        RolloutFailed, match=r"rollout rollout 0 at 127\.0\.0\.1:\d+: a prompt can't be completed: it"
    ) as failed:
        rollouts.complete([Prompt(tokens=[], seed=1)], SAMPLED, Weights("0.0", model))

    assert failed.value.error_type == NotCompleted.error_type
    rollouts.close()


@pytest.mark.parametrize("fits", [5, 4])
def test_rollout_without_enough_memory_completes_in_halves(start, tokenizer, spec, monkeypatch, fits):
    """Its memory is not the training's: that one's batches stay as they are."""
    complete = Completer.__call__
    model, prompts = a_model(), prompts_of(spec)
    expected = [list(each) for each in Completer(model, tokenizer, spec)(prompts, SAMPLED)]

    def limited(self: Completer, prompts: Sequence[Prompt], options: SamplingOptions) -> list[tuple[int, ...]]:
        if len(prompts) > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return complete(self, prompts, options)

    monkeypatch.setattr(Completer, "__call__", limited)
    rollouts = asking(start(a_model(1)))

    if fits == 5:
        assert rollouts.complete(prompts, SAMPLED, Weights("0.0", model))[0] == expected
    else:
        with pytest.raises(RolloutFailed, match=r"rollout rollout 0 at .*CUDA out of memory") as failed:
            rollouts.complete(prompts, SAMPLED, Weights("0.0", model))
        assert failed.value.error_type == "TRAINER_ERROR"
    rollouts.close()


class Sections:
    """Stands in for those of a run, and notes them."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, float]] = []
        self.open = 0

    @contextmanager
    def __call__(self, name: str, seconds: float) -> Iterator[None]:
        self.begun.append((name, seconds))
        self.open += 1
        yield
        self.open -= 1


def test_waiting_for_a_rollout_is_announced(start, spec):
    """It is no hang of the rank that waits; an answer ends it."""
    sections, model, prompts = Sections(), a_model(), prompts_of(spec)
    place = InstanceAddress("rollout", 0, "127.0.0.1", free_port())
    starting = threading.Timer(0.5, start, [a_model(1)], {"port": place.port})
    starting.start()
    rollouts = asking(place, section=sections)

    expected, _ = rollouts.complete(prompts, SAMPLED, Weights("0.0", model))

    starting.join()
    assert [name for name, _ in sections.begun] == [f"waiting for rollout {place}"]
    assert sections.begun[0][1] > client.LOAD_SECONDS
    assert sections.open == 0
    assert rollouts.complete(prompts, SAMPLED, Weights("0.0", model))[0] == expected
    assert len(sections.begun) == 1
    rollouts.close()


def test_rollout_that_loads_its_model_is_waited_for(tokenizer, spec, tmp_path):
    sections, model = Sections(), a_model(1)
    place = InstanceAddress("rollout", 0, "127.0.0.1", free_port())
    server = RolloutServer(place, 0, 1, SECRET, tmp_path)
    server.start()
    handler = RequestHandler(model, Completer(model, tokenizer, spec))
    loading = threading.Timer(0.5, server.ready, [handler])
    loading.start()
    rollouts = asking(place, section=sections)

    assert rollouts.complete(prompts_of(spec), SAMPLED, Weights("0.0", a_model()))[0]

    loading.join()
    assert (len(sections.begun), sections.open) == (1, 0)
    rollouts.close()
    stop(server)


def test_only_the_word_that_its_model_is_loaded_makes_a_rollout_ready(tokenizer, spec, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "MOST_LOST", 1)
    server = RolloutServer(InstanceAddress("rollout", 0, "127.0.0.1", free_port()), 0, 1, SECRET, tmp_path)
    answer_all = server._answer_all

    def says_something_else(wire: Wire, *_: object) -> None:
        wire.send({"kind": "completions"})
        answer_all(wire, True)

    monkeypatch.setattr(server, "_answer_all", says_something_else)
    server.start()
    loading = threading.Timer(0.5, server.ready, [RequestHandler(a_model(1), Completer(a_model(1), tokenizer, spec))])
    loading.start()
    with pytest.raises(RolloutUnreachable, match="of the kind 'completions' before the model is loaded"):
        asking(server._place).complete(prompts_of(spec), SAMPLED, Weights("0.0", a_model()))
    loading.join()
    stop(server)


@pytest.mark.long
def test_load_of_a_model_may_take_longer_than_the_kernel_keeps_what_is_not_read(tokenizer, spec, tmp_path, monkeypatch):
    """Many long prompts are more than the buffers of a connection hold."""
    monkeypatch.setitem(wire._KEEPALIVE, socket.TCP_USER_TIMEOUT, 500)
    connections: list[int] = []
    connect = RolloutClient._connect

    def noted(self: RolloutClient, port: int) -> tuple[Wire, dict[str, Any]]:
        connections.append(port)
        return connect(self, port)

    monkeypatch.setattr(RolloutClient, "_connect", noted)
    monkeypatch.setattr(Completer, "__call__", lambda _, prompts, __: [tuple(each.tokens[:1]) for each in prompts])
    model = a_model(1)
    server = RolloutServer(place := InstanceAddress("rollout", 0, "127.0.0.1", free_port()), 0, 1, SECRET, tmp_path)
    server.start()
    handler = RequestHandler(model, Completer(model, tokenizer, spec))
    handler._version = "0.0"
    loading = threading.Timer(3, server.ready, [handler])
    loading.start()
    prompts = [Prompt(tokens=[3] * (1 << 20), seed=1) for _ in range(8)]
    asking = RolloutClient(place, 0, SECRET, is_leader=False)

    assert asking.complete(prompts, SAMPLED, Weights("0.0", model)) == [[3]] * 8

    assert connections == [place.port], "it asks once"
    loading.join()
    asking.close()
    stop(server)


def test_failure_of_one_rollout_does_not_wait_for_the_others(start, tokenizer, spec, tmp_path):
    """The other one does not answer, because it loads its model."""
    place = InstanceAddress("rollout", 1, "127.0.0.1", free_port())
    slow = RolloutServer(place, 0, 1, SECRET, tmp_path)
    slow.start()
    other = a_model()
    other.extra = torch.nn.Parameter(torch.zeros(1))
    rollouts = asking(start(own := a_model(1)), place, away=60)

    with pytest.raises(RolloutFailed, match="such as extra"):
        rollouts.complete(prompts_of(spec), SAMPLED, Weights("0.0", other))

    rollouts.close()
    slow.ready(RequestHandler(own, Completer(own, tokenizer, spec)))
    stop(slow)


def test_wait_for_a_rollout_that_hangs_is_broken_off_and_it_is_asked_again(start, spec):
    """It accepts connections, as the kernel does for a process that is stopped, and says nothing."""
    place, model, prompts = InstanceAddress("rollout", 0, "127.0.0.1", free_port()), a_model(), prompts_of(spec)
    requests = ["pause"]
    rollouts = asking(place, away=60, breaks_off=lambda: bool(requests))
    with socket.create_server((place.address, place.port)):
        begun = time.monotonic()
        with pytest.raises(BrokenOff):
            rollouts.complete(prompts, SAMPLED, Weights("0.0", model))
        assert time.monotonic() - begun < handshake.SECONDS

    requests.clear()
    start(a_model(1), port=place.port)
    assert len(rollouts.complete(prompts, SAMPLED, Weights("0.0", model))[0]) == 10
    rollouts.close()


def test_rollout_that_stays_away_is_named(spec):
    place = InstanceAddress("rollout", 3, "127.0.0.1", free_port())

    with pytest.raises(
        RolloutUnreachable, match=rf"rollout rollout 3 at 127.0.0.1:{place.port}, rank 0 .* \(.*refused\)"
    ):
        asking(place, away=0.2).complete(prompts_of(spec), SAMPLED, Weights("0.0", a_model()))


def test_who_does_not_know_the_secret_gets_nothing(start, spec):
    place = start(a_model())

    with pytest.raises(RolloutUnreachable, match="does not know the secret of this attempt"):
        asking(place, secret=b"x" * 32, away=0.2).complete(prompts_of(spec), SAMPLED, Weights("0.0", a_model()))


def as_header(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + b"\0" * 8 + text


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"", as_header(b"{}"), as_header(b"[" * 4000)]
)
def test_stranger_is_sent_away_and_others_are_answered(start, spec, sent):
    model = a_model()
    place = start(a_model(1))
    with socket.create_connection((place.address, place.port), timeout=5) as stranger:
        stranger.sendall(sent)
        with suppress(OSError):  # the connection is reset where some of what was sent is unread
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(100) == b""

    rollouts = asking(place)

    assert len(rollouts.complete(prompts_of(spec), SAMPLED, Weights("0.0", model))[0]) == 10
    rollouts.close()


def test_stranger_that_sends_slowly_is_sent_away(start, monkeypatch):
    monkeypatch.setattr(handshake, "SECONDS", 0.5)
    place = start(a_model())

    with socket.create_connection((place.address, place.port), timeout=0.2) as stranger:
        begun = time.monotonic()
        with pytest.raises(OSError):  # noqa: PT011, PT012  the connection is reset
            while time.monotonic() - begun < 10:
                stranger.sendall(b"\0")
                with suppress(TimeoutError):
                    if not stranger.recv(1):
                        raise ConnectionResetError

    assert time.monotonic() - begun < 5


def test_header_that_is_too_long_is_not_read():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        listener = socket.create_server(("127.0.0.1", 0))
        client = Wire(socket.create_connection(listener.getsockname()))
        server = Wire(listener.accept()[0])
        client.send({"text": "x" * 5000})
        with pytest.raises(WireClosed, match="at most 4096 are read"):
            server.receive(4096)
        for each in (client, server, listener):
            each.close()
