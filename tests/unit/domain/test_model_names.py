"""Names of fine-tuned models and of their checkpoints."""

import pytest

from app.domain.model_names import SUFFIX, FineTuneName, checkpoint_name, ft_name, parsed

JOB = "job-0193aaaa-0000-7000-8000-00003f9c2a1b"


@pytest.mark.parametrize(
    ("base", "suffix", "name"),
    [
        ("tiny", "docs", "ft:tiny:default:docs:3f9c2a1b"),
        ("tiny", None, "ft:tiny:default::3f9c2a1b"),
        ("/srv/models/tiny/", "docs", "ft:tiny:default:docs:3f9c2a1b"),
        ("s3://bucket/base model:7b", "docs", "ft:base-model-7b:default:docs:3f9c2a1b"),
        ("acme/base-7b", "docs", "ft:base-7b:default:docs:3f9c2a1b"),
        ("ft:tiny:default:first:00000001", "second", "ft:tiny:default:second:3f9c2a1b"),
        ("ft:tiny:default:first:00000001:ckpt-step-3", None, "ft:tiny:default::3f9c2a1b"),
        ("/", "docs", "ft:model:default:docs:3f9c2a1b"),
    ],
)
def test_name_and_checkpoint_name_are_read_as_they_are_written(base: str, suffix: str | None, name: str) -> None:
    assert ft_name(base, "default", suffix, JOB) == name
    assert parsed(name) == FineTuneName(name=name, step=None)
    assert parsed(checkpoint_name(name, 300)) == FineTuneName(name=name, step=300)


def test_longest_name_fits_its_column() -> None:
    longest = ft_name("b" * 300, "p" * 63, "s" * 64, JOB)

    assert len(checkpoint_name(longest, 10**18 - 1)) <= 255
    assert parsed(longest) is not None


@pytest.mark.parametrize(
    "name", ["tiny", "ft:tiny", "ft:tiny:default:docs:3f9c2a1", "ft:tiny:default:docs:3f9c2a1b:ckpt-step-"]
)
def test_other_names_are_none_of_a_fine_tune(name: str) -> None:
    assert parsed(name) is None


@pytest.mark.parametrize("suffix", ["", "two words", "a:b", "s" * 65, "caf\u00e9"])
def test_suffix_out_of_bounds_is_refused(suffix: str) -> None:
    assert SUFFIX.fullmatch(suffix) is None
