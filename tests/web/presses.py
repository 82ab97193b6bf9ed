"""Which actions of the dashboard browsers have carried out in this run of the tests."""

from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, Response


class Presses:
    """Paths of forms that browsers sent and that were not refused."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.is_second_go = False  # whether only those run that failed before
        self.is_whole_run = False  # whether all tests of the dashboard run, so that nothing may be missing

    def watch(self, context: BrowserContext) -> None:
        context.on("response", self._note)

    def _note(self, answer: Response) -> None:
        if answer.request.method == "POST" and answer.status < 400:
            self.paths.add(urlsplit(answer.url).path)
