"""What the Hub on loopback answers: one function a route, in the shapes that the real client reads."""

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable
from typing import Any

from tests.support.hub_server import USER, Handler, HubServer, Refused

LARGE = (".safetensors", ".onnx", ".pt")


def _ok(values: Any, status: int = 200, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    return status, json.dumps(values).encode(), {"Content-Type": "application/json", **headers}


def _is_large(path: str) -> bool:
    return path.endswith(LARGE)


def _blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _whoami(h: Handler) -> Any:
    if h.role() is None:
        raise Refused(401, message="Unauthorized")
    return _ok({"type": "user", "name": USER, "auth": {"accessToken": {"role": h.role()}}})


def _create(h: Handler) -> Any:
    wanted = h.json()
    kind, name = wanted.get("type", "model"), f"{wanted['organization']}/{wanted['name']}"
    h.writer(name)
    if (kind, name) in h.hub.repos:
        raise Refused(409, message="You already created this repo")
    repo = h.hub.create(name, kind, private=wanted.get("visibility") == "private")
    repo.hardware = wanted.get("hardware", "cpu-basic" if kind == "space" else None)
    for place, given in ((repo.variables, "variables"), (repo.secrets, "secrets")):
        place.update({entry["key"]: entry["value"] for entry in wanted.get(given, ())})
    return _ok({"url": f"{h.hub.endpoint}/{'spaces/' if kind == 'space' else ''}{name}"})


def _validate_yaml(h: Handler) -> Any:
    content = h.json()["content"]
    if not content.startswith("---\n") or "\n---\n" not in content:
        raise Refused(400, errors=[{"message": "empty metadata"}])
    return _ok({"errors": [], "warnings": []})


def _info(h: Handler, kind: str, name: str, revision: str = "main") -> Any:
    repo = h.repo(kind, name)
    oid = h.commit(repo, revision)
    siblings = [{"rfilename": path} for path in repo.commits[oid]]
    gated = "auto" if repo.gated else False
    return _ok({"id": name, "sha": oid, "private": repo.private, "gated": gated, "siblings": siblings, "tags": []})


def _tree(h: Handler, kind: str, name: str, revision: str) -> Any:
    repo = h.repo(kind, name)
    found = []
    for path, data in repo.commits[h.commit(repo, revision)].items():
        entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": _blob_id(data)}
        if _is_large(path):
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        found.append(entry)
    return _ok(found)


def _refs(h: Handler, kind: str, name: str) -> Any:
    repo = h.repo(kind, name)

    def listed(names: dict[str, str], prefix: str) -> list[dict[str, str]]:
        return [{"name": n, "ref": f"{prefix}{n}", "targetCommit": oid} for n, oid in names.items()]

    return _ok(
        {
            "branches": listed(repo.branches, "refs/heads/"),
            "tags": listed(repo.tags, "refs/tags/"),
            "pullRequests": listed(repo.pull_requests, ""),
            "converts": [],
        }
    )


def _branch(h: Handler, kind: str, name: str, branch: str) -> Any:
    repo = h.repo(kind, name)
    h.writer(name)
    if branch in repo.branches:
        raise Refused(409, message="Reference already exists")
    repo.branches[branch] = repo.branches["main"]
    return _ok({})


def _tag(h: Handler, kind: str, name: str, revision: str) -> Any:
    repo = h.repo(kind, name)
    h.writer(name)
    tag = h.json()["tag"]
    if tag in repo.tags:
        raise Refused(409, message="Tag already exists")
    repo.tags[tag] = h.commit(repo, revision)
    return _ok({})


def _preupload(h: Handler, kind: str, name: str, revision: str) -> Any:
    repo = h.repo(kind, name)
    if "create_pr" not in h.query:
        h.writer(name)
    current = repo.commits[h.commit(repo, revision)]
    answers = []
    for file in h.json()["files"]:
        path = file["path"]
        answer = {"path": path, "uploadMode": "lfs" if _is_large(path) else "regular", "shouldIgnore": False}
        if path in current:
            data = current[path]
            answer["oid"] = hashlib.sha256(data).hexdigest() if _is_large(path) else _blob_id(data)
        answers.append(answer)
    return _ok({"files": answers})


def _batch(h: Handler, name: str, kind: str | None) -> Any:
    h.repo(kind or "models", name)
    objects = []
    for wanted in h.json()["objects"]:
        oid, size = wanted["oid"], wanted["size"]
        entry = {"oid": oid, "size": size}
        if oid not in h.hub.objects:
            entry["actions"] = {"upload": _upload_action(h.hub, oid, size)}
            if h.hub.verify_uploads:
                entry["actions"]["verify"] = {"href": f"{h.hub.storage}/verify/{oid}"}
        objects.append(entry)
    return _ok({"transfer": "basic", "objects": objects})


def _upload_action(hub: HubServer, oid: str, size: int) -> dict[str, Any]:
    if size <= hub.multipart_over:
        return {"href": f"{hub.storage}/objects/{oid}"}
    chunk = hub.multipart_over
    count = -(-size // chunk)
    urls = {str(part + 1): f"{hub.storage}/objects/{oid}?part={part + 1}" for part in range(count)}
    return {"href": f"{hub.storage}/complete/{oid}", "header": {"chunk_size": str(chunk), **urls}}


def _put_object(h: Handler, oid: str) -> Any:
    if "part" in h.query:
        h.hub.parts[oid, int(h.query["part"][0])] = h.body
        return _ok({}, ETag=f'"{hashlib.md5(h.body).hexdigest()}"')
    if hashlib.sha256(h.body).hexdigest() != oid:
        raise Refused(400, message="checksum mismatch")
    h.hub.objects[oid] = h.body
    return _ok({})


def _complete(h: Handler, oid: str) -> Any:
    numbers = [part["partNumber"] for part in h.json()["parts"]]
    data = b"".join(h.hub.parts[oid, number] for number in numbers)
    if hashlib.sha256(data).hexdigest() != oid:
        raise Refused(400, message="checksum mismatch")
    h.hub.objects[oid] = data
    return _ok({})


def _verify(h: Handler, oid: str) -> Any:
    if oid not in h.hub.objects or len(h.hub.objects[oid]) != h.json()["size"]:
        raise Refused(404, message="no such object")
    return _ok({})


def _xet_token(h: Handler, kind: str, name: str, right: str, revision: str) -> Any:
    h.commit(h.repo(kind, name), revision)
    if right == "write":
        h.writer(name)
    expires = int(time.time()) + 3600
    headers = {"X-Xet-Cas-Url": h.hub.xet_store, "X-Xet-Access-Token": "short", "X-Xet-Token-Expiration": str(expires)}
    return _ok({"casUrl": h.hub.xet_store, "accessToken": "short", "exp": expires}, **headers)


def _commit(h: Handler, kind: str, name: str, revision: str) -> Any:
    repo = h.repo(kind, name)
    as_request = "create_pr" in h.query
    if not as_request:
        h.writer(name)
    head = h.commit(repo, revision)
    lines = [json.loads(line) for line in h.body.splitlines()]
    header, operations = lines[0]["value"], lines[1:]
    if header.get("parentCommit") not in (None, head):
        raise Refused(412, message="A commit has happened since. Please refresh and try again.")
    files = dict(repo.commits[head])
    for operation in operations:
        value = operation["value"]
        if operation["key"] == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif operation["key"] == "lfsFile":
            if value["oid"] not in h.hub.objects:
                raise Refused(400, message="Your push was rejected because an LFS pointer pointed to nothing")
            files[value["path"]] = h.hub.objects[value["oid"]]
        else:
            del files[value["path"]]
    address = f"{h.hub.endpoint}/{'spaces/' if kind == 'spaces' else ''}{name}"
    if as_request:
        number = len(repo.pull_requests) + 1
        oid = repo.add("", files, header["summary"])
        repo.pull_requests[f"refs/pr/{number}"] = repo.branches.pop("")
        request = f"{address}/discussions/{number}"
    else:
        oid, request = repo.add(revision, files, header["summary"]), None
    return _ok({"commitOid": oid, "commitUrl": f"{address}/commit/{oid}", "pullRequestUrl": request, "success": True})


def _resolve(h: Handler, name: str, revision: str, path: str, kind: str | None) -> Any:
    repo = h.repo(kind or "models", name)
    oid = h.commit(repo, revision)
    if repo.gated and h.role() is None:
        raise Refused(401, "GatedRepo", "Access to this model is restricted")
    data = repo.commits[oid].get(path)
    if data is None:
        status, body, _ = _ok({"error": "Entry not found"}, 404)
        return status, body, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": oid}
    headers = {"X-Repo-Commit": oid, "Accept-Ranges": "bytes"}
    if not _is_large(path):
        return _ranged(h, data, {**headers, "ETag": f'"{_blob_id(data)}"'})
    etag = hashlib.sha256(data).hexdigest()
    h.hub.objects[etag] = data
    headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(data))}
    if etag in h.hub.xet_hashes:
        headers["X-Xet-Hash"] = h.hub.xet_hashes[etag]
        headers["X-Xet-Refresh-Route"] = f"{h.hub.endpoint}/api/models/{name}/xet-read-token/{oid}"
    return 302, b"", {**headers, "Location": f"{h.hub.storage}/objects/{etag}"}


def _get_object(h: Handler, oid: str) -> Any:
    return _ranged(h, h.hub.objects[oid], {"ETag": f'"{oid}"'})


def _ranged(h: Handler, data: bytes, headers: dict[str, str]) -> Any:
    wanted = re.fullmatch(r"bytes=(\d+)-", h.headers.get("Range", ""))
    if not wanted:
        return 200, data, headers
    start = int(wanted[1])
    return 206, data[start:], {**headers, "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}


def _runtime(h: Handler, name: str) -> Any:
    hardware = h.repo("space", name).hardware
    return _ok({"stage": "RUNNING", "hardware": {"current": hardware, "requested": hardware}, "storage": None})


def _hardware(h: Handler, name: str) -> Any:
    h.writer(name)
    h.repo("space", name).hardware = h.json()["flavor"]
    return _runtime(h, name)


def _variables(h: Handler, name: str) -> Any:
    variables = h.repo("space", name).variables
    if h.command == "POST":
        h.writer(name)
        variables[h.json()["key"]] = h.json()["value"]
    return _ok({key: {"value": value} for key, value in variables.items()})


def _secret(h: Handler, name: str) -> Any:
    h.writer(name)
    h.repo("space", name).secrets[h.json()["key"]] = h.json()["value"]
    return _ok({})  # a secret is never told again


_ID = r"(?P<name>[^/]+/[^/]+)"
_API = rf"/api/(?P<kind>models|spaces)/{_ID}"
HUB: list[tuple[str, Callable[..., Any]]] = [
    (r"GET /api/whoami-v2", _whoami),
    (r"POST /api/repos/create", _create),
    (r"POST /api/validate-yaml", _validate_yaml),
    (rf"GET /api/spaces/{_ID}/runtime", _runtime),
    (rf"POST /api/spaces/{_ID}/hardware", _hardware),
    (rf"(GET|POST) /api/spaces/{_ID}/variables", _variables),
    (rf"POST /api/spaces/{_ID}/secrets", _secret),
    (rf"GET {_API}", _info),
    (rf"GET {_API}/revision/(?P<revision>.+)", _info),
    (rf"GET {_API}/tree/(?P<revision>.+)", _tree),
    (rf"GET {_API}/refs", _refs),
    (rf"POST {_API}/branch/(?P<branch>.+)", _branch),
    (rf"POST {_API}/tag/(?P<revision>.+)", _tag),
    (rf"POST {_API}/preupload/(?P<revision>.+)", _preupload),
    (rf"GET {_API}/xet-(?P<right>write|read)-token/(?P<revision>.+)", _xet_token),
    (rf"POST {_API}/commit/(?P<revision>.+)", _commit),
    (rf"POST /((?P<kind>spaces)/)?{_ID}\.git/info/lfs/objects/batch", _batch),
    (rf"GET /((?P<kind>spaces)/)?{_ID}/resolve/(?P<revision>refs/pr/\d+|[^/]+)/(?P<path>.+)", _resolve),
]
STORAGE: list[tuple[str, Callable[..., Any]]] = [
    (r"PUT /objects/(?P<oid>\w+)", _put_object),
    (r"GET /objects/(?P<oid>\w+)", _get_object),
    (r"POST /complete/(?P<oid>\w+)", _complete),
    (r"POST /verify/(?P<oid>\w+)", _verify),
]
