"""Serve Katib's Suggestion API: `python -m search [ADDRESS]`, by default `[::]:6789`, Katib's port."""

import logging
import signal
import sys

GRACE = 20.0  # seconds for running calls after SIGTERM


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    ends = {signal.SIGTERM, signal.SIGINT}
    # For all threads, which start later. A handler in Python could miss its turn: the signal that comes just
    # before the main thread begins to wait doesn't wake it.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    from search import service  # noqa: PLC0415 - numpy starts threads, which would take the signal

    service.warm_up()
    server, port = service.server(sys.argv[1] if len(sys.argv) > 1 else "[::]:6789")
    server.start()
    print(f"serving on port {port}", flush=True)
    signal.sigwait(ends)
    server.stop(GRACE).wait()


if __name__ == "__main__":
    main()
