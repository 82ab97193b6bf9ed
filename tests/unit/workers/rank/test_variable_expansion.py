"""References to variables in a script's words."""

import pytest

from workers.rank.variable_expansion import expanded, expanded_in_turn


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("--data=$(DATA)/a", "--data=/srv/data/a"),
        ("$(DATA)$(DATA)", "/srv/data/srv/data"),
        ("$(UNKNOWN) $(ls -l) $(date)", "$(UNKNOWN) $(ls -l) $(date)"),
        ("$$(DATA)", "$(DATA)"),
        ("kill $$ ${DATA} $DATA $()", "kill $$ ${DATA} $DATA $()"),
    ],
)
def test_known_variables_are_expanded_and_the_rest_is_left_to_a_shell(text, becomes):
    assert expanded(text, {"DATA": "/srv/data"}) == becomes


def test_expanded_values_are_not_expanded_again():
    assert expanded("$(A)", {"A": "$(B)", "B": "no"}) == "$(B)"


def test_variables_may_refer_to_those_before_them_and_not_to_those_after():
    values = {"ROOT": "$(BASE)/x", "SUB": "$(ROOT)/y", "EARLY": "$(LATE)", "LATE": "z"}

    assert expanded_in_turn(values, {"BASE": "/b"}) == {
        "ROOT": "/b/x",
        "SUB": "/b/x/y",
        "EARLY": "$(LATE)",
        "LATE": "z",
    }
