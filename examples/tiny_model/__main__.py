"""``python -m examples.tiny_model --port 0`` serves a tiny model, and prints its address."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Sequence

from examples.tiny_model.model import TinyModel
from examples.tiny_model.server import create_app, serving
from guerdon._validation import check_integer, check_number
from guerdon.errors import GuerdonError


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the model.

    Returns:
        0; 2 if it can't be served.
    """
    parser = argparse.ArgumentParser(prog="python -m examples.tiny_model")
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    add("--port", type=int, default=8000, help="0 lets the system choose one (8000)")
    add("--seed", type=int, default=0, help="the seed of the model's weights (0)")
    add("--context", type=int, default=16384, help="tokens of a prompt and its answer (16384)")
    add("--delay", type=float, default=0.0, help="seconds before each token (0)")
    options = parser.parse_args(arguments)
    try:
        check_integer("--context", options.context, low=1)
        check_number("--delay", options.delay, low=0)
        model = TinyModel(seed=options.seed, context=options.context)
        app = create_app(model, delay_s=options.delay)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with (
            contextlib.suppress(KeyboardInterrupt),
            serving(app, host=options.host, port=options.port) as url,
        ):
            print(url, flush=True)
            threading.Event().wait()
    except ImportError as error:
        print(f"error: {error}: it requires torch and transformers", file=sys.stderr)
        return 2
    except GuerdonError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
