"""`python -m app.search`: lines of JSON in and out, whatever libraries print and whatever is asked."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from app.domain.sweeps.spec import Method
from app.services.sweeps.search.importance import question
from tests.builders.search_questions import NUMBERS, PLAIN, mixed_history, program_without, space_of

ROOT = Path(__file__).parents[3]


def line(number, name="tpe", parameters=NUMBERS, require=(), observations=(), **options):
    question = {
        "id": number,
        "space": space_of(parameters, *require).to_json(),
        "method": asdict(Method(name=name, **options)),
        "place": number,
        "seed": number,
        "directions": 1,
        "startup_trials": 10,
        "observations": [each.to_json() for each in observations],
    }
    return json.dumps(question)


def answers_of(*lines, program=("-m", "app.search")):
    """The answers of one process, in order, and what it printed beside them."""
    ran = subprocess.run(
        [sys.executable, *program],
        input="".join(f"{each}\n" for each in lines),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=60,
    )
    return [json.loads(each) for each in ran.stdout.splitlines()], ran.stderr


@pytest.mark.long
def test_each_line_is_answered_in_order_and_nothing_else_is_printed():
    history = mixed_history(space_of(PLAIN), 30)

    found, printed = answers_of(line(1), line(2, "tpe", PLAIN, observations=history), line(3, "cmaes"))

    assert [each["id"] for each in found] == [1, 2, 3]
    assert [set(each) for each in found] == [{"id", "values", "note"}] * 3
    assert printed == ""


def test_a_bad_question_costs_no_other_one_its_answer():
    (first, second, third), printed = answers_of(line(1, "guess"), line(2, require=["x > 9"]), line(3))

    assert first == {
        "id": 1,
        "error": "ValueError: there is no method guess; known: tpe, gp, cmaes, nsga2, sobol, bohb",
    }
    assert second["field"] == "require"
    assert "'x > 9' was never met" in second["error"]
    assert third["values"].keys() == NUMBERS.keys()
    assert "Traceback" in printed


@pytest.mark.parametrize(
    ("library", "methods"),
    [("optuna", ("tpe", "gp", "nsga2")), ("torch", ("gp",)), ("cmaes", ("cmaes",)), ("scipy", ("sobol",))],
)
def test_a_library_that_is_not_installed_is_named(library, methods):
    asked = [line(number, name) for number, name in enumerate(methods)]

    found, _ = answers_of(*asked, program=("-c", program_without(library)))

    assert [each["missing"] for each in found] == [library] * len(methods)


def test_what_a_library_prints_is_no_answer():
    program = "import app.search.methods as m, app.search.__main__ as p\nreal = m.answer\n"
    program += "def loud(question):\n    print('words')\n    return real(question)\np.answer = loud\np.main()"

    found, printed = answers_of(line(1), program=("-c", program))

    assert [each["id"] for each in found] == [1]
    assert printed == "words\n"


def test_tpe_imports_neither_scipy_nor_torch():
    """Each takes more memory than the rest of the process."""
    program = "import sys, app.search.tpe; print(*sorted({'scipy', 'torch', 'sqlalchemy'} & set(sys.modules)))"

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    assert ran.stdout.split() == []


@pytest.mark.long
def test_a_question_for_importances_is_answered_beside_others():
    space = space_of(NUMBERS)
    history = [each for each in mixed_history(space, 60) if each.state == "completed"]
    asked = json.dumps({"id": 2, **question(space, history, objectives=1)})

    (first, second, third), printed = answers_of(line(1), asked, line(3))

    assert (first["id"], third["id"], printed) == (1, 3, "")
    assert second.keys() == {"id", "importance"}
    assert second["importance"].keys() == NUMBERS.keys()
