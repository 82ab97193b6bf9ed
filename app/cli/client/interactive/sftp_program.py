"""How the SFTP server gets into a job: as the first bytes of the input of a Python there.

So files of any job that has Python 3.8 or newer can be copied, whether or not its image has one of SSH's programs.
"""

from functools import cache
from importlib.resources import files

_SERVER = "sftp_server.py"
# sh finds a Python: images call it python3, and package environments come first in PATH. Lists of sessions show the
# beginning, so it says what this is.
_START = (
    ': files by sftp or scp; for each in python3 python /usr/bin/python3; do command -v "$each" >/dev/null 2>&1 && '
    'exec "$each" -I -S -c "import sys;exec(compile(sys.stdin.buffer.read(int(sys.argv[1])),\'sftp\',\'exec\'))" "$1"; '
    "done; echo 'copying files needs Python in the job, and this one has none' >&2; exit 127"
)


@cache
def source() -> bytes:
    """The server's program, which is sent first."""
    return files(__package__).joinpath(_SERVER).read_bytes()


def command() -> list[str]:
    """What is run in the job."""
    return ["/bin/sh", "-c", _START, "sftp-server", str(len(source()))]
