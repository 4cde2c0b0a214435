// Conversations and choices, kept in the visitor's browser alone: nothing of this reaches the server.
// A conversation is one entry of the browser's storage, and each tab remembers which one it shows. A browser may
// forbid storage altogether; the page then simply forgets.
window.tt = (() => {
  const ENTRY = "tiny-transformer/conversation/";
  const CURRENT = "tiny-transformer/current/";
  const MOST = 30; // conversations kept of one model
  let model = null; // whose conversations are shown
  let current = null; // the name of the one in sight; null while it has no entry
  let known = null; // that entry as this tab last read or wrote it

  const read = (store, name) => { try { return window[store].getItem(name); } catch (error) { return null; } };
  const write = (store, name, value) => { try { window[store].setItem(name, value); return true; } catch (error) { return false; } };
  const drop = (name) => { try { localStorage.removeItem(name); } catch (error) { } };
  const parsed = (text) => { try { return JSON.parse(text); } catch (error) { return null; } };
  const plain = (text) => String(text ?? "").replaceAll("\u2060", "");
  const said = (message) => plain(Array.isArray(message?.content) ? message.content[0]?.text : message?.content);
  const texts = (shown) => JSON.stringify((shown ?? []).map((message) => [message.role, message.content?.map?.((part) => part.text) ?? message.content]));
  const tasks = () => parsed(document.querySelector("[data-tasks]")?.dataset.tasks) ?? {};

  // The entries of a model, the newest first; what is not one of ours is left out.
  const entries = (owner) => {
    const found = [];
    try {
      for (const name of Object.keys(localStorage)) {
        const entry = name.startsWith(ENTRY + owner + "/") ? parsed(localStorage.getItem(name)) : null;
        if (Array.isArray(entry?.shown)) found.push({ name, title: String(entry.title), at: Number(entry.at) });
      }
    } catch (error) { }
    return found.sort((one, other) => other.at - one.at);
  };

  const list = () => {
    const place = document.querySelector("#tt-conversations ol");
    if (!place || model === null) return;
    place.replaceChildren(...entries(model).map(({ name, title }) => {
      const item = document.createElement("li");
      const [open, remove] = [document.createElement("button"), document.createElement("button")];
      open.type = remove.type = "button";
      open.dataset.open = remove.dataset.remove = name;
      open.textContent = title;
      if (name === current) open.setAttribute("aria-current", "true");
      remove.textContent = "×";
      remove.setAttribute("aria-label", place.dataset.words.replace("{title}", title));
      item.append(open, remove);
      return item;
    }));
  };

  const show = (name) => {
    current = name;
    known = name === null ? null : read("localStorage", name);
    write("sessionStorage", CURRENT + model, name ?? "");
    list();
  };

  // What the components get: the chat, and the two sides of the translator.
  const outputs = () => {
    const shown = parsed(known)?.shown ?? [];
    if (tasks()[model] === "translate") {
      tt.translated = said(shown[0]);
      return [[], tt.translated, said(shown[1])];
    }
    const last = shown[shown.length - 1]; // an answer that was still coming when the page was left has no line yet
    if (last?.role === "assistant" && /…<.span>$/.test(last.content?.[1]?.text)) last.content[1].text = "";
    return [shown, "", ""];
  };

  const keep = (shown, owner) => {
    // Nothing is kept before the first recall, or an empty page would overwrite what was there.
    if (owner !== model || texts(shown) === texts(parsed(known)?.shown)) return;
    if (!shown.length) {
      if (current !== null) drop(current);
      show(null);
      return;
    }
    // Another tab went on with this one, or removed it: what is written here becomes a conversation of its own.
    const changed = current !== null && read("localStorage", current) !== known;
    const begun = current === null || changed;
    if (begun) current = `${ENTRY}${model}/${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;
    known = JSON.stringify({ at: Date.now(), title: said(shown[0]).trim().slice(0, 80), shown });
    const others = entries(model).map((entry) => entry.name).filter((name) => name !== current);
    if (begun) others.splice(MOST - 1).forEach(drop);
    while (!write("localStorage", current, known) && others.length) drop(others.pop());
    write("sessionStorage", CURRENT + model, current);
    if (begun) list();
  };

  // The tokens of an answer, which stand in the line under it.
  const lineOf = (message) => String(message?.content?.[1]?.text ?? "");
  const tokens = (line) => {
    const found = /data-room="(\d+)" data-ids="([\d ]+)"/.exec(line);
    return found ? JSON.stringify({ room: Number(found[1]), ids: found[2].split(" ").map(Number) }) : "";
  };

  // The answer that "Look inside" or "Compare" was pressed on: its question, what was said before it, and its tokens.
  const question = (shown, source, owner) => {
    if (tasks()[owner] === "translate") return [tt.translated ?? source, "", tokens(lineOf(parsed(known)?.shown?.[1])) || "{}"];
    const answers = shown.flatMap((message, position) => (message.role === "assistant" ? [position] : []));
    const at = (answers[tt.pressed] ?? shown.length) - 1;
    const before = shown.slice(0, Math.max(0, at)).map((message) => ({ role: message.role, content: said(message) }));
    return [said(shown[at]), before.length ? JSON.stringify(before) : "", tokens(lineOf(shown[at + 1])) || "{}"];
  };

  // Once, when it is complete: those who hear the page should not hear every state of it.
  const announce = (text) => {
    const place = document.querySelector("#tt-heard");
    if (!place || !plain(text).trim()) return;
    place.textContent = "";
    setTimeout(() => { place.textContent = plain(text); }, 100);
  };

  return {
    recall: (owner) => {
      model = owner;
      document.body.dataset.task = tasks()[owner]; // the style sheet shows the chat or the translator
      const remembered = read("sessionStorage", CURRENT + owner);
      const newest = () => entries(owner)[0]?.name ?? null;
      show(remembered === null ? newest() : read("localStorage", remembered) === null ? null : remembered);
      return outputs();
    },
    shown: outputs,
    choose: ({ open, remove, fresh }) => {
      if (remove !== undefined) drop(remove);
      if (open !== undefined) show(open);
      else if (fresh !== undefined || remove === current) show(null);
      else list();
      return open !== undefined || fresh !== undefined || current === null;
    },
    begin: (source) => { tt.translated = source; show(null); },
    keep: (shown, owner) => { if (tasks()[owner] !== "translate") keep(shown, owner); },
    keepTranslation: (text, line, owner) => {
      if (tasks()[owner] !== "translate" || !text || !tt.translated) return;
      // The line under a translation is not shown again, but Look inside needs the tokens in it.
      const told = tokens(line) ? line : lineOf(parsed(known)?.shown?.[1]);
      keep([{ role: "user", content: tt.translated }, { role: "assistant", content: [{ text }, { text: told }] }], owner);
    },
    question,
    announce,
    announceLast: (shown) => announce(said(shown?.[shown.length - 1])),
    // Choices of the head: the model, and for each model its backend.
    prefer: (name, value) => write("localStorage", "tiny-transformer.page/" + name, value),
    preferred: (name, otherwise) => read("localStorage", "tiny-transformer.page/" + name) ?? otherwise,
    preferredModel: (otherwise) => {
      const found = read("localStorage", "tiny-transformer.page/model");
      return found !== null && found in tasks() ? found : otherwise;
    },
  };
})();
