"""What a grader gave for one sample, in OpenAI's words. Pure."""

from collections.abc import Mapping
from typing import Any

from app.domain.graders.grading import KINDS, MODEL_SERVER, PYTHON_RUNTIME, Graded, GradeError, TokenUsage

PYTHON_SERVER = "python_grader_server_error"  # no coordinator ran it
UNAVAILABLE = "unavailable"  # the type of that error
_KINDS = (*KINDS, PYTHON_SERVER)
_NEVER = ("truncated_observation_error", "unresponsive_reward_error")  # OpenAI's, which mean nothing here
_DETAILS = (PYTHON_RUNTIME, MODEL_SERVER)


def run_of(grader: Mapping[str, Any], graded: Graded, seconds: float) -> dict[str, Any]:
    """``grader`` as it was sent; ``seconds``: how long it took."""
    used = {model: _usage_of(each) for model, each in graded.usage.items()}
    kind = str(grader["type"])
    return {
        "reward": graded.reward,
        "metadata": {
            "name": str(grader.get("name") or kind),
            "type": kind,
            "errors": _errors_of(graded.errors),
            "execution_time": round(seconds, 6),
            "scores": dict(graded.sub_rewards),
            "token_usage": sum(each["total_tokens"] for each in used.values()) if used else None,
            "sampled_model_name": next(iter(used)) if len(used) == 1 else None,
        },
        "sub_rewards": dict(graded.sub_rewards),
        "model_grader_token_usage_per_model": used,
        "trainyard": {"errors": [each._asdict() for each in graded.errors]},
    }


def _errors_of(errors: tuple[GradeError, ...]) -> dict[str, Any]:
    said = {kind: [each.message for each in errors if each.kind == kind] for kind in _KINDS}
    return {
        **dict.fromkeys(_NEVER, False),
        **{kind: bool(said[kind]) for kind in _KINDS},
        "python_grader_server_error_type": UNAVAILABLE if said[PYTHON_SERVER] else None,
        **{f"{kind}_details": said[kind][0] if said[kind] else None for kind in _DETAILS},
    }


def _usage_of(usage: TokenUsage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "cached_tokens": 0,
    }
