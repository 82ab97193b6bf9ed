"""Tensors are copied into memory that stays, and nothing that happens to them later is seen there."""

import torch

from workers.trainers.hf_trainer.checkpoints import host_copy
from workers.trainers.hf_trainer.checkpoints.host_copy import HostCopy, size_bytes


def state():
    """Like an optimizer's: nested, with numbers, one tensor under two names, one that is a view."""
    tied = torch.arange(6.0).reshape(2, 3)
    return {
        "model": {"a": tied, "b": tied, "row": tied[0].clone().expand(2, 3), "half": torch.ones(3).bfloat16()},
        "optimizer": {"state": {0: {"step": torch.tensor(4.0)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]},
    }


def test_copy_is_equal_and_stays_so():
    original, copy = state(), HostCopy()

    found = copy.take(original)
    expected = state()
    for tensor in (original["model"]["a"], original["optimizer"]["state"][0]["step"]):
        tensor.add_(1)
    original["optimizer"]["param_groups"][0]["lr"] = 0.5

    assert str(found) == str(expected)


def test_what_shared_its_memory_shares_it_in_the_copy():
    found = HostCopy().take(state())["model"]

    assert found["a"].data_ptr() == found["b"].data_ptr() != found["row"].data_ptr()


def test_memory_is_used_again():
    copy = HostCopy()
    copy.reserve(state())
    first = copy.take(state())["model"]["a"].data_ptr()

    assert copy.take(state())["model"]["a"].data_ptr() == first


def test_other_shapes_get_other_memory():
    copy = HostCopy()
    copy.take({"a": torch.zeros(2)})

    assert copy.take({"a": torch.ones(3)})["a"].tolist() == [1.0, 1.0, 1.0]


def test_every_byte_counts_once():
    assert size_bytes(state()) == 6 * 4 + 3 * 4 * 2 - 3 * 4 * 1 + 3 * 2 + 4 + 12


def test_copy_is_not_begun_without_memory_for_it(monkeypatch):
    copy = HostCopy()
    needed = size_bytes(state())

    monkeypatch.setattr(host_copy, "available_bytes", lambda: needed)
    assert not copy.fits(state())
    monkeypatch.setattr(host_copy, "available_bytes", lambda: 2 * needed)
    assert copy.fits(state())
    copy.take(state())
    monkeypatch.setattr(host_copy, "available_bytes", lambda: 0)
    assert copy.fits(state())


def test_available_memory_is_that_of_the_machine_or_of_the_jobs_share(monkeypatch, tmp_path):
    monkeypatch.setattr(host_copy, "_LIMIT", tmp_path / "limit")
    monkeypatch.setattr(host_copy, "_USED", tmp_path / "used")
    unlimited = host_copy.available_bytes()
    (tmp_path / "limit").write_text("5000\n")
    (tmp_path / "used").write_text("1000\n")

    assert unlimited > 1 << 20
    assert host_copy.available_bytes() == 4000
    (tmp_path / "limit").write_text("max\n")
    assert host_copy.available_bytes() > 1 << 20
