"""Entry point of a built-in rank: `python -m workers.trainers.main --spec RUN_DIR/spec.json`."""

import argparse
import os
import sys
import traceback
from typing import NoReturn

from app.domain.spec.inference import Inference
from trainyard.protocol.channel import ChannelClosed
from workers.rank.run_context import RunContext, method_of, supervised_run
from workers.trainers.hidden_packages import QLORA, can_build_kernels, leave_out, quantizes

# No process is left to report to; the exit code only explains the end in process tables.
_ORPHANED = 74
NO_COMPILER = (
    "Triton's kernels are not used, PyTorch's are instead: to build them, install gcc or clang and the header files of "
    "Python (python3-dev) on this node"
)


def main() -> NoReturn:
    """Train, report how it ended, and exit without the interpreter's own shutdown (see `distributed.leave`)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True)
    context = supervised_run(parser.parse_args().spec, on_orphaned=lambda: os._exit(_ORPHANED))
    code = _run(context)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(context: RunContext) -> int:
    try:
        _train(context)
    except ChannelClosed:
        return _ORPHANED
    except Exception as error:  # noqa: BLE001  (the outermost loop: whatever it is, it is reported)
        return _failed(context, error)
    return 0


def _train(context: RunContext) -> None:
    # Imported late: the rank connects to the supervisor before torch takes seconds to load.
    from workers.trainers import distributed, registry  # noqa: PLC0415

    leave_out([context.spec.framework], [QLORA] if quantizes(context.spec) else [])
    if context.spec.device_type == "cuda" and not can_build_kernels():
        sys.stderr.write(f"{NO_COMPILER}\n")
    trainer = registry.load(context.spec.framework, method_of(context.spec))
    distributed.join(context.spec)
    if context.spec.inference and Inference.from_json(context.spec.inference).model.divided:
        from workers.trainers.inference.divided_weights import join_weights  # noqa: PLC0415

        join_weights(context)
    result = trainer(context).run()
    distributed.leave()
    context.finish(result)


def _failed(context: RunContext, error: Exception) -> int:
    from workers.trainers import failures  # noqa: PLC0415

    traceback.print_exc()
    try:
        context.fail(failures.error_type(error), f"{type(error).__name__}: {error}", traceback.format_exc())
    except ChannelClosed:
        return _ORPHANED
    return 1


if __name__ == "__main__":
    main()
