// How sure the model was: one chip a token, and on request what could have stood in its place.
import { element, said, visible } from "./texts.js";

/** `tokens` are those of a result: `{ text, logprob, alternatives: [{ text, logprob }] }`. */
export function showTokens(parent, tokens) {
  const panel = element("div", {});
  const chips = tokens.map((token) => {
    const chance = Math.exp(token.logprob);
    const chip = element("button", { type: "button", ariaExpanded: "false" }, visible(token.text));
    chip.ariaLabel = `${token.text} ${percent(chance)}`;
    chip.style.setProperty("--doubt", String(1 - chance));
    chip.addEventListener("click", () => {
      const open = chip.ariaExpanded === "true";
      for (const other of chips) other.ariaExpanded = "false";
      chip.ariaExpanded = String(!open);
      panel.replaceChildren(...(open ? [] : [choices(token)]));
      panel.scrollIntoView({ block: "nearest" });
    });
    return chip;
  });
  const list = element("ul", { className: "chips" }, ...chips.map((chip) => element("li", {}, chip)));
  parent.replaceChildren(list, panel);
}

function choices(token) {
  const chosen = { ...token, chosen: true };
  const others = token.alternatives.filter((other) => other.id !== token.id);
  const rows = [chosen, ...others].sort((a, b) => b.logprob - a.logprob).map(row);
  const table = element("table", {}, element("caption", {}, said("tokens_caption")), element("tbody", {}, ...rows));
  return element("div", { className: "choices" }, table);
}

function row({ text, logprob, chosen }) {
  const chance = Math.exp(logprob);
  const bar = element("meter", { min: 0, max: 1, value: chance, ariaLabel: percent(chance) });
  const name = element("th", { scope: "row" }, visible(text) + (chosen ? " ✓" : ""));
  return element("tr", {}, name, element("td", {}, bar), element("td", {}, percent(chance)));
}

function percent(chance) {
  return chance >= 0.9995 ? "100 %" : `${(chance * 100).toFixed(chance < 0.1 ? 2 : 1)} %`;
}
