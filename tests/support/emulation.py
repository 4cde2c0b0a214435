"""Other processors through qemu-user: a Python of the other architecture, and programs run as on a given processor.

`python -m tests.support.emulation FOLDER` makes what is needed, on Debian; `make test-all` does so. A processor of this
machine's architecture runs this very interpreter, one of the other a Python from Debian's packages.
"""

import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.models import ROOT, Finished

# Architecture → processor → its /proc/cpuinfo. Qemu would show the host's, so that ONNX Runtime took the host's kernels
# and ended by an instruction that the processor does not have. Haswell and Skylake have AVX2 without 8-bit products
# (qemu emulates no AVX-512), a Cortex-A57 has none either, a Neoverse-N1 has them.
_X86 = "processor : 0\nvendor_id : GenuineIntel\nflags : sse4_1 avx avx2 fma\napicid : 0\n"
_ARM = "processor : 0\nFeatures : fp asimd {}\nCPU implementer : 0x{}\nCPU architecture: 8\nCPU part : 0x{}\n"
PROCESSORS = {
    "x86_64": {"Haswell": _X86, "Skylake-Server": _X86},
    "aarch64": {"cortex-a57": _ARM.format("crc32", "41", "d07"), "neoverse-n1": _ARM.format("asimddp", "41", "d0c")},
}
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
PACKAGES = ("numpy", "onnxruntime", "tokenizers")
WHEELS = ("manylinux_2_28", "manylinux_2_27", "manylinux2014")
FOLDER = Path(sys.prefix) / "emulated"
TO_DO = "The sweep over processors needs qemu-user and a Python of the other architecture: run make .venv/.emulated"


def foreign() -> str:
    """The architecture that this machine does not have."""
    return next(machine for machine in PROCESSORS if machine != platform.machine())


def run_on(machine: str, cpu: str, program: str, *arguments: str | Path, folder: Path = FOLDER) -> Finished:
    """A few lines of Python as on a processor; they find the checkout."""
    root = folder / machine
    emulator = shutil.which(f"qemu-{machine}")
    assert emulator is not None, TO_DO
    assert machine == platform.machine() or (root / "ready").exists(), TO_DO
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # to compile what is imported takes a minute under emulation
    python = sys.executable
    with TemporaryDirectory() as prefix:  # what lies there, the program sees instead of this machine's files
        if machine != platform.machine():
            environment |= {"PYTHONHOME": str(root / "usr"), "PYTHONPATH": f"{root / 'site'}{os.pathsep}{ROOT}"}
            python = str(next((root / "usr" / "bin").glob("python3.*[0-9]")))
            for path in root.iterdir():
                Path(prefix, path.name).symlink_to(path)
        Path(prefix, "proc").mkdir()
        Path(prefix, "proc", "cpuinfo").write_text(PROCESSORS[machine][cpu])
        command = [emulator, "-cpu", cpu, "-L", prefix, python, "-c", program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    said = [line for line in done.stderr.splitlines() if not line.startswith(f"qemu-{machine}: warning: TCG")]
    return Finished(done.returncode, done.stdout, "\n".join(said))


def make(folder: Path) -> None:
    """The Python of the other architecture with our packages for it, in `folder`; and qemu-user, for root alone."""
    machine = foreign()
    if not all(shutil.which(f"qemu-{name}") for name in PROCESSORS):
        _must_run("apt-get", "install", "-y", "-qq", "qemu-user")
    root = folder.absolute() / machine
    shutil.rmtree(root, ignore_errors=True)
    _unpack_python(root, DEBIAN[machine])
    (version,) = (path.name.removeprefix("python") for path in (root / "usr" / "bin").glob("python3.*[0-9]"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    pip += [f"--platform={tag}_{machine}" for tag in WHEELS] + [f"--python-version={version}"]
    _must_run(*pip, f"--target={root / 'site'}", *(f"{name}=={metadata.version(name)}" for name in PACKAGES))
    (root / "ready").touch()
    done = run_on(machine, next(iter(PROCESSORS[machine])), f"import {', '.join(PACKAGES)}", folder=folder)
    if done.code != 0:
        (root / "ready").unlink()
        sys.exit(done.err)


def _unpack_python(root: Path, architecture: str) -> None:
    """Debian's Python and the libraries that it and our packages load; apt's own state is not touched."""
    apt = root / "apt"
    for name in ("state/lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "state" / "status").touch()
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Dir::State": apt / "state",
        "Dir::State::status": apt / "state" / "status",
        "Dir::Cache": apt / "cache",
    }
    command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    _must_run(*command, "update")
    install = ("install", "-y", "--download-only", "--no-install-recommends")
    _must_run(*command, *install, "python3", "libstdc++6")
    for package in sorted((apt / "cache" / "archives").glob("*.deb")):
        _must_run("dpkg-deb", "-x", package, root)
    shutil.rmtree(apt)
    for path in root.rglob("*"):
        if path.is_symlink() and path.readlink().is_absolute():  # it would lead to this machine's own files
            target = root / path.readlink().relative_to("/")
            path.unlink()
            path.symlink_to(os.path.relpath(target, path.parent))


def _must_run(*command: str | Path) -> None:
    """Run; what fails says so in its own words, and ours."""
    try:
        subprocess.run([str(part) for part in command], check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{error}\nThe sweep over processors needs Debian's packages; make test needs none of them.")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
