"""The process that draws one picture: `python -m bot.sweep.charts.draw`, stored results in, picture out.

Its own process, because drawing takes seconds of CPU and hundreds of megabytes, and because an error in a
library, or a hostile value, then costs a picture and not a worker.
"""

import resource
import sys

from bot.sweep.results.models import load

MAX_ADDRESS_SPACE = 1_500 * 2**20  # bytes of address space; libraries reserve more than they use


def main() -> int:
    """Read a stored form (bot.sweep.results.models); write the alternative text, a NUL, and the PNG."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE, MAX_ADDRESS_SPACE))
    results = load(sys.stdin.buffer.read())
    from bot.sweep.charts.picture import Content, alt_text, png  # noqa: PLC0415  within the limit

    content = Content(results)
    picture = png(content)
    sys.stdout.buffer.write(alt_text(content).encode() + b"\0" + picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
