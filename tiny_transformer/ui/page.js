() => {
  // What the visitor's browser does by itself, from when the page opens. The server fills in the sentences.
  const language = document.documentElement.lang.startsWith("zh") ? "zh" : "en";
  document.documentElement.lang = language;
  const sentences = SENTENCES[language];
  const keep = (name, value) => { try { localStorage.setItem("tiny-transformer.page/" + name, value); } catch (error) { } };

  const write = (field, text) => {
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };

  // Language and colors: the choice is kept, and the page opens again in it, so that every part of it follows.
  document.addEventListener("click", (event) => {
    const choice = event.target.closest("[data-language], [data-colors]");
    if (!choice) return;
    if (choice.dataset.language) {
      keep("language", choice.dataset.language);
      location.reload();
    } else {
      keep("colors", document.body.classList.toggle("dark") ? "dark" : "light");
    }
  });
  try {
    const colors = localStorage.getItem("tiny-transformer.page/colors");
    if (colors) document.body.classList.toggle("dark", colors === "dark");
  } catch (error) { }

  // Copying an answer takes its text: not the line under it, and not the invisible characters that keep "<" plain.
  const clean = (text) => text.replace(/\s*<(span|details) class="tt-line"[^]*$/, "").replaceAll("\u2060", "");
  if (navigator.clipboard) {
    const copy = navigator.clipboard.writeText.bind(navigator.clipboard);
    navigator.clipboard.writeText = (text) => copy(clean(text));
  }
  document.addEventListener("copy", (event) => {
    const field = document.activeElement;
    const inField = field && field.tagName === "TEXTAREA";
    const text = inField ? field.value.slice(field.selectionStart, field.selectionEnd) : String(getSelection());
    if (clean(text) === text) return;
    event.clipboardData.setData("text/plain", clean(text));
    event.preventDefault();
  });

  // An answer's question goes to another tab, with the conversation before it.
  document.addEventListener("click", (event) => {
    const way = event.target.closest(".tt-ways button");
    const tab = way?.className.replace("tt-carry-", "");
    if (!way) return;
    tt.pressed = [...document.querySelectorAll("#tt-chat .bot-row")].indexOf(way.closest(".bot-row"));
    document.querySelector(`[role="tab"][data-tab-id="${tab}"]`)?.click();
    document.querySelector(`#tt-carry-${tab}`)?.click();
  });

  // What Gradio says of the chat to those who hear it: every state of a streamed answer, the HTML of the line under
  // it, and a list without items. `#tt-heard` says each answer once instead.
  const hush = () => {
    document.querySelectorAll('#tt-chat [role="log"][aria-live="polite"]').forEach((log) => log.setAttribute("aria-live", "off"));
    document.querySelectorAll("#tt-chat .message-row [aria-label]:not(button)").forEach((part) => part.removeAttribute("aria-label"));
    document.querySelectorAll('#tt-chat .examples[role="list"]').forEach((list) => list.removeAttribute("role"));
  };
  new MutationObserver(hush).observe(document.body, {
    subtree: true, childList: true, attributes: true, attributeFilter: ["aria-label", "aria-live", "role"],
  });
  hush();

  document.addEventListener("focusin", (event) => {
    // A group of choices gets its name for those who hear the page.
    const group = event.target.closest("fieldset");
    const name = group && group.querySelector('[data-testid="block-info"]');
    if (name) group.setAttribute("aria-label", name.textContent.trim());
    // A message that is edited is the text that was written.
    const field = event.target;
    if (field.matches("#tt-chat textarea") && field.value.includes("\u2060")) write(field, clean(field.value));
  });

  // Enter or a click asks, unless the box is empty. A message leaves its box here and now, so that whatever is typed
  // from then on is the next one. Enter submits an edited message, too, and Shift+Enter a text to translate.
  const ASK = ".tt-ask, #tt-translator";
  const LONGEST = 5000; // milliseconds that the server may take to say that it begins
  const ignore = (event) => { event.preventDefault(); event.stopImmediatePropagation(); };
  // One answer at a time: while one is coming, its button is away.
  const busy = (ask) => Date.now() - (window.ttAsked ?? 0) < LONGEST || !ask.querySelector("button.primary")?.offsetParent;
  const asks = (event, ask) => {
    const field = ask.querySelector("textarea");
    const alone = ask.matches("#tt-ask, #tt-translator");
    if (alone && busy(ask)) return ignore(event);
    if (!field.value.trim()) {
      field.focus();
      // The refusal of an empty text clears the translation of an earlier one.
      if (!ask.querySelector("#tt-translation textarea")?.value) return ignore(event);
    }
    if (alone) window.ttAsked = Date.now();
    if (ask.id === "tt-ask") {
      window.ttSent = field.value;
      write(field, "");
    }
  };
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || !event.target.matches("textarea")) return;
    const ask = event.target.closest(event.shiftKey ? "#tt-translator" : ".tt-ask");
    const edited = event.shiftKey ? null : event.target.closest("#tt-chat .message-row");
    if (ask) asks(event, ask);
    if (!edited) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    edited.nextElementSibling?.querySelector("button")?.click();
  }, true);
  document.addEventListener("click", (event) => {
    const button = event.target.closest(`:is(${ASK}) button.primary`);
    if (button) asks(event, button.closest(ASK));
    const another = event.target.closest("#tt-another");
    if (another && busy(another.closest(ASK))) ignore(event);
    else if (another) window.ttAsked = Date.now();
  }, true);

  // Arrow keys lead from tab to tab.
  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !event.target.matches('[role="tab"]')) return;
    const tabs = [...event.target.closest('[role="tablist"]').querySelectorAll('[role="tab"]')];
    const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
    next.click();
    next.focus();
  });

  // The number of characters, once a text comes near the limit.
  const count = (field) => {
    const ask = field.closest(ASK);
    const limit = Number(ask && document.querySelector("[data-characters]")?.dataset.characters);
    if (!limit) return;
    const length = [...field.value].length;  // characters as the server counts them, not UTF-16 units
    const near = length >= 0.8 * limit;
    ask.dataset.count = near ? `${length.toLocaleString("en")} / ${limit.toLocaleString("en")}` : "";
    ask.classList.toggle("tt-over", length > limit);
  };
  const WRITTEN = ".tt-ask textarea, #tt-source textarea";
  document.addEventListener("input", (event) => { if (event.target.matches(WRITTEN)) count(event.target); });

  // Who waits is told how many are before them and for how long. Gradio knows both and hides them in its own words.
  setInterval(() => {
    document.querySelectorAll(WRITTEN).forEach(count);
    document.querySelectorAll(".block.tt-status").forEach((status) => {
      const tracker = status.querySelector('[data-testid="status-tracker"]:not(.hide)');
      const found = tracker?.textContent.match(/(?:queue: (\d+)\/\d+ \|)?\s*([\d.]+)(?:\/[\d.]+)?s/);
      const [before, seconds] = found ? [found[1], Number(found[2])] : [undefined, 0];
      let words = "";
      if (before !== undefined) words = before > 1 ? sentences.wait_before.replace("{n}", before - 1) : sentences.wait_next;
      else if (seconds >= 2) words = sentences.wait_working;
      if (words) words += ` · ${seconds.toFixed(0)} s`;
      let shown = status.querySelector(":scope > .tt-wait");
      if (!shown) {
        shown = document.createElement("p");
        shown.className = "tt-wait";
        status.append(shown);
      }
      if (shown.textContent !== words) shown.textContent = words;
    });
  }, 250);
}
