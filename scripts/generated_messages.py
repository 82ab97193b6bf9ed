"""Writes the Python form of app/compat/cyxwiz/messages.proto beside it: ``python -m scripts.generated_messages``."""

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent
SOURCE = Path("app/compat/cyxwiz/messages.proto")


def write(target: Path) -> None:
    """Make messages_pb2.py and messages_pb2.pyi below `target`, in the folder that the source has below the root."""
    known = resources.files("grpc_tools") / "_proto"  # google.protobuf's own
    arguments = ["protoc", f"-I{ROOT}", f"-I{known}", f"--python_out={target}", f"--pyi_out={target}", str(SOURCE)]
    if protoc.main(arguments) != 0:
        sys.exit(1)


if __name__ == "__main__":
    write(ROOT)
