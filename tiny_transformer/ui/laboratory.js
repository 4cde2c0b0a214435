() => {
  // The tab Look inside: questions to the server, numbers drawn as colors, and the odds under their sliders.

  // A component of the page has `ttAsk` once it is there; a button in it says what it asks.
  const askOf = (element) => {
    while (element && !element.ttAsk) element = element.parentElement;
    return element && element.ttAsk;
  };
  const tell = (element, question) => askOf(element)?.(question);
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const percent = (share) => {
    const value = 100 * share;
    if (value < 0.1) return value === 0 ? "0 %" : "< 0.1 %";
    return value >= 10 ? `${value.toFixed(0)} %` : `${value.toFixed(1)} %`;
  };

  // Chips: the chosen token is marked, and the server is asked for all that belongs to it.
  const choose = (position) => {
    document.querySelectorAll("#tt-written [data-chip]").forEach((chip) => {
      chip.setAttribute("aria-pressed", String(Number(chip.dataset.chip) === position));
    });
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-ask]");
    if (!button) return;
    const question = JSON.parse(button.dataset.ask);
    tell(button, question);
    if (question.position === undefined) return;
    choose(question.position);
    // The list that was clicked goes away: the keyboard is led back to the chip.
    if (question.id !== undefined) document.querySelector(`#tt-written [data-chip="${question.position}"]`)?.focus();
  });

  // Switches: all that are off are sent at once.
  document.addEventListener("click", (event) => {
    const all = event.target.closest("[data-all-on]");
    const one = event.target.closest("[data-part]");
    if (!all && !one) return;
    const board = (all || one).closest(".tt-switches");
    if (one) one.setAttribute("aria-pressed", String(one.getAttribute("aria-pressed") !== "true"));
    else board.querySelectorAll("[data-part]").forEach((part) => part.setAttribute("aria-pressed", "true"));
    const off = [...board.querySelectorAll('[data-part][aria-pressed="false"]')].map((part) => part.dataset.part);
    tell(board, { off });
  });

  // One head step by step.
  let playing = 0;
  const stage = (steps, number) => {
    steps.dataset.stage = number;
    steps.querySelectorAll("[data-stage-to]").forEach((button) => {
      button.setAttribute("aria-current", button.dataset.stageTo === String(number) ? "step" : "false");
    });
  };
  document.addEventListener("click", (event) => {
    const steps = event.target.closest(".tt-steps");
    const to = event.target.closest("[data-stage-to]");
    const play = event.target.closest("[data-play]");
    if (!steps || !(to || play)) return;
    clearInterval(playing);
    stage(steps, to ? Number(to.dataset.stageTo) : 1);
    if (!play) return;
    playing = setInterval(() => {
      const next = Number(steps.dataset.stage) + 1;
      if (!steps.isConnected || next > 6) clearInterval(playing);
      else stage(steps, next);
    }, 2500);
  });

  // The value at the pointer.
  const tip = document.createElement("div");
  tip.className = "tt-tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  const wordsOf = (target) => {
    const cell = target.closest?.(".tt-heatmap td[data-v]");
    if (!cell) return target.closest?.("[data-words]")?.dataset.words || "";
    const map = cell.closest("table");
    const column = map.rows[0].cells[cell.cellIndex].textContent;
    const named = { row: cell.parentElement.cells[0].textContent, column, percent: percent(Number(cell.dataset.v)) };
    return map.dataset.link.replace(/\{(row|column|percent)\}/g, (_, name) => named[name]);
  };
  const pointAt = (words, x, y) => {
    tip.hidden = !words;
    if (!words) return;
    tip.textContent = words;
    const left = Math.min(x + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${y + 20 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 12 : y + 18}px`;
  };
  const point = (event) => pointAt(wordsOf(event.target), event.clientX, event.clientY);
  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);

  // Tables of the role grid are one stop of the Tab key; arrow keys lead from cell to cell. What stops there is the
  // cell's button, or a cell with a value, which is then spoken and shown.
  const GRID = 'table[role="grid"]';
  let at = null; // where the keyboard is: the component, the number of its grid, row and column
  const stopOf = (cell) => cell?.querySelector("button") ?? (cell?.matches("[data-v], [data-words]") ? cell : null);
  const lead = (to) => {
    if (!to) return;
    if (to.matches("td")) to.setAttribute("aria-label", wordsOf(to));
    to.tabIndex = -1;
    to.focus({ preventScroll: true });
    to.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  const tipAtKeyboard = () => {
    const to = document.activeElement;
    const box = to?.matches(`${GRID} td:focus-visible`) && to.getBoundingClientRect();
    pointAt(box ? wordsOf(to) : "", box?.left, box?.bottom - 14);
  };
  document.addEventListener("focusin", ({ target }) => {
    const grid = target.closest?.(GRID);
    const cell = target.closest?.("td, th");
    at = null;
    if (!grid || !cell) return;
    grid.querySelectorAll('[tabindex="0"]').forEach((other) => { other.tabIndex = -1; });
    target.tabIndex = 0;
    const owner = target.closest('[id^="tt-"]').id;
    const number = [...document.querySelectorAll(`#${owner} ${GRID}`)].indexOf(grid);
    at = { owner, number, row: cell.parentElement.rowIndex, column: cell.cellIndex };
    tipAtKeyboard();
  });
  document.addEventListener("pointerdown", ({ target }) => { if (!target.closest?.(GRID)) at = null; });
  document.addEventListener("focusout", ({ target }) => { if (target.matches?.(`${GRID} td`)) tip.hidden = true; });
  document.addEventListener("scroll", tipAtKeyboard, true);
  document.addEventListener("keydown", (event) => {
    const grid = event.target.closest?.(GRID);
    const cell = event.target.closest?.("td, th");
    if (!grid || !cell || event.altKey || event.metaKey) return;
    if (event.key === "Enter" && event.target === cell)
      (cell.parentElement.querySelector("th button") ?? stopOf(grid.rows[0].cells[cell.cellIndex]))?.click();
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const end = { Home: 0, End: -1 }[event.key];
    if (!step && end === undefined) return;
    event.preventDefault();
    if (step) {
      let [row, column] = [cell.parentElement.rowIndex + step[0], cell.cellIndex + step[1]];
      while (grid.rows[row]?.cells[column] && !stopOf(grid.rows[row].cells[column])) [row, column] = [row + step[0], column + step[1]];
      lead(stopOf(grid.rows[row]?.cells[column]));
    } else {
      const cells = event.ctrlKey ? [...grid.querySelectorAll("td, th")] : [...cell.parentElement.cells];
      lead(cells.map(stopOf).filter(Boolean).at(end));
    }
  });
  // What the keyboard was on comes anew from the server: it goes back there.
  const leadBack = () => {
    if (!at || document.activeElement !== document.body) return;
    const grid = document.querySelectorAll(`#${at.owner} ${GRID}`)[at.number];
    lead(stopOf(grid?.rows[at.row]?.cells[at.column]));
  };

  // Numbers as colors. Both work on light and on dark ground.
  const above = [70, 130, 200], below = [214, 100, 60];
  const paint = (canvas, columns, rows, color) => {
    canvas.width = columns;
    canvas.height = rows;
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    for (let i = 0; i < columns * rows; i++) image.data.set(color(i), 4 * i);
    context.putImageData(image, 0, 0);
    canvas.dataset.drawn = "";
  };
  const draw = (canvas) => {
    if (canvas.dataset.strip !== undefined) {
      const values = new Int8Array(bytes(canvas.dataset.strip).buffer);
      const columns = Number(canvas.dataset.columns || values.length);
      paint(canvas, columns, values.length / columns, (i) => [...(values[i] < 0 ? below : above), 2 * Math.abs(values[i])]);
    } else {
      const values = bytes(canvas.dataset.heat);
      const columns = Number(canvas.dataset.columns);
      paint(canvas, columns, values.length / columns, (i) => [...above, values[i]]);
    }
  };

  // The odds of one token: what `probabilities` of generation/sampling.py computes, over logits sorted downwards.
  const probabilities = (logits, temperature, k, p) => {
    const found = new Float64Array(logits.length);
    if (temperature === 0) {
      found[0] = 1;
      return found;
    }
    const least = k > 0 && k < logits.length ? logits[k - 1] : -Infinity;
    let total = 0;
    for (let i = 0; i < logits.length && logits[i] >= least; i++) {
      found[i] = Math.exp((logits[i] - logits[0]) / temperature);
      total += found[i];
    }
    for (let i = 0; i < found.length; i++) found[i] /= total;
    if (p >= 1) return found;
    let last = 0, sum = found[0];
    while (sum < p && last + 1 < found.length) sum += found[++last];
    const bound = found[last];
    total = 0;
    for (let i = 0; i < found.length; i++) total += found[i] = found[i] >= bound ? found[i] : 0;
    for (let i = 0; i < found.length; i++) found[i] /= total;
    return found;
  };
  const redraw = (odds) => {
    if (odds.ttDrawn !== odds.dataset.logits) odds.ttLogits = new Float32Array(bytes(odds.dataset.logits).buffer);
    odds.ttDrawn = odds.dataset.logits;
    const sentences = JSON.parse(odds.dataset.sentences);
    const [temperature, k, p] = ["temperature", "top_k", "top_p"].map((name) => {
      const knob = odds.querySelector(`[data-knob="${name}"]`);
      const value = Number(knob.value);
      const off = (name === "top_k" && value === 0) || (name === "top_p" && value >= 1);
      knob.parentElement.querySelector("output").textContent = off ? sentences.off : value;
      return value;
    });
    const found = probabilities(odds.ttLogits, temperature, k, p);
    let rest = 1;
    const show = (row, share) => {
      row.querySelector("i").style.width = `${100 * share}%`;
      row.querySelector("b").textContent = percent(share);
      row.classList.toggle("tt-out", share === 0);
    };
    odds.querySelectorAll("[data-rank]").forEach((row) => {
      const share = found[Number(row.dataset.rank)];
      rest -= share;
      show(row, share);
    });
    show(odds.querySelector(".tt-others"), rest < 1e-9 ? 0 : rest);
    const kept = found.reduce((count, share) => count + (share > 0), 0);
    const words = kept === found.length ? sentences.all : sentences.some;
    odds.querySelector(".tt-kept").textContent = words.replace("{kept}", kept.toLocaleString("en"));
  };
  document.addEventListener("input", (event) => {
    const odds = event.target.closest("[data-knob]") && event.target.closest(".tt-odds");
    if (odds) redraw(odds);
  });

  // Whatever comes new from the server is drawn. An element may be the old one with new numbers, or with its attributes
  // set back to the server's, which clears a canvas.
  let waiting = false;
  const fresh = () => {
    waiting = false;
    document.querySelectorAll("canvas[data-strip], canvas[data-heat]").forEach((canvas) => {
      const numbers = canvas.dataset.strip ?? canvas.dataset.heat;
      if (canvas.ttDrawn === numbers && canvas.dataset.drawn !== undefined) return;
      draw(canvas);
      canvas.ttDrawn = numbers;
    });
    leadBack();
    document.querySelectorAll(".tt-odds").forEach((odds) => { if (odds.ttDrawn !== odds.dataset.logits) redraw(odds); });
  };
  new MutationObserver(() => {
    if (!waiting) requestAnimationFrame(fresh);
    waiting = true;
  }).observe(document.body, {
    childList: true, subtree: true, attributes: true, attributeFilter: ["data-strip", "data-heat", "data-logits", "data-drawn"],
  });
}
