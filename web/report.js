// What the parity report says, for people: the cases of each backend, the files, the versions.
import { element, said } from "./texts.js";

/** Fill the dialog's body. `entry` is the model in site.json, `site` the whole, `report` the parsed parity.json. */
export function showReport(body, site, entry, report) {
  body.replaceChildren(
    element("p", {}, said("report_words", { n: report.cases.length })),
    element("p", {}, element("a", { href: `${entry.path}parity.json` }, said("report_whole"))),
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

function casesTable(report) {
  const groups = new Map();
  for (const found of report.cases) {
    const key = `${found.candidate}\n${found.kind}`;
    const group = groups.get(key) ?? { ...found, count: 0, passed: 0, largest: 0 };
    group.count += 1;
    group.passed += Number(found.passed);
    group.largest = Math.max(group.largest, found.max_absolute);
    groups.set(key, group);
  }
  const rows = [...groups.values()].map((group) => [
    group.candidate,
    group.kind,
    `${group.passed} / ${group.count}`,
    ["task", "training", "greedy", "beam"].includes(group.kind) ? "" : group.largest.toExponential(1),
  ]);
  const head = ["report_backend", "report_kind", "report_passed", "report_difference"].map((key) => said(key));
  return table(said("report_cases"), head, rows, [2, 3]);
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
