// Below an answer: how long it took, what was left out, and on request how sure the model was and where it looked.
import { showAttention } from "./attention.js";
import { showProblem } from "./loading.js";
import { element, said, translated } from "./texts.js";
import { showTokens } from "./tokens.js";

/** Fill the line below an answer; what its buttons show stands in `below`. */
export function showResult(line, below, result, { entry, model }) {
  line.textContent = summary(result);
  below.replaceChildren();
  for (const notice of result.notices) below.before(element("p", { className: "notice" }, translated(notice)));
  if (!result.tokens.length) return;
  const buttons = [opener("show_tokens", below, () => showTokens(below, result.tokens))];
  // Rounded weights have no maps, and a text that was stopped has no end to look back from.
  if (entry.backend === "web" && result.input) {
    buttons.push(opener("show_maps", below, async () => showAttention(below, await model.attention(...result.input))));
  }
  line.append(...buttons);
}

function summary({ tokens, finishReason, seconds }) {
  if (finishReason === "stopped") return said("stopped");
  const count = tokens.length === 1 ? said("line_token") : said("line_tokens", { n: tokens.length });
  const parts = [count, said("line_speed", { speed: Math.round(tokens.length / Math.max(seconds, 0.001)) })];
  if (finishReason === "length") parts.push(said("line_length"));
  return parts.join(" · ");
}

/** A button that shows something below the line, instead of what is there, or hides it. */
function opener(key, below, show) {
  const button = element("button", { type: "button", ariaExpanded: "false" }, said(key));
  button.addEventListener("click", async () => {
    const open = button.ariaExpanded === "true";
    for (const other of button.parentElement.children) other.ariaExpanded = "false";
    button.ariaExpanded = String(!open);
    below.replaceChildren();
    try {
      if (!open) await show();
    } catch (error) {
      showProblem(error);
    }
    below.scrollIntoView({ block: "nearest" });
  });
  return button;
}

/** What a map of attention is about: the input and its answer, of a text of several sentences the first. */
export function lookedAt(input, result) {
  const [first] = result.sentences ?? [];
  if (!first || result.sentences.length === 1) return [input, result.text];
  return [input.slice(first.source.start, first.source.end), result.text.slice(first.target.start, first.target.end)];
}
