"""Sealed documents and fingerprints of texts that hold secrets."""

import hashlib

import pytest
from cryptography.fernet import Fernet

from app.security.secrets import SecretBox, SecretKeyMissing

KEY, OTHER = Fernet.generate_key().decode(), Fernet.generate_key().decode()


def test_what_was_sealed_is_opened_by_the_same_key_alone() -> None:
    sealed = SecretBox(KEY).seal({"hub_token": "hunter2"})

    assert "hunter2" not in sealed
    assert SecretBox(KEY).open(sealed) == {"hub_token": "hunter2"}
    with pytest.raises(SecretKeyMissing, match="another key"):
        SecretBox(OTHER).open(sealed)


def test_fingerprint_is_the_same_for_the_same_text_and_no_hash_that_others_can_make() -> None:
    made = SecretBox(KEY).fingerprint("hunter2")

    assert made == SecretBox(KEY).fingerprint("hunter2")
    assert len({made, SecretBox(KEY).fingerprint("hunter3"), SecretBox(OTHER).fingerprint("hunter2")}) == 3
    assert (len(made), made == hashlib.sha256(b"hunter2").hexdigest()) == (64, False)
