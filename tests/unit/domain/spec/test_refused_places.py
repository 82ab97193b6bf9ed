"""What is said of places that jobs may not read."""

from dataclasses import replace

import pytest

from app.domain.errors import BadSpec
from app.domain.spec.locations.paths import ReadingRules, check_source

RULES = ReadingRules(roots=("/data/files", "/srv/a", "/home/me"), data_dir="/home/me/.trainyard")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("/home/me/.trainyard/secret.key", "a directory of the installation itself"),
        ("/home/me", "a directory of the installation itself"),
        ("/srv/a/link", "through a symbolic link"),
        ("/etc/passwd", "lies outside every directory that jobs may read"),
    ],
)
def test_refusal_says_where_the_place_lies(location: str, message: str) -> None:
    rules = replace(RULES, real_path=lambda path: "/etc" if path == "/srv/a/link" else path)

    with pytest.raises(BadSpec, match=message):
        check_source(location, rules, field="f")
