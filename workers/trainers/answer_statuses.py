"""What the status of a request says that a model has not answered: judges, graders and services take it alike."""

from enum import Enum

from workers.rank.run_context import RUN_ENDS


class Cause(Enum):
    """Why there is no answer."""

    RUN_ENDS = "the run was cancelled meanwhile"
    AWAY = "the model can't answer for now, and was asked for minutes: a later attempt may find it"
    NO_SUCH_MODEL = "the document names no model that the job may ask"
    FAILED = "the answer to this request failed, such as one that is not finite; others may have theirs"
    REFUSED = "this request can't be answered"


_CAUSES = {
    RUN_ENDS: Cause.RUN_ENDS,
    **dict.fromkeys((408, 409, 429, 502, 503, 504), Cause.AWAY),
    **dict.fromkeys((401, 403, 404), Cause.NO_SUCH_MODEL),
}


def cause_of(http_status: int) -> Cause:
    """The cause that the status of `NotAnswered` stands for."""
    return _CAUSES.get(http_status, Cause.FAILED if http_status >= 500 else Cause.REFUSED)
