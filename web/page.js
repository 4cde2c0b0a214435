// The page: chooses a model, loads it, and shows what it writes while it writes it. All work is done in a worker.
import { isAbort } from "./errors.js";
import { modelState, open, showLoading, showProblem } from "./loading.js";
import { readOptions, showOptions } from "./options.js";
import { showReport } from "./report.js";
import { lookedAt, showResult } from "./result.js";
import { chooseLanguage, currentLanguage, element, loadTexts, said, showTexts } from "./texts.js";

const EXAMPLES = {
  chat: ["Hello! How are you today?", "Tell me a joke.", "Tell me a story."],
  translate: ["Guten Morgen! Wie geht es dir?", "Der Hund schläft unter dem Tisch.", "我明天要去北京。"],
  complete: ["Once upon a time", "The little fox", "One day"],
};
const STORED = "tiny-transformer.web/"; // what the visitor chose: language, colors
const find = (id) => document.getElementById(id);

let site;
const models = new Map(); // name → a model of the site and where its visitor stands with it
let current; // the one that is shown
let work = null; // the AbortController of the answer that is being written

start().catch((error) => showProblem(error));

async function start() {
  chooseColors(stored("colors"));
  await loadTexts(stored("language"));
  site = await (await fetch("site.json")).json();
  for (const entry of site.models) {
    models.set(entry.name, { ...modelState(site, entry), turns: [], result: null });
  }
  wire();
  const asked = decodeURIComponent(location.hash.slice(1));
  await choose(models.has(asked) ? asked : site.models[0].name);
}

// ---- The head of the page

function wire() {
  for (const button of document.querySelectorAll("[data-language]")) {
    button.addEventListener("click", () => {
      store("language", button.dataset.language);
      chooseLanguage(button.dataset.language);
      showAll();
    });
  }
  find("colors").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    store("colors", dark ? "light" : "dark");
    chooseColors(stored("colors"));
  });
  find("models").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const names = [...models.keys()];
    choose(names.at((names.indexOf(current.entry.name) + step) % names.length));
    find("models").querySelector('[aria-checked="true"]').focus();
  });
  find("load").addEventListener("click", () => open(current, showIfCurrent).catch(() => {}));
  find("proof").addEventListener("click", openReport);
  find("report-close").addEventListener("click", () => find("report").close());
  find("clear").addEventListener("click", clear);
  find("chat-form").addEventListener("submit", (event) => (event.preventDefault(), send()));
  find("translate-form").addEventListener("submit", (event) => (event.preventDefault(), translate()));
  for (const button of document.querySelectorAll("button.stop")) button.addEventListener("click", () => work?.abort());
  find("message").addEventListener("input", growMessage);
  // A key that ends the choice of a Chinese character is not one that sends.
  find("message").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) (event.preventDefault(), send());
  });
  find("source").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) (event.preventDefault(), translate());
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !find("report").open) work?.abort();
  });
}

function showModels() {
  const tasks = site.models.map((entry) => entry.task);
  const buttons = site.models.map((entry) => {
    const alone = tasks.filter((task) => task === entry.task).length === 1;
    const chosen = entry.name === current.entry.name;
    const made = element("button", { type: "button", role: "radio", tabIndex: chosen ? 0 : -1 });
    made.textContent = alone ? said(`task_${entry.task}`) : entry.name;
    made.setAttribute("aria-checked", String(chosen));
    made.addEventListener("click", () => choose(entry.name));
    return made;
  });
  find("models").replaceChildren(...buttons);
}

/** Everything that has words, anew: after another model or another language was chosen. */
function showAll() {
  showTexts();
  for (const button of document.querySelectorAll("[data-language]")) {
    button.ariaPressed = String(button.dataset.language === currentLanguage());
  }
  showModels();
  const { task } = current.entry;
  find("chat").hidden = task === "translate";
  find("translate").hidden = task !== "translate";
  find("proof").hidden = false;
  const words = current.entry.backend === "web" ? "proved" : "proved_int8"; // rounded weights are not equal
  find("proof").textContent = said(words);
  find("report-title").textContent = said(words);
  if (task === "translate") showTranslator();
  else showConversation();
  showOptions(find("option-fields"), current);
  showLoading(current);
}

async function choose(name) {
  stopWork();
  current = models.get(name);
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  showAll();
  // Whoever pays for bytes is asked first.
  if (!navigator.connection?.saveData) await open(current, showIfCurrent).catch(() => {});
}

function showIfCurrent(state) {
  if (state === current) showLoading(state);
}

function chooseColors(colors) {
  if (colors) document.documentElement.dataset.colors = colors;
}

function stored(key) {
  try {
    return localStorage.getItem(STORED + key);
  } catch {
    return null; // the browser keeps nothing for this page
  }
}

function store(key, value) {
  try {
    localStorage.setItem(STORED + key, value);
  } catch {
    // The choice lasts as long as the page.
  }
}

async function openReport() {
  const { entry, model } = current;
  try {
    const page = model?.report ?? (await (await fetch(`${entry.path}parity.json`)).json());
    const folder = await (await fetch(`${entry.path}parity-folder.json`)).json();
    showReport(find("report-body"), site, entry, page, folder);
    find("report").showModal();
  } catch (error) {
    showProblem(error);
  }
}

// ---- Writing

/** One answer: `show` gets the text so far. Ends with the result, or with null where it was refused. */
async function write(state, input, show) {
  const mine = (work = new AbortController());
  setWorking(true);
  const begun = { text: "", at: 0 };
  find("problem").hidden = true;
  try {
    const model = await open(state, showIfCurrent);
    mine.signal.throwIfAborted();
    begun.at = performance.now();
    const onToken = ({ text }) => show((begun.text += text));
    const result = await model.generate(input, readOptions(state), { onToken, signal: mine.signal });
    return { ...result, input: lookedAt(input, result), seconds: (performance.now() - begun.at) / 1000 };
  } catch (error) {
    if (isAbort(error)) return { text: begun.text, tokens: [], finishReason: "stopped", notices: [], input: null, seconds: 0 };
    if (state === current) showProblem(error);
    return null;
  } finally {
    if (work === mine) {
      work = null;
      setWorking(false);
    }
  }
}

/** End the answer that is being written: nothing waits for it any more. */
function stopWork() {
  work?.abort();
  work = null;
  setWorking(false);
}

function setWorking(working) {
  for (const form of [find("chat-form"), find("translate-form")]) {
    form.querySelector("button.primary").hidden = working;
    form.querySelector("button.stop").hidden = !working;
  }
}

// ---- Chat, and going on with a text

async function send() {
  const state = current;
  const text = find("message").value.trim();
  if (!text || work) return;
  find("message").value = "";
  growMessage();
  const [log, { turns }] = [find("log"), state];
  if (!turns.length) log.replaceChildren();
  turns.push({ role: "user", content: text });
  const asked = showTurn({ role: "user", content: text });
  const turn = showTurn({ role: "assistant", content: "" });
  turn.classList.add("writing");
  if (!state.model) turn.querySelector(".line").textContent = said("waiting");
  const answer = turn.querySelector(".answer");
  const dialogue = turns.map(({ role, content }) => ({ role, content }));
  const input = state.entry.task === "chat" ? dialogue : text;
  const result = await write(state, input, (soFar) => {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    answer.textContent = soFar;
    if (atEnd) log.scrollTop = log.scrollHeight;
  });
  turn.classList.remove("writing");
  if (!result) {
    turns.pop();
    asked.remove();
    turn.remove();
    if (state === current && !find("message").value) find("message").value = text;
    return;
  }
  turns.push({ role: "assistant", content: result.text, result });
  if (state !== current || state.turns !== turns) return; // another model, or a new conversation
  turn.replaceWith(showTurn(turns.at(-1)));
  find("clear").hidden = false;
}

function showTurn({ role, content, result }) {
  const turn = element("div", { className: `turn ${role}` });
  if (role === "user") turn.textContent = content;
  else {
    const [line, tokens] = [element("p", { className: "line" }), element("div", { className: "tokens" })];
    turn.append(element("div", { className: "answer", lang: "en" }, content), line, tokens);
    if (result) showResult(line, tokens, result, current);
  }
  find("log").append(turn);
  find("log").scrollTop = find("log").scrollHeight;
  return turn;
}

function showConversation() {
  if (work) return; // an answer is being written there; its words are the model's
  find("clear").hidden = !current.turns.length;
  find("log").replaceChildren();
  if (current.turns.length) current.turns.forEach(showTurn);
  else {
    const welcome = element("div", { className: "welcome" });
    welcome.innerHTML = said(`${current.entry.task}_placeholder`); // a text of ours, nobody else's
    welcome.append(examples((text) => {
      find("message").value = text;
      send();
    }));
    find("log").append(welcome);
  }
}

function examples(use) {
  const buttons = EXAMPLES[current.entry.task].map((text) => {
    const button = element("button", { type: "button", className: "example" }, text);
    button.addEventListener("click", () => use(text));
    return button;
  });
  return element("div", { className: "examples" }, ...buttons);
}

function clear() {
  stopWork();
  current.turns = [];
  showConversation();
  find("message").focus();
}

function growMessage() {
  const box = find("message");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + 2}px`;
}

// ---- Translation

async function translate() {
  const state = current;
  const text = find("source").value.trim();
  if (!text || work) return;
  const target = find("target");
  target.textContent = "";
  target.classList.add("writing");
  clearResult();
  if (!state.model) find("target-line").textContent = said("waiting");
  const result = await write(state, text, (soFar) => {
    target.textContent = soFar;
  });
  target.classList.remove("writing");
  if (!result || state !== current) return;
  state.result = result;
  showTranslator();
}

function clearResult() {
  current.result = null;
  find("target-line").textContent = "";
  find("target-tokens").replaceChildren();
  for (const notice of document.querySelectorAll("#translate .notice")) notice.remove();
}

function showTranslator() {
  if (work) return;
  const { result } = current;
  find("clear").hidden = true;
  clearResult();
  current.result = result;
  find("target").textContent = result?.text ?? "";
  if (result) showResult(find("target-line"), find("target-tokens"), result, current);
  find("source-examples").replaceWith(
    Object.assign(examples((text) => {
      find("source").value = text;
      translate();
    }), { id: "source-examples" }),
  );
}
