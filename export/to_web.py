"""A static site that runs proved model folders in the visitor's browser: page, modules, runtime and model files.

Nothing is built: the page's files are those of `web/`, the runtime is the package that `web/package-lock.json` pins,
and a model's files are the folder's own bytes, each of which its parity report vouches for. `site.json` lists every
file with its SHA-256; the same input gives the same bytes.

The folder's own report says nothing about a browser. So the export compares the modules that visitors run with PyTorch,
too: that report is the `parity.json` that the page checks each file against, and the folder's own lies beside it.

In 8 bits the weights are half the download. The graphs for that are made here, since no other backend reads them.
"""

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from tiny_transformer import atomic
from tiny_transformer.bundle import (
    CONFIG,
    GENERATION,
    INSIDE_ONNX,
    INT8_WEB,
    PARITY,
    PUBLISHED,
    REQUIRED,
    TOKENIZER,
    WEB_GRAPHS,
    WEIGHTS,
    WEIGHTS_INT8,
    Bundle,
    graph_files,
    reported_as,
    sha256,
)
from tiny_transformer.errors import ExportError, InputError, ParityError
from tiny_transformer.parity.report import ParityReport, stored_report

CHECKOUT = Path(__file__).resolve().parent.parent
SITE, INDEX, SERVICE_WORKER = "site.json", "index.html", "service-worker.js"
MODELS, RUNTIME = "models", "runtime"
TRANSFORMERS_JS = "transformers.js"  # the models once more, as this library opens them
FORMAT = 1
PARITY_FOLDER = "parity-folder.json"  # the folder's own report, unchanged
WEB, WEB_INT8 = "web", "web-int8"  # the backends that a page can run
PACKAGE = "onnxruntime-web"
RUNTIME_JSON = "runtime.json"  # names the two files of the package that a page needs, with their SHA-256
TEXTS = "texts.json"
_LICENSE = "runtime-license.txt"
_PAGE_SUFFIXES = (".html", ".css", ".js", ".svg")
_EMPTY_SITE = 'const SITE = { version: "", files: {} };'  # in the service worker: where the list of files goes
_NOT_FOR_VISITORS = ("witness.js",)  # what the comparison with PyTorch runs beside the page's modules
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Site:
    """What was written."""

    folder: Path
    version: str  # changes with any byte of any file
    bytes: int


def named_folders(folders: Sequence[Path]) -> dict[str, Path]:
    """Model folders by their own names, which are their addresses on the page."""
    found: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if name in found:
            raise InputError(
                "Two model folders have the name {name}, their address on the page; rename one.", name=name
            )
        found[name] = folder
    return found


class Verifier(Protocol):
    """Compares the backends of a folder, or those that are named, with PyTorch."""

    def __call__(self, bundle: Bundle, *, backends: Sequence[str] | None = None) -> ParityReport:
        """The report, made now."""
        ...


def export_site(
    folders: Mapping[str, Path],
    out: Path,
    verify: Verifier,
    *,
    int8: bool = False,
    transformers_js: bool = False,
    root: Path = CHECKOUT,
) -> Site:
    """Write the site of some model folders, by name, to `out`, all or nothing; an older site there is replaced.

    A proof of the older site is used again if neither the model nor a module has changed. With `transformers_js` each
    model is there a second time, in the form that this library opens.
    """
    backend = WEB_INT8 if int8 else WEB
    check_web(root)
    _check_target(out)
    for name in folders:
        if not _NAME.fullmatch(name):
            template = "{name!r} is no address on a page; give the folder a name of letters, digits, dots and hyphens."
            raise InputError(template, name=name)
    if transformers_js:
        _check_decoder_only(folders)
    runtime = runtime_folder(root)
    with atomic.replacing_folder(out) as staging:
        _copy_page(root / "web", staging)
        described = _copy_runtime(root / "web", runtime, staging)
        code = _code_version(staging)
        models = []
        for name, folder in folders.items():
            with page_folder(Bundle.open(folder), int8=int8) as bundle:
                proof = _older_proof(out, name, code, bundle) or verify(bundle, backends=[backend])
                described_model = _copy_model(bundle, proof, staging / MODELS / name)
                if transformers_js:
                    from .transformers_js import write_for_transformers_js

                    write_for_transformers_js(bundle, staging / TRANSFORMERS_JS / name)
            models.append(described_model | {"backend": backend, "code": code})
        site = _write_manifest(staging, models, described)
    return Site(out, site["version"], sum(file["bytes"] for file in site["files"].values()))


def _check_decoder_only(folders: Mapping[str, Path]) -> None:
    """Refuse a translator: the library wants an encoder that hands out its last hidden state."""
    for folder in folders.values():
        if Bundle.open(folder).config.is_encoder_decoder:
            template = "{folder} is an encoder-decoder, which transformers.js cannot open; leave out {option} for it."
            raise InputError(template, folder=folder, option="--transformers-js")


def check_web(root: Path) -> None:
    """The page's files are in a checkout, not in the installed package."""
    if not (root / "web" / INDEX).is_file():
        template = "{folder} has no web/{file}; the page is made from a checkout of the project, so export there."
        raise ExportError(template, folder=root, file=INDEX)


def runtime_folder(root: Path) -> Path:
    """Where npm put the runtime; it is installed once, as the lock file says."""
    installed = root / "web" / "node_modules" / PACKAGE
    wanted = _locked_version(root / "web" / "package-lock.json")
    if not (installed / "package.json").is_file() or _version(installed) != wanted:
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        template = "The page needs {package} {version}, and `npm ci` in {folder} failed ({reason}); run it there."
        values = {"package": PACKAGE, "version": wanted, "folder": root / "web"}
        try:
            done = subprocess.run(command, cwd=root / "web", capture_output=True, text=True, check=False)
        except OSError as error:
            raise ExportError(template, reason=error.strerror, **values) from None
        if done.returncode != 0 or not (installed / "package.json").is_file():
            reason = next((line for line in done.stderr.splitlines() if line.strip()), f"exit code {done.returncode}")
            raise ExportError(template, reason=reason, **values)
    return installed


def site_files(bundle: Bundle) -> list[str]:
    """The files of a model folder that the page reads, without the report; in 8 bits where web graphs are there."""
    common = [CONFIG, GENERATION, TOKENIZER]
    web = list(graph_files(bundle.config, INT8_WEB).values())
    if bundle.has(*web):
        return [*common, WEIGHTS_INT8, *web]
    floats = [*common, WEIGHTS, *graph_files(bundle.config).values()]
    return [*floats, INSIDE_ONNX] if bundle.has(INSIDE_ONNX) else floats


@contextmanager
def page_folder(bundle: Bundle, *, int8: bool, proved: bool = True) -> Iterator[Bundle]:
    """A folder as the page has it, proved unless told else: a copy, for 8 bits with the graphs that a browser runs."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "model"
        copy.mkdir()
        for name in bundle.files():
            if name in PUBLISHED and name not in WEB_GRAPHS:
                shutil.copyfile(bundle.folder / name, copy / name)
        with reported_as(copy, bundle.folder):
            copied = Bundle.open(copy)
            if proved:
                _check_proved(copied, {*REQUIRED, *site_files(copied), *([WEIGHTS_INT8] if int8 else [])})
            if int8:
                from .quantize import export_web_graphs

                export_web_graphs(copy)
            yield Bundle.open(copy)


def _locked_version(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["packages"][f"node_modules/{PACKAGE}"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ExportError("{path} does not pin {package}; restore the file.", path=path, package=PACKAGE) from None


def _version(package: Path) -> str:
    return str(json.loads((package / "package.json").read_text(encoding="utf-8"))["version"])


def _check_target(out: Path) -> None:
    """Refuse to replace anything but a site of ours."""
    if not out.exists() and not out.is_symlink():
        return
    ours = out.is_dir() and not out.is_symlink() and ((out / SITE).is_file() or not any(out.iterdir()))
    if not ours:
        raise InputError("{folder} exists and is no site of this project; choose another folder.", folder=out)


def _copy_page(web: Path, folder: Path) -> None:
    """The page's files as they are, and its words."""
    sources = {
        path: path.read_text(encoding="utf-8")
        for path in sorted(web.iterdir())
        if path.suffix in _PAGE_SUFFIXES and path.name not in _NOT_FOR_VISITORS
    }
    for path, text in sources.items():
        (folder / path.name).write_text(text, encoding="utf-8")
    words = json.dumps(page_texts("".join(sources.values())), indent=1, ensure_ascii=False)
    (folder / TEXTS).write_text(words + "\n", encoding="utf-8")


def page_texts(source: str) -> dict[str, dict[str, str]]:
    """Of the project's one table of sentences, those that the page's source names, and Chinese for its messages."""
    path = resources.files("tiny_transformer").joinpath("ui", "sentences.toml")
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    messages = {entry["en"]: entry["zh"] for entry in (*table["message"], *table["web_message"])}
    names = set(re.findall(r'"([\w-]+)"', source))
    # Names that are put together in the source: `task_${…}`.
    begins, ends = (tuple(re.findall(pattern, source)) for pattern in (r"`(\w+_)\$\{", r"\}(_\w+)`"))
    words = {
        key: entry
        for key, entry in (table["page"] | table["web"]).items()
        if key in names or key.startswith(begins) or key.endswith(ends)
    }
    texts = {language: {key: entry[language] for key, entry in words.items()} for language in ("en", "zh")}
    return {**texts, "messages": {english: chinese for english, chinese in messages.items() if english in source}}


def _copy_runtime(web: Path, package: Path, folder: Path) -> dict[str, str]:
    """The runtime's files, which are those of web/runtime.json byte for byte, and its license."""
    described = json.loads((web / RUNTIME_JSON).read_text(encoding="utf-8"))
    shutil.copyfile(web / RUNTIME_JSON, folder / RUNTIME_JSON)
    (folder / RUNTIME).mkdir()
    for name, wanted in described["sha256"].items():
        shutil.copyfile(package / "dist" / name, folder / RUNTIME / name)
        if sha256(folder / RUNTIME / name) != wanted:
            template = "{path} is not the file that {described} names; install the runtime again: npm ci in {folder}."
            raise ExportError(template, path=package / "dist" / name, described=web / RUNTIME_JSON, folder=web)
    shutil.copyfile(web / _LICENSE, folder / RUNTIME / "LICENSE.txt")  # the package itself has none
    return {name: described[name] for name in ("package", "version", "license")}


def _code_version(page: Path) -> str:
    """The modules and the runtime's hashes as one: another one needs another proof."""
    paths = [*sorted(page.glob("*.js")), page / RUNTIME_JSON]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _check_proved(bundle: Bundle, names: Collection[str]) -> None:
    """Refuse a folder whose report does not vouch for every file that the page reads."""
    missing = [name for name in (*sorted(names), PARITY) if not bundle.has(name)]
    if missing:
        template = "{folder} has no {files}; make it first: python -m export all {folder}."
        raise ExportError(template, folder=bundle.folder, files=", ".join(missing))
    stored_report(bundle, names)


def _older_proof(out: Path, name: str, code: str, bundle: Bundle) -> ParityReport | None:
    """The proof in the site that is replaced, if it is one of these bytes and these modules."""
    path = out / MODELS / name / PARITY
    try:
        models = json.loads((out / SITE).read_text(encoding="utf-8"))["models"]
        proved = {model["name"]: model["code"] for model in models}
        report = ParityReport.from_json(path.read_text(encoding="utf-8"), where=path)
    except (OSError, ValueError, KeyError, TypeError, ParityError):
        return None
    same = proved.get(name) == code and report.files == bundle.hashes()
    return report if same and report.verdict == "verified" else None


def _copy_model(bundle: Bundle, proof: ParityReport, target: Path) -> dict[str, Any]:
    """Copy a proved folder's files; what the page says of the model before it is loaded."""
    proof.raise_if_failed()
    target.mkdir(parents=True)
    for name in site_files(bundle):
        shutil.copyfile(bundle.folder / name, target / name)
        if sha256(target / name) != proof.files.get(name):
            template = "The files of {folder} are not those that were compared; try again."
            raise ParityError(template, folder=bundle.folder)
    (target / PARITY).write_text(proof.to_json(), encoding="utf-8")
    shutil.copyfile(bundle.folder / PARITY, target / PARITY_FOLDER)
    return {
        "name": target.name,
        "task": bundle.generation.task,
        "path": f"{MODELS}/{target.name}/",
        "parameters": bundle.config.n_parameters,
        "context": bundle.config.max_length,
        "generation": json.loads(bundle.generation.to_json()),
    }


def _write_manifest(folder: Path, models: list[dict[str, Any]], runtime: dict[str, str]) -> dict[str, Any]:
    """Hash everything, name the whole by its hash, and tell the service worker what it may keep."""
    worker = folder / SERVICE_WORKER
    files = {
        path.relative_to(folder).as_posix(): {"sha256": sha256(path), "bytes": path.stat().st_size}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    listed = "".join(f"{file['sha256']}  {name}\n" for name, file in files.items())
    version = hashlib.sha256(listed.encode()).hexdigest()[:16]
    del files[SERVICE_WORKER]  # it holds the hash of this list, so the list cannot hold its hash
    site = {"format": FORMAT, "version": version, "runtime": runtime, "models": models, "files": files}
    text = json.dumps(site, indent=1, ensure_ascii=False) + "\n"
    # What the model store reads, it keeps itself, under the files' own hashes.
    kept = {name: file["sha256"] for name, file in files.items() if _is_kept(name)}
    kept |= {SITE: hashlib.sha256(text.encode()).hexdigest()}
    source = worker.read_text(encoding="utf-8")
    if _EMPTY_SITE not in source:
        raise ExportError("{path} has no line {line}; restore the file.", path=worker.name, line=_EMPTY_SITE)
    listing = json.dumps({"version": version, "files": kept}, indent=1)
    worker.write_text(source.replace(_EMPTY_SITE, f"const SITE = {listing};"), encoding="utf-8")
    (folder / SITE).write_text(text, encoding="utf-8")
    return site


def _is_kept(name: str) -> bool:
    elsewhere = name.startswith((f"{MODELS}/", f"{TRANSFORMERS_JS}/")) or name.endswith(".wasm")
    return name.endswith(f"/{PARITY_FOLDER}") or not elsewhere
