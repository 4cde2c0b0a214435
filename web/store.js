// The files of a model folder: fetched with progress, checked against the parity report, kept for the next visit.
import { ModelError, isAbort } from "./errors.js";

const CACHE = "tiny-transformer";
const REPORT = "parity.json";

/** The address of a folder, with a slash at its end; in Node a path will do. */
export function folderUrl(folder) {
  const base = globalThis.location?.href ?? `file://${globalThis.process?.cwd()}/`;
  const url = new URL(String(folder), base);
  if (!url.pathname.endsWith("/")) url.pathname += "/";
  return url;
}

/** A model folder at an address. No byte of it is used unless the folder's parity report vouches for it. */
export class ModelStore {
  #loaded = new Map(); // file → { loaded, total } in bytes

  constructor(folder, { onProgress, signal } = {}) {
    this.folder = folderUrl(folder);
    this.onProgress = onProgress;
    this.signal = signal;
    this.report = null;
  }

  /** Read the report; a folder without a proof is refused. */
  async open() {
    this.report = JSON.parse(new TextDecoder().decode(await this.#readReport()));
    if (this.report.verdict !== "verified") {
      throw new ModelError("{file} does not say that the model is verified; export the model again.", { file: REPORT });
    }
    return this;
  }

  /** Whether the report vouches for a file. */
  has(name) {
    return name in this.report.files;
  }

  /** A file's bytes, checked. */
  async bytes(name) {
    const sha256 = this.report.files[name];
    if (!sha256) throw new ModelError("{file} is not in the parity report; export the model again.", { file: name });
    return this.#checked(new URL(name, this.folder), sha256, name);
  }

  /** A JSON file's value. */
  async json(name) {
    return JSON.parse(new TextDecoder().decode(await this.bytes(name)));
  }

  /** A small file that belongs to these modules, and comes from where they came from. */
  async plain(url) {
    return this.#fetched(url, url.pathname.split("/").at(-1));
  }

  /** A file of another folder, such as the runtime's, whose SHA-256 the caller knows. */
  async other(url, sha256) {
    return this.#checked(url, sha256, url.pathname.split("/").at(-1));
  }

  async #checked(url, sha256, name) {
    const cache = await openCache();
    const key = new URL(`?sha256=${sha256}`, url).href;
    const kept = await cache?.match(key);
    if (kept) {
      const bytes = new Uint8Array(await kept.arrayBuffer());
      if ((await hex(bytes)) === sha256) {
        this.#progress(name, bytes.length, bytes.length);
        return bytes;
      }
      await cache.delete(key);
    }
    let bytes = await this.#fetched(url, name);
    let found = await hex(bytes);
    if (found !== sha256 && cache) {
      bytes = await this.#fetched(url, name, "reload"); // the browser may have kept an older version of the file
      found = await hex(bytes);
    }
    if (found !== sha256) {
      throw new ModelError("{file} is not the file that the parity report vouches for; load it again.", { file: name });
    }
    await keep(cache, key, bytes);
    return bytes;
  }

  async #readReport() {
    const url = new URL(REPORT, this.folder);
    const cache = await openCache();
    try {
      const bytes = await this.#fetched(url, REPORT, "no-cache"); // it says which version the other files have
      await keep(cache, url.href, bytes);
      return bytes;
    } catch (error) {
      const kept = isAbort(error) ? undefined : await cache?.match(url.href);
      if (!kept) throw error;
      return new Uint8Array(await kept.arrayBuffer()); // without a network, what the last visit read
    }
  }

  async #fetched(url, name, cache = "default") {
    if (url.protocol === "file:") {
      const { readFile } = await import("node:fs/promises");
      const bytes = await readFile(url, { signal: this.signal }).catch((error) => {
        throw isAbort(error) ? error : unreachable(name, error.code);
      });
      this.#progress(name, bytes.length, bytes.length);
      return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
    }
    const response = await fetch(url, { signal: this.signal, cache }).catch((error) => {
      throw isAbort(error) ? error : unreachable(name, error.message);
    });
    if (!response.ok) throw unreachable(name, response.status);
    return this.#body(response, name);
  }

  /** The body of a response, piece by piece, so that a bar can move. */
  async #body(response, name) {
    // Of a compressed body the header gives the size as it travels, which says nothing about the bytes that come out.
    const encoded = response.headers.get("content-encoding");
    const total = encoded ? 0 : Number(response.headers.get("content-length") ?? 0);
    this.#progress(name, 0, total);
    const pieces = [];
    let loaded = 0;
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        throw isAbort(error) ? error : unreachable(name, error.message);
      });
      if (done) break;
      pieces.push(value);
      loaded += value.length;
      this.#progress(name, loaded, Math.max(loaded, total));
    }
    const bytes = new Uint8Array(loaded);
    let at = 0;
    for (const piece of pieces) {
      bytes.set(piece, at);
      at += piece.length;
    }
    return bytes;
  }

  /** Bytes so far and in all, over the files that were begun. */
  #progress(file, loaded, total) {
    this.#loaded.set(file, { loaded, total });
    const all = [...this.#loaded.values()];
    const sum = (field) => all.reduce((bytes, entry) => bytes + entry[field], 0);
    this.onProgress?.({ file, loaded: sum("loaded"), total: sum("total") });
  }
}

function unreachable(file, reason) {
  return new ModelError("{file} cannot be read ({reason}); check the address and the network.", { file, reason });
}

/** The browser's cache; none in Node, and none where the browser forbids it. */
async function openCache() {
  return globalThis.caches ? caches.open(CACHE).catch(() => null) : null;
}

/** Keep bytes for the next visit, in place of older versions of the same file; a full disk is no reason to fail. */
async function keep(cache, key, bytes) {
  if (!cache) return;
  const { origin, pathname } = new URL(key);
  try {
    for (const old of await cache.keys()) {
      const url = new URL(old.url);
      if (url.origin === origin && url.pathname === pathname && old.url !== key) await cache.delete(old);
    }
    await cache.put(key, new Response(bytes));
  } catch {
    await cache.delete(key).catch(() => {});
  }
}

/** The SHA-256 of bytes, in hexadecimal digits. */
async function hex(bytes) {
  if (!globalThis.crypto?.subtle) {
    throw new ModelError("The files cannot be checked here; open the page by https or on localhost.");
  }
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
