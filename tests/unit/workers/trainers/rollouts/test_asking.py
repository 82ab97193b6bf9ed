"""Completions by rollouts are those of the model itself: however many there are, and when they are started again."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from tests.trainers.supervision import free_port
from tests.unit.workers.trainers.inference.stand_in_engine import WORDS, word_tokenizer
from workers.rank.run_context import RunSpec
from workers.trainers.hf_trainer.methods.completions import seeded
from workers.trainers.inference.engine.interface import Prompt
from workers.trainers.rollouts import client, handshake, weights
from workers.trainers.rollouts.answering import Answering
from workers.trainers.rollouts.client import RolloutAway, RolloutClient, RolloutFailed
from workers.trainers.rollouts.completing import Choosing, Completing, NotCompleted
from workers.trainers.rollouts.places import Place, own_place, places_to_ask, port_file
from workers.trainers.rollouts.rollouts import Rollouts, split
from workers.trainers.rollouts.server import RolloutServer
from workers.trainers.rollouts.weights import OtherModel, Weights, trained
from workers.trainers.rollouts.wire import Wire, WireClosed

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

SECRET = b"s" * 32
ENDS = (1,)
SAMPLED = Choosing(max_new_tokens=6, temperature=1.0, top_p=0.95, top_k=0, ends=ENDS)
GREEDY = Choosing(max_new_tokens=6, temperature=1.0, top_p=1.0, top_k=1, ends=ENDS)
Start = Callable[..., Place]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return word_tokenizer()


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    given = {"run_dir": str(tmp_path), "framework": "HF_TRAINER", "training_type": "RLHF", "data_config": {"seed": 5}}
    return RunSpec.from_document({**given, "device_type": "cpu", "training_config": {}})


def a_model(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """One that was made with another seed has other weights, and dropout."""
    torch.manual_seed(seed)
    sizes: Any = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids: Any = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    config = LlamaConfig(vocab_size=len(WORDS), max_position_embeddings=32, attention_dropout=0.5, **sizes, **ids)
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        parameter.data *= 4  # else the likeliest token is always the same
    return model


def prompts_of(spec: RunSpec, count: int = 10) -> list[Prompt]:
    rows = [[3 + number % 5] * (1 + number % 4) for number in range(count)]
    return seeded(spec, rows, "train", 0, 0)


@pytest.fixture
def start(tokenizer: PreTrainedTokenizerBase, spec: RunSpec, tmp_path: Path) -> Iterator[Start]:
    """Starts the ranks of an instance, each with a model of its own."""
    servers: list[RolloutServer] = []

    def begin(*models: Any, index: int = 0, port: int = 0) -> Place:
        place = Place("rollout", index, "127.0.0.1", port or free_port())
        for rank, model in enumerate(models):
            server = RolloutServer(place, rank, len(models), SECRET, tmp_path)
            server.start()
            server.ready(Answering(model, Completing(model, tokenizer, spec), patience_seconds=0.1))
            servers.append(server)
        return place

    yield begin
    stop(*servers)


def stop(*servers: RolloutServer) -> None:
    """As when their processes end."""
    for server in servers:
        server.close()


def asking(*places: Place, secret: bytes = SECRET, rank: int = 0, away: float = 5.0, **more: Any) -> Rollouts:
    return Rollouts(places, secret, rank=rank, away_seconds=away, **more)


def test_greedy_completions_are_those_of_generate(tokenizer, spec):
    model: Any = a_model()
    model.train()
    settings = model.generation_config
    prompts = prompts_of(spec)

    found = Completing(model, tokenizer, spec)(prompts, GREEDY)

    assert model.training
    assert model.model.layers[0].training
    assert model.generation_config is settings
    model.eval()
    for prompt, tokens in zip(prompts, found, strict=True):
        ids = torch.tensor([list(prompt.tokens)])
        config = GenerationConfig(do_sample=False, max_new_tokens=6, eos_token_id=1, pad_token_id=2)
        assert list(tokens) == model.generate(ids, generation_config=config)[0, ids.shape[1] :].tolist()
    assert any(tokens[-1] in ENDS for tokens in found) or {len(tokens) for tokens in found} == {6}


def test_end_token_is_part_of_a_completion(tokenizer, spec):
    model = a_model()
    ends = tuple(range(3, 12))

    found = Completing(model, tokenizer, spec)(prompts_of(spec), Choosing(**{**vars(SAMPLED), "ends": ends}))

    assert any(tokens[-1] in ends for tokens in found)
    assert all(token not in ends for tokens in found for token in tokens[:-1])


def test_completion_has_a_seed_of_its_own(spec):
    rows = [[3]] * 4
    first, second = seeded(spec, rows[:2], "train", 7, 0), seeded(spec, rows[2:], "train", 7, 2)

    assert seeded(spec, rows, "train", 7, 0) == [*first, *second]
    assert len({each.seed for each in seeded(spec, rows, "train", 7, 0)}) == 4
    assert seeded(spec, rows, "eval", 7, 0) != seeded(spec, rows, "train", 7, 0) != seeded(spec, rows, "train", 8, 0)


@pytest.mark.parametrize("instances", [[1], [1, 1], [2, 1]])
def test_rollouts_answer_with_the_weights_of_the_training(start, tokenizer, spec, instances):
    """Instances of so many ranks."""
    model = a_model()
    prompts = prompts_of(spec)
    expected = [list(each) for each in Completing(model, tokenizer, spec)(prompts, SAMPLED)]
    places = [start(*map(a_model, range(1, ranks + 1)), index=index) for index, ranks in enumerate(instances)]
    rollouts = asking(*places)

    found, handed = rollouts.complete(prompts, SAMPLED, Weights("0.0", model))

    assert found == expected
    assert handed.bytes == sum(instances) * sum(each.numel() * 4 for each in model.parameters())
    again, handed = rollouts.complete(prompts, SAMPLED, Weights("0.0", model))
    assert again == expected
    assert handed.bytes == 0
    rollouts.close()


def test_each_version_replaces_the_one_before(start, tokenizer, spec):
    model, prompts = a_model(), prompts_of(spec)
    rollouts = asking(start(a_model(1)))
    rollouts.complete(prompts, SAMPLED, Weights("0.0", model))
    for parameter in model.parameters():
        parameter.data *= -1

    found, _ = rollouts.complete(prompts, SAMPLED, Weights("1.0", model))

    assert found == [list(each) for each in Completing(model, tokenizer, spec)(prompts, SAMPLED)]
    rollouts.close()


def test_adapter_is_all_that_is_sent(start, tokenizer, spec):
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    model, other = get_peft_model(a_model(), config), get_peft_model(a_model(), config)
    prompts = prompts_of(spec)
    rollouts = asking(start(other))

    found, handed = rollouts.complete(prompts, SAMPLED, Weights("0.0", model))

    assert found == [list(each) for each in Completing(model, tokenizer, spec)(prompts, SAMPLED)]
    assert handed.bytes == sum(each.numel() * 4 for each in trained(model).values())
    rollouts.close()


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
    monkeypatch.setattr(Answering, "answer", lambda *_: (_ for _ in ()).throw(OSError))

    with pytest.raises(RolloutAway, match=r"rollout rollout 0 at .* has ended 3 connections"):
        asking(start(a_model(1)), away=60).complete(prompts_of(spec), SAMPLED, Weights("0.0", a_model()))


def test_base_model_is_read_once_for_all_steps(start, spec, monkeypatch):
    config = LoraConfig(r=2, target_modules=["q_proj"])
    model, digests = get_peft_model(a_model(), config), {}
    rollouts = asking(start(get_peft_model(a_model(), config)))
    rollouts.complete(prompts_of(spec), SAMPLED, Weights("0.0", model, digests))
    monkeypatch.setattr(weights, "frozen_digest", lambda *_: pytest.fail("it was read again"))

    assert rollouts.complete(prompts_of(spec), SAMPLED, Weights("1.0", model, digests))[1].bytes
    rollouts.close()


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
    complete = Completing.__call__
    model, prompts = a_model(), prompts_of(spec)
    expected = [list(each) for each in Completing(model, tokenizer, spec)(prompts, SAMPLED)]

    def limited(self: Completing, prompts: Sequence[Prompt], choosing: Choosing) -> list[tuple[int, ...]]:
        if len(prompts) > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return complete(self, prompts, choosing)

    monkeypatch.setattr(Completing, "__call__", limited)
    rollouts = asking(start(a_model(1)))

    if fits == 5:
        assert rollouts.complete(prompts, SAMPLED, Weights("0.0", model))[0] == expected
    else:
        with pytest.raises(RolloutFailed, match=r"rollout rollout 0 at .*CUDA out of memory") as failed:
            rollouts.complete(prompts, SAMPLED, Weights("0.0", model))
        assert failed.value.error_type == "TRAINER_ERROR"
    rollouts.close()


def test_rank_that_does_not_lead_hands_over_what_a_new_rollout_lacks(start, spec):
    """The rank that leads has its completions already, and asks no more in this step."""
    model, prompts = a_model(), prompts_of(spec)
    expected, _ = (leader := asking(start(a_model(1)))).complete(prompts, SAMPLED, Weights("3.0", model))
    follower = asking(start(a_model(2)), rank=1)

    found, handed = follower.complete(prompts, SAMPLED, Weights("3.0", model))

    assert found == expected
    assert handed.bytes
    leader.close()
    follower.close()


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
    place = Place("rollout", 0, "127.0.0.1", free_port())
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
    place = Place("rollout", 0, "127.0.0.1", free_port())
    server = RolloutServer(place, 0, 1, SECRET, tmp_path)
    server.start()
    answering = Answering(model, Completing(model, tokenizer, spec))
    loading = threading.Timer(0.5, server.ready, [answering])
    loading.start()
    rollouts = asking(place, section=sections)

    assert rollouts.complete(prompts_of(spec), SAMPLED, Weights("0.0", a_model()))[0]

    loading.join()
    assert (len(sections.begun), sections.open) == (1, 0)
    rollouts.close()
    stop(server)


def test_failure_of_one_rollout_does_not_wait_for_the_others(start, tokenizer, spec, tmp_path):
    """The other one does not answer, because it loads its model."""
    place = Place("rollout", 1, "127.0.0.1", free_port())
    slow = RolloutServer(place, 0, 1, SECRET, tmp_path)
    slow.start()
    other = a_model()
    other.extra = torch.nn.Parameter(torch.zeros(1))
    rollouts = asking(start(own := a_model(1)), place, away=60)

    with pytest.raises(RolloutFailed, match="such as extra"):
        rollouts.complete(prompts_of(spec), SAMPLED, Weights("0.0", other))

    rollouts.close()
    slow.ready(Answering(own, Completing(own, tokenizer, spec)))
    stop(slow)


def test_ranks_with_few_prompts_ask_different_rollouts(start, spec, monkeypatch):
    model, places = a_model(), [start(a_model(1), index=index) for index in range(2)]
    asked: list[int] = []
    complete = RolloutClient.complete

    def noted(self: RolloutClient, prompts: Sequence[Prompt], *given: Any) -> list[list[int]]:
        asked.extend(self.place.index for _ in prompts)
        return complete(self, prompts, *given)

    monkeypatch.setattr(RolloutClient, "complete", noted)

    for rank in range(2):
        rollouts = asking(*places, rank=rank)
        rollouts.complete(prompts_of(spec, 1), SAMPLED, Weights("0.0", model))
        rollouts.close()

    assert asked == [0, 1]


def test_rollout_that_stays_away_is_named(spec):
    place = Place("rollout", 3, "127.0.0.1", free_port())

    with pytest.raises(RolloutAway, match=rf"rollout rollout 3 at 127.0.0.1:{place.port}, rank 0 .* \(.*refused\)"):
        asking(place, away=0.2).complete(prompts_of(spec), SAMPLED, Weights("0.0", a_model()))


def test_who_does_not_know_the_secret_gets_nothing(start, spec):
    place = start(a_model())

    with pytest.raises(RolloutAway, match="does not know the secret of this attempt"):
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


@pytest.mark.parametrize(("count", "parts", "sizes"), [(7, 3, [3, 2, 2]), (2, 3, [1, 1, 0]), (6, 2, [3, 3])])
def test_prompts_are_split_in_order(spec, count, parts, sizes):
    prompts = prompts_of(spec, count)
    found: Sequence[Sequence[Prompt]] = split(prompts, parts)

    assert [len(each) for each in found] == sizes
    assert [prompt for part in found for prompt in part] == prompts


def test_places_come_from_the_environment(tmp_path):
    tasks = '{"gen": [{"index": 1, "address": "10.0.0.2", "port": 8}, {"index": 0, "address": "10.0.0.1", "port": 7}]}'
    rollout = {"TRAINYARD_TASKS": tasks, "TRAINYARD_ROLE": "gen", "TRAINYARD_TASK_INDEX": "1"}

    assert places_to_ask({}) == []
    assert [str(each) for each in places_to_ask({"TRAINYARD_TASKS": tasks, "TRAINYARD_ROLLOUT_ROLE": "gen"})] == [
        "gen 0 at 10.0.0.1:7",
        "gen 1 at 10.0.0.2:8",
    ]
    assert own_place(rollout).port == 8
    assert port_file(tmp_path, own_place(rollout), 2) == tmp_path / "rollouts" / "gen-1-2.port"
