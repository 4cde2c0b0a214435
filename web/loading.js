// From a model's address to the opened model: read once, with a bar, and kept for visits without a network.
import { loadModel } from "./index.js";
import { megabytes, said, translated } from "./texts.js";

const find = (id) => document.getElementById(id);

/** A model of the site that is not opened yet. `size` is what the worker reads for it, in bytes. */
export function modelState(site, entry) {
  const own = Object.keys(site.files).filter((path) => path.startsWith(entry.path));
  // Maps of attention are read when they are asked for.
  const read = own.filter((path) => !path.endsWith("inside.onnx"));
  read.push(...Object.keys(site.files).filter((path) => path.endsWith(".wasm")));
  const size = read.reduce((sum, path) => sum + site.files[path].bytes, 0);
  const weights = own.find((path) => path.endsWith(".safetensors"));
  const key = new URL(`${weights}?sha256=${site.files[weights].sha256}`, document.baseURI);
  return { entry, size, key, model: null, opening: null, bytes: 0 };
}

/** The opened model; who asks while it is loading waits for the same one. `changed(state)` is called as it goes on. */
export function open(state, changed) {
  state.opening ??= load(state, changed).catch((error) => {
    state.opening = null;
    state.problem = error;
    changed(state);
    throw error;
  });
  return state.opening;
}

async function load(state, changed) {
  state.problem = null;
  state.progress = 0;
  changed(state);
  state.kept = await isKept(state.key);
  const onProgress = ({ loaded }) => {
    state.progress = Math.min(loaded / state.size, 1);
    state.bytes = loaded;
    changed(state);
  };
  const { path, backend } = state.entry;
  state.model = await loadModel(new URL(path, document.baseURI).href, { onProgress, backend });
  changed(state);
  keepPage();
  return state.model;
}

/** Whether an earlier visit has left the model's weights, under their hash, in this browser. */
async function isKept(key) {
  return Boolean(await globalThis.caches?.match(key).catch(() => null));
}

/** For visits without a network, once nothing else is waiting for the network. */
function keepPage() {
  navigator.serviceWorker?.register("service-worker.js").catch(() => {}); // private windows refuse it
}

/** The bar, the button, the problem, and the facts about what was loaded. */
export function showLoading({ entry, size, model, opening, problem, progress, bytes, kept }) {
  find("loading").hidden = Boolean(model);
  find("load").hidden = Boolean(opening);
  find("load").textContent = problem ? said("load_again") : said("load", { megabytes: megabytes(size) });
  find("progress").hidden = !opening;
  find("progress").value = progress ?? 0;
  const values = { loaded: megabytes(bytes), total: megabytes(size) };
  find("loading-words").hidden = !opening;
  find("loading-words").textContent = said(progress >= 1 ? "loading_opening" : "loading_bytes", values);
  if (problem) showProblem(problem);
  else find("problem").hidden = true;
  const parameters = (entry.parameters / 1e6).toFixed(1);
  find("facts").textContent = model
    ? said(kept ? "facts_kept" : "facts", { parameters, megabytes: megabytes(bytes) })
    : "";
}

export function showProblem(error) {
  find("problem").hidden = false;
  find("problem").textContent = translated(error);
}
