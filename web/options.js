// The settings of an answer: names, ranges and defaults of the decoding options that the page offers.
import { element, said } from "./texts.js";

const OPTIONS = [
  { name: "temperature", low: 0, high: 1.5, step: 0.1, value: 0 },
  { name: "max_new_tokens", low: 1, high: null, step: 1, value: 128 }, // up to the model's context
  { name: "top_k", low: 0, high: 100, step: 1, value: 0 },
  { name: "top_p", low: 0.05, high: 1, step: 0.05, value: 1 },
  { name: "repetition_penalty", low: 1, high: 2, step: 0.05, value: 1 },
];
const MAX_SEED = Number.MAX_SAFE_INTEGER;
const ALTERNATIVES = 5; // tokens that are shown beside the chosen one

/** The controls for a model; what was set stays with the model. `state.defaults` are its generation.json's values. */
export function showOptions(parent, state) {
  state.options ??= {};
  parent.replaceChildren(...OPTIONS.map((option) => slider(option, state)), seedBox(state));
}

/** What was set, for `generate`; the model's own values otherwise. */
export function readOptions(state) {
  return { ...state.options, alternatives: ALTERNATIVES };
}

function slider({ name, low, high, step, value }, state) {
  const most = high ?? state.entry.context;
  const chosen = state.options[name] ?? Math.min(state.entry.generation[name] ?? value, most);
  const output = element("output", {}, String(chosen));
  const input = element("input", { type: "range", min: low, max: most, step });
  input.value = chosen;
  input.addEventListener("input", () => {
    state.options[name] = Number(input.value);
    output.textContent = input.value;
  });
  return labelled(name, output, input);
}

function seedBox(state) {
  const input = element("input", { type: "number", min: 0, max: MAX_SEED, step: 1, value: state.options.seed ?? "" });
  input.addEventListener("input", () => {
    if (input.value === "" || !input.checkValidity()) delete state.options.seed;
    else state.options.seed = Number(input.value);
  });
  return labelled("seed", input);
}

function labelled(name, ...controls) {
  const words = element("span", {}, said(name));
  return element("label", {}, words, ...controls, element("small", {}, said(`${name}_info`)));
}
