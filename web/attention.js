// Where the model looked: a map of attention weights, by part, layer and head, and its strongest links in words.
import { element, said, visible } from "./texts.js";

const MOST_TOKENS = 40; // of each side; a larger map cannot be read
const [CELL, LABEL, MARGIN] = [16, 92, 48]; // pixels; the last column's label leans over its edge
const AVERAGE = "average";

/** `found` is what `model.attention` gives: the tokens' texts, and maps (layers, 1, heads, rows, columns). */
export function showAttention(parent, found) {
  const kinds = ["cross", "decoder", "encoder"].filter((kind) => found.maps[kind]);
  const map = element("div", { className: "wide", tabIndex: 0, role: "region", ariaLabel: said("maps_label") });
  const words = element("ul", { className: "links" });
  const chosen = { kind: kinds[0], layer: AVERAGE, head: AVERAGE };
  const draw = () => {
    const { dims } = found.maps[chosen.kind];
    const weights = averaged(found.maps[chosen.kind], chosen.layer, chosen.head);
    const rows = (chosen.kind === "encoder" ? found.source : found.target).slice(0, MOST_TOKENS);
    const columns = (chosen.kind === "decoder" ? found.target : found.source).slice(0, MOST_TOKENS);
    const at = (row, column) => weights[row * dims[4] + column];
    map.replaceChildren(picture(rows, columns, at));
    words.replaceChildren(...rows.map((row, i) => strongest(row, columns, (column) => at(i, column))));
  };
  const choose = (name, options) => {
    const select = element("select", {}, ...options.map(([value, text]) => element("option", { value }, text)));
    select.addEventListener("change", () => {
      chosen[name] = select.value;
      draw();
    });
    return element("label", {}, `${said(`maps_${name}`)} `, select);
  };
  const numbered = (count) => [[AVERAGE, said("maps_average")], ...count.map((n) => [String(n), String(n + 1)])];
  const [layers, , heads] = found.maps[chosen.kind].dims;
  const picks = element(
    "div",
    { className: "picks" },
    ...(kinds.length > 1 ? [choose("kind", kinds.map((kind) => [kind, said(`maps_${kind}`)]))] : []),
    choose("layer", numbered([...Array(layers).keys()])),
    choose("head", numbered([...Array(heads).keys()])),
  );
  draw();
  const details = element("details", {}, element("summary", {}, said("maps_links")), words);
  parent.replaceChildren(picks, map, details);
}

/** One map (rows × columns, flat): of one layer and head, or the mean over all of them. */
function averaged({ data, dims: [layers, , heads, rows, columns] }, layer, head) {
  const size = rows * columns;
  const mean = new Float32Array(size);
  const some = (chosen, count) => (chosen === AVERAGE ? [...Array(count).keys()] : [Math.min(Number(chosen), count - 1)]);
  const parts = some(layer, layers).flatMap((l) => some(head, heads).map((h) => (l * heads + h) * size));
  for (const start of parts) for (let i = 0; i < size; i++) mean[i] += data[start + i] / parts.length;
  return mean;
}

function picture(rows, columns, at) {
  const [width, height] = [LABEL + columns.length * CELL + MARGIN, LABEL + rows.length * CELL];
  const svg = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.setAttribute("aria-label", said("maps_label"));
  columns.forEach((text, i) => {
    const place = `translate(${LABEL + i * CELL + 11} ${LABEL - 5}) rotate(-60)`;
    svg.append(drawn("text", { transform: place }, short(text)));
  });
  rows.forEach((text, i) => {
    svg.append(drawn("text", { x: LABEL - 5, y: LABEL + i * CELL + 12, "text-anchor": "end" }, short(text)));
    columns.forEach((column, j) => {
      const place = { x: LABEL + j * CELL, y: LABEL + i * CELL, width: CELL - 1, height: CELL - 1 };
      const cell = drawn("rect", { ...place, "fill-opacity": at(i, j).toFixed(3) });
      cell.append(drawn("title", {}, link(text, column, at(i, j))));
      svg.append(cell);
    });
  });
  return svg;
}

function strongest(row, columns, at) {
  const best = [...columns.keys()].reduce((found, column) => (at(column) > at(found) ? column : found), 0);
  return element("li", {}, link(row, columns[best], at(best)));
}

function link(row, column, weight) {
  return `${visible(row)} → ${visible(column)}: ${(weight * 100).toFixed(0)} %`;
}

function short(text) {
  const shown = visible(text);
  return shown.length > 11 ? `${shown.slice(0, 10)}…` : shown;
}

function drawn(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}
