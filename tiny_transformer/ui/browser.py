"""What runs in the visitor's browser: the dialogue is kept there alone, and copied without our additions."""

# Nothing is kept before the first recall, or an empty page would overwrite what was there. A browser
# may forbid storage altogether; the page then simply forgets.
KEEP = """(shown, model) => {
  if (window.ttRecalled !== model) return;
  try { localStorage.setItem("tiny-transformer/" + model, JSON.stringify(shown)); } catch (error) { }
}"""

# The outer brackets are the list of outputs. An answer that was still coming when the page was left has no line yet.
RECALL = """(model) => {
  window.ttRecalled = model;
  try {
    const shown = JSON.parse(localStorage.getItem("tiny-transformer/" + model)) || [];
    const last = shown[shown.length - 1];
    if (last && last.role === "assistant" && /…<.span>$/.test(last.content[1]?.text)) last.content[1].text = "";
    return [shown];
  } catch (error) { return [[]]; }
}"""

# When the page opens. A group of choices gets its name for those who hear the page. Copying an answer takes its
# text: not the line under it, and not the invisible characters that keep "<" plain.
START = """() => {
  document.documentElement.lang = navigator.language.startsWith("zh") ? "zh" : "en";
  const clean = (text) => text.replace(/\\s*<span class="tt-line">[^]*$/, "").replaceAll("\\u2060", "");
  if (navigator.clipboard) {
    const write = navigator.clipboard.writeText.bind(navigator.clipboard);
    navigator.clipboard.writeText = (text) => write(clean(text));
  }
  document.addEventListener("focusin", (event) => {
    const group = event.target.closest("fieldset");
    const name = group && group.querySelector('[data-testid="block-info"]');
    if (name) group.setAttribute("aria-label", name.textContent.trim());
  });
  document.addEventListener("copy", (event) => {
    const field = document.activeElement;
    const inField = field && field.tagName === "TEXTAREA";
    const text = inField ? field.value.slice(field.selectionStart, field.selectionEnd) : String(getSelection());
    if (clean(text) === text) return;
    event.clipboardData.setData("text/plain", clean(text));
    event.preventDefault();
  });
}"""
