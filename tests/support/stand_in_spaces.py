"""Stands in for the package `spaces` of a ZeroGPU Space, without a GPU; a test copies it to where Python finds that.

As there, a decorated generator runs in a forked process with pickled values on both ways, torch claims to have CUDA
where it has none, and a page without a decorated function does not start. Every call is written to the file $GPU_LOG.
"""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any

import gradio as gr
import torch

import tiny_transformer.backends as backends

_fork = multiprocessing.get_context("fork")
_decorated: list[str] = []
_launch = gr.Blocks.launch


def GPU(task: Any = None, *, duration: Callable[..., int] | int | None = None) -> Any:  # noqa: N802 - its name there
    """The decorator, with or without a duration."""
    if task is None:
        return partial(GPU, duration=duration)
    _decorated.append(task.__name__)

    @wraps(task)
    def on_gpu(*arguments: Any) -> Iterator[Any]:
        seconds = duration(*arguments) if callable(duration) else duration
        here, there = _fork.Pipe()
        here.send(arguments)
        process = _fork.Process(target=_work, args=(task, there, seconds), daemon=True)
        process.start()
        there.close()
        try:
            while (answer := here.recv()) is not None:
                yield answer[0]
        finally:
            here.close()
            process.join()

    return on_gpu


def _work(task: Callable[..., Iterator[Any]], pipe: Any, seconds: int) -> None:
    """What the other process does: here "cuda" is there, for it is the CPU under another name."""
    from tiny_transformer.backends import cuda_graphs

    backends.has_nvidia_gpu = lambda: True
    cuda_graphs.torch_device = _gpu_device
    arguments = pipe.recv()
    with open(os.environ["GPU_LOG"], "a") as log:
        log.write(json.dumps({"asked": arguments, "seconds": seconds, "parent": os.getppid()}) + "\n")
    states = task(*arguments)
    try:
        for state in states:
            pipe.send((state,))
        pipe.send(None)
    except BrokenPipeError:
        states.close()


def _gpu_device(name: str | None) -> torch.device:
    assert name == "cuda", name
    return torch.device("cpu")


def _refuse(*_: Any) -> None:
    raise RuntimeError("the driver was touched where no GPU is attached")


def _start(page: gr.Blocks, **options: Any) -> Any:
    if not _decorated:
        raise RuntimeError("No @spaces.GPU function detected during startup")
    return _launch(page, **options)


gr.Blocks.launch = _start
torch.cuda.is_available = lambda: True
torch._C._cuda_init = _refuse
backends.has_nvidia_gpu = _refuse
