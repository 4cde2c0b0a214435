"""What runs in the visitor's browser: the dialogue is kept there, and nowhere else."""

# Nothing is kept before the first recall, or an empty page would overwrite what was there. A browser
# may forbid storage altogether; the page then simply forgets.
KEEP = """(shown, model) => {
  if (window.ttRecalled !== model) return;
  try { localStorage.setItem("tiny-transformer/" + model, JSON.stringify(shown)); } catch (error) { }
}"""

# An answer that was still coming when the page was left has no line yet.
RECALL = """(model) => {
  window.ttRecalled = model;
  try {
    const shown = JSON.parse(localStorage.getItem("tiny-transformer/" + model)) || [];
    const last = shown[shown.length - 1];
    if (last && last.role === "assistant" && /…<.span>$/.test(last.content[1]?.text)) last.content[1].text = "";
    return shown;
  } catch (error) { return []; }
}"""
