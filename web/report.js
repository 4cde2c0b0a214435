// What the parity report says, for people: the cases of each backend, the files, the versions.
import { element, said } from "./texts.js";

/**
 * Fill the dialog's body. `entry` is the model in site.json, `site` the whole; `page` and `folder` are the parsed reports
 * of the modules that run here and of the folder's other backends.
 */
export function showReport(body, site, entry, page, folder) {
  const report = {
    files: page.files,
    cases: [...page.cases, ...folder.cases],
    candidates: [...page.candidates, ...folder.candidates],
    versions: { ...folder.versions, ...page.versions },
  };
  body.replaceChildren(
    element("p", {}, said("report_words", { n: report.cases.length })),
    element(
      "p",
      {},
      element("a", { href: `${entry.path}parity.json` }, said("report_page")),
      " · ",
      element("a", { href: `${entry.path}parity-folder.json` }, said("report_folder")),
    ),
    casesTable(report),
    filesTable(site, entry, report),
    element("p", {}, said("report_versions", { versions: named(report.versions), runtime: runtimeName(site) })),
  );
}

function runtimeName(site) {
  return `${site.runtime.package} ${site.runtime.version}`;
}

function named(versions) {
  return Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(", ");
}

/** A row for each kind of case, a column for each backend: how many agreed, and the largest difference. */
function casesTable(report) {
  const kinds = [...new Set(report.cases.map((found) => found.kind))];
  const rows = kinds.map((kind) => [kind, ...report.candidates.map((name) => agreement(report.cases, name, kind))]);
  const head = [said("report_kind"), ...report.candidates];
  return table(said("report_cases"), head, rows, [...report.candidates.keys()].map((column) => column + 1));
}

function agreement(cases, candidate, kind) {
  const found = cases.filter((one) => one.candidate === candidate && one.kind === kind);
  if (!found.length) return "";
  const passed = `${found.filter((one) => one.passed).length} / ${found.length}`;
  const largest = Math.max(...found.map((one) => one.max_absolute));
  return largest > 0 ? `${passed} · ${largest.toExponential(1)}` : passed;
}

function filesTable(site, entry, report) {
  const names = Object.keys(site.files).filter((path) => path.startsWith(entry.path));
  const rows = names.map((path) => {
    const name = path.slice(entry.path.length);
    const file = site.files[path];
    const hash = element("code", {}, report.files[name] ?? file.sha256);
    return [name, hash, file.bytes.toLocaleString("en")];
  });
  return table(said("report_files"), [said("report_file"), "SHA-256", said("report_size")], rows, [2]);
}

function table(caption, head, rows, numbers) {
  const cell = (tag, content, column) =>
    element(tag, { className: numbers.includes(column) ? "number" : "", ...(tag === "th" && { scope: "col" }) }, content);
  const made = element(
    "table",
    {},
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head.map((content, column) => cell("th", content, column)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((c, column) => cell("td", c, column))))),
  );
  // It may be wider than a phone: whoever comes by keyboard can scroll it.
  return element("div", { className: "wide", tabIndex: 0, role: "region", ariaLabel: caption }, made);
}
