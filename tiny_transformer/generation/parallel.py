"""Many texts shared out among backends that run side by side, each in a thread of its own."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from tiny_transformer.backends.base import Backend
from tiny_transformer.generation.request import Request
from tiny_transformer.generation.tokens import Generated

ToTheEnd = Callable[[Backend, Request], list[Generated]]


def share_out(backends: Sequence[Backend], request: Request, to_the_end: ToTheEnd) -> list[Generated]:
    """Every text to its end. Whatever ends one thread early, an error or the user, ends all of them."""
    halt = threading.Event()
    # Neighbours in length go to different threads, so that all have about as much to do.
    by_length = sorted(range(len(request.prefixes)), key=request.n_read)
    shares = [by_length[i :: len(backends)] for i in range(len(backends))]
    with ThreadPoolExecutor(len(backends), thread_name_prefix="generation") as pool:
        try:
            work = [
                pool.submit(to_the_end, backend, request.share(numbers, halt))
                for backend, numbers in zip(backends, shares, strict=True)
            ]
            done, _ = wait(work, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()  # raises what ended it
        except BaseException:
            halt.set()
            raise
    found: dict[int, Generated] = {}
    for numbers, future in zip(shares, work, strict=True):
        found |= zip(numbers, future.result(), strict=True)
    return [found[i] for i in range(len(found))]
