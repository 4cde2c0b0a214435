"""Programs of the tests in forks of a process that has imported the large packages already.

Gradio alone takes seconds to import, and a run of the tests starts hundreds of programs. Each still has a process, an
environment, a folder and streams of its own; only what `preload` names is there when it begins. Elsewhere than on Linux
a fork may not use the system's libraries: there each program gets a fresh interpreter.
"""

import atexit
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Fork:
    """A program that runs in a fork."""

    def __init__(self, report: socket.socket) -> None:
        self._report = report.makefile("r")
        report.close()
        self.pid = int(self._report.readline())

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, below zero for a signal; killed after `timeout` seconds."""
        timer = threading.Timer(timeout, self.kill) if timeout else None
        if timer:
            timer.start()
        with self._report:
            code = int(self._report.readline())
        if timer:
            timer.cancel()
        return code

    def kill(self) -> None:
        """SIGKILL, if it runs still."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Fresh:
    """The same for a fresh interpreter."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self.pid, self.kill = process, process.pid, process.kill

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; killed after `timeout` seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()


class WarmPython:
    """An interpreter with some packages, started at its first use, that forks for each program."""

    def __init__(self, *preload: str, **environment: str) -> None:
        self._preload = preload
        # OpenBLAS starts its threads when numpy is imported, and a thread does not survive a fork.
        self._environment = {"OPENBLAS_NUM_THREADS": "1", **environment}  # what is read by an import
        self._channel: socket.socket | None = None

    def start(
        self, script: Path, *arguments: str, env: dict[str, str], cwd: Path, stdin: int, stdout: int, stderr: int
    ) -> Fork | Fresh:
        """Begin `python SCRIPT ARGUMENTS`; the streams are file descriptors, which stay the caller's."""
        if sys.platform != "linux":
            streams: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
            return Fresh(subprocess.Popen([sys.executable, str(script), *arguments], env=env, cwd=cwd, **streams))
        channel = self._channel or self._open()
        request = {"arguments": [str(script), *arguments], "env": env, "cwd": str(cwd)}
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(channel, [json.dumps(request).encode()], [stdin, stdout, stderr, theirs.fileno()])
        return Fork(ours)

    def run(
        self, script: Path, *arguments: str, env: dict[str, str], cwd: Path = ROOT, timeout: float = 120
    ) -> tuple[int, str, str]:
        """`python SCRIPT ARGUMENTS` to its end, or until it is killed: its code, and what it wrote to out and err."""
        with open(os.devnull, "rb") as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            streams = {"stdin": nothing.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
            code = self.start(script, *arguments, env=env, cwd=cwd, **streams).wait(timeout)
            for file in (out, err):
                file.seek(0)
            return code, out.read().decode(), err.read().decode()

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)  # a message is read as it was sent
        command = [sys.executable, __file__, str(theirs.fileno()), *self._preload]
        environment = os.environ | self._environment
        with theirs:
            process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )

        def close() -> None:
            ours.close()
            process.wait(30)

        atexit.register(close)
        self._channel = ours
        return ours


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for each request until the channel closes; in a fork that is to run a program, its request."""
    while True:
        message, streams, _, _ = socket.recv_fds(channel, 1 << 20, 4)
        while _child_ended():
            pass
        if not message:
            return None
        if os.fork() == 0:
            channel.close()
            report = socket.socket(fileno=streams.pop())
            pid = os.fork()
            if pid == 0:
                report.close()
                for target, stream in enumerate(streams):
                    os.dup2(stream, target)
                    os.close(stream)
                request: dict[str, Any] = json.loads(message)
                return request
            for stream in streams:
                os.close(stream)
            with suppress(OSError):  # nobody asks any more
                report.sendall(b"%d\n" % pid)
                report.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            os._exit(0)
        for stream in streams:
            os.close(stream)


def _child_ended() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def main() -> None:
    """`warm_process.py CHANNEL MODULE…`: import the modules, then serve."""
    channel, *preload = sys.argv[1:]
    sys.path.insert(0, str(ROOT))
    for name in preload:
        importlib.import_module(name)
        assert len(os.listdir("/proc/self/task")) == 1, f"{name} starts a thread, which a fork would lack"
    request = serve(socket.socket(fileno=int(channel)))
    if request is not None:
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        tempfile.tempdir = None  # TMPDIR may be another
        sys.argv = request["arguments"]
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
