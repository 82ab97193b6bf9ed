"""Settings of the API's processes, and of what a project may hold of one."""

from dataclasses import dataclass

from config import value_rules as rules
from config.fields import setting


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    host: str = setting("127.0.0.1", "address the API listens on")
    port: int = setting(8000, "port the API listens on", rules.port)
    workers: int = setting(1, "gunicorn processes", rules.at_least_one)
    threads: int = setting(128, "request threads per process", rules.at_least_one)
    max_streams: int = setting(
        48, "open event streams per process; below threads, so that streams can't starve it", rules.at_least_one
    )
    max_streams_per_project: int = setting(
        0, "open event streams of one project per process; 0: two thirds of them", rules.not_negative
    )
    max_answers: int = setting(
        0,
        "requests to models that a process hands on to a gateway at a time; with streams below threads; 0: what "
        "threads leave beside streams, without an eighth for other requests",
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

    @property
    def most_answers(self) -> int:
        """Requests to models at a time, each of which holds a thread."""
        return self.max_answers or max(1, self.threads - self.max_streams - self.threads // 8)

    @property
    def most_answers_per_project(self) -> int:
        return self.max_answers_per_project or max(1, self.most_answers * 2 // 3)
