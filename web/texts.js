// The page's words in English and Chinese. `python -m export web` writes texts.json from the project's one table.

let texts = { en: {}, zh: {}, messages: {} };
let language = "en";

/** Read the words, and take the language that was chosen, else the first of the browser's that the page speaks. */
export async function loadTexts(chosen) {
  texts = await (await fetch("texts.json")).json();
  const wanted = [chosen, ...navigator.languages.map((tag) => tag.slice(0, 2))];
  language = wanted.find((tag) => tag === "en" || tag === "zh") ?? "en";
}

export function chooseLanguage(tag) {
  language = tag;
}

export function currentLanguage() {
  return language;
}

/** A text of the page by its key. */
export function said(key, values = {}) {
  return filled(texts[language][key], values);
}

/** A sentence of the library, which is a template with values, in the page's language. */
export function translated(sentence) {
  if (!sentence?.template) return said("unexpected", { reason: String(sentence?.message ?? sentence) });
  const template = (language === "zh" && texts.messages[sentence.template]) || sentence.template;
  const values = Object.entries(sentence.values ?? {});
  return filled(template, Object.fromEntries(values.map(([name, v]) => [name, v?.template ? translated(v) : v])));
}

/** Python's format strings, as far as the table uses them: {name}, {name:,}, {name!r} and doubled braces. */
function filled(template, values) {
  return template.replace(/\{\{|\}\}|\{(\w+)(![rs])?(:[^}]*)?\}/g, (found, name, _, format) => {
    if (!name) return found[0];
    return format === ":," ? Number(values[name]).toLocaleString(language) : String(values[name]);
  });
}

/** Put the words into every element that names one: its text, its label, its hint. */
export function showTexts(root = document) {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const element of root.querySelectorAll("[data-text]")) element.textContent = said(element.dataset.text);
  for (const element of root.querySelectorAll("[data-label]")) element.ariaLabel = said(element.dataset.label);
  for (const element of root.querySelectorAll("[data-hint]")) element.placeholder = said(element.dataset.hint);
}

export function megabytes(bytes) {
  return (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);
}

/** An element with properties and children: `element("p", { className: "line" }, "words")`. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** A token's text with its white space as something that can be seen. */
export function visible(text) {
  return text.replaceAll(" ", "␣").replaceAll("\n", "⏎") || "∅";
}
