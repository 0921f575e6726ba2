"""The process that decodes a training's picture and re-encodes it: `python -m bot.sweep.charts.reencode`.

Its own process for the reasons of `bot.sweep.charts.draw`: these bytes are hostile until they are pixels.
"""

import resource
import sys
from io import BytesIO
from itertools import islice

MAX_ADDRESS_SPACE = 500 * 2**20  # bytes: a worker has 1 GiB
MAX_CPU = 20  # seconds
MAX_SIZE = 2**21  # bytes that are read
MAX_PIXELS = 16_000_000  # of one frame
MAX_FRAMES = 60  # of a video; the rest is left out
SHOWN = (1_200, 1_200)  # pixels; larger pictures are made smaller
SHOWN_FRAME = (480, 480)
FORMATS = ("PNG", "JPEG", "GIF")


def main() -> int:
    """Read a picture; write its new format, a NUL, and the picture. Exit with 1 if it can't be shown."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE, MAX_ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU, MAX_CPU))
    content = sys.stdin.buffer.read(MAX_SIZE + 1)
    from PIL import Image, ImageSequence  # noqa: PLC0415  within the limits

    out = BytesIO()
    with Image.open(BytesIO(content), formats=FORMATS) as image:  # reads only the header
        if len(content) > MAX_SIZE or image.width * image.height > MAX_PIXELS:
            return 1
        if image.format == "GIF" and getattr(image, "is_animated", False):
            pause, frames = image.info.get("duration", 100), []
            for frame in islice(ImageSequence.Iterator(image), MAX_FRAMES):
                frames.append(frame.convert("RGB"))
                frames[-1].thumbnail(SHOWN_FRAME)
                frames[-1].info = {}  # comments and profiles
            frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=pause, loop=0)
            sys.stdout.buffer.write(b"gif\0" + out.getvalue())
            return 0
        still = image.convert("RGBA" if image.has_transparency_data else "RGB")
    still.thumbnail(SHOWN)
    still.info = {}
    still.save(out, "PNG")
    sys.stdout.buffer.write(b"png\0" + out.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
