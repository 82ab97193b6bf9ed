"""Secrets that the operator lays down as files."""

from pathlib import Path

import pytest

from app.domain.errors import BadSpec
from app.services.access.secret_files import files_of


def test_secret_whose_directory_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nlp/keys").mkdir(parents=True)

    def refuse(directory: Path) -> None:
        raise PermissionError(13, "Permission denied", str(directory))

    monkeypatch.setattr(Path, "iterdir", refuse)  # root reads everything
    with pytest.raises(BadSpec, match=r"keys of the project nlp can't be read \(Permission denied\)"):
        files_of(tmp_path, "nlp", "keys", field="volumes")
