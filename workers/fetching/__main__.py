"""The child process that fetches data sources and models, each into a directory of links to the cache."""

import sys

from workers.fetching.child.server import serve
from workers.fetching.work import work

if __name__ == "__main__":
    sys.exit(serve(work))
