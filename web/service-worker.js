// Keeps the page for visits without a network: its own files, the runtime and the reports, under the site's version.
// A model's files are kept by store.js, under their own hashes.
//
// `python -m export web` writes the list of files into the next line: path → SHA-256.
const SITE = { version: "", files: {} };

// Several sites can stand on one origin, each in a folder of its own.
const scope = new URL("./", self.location).href;
const prefix = `tiny-transformer-page ${scope} `;
const cacheName = prefix + SITE.version;
const paths = new Map(Object.entries(SITE.files).map(([path, sha256]) => [new URL(path, scope).href, sha256]));
if (SITE.version) paths.set(scope, SITE.files["index.html"]);

async function install() {
  const cache = await caches.open(cacheName);
  for (const [address, expected] of paths) {
    // The browser asks the server whether its own copy is still the newest, and downloads only what is not.
    const response = await fetch(address, { cache: "no-cache" });
    if (!response.ok) throw new Error(`${address} was answered with status ${response.status}.`);
    const bytes = await response.clone().arrayBuffer();
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const found = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
    if (found !== expected) throw new Error(`${address} is not the file that this version of the page names.`);
    await cache.put(address, response);
  }
  await self.skipWaiting();
}

async function activate() {
  for (const name of await caches.keys()) {
    if (name.startsWith(prefix) && name !== cacheName) await caches.delete(name);
  }
  await self.clients.claim();
}

async function answer(request, address) {
  const cache = await caches.open(cacheName);
  return (await cache.match(address)) ?? fetch(request);
}

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(activate()));
self.addEventListener("fetch", (event) => {
  const address = event.request.url.split(/[?#]/)[0];
  if (event.request.method === "GET" && paths.has(address)) event.respondWith(answer(event.request, address));
});
