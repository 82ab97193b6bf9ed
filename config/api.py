"""Settings of the API's processes, and of what a project may hold of one."""

from dataclasses import dataclass

from config.values import rules
from config.values.fields import setting


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    host: str = setting("127.0.0.1", "address the API listens on")
    port: int = setting(8000, "port the API listens on", rules.port)
    workers: int = setting(1, "gunicorn processes", rules.at_least_one)
    threads: int = setting(192, "request threads per process", rules.at_least_one)
    max_streams: int = setting(0, "open event streams per process; 0: a quarter of threads", rules.not_negative)
    max_streams_per_project: int = setting(
        0, "open event streams of one project per process; 0: two thirds of them", rules.not_negative
    )
    max_answers: int = setting(
        0,
        "requests to models that a process hands on to a gateway at a time; 0: what threads leave beside all else that "
        "waits, and an eighth for requests that don't",
        rules.not_negative,
    )
    max_answers_per_project: int = setting(
        0, "requests to models of one project per process at a time; 0: two thirds of them", rules.not_negative
    )
    max_body_bytes: int = setting(1_048_576, "largest request body", rules.at_least_one)
    max_bodies_per_project: int = setting(
        0,
        "requests of one project per process whose body is being read, so that slow clients of one project can't "
        "starve others; 0: half of threads",
        rules.not_negative,
    )
    max_nesting: int = setting(32, "deepest nesting of a JSON body", rules.at_least_one)
    rate_per_second: float = setting(
        2000.0, "requests per second of one key, over all API processes; 0: no limit", rules.rate
    )
    rate_burst: int = setting(4000, "requests that a key may make at once after a pause", rules.at_least_one)
    wrong_keys_per_second: float = setting(
        50.0, "requests with an invalid key per second and address; 0: no limit", rules.rate
    )
    wrong_keys_burst: int = setting(1000, "requests with an invalid key at once after a pause", rules.at_least_one)
    proxies: int = setting(
        0, "number of proxies in front of the API, and so of trusted X-Forwarded-For entries", rules.not_negative
    )


@dataclass(frozen=True, kw_only=True)
class ThreadShares:
    """How many request threads of an API process may wait at a time, by what they wait for.

    ``others`` are left for requests that don't wait; all of them together are at most the threads of the process.
    """

    streams: int
    viewers: int  # tabs of the dashboard
    previews: int  # of data, by coordinators
    openings: int  # of sandboxes, by nodes
    answers: int  # of models, by gateways
    others: int

    @property
    def total(self) -> int:
        return self.streams + self.viewers + self.previews + self.openings + self.answers + self.others

    def contradictions(self, threads: int) -> list[str]:
        if self.total <= threads:
            return []
        waiting = (
            f"{self.streams} for event streams (TRAINYARD_API_MAX_STREAMS), {self.answers} for models "
            f"(TRAINYARD_API_MAX_ANSWERS), {self.viewers} for tabs of the dashboard (TRAINYARD_WEB_MAX_STREAMS), "
            f"{self.previews} for previews of data, {self.openings} for sandboxes"
        )
        problem = (
            f"TRAINYARD_API_THREADS is {threads}, and of these may wait at a time: {waiting}; {self.others} must be "
            f"left for other requests, which is {self.total} in all. Lower one of them (0: a share of the threads), or "
            "raise the threads"
        )
        return [problem]


def thread_shares(api: ApiSettings, *, viewers: int | None) -> ThreadShares:
    """``viewers``: setting of the dashboard, 0 for its default; None without a dashboard.

    The defaults fit from four threads on; numbers that an operator has set may be too large together.
    """
    threads = api.threads
    streams = api.max_streams or max(1, threads // 4)
    tabs = 0 if viewers is None else viewers or threads // 8
    few = max(1, threads // 16)
    rest = threads - streams - tabs - 2 * few - threads // 8
    return ThreadShares(
        streams=streams,
        viewers=tabs,
        previews=few,
        openings=few,
        answers=api.max_answers or max(1, rest),
        others=threads // 8,
    )
