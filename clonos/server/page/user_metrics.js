// Metrics of user code. Counters and histograms are summed over tasks, a gauge has one row for each.

import { KeyedList, el, panel, setText } from "./dom.js";
import * as format from "./format.js";

const ROWS_MAX = 100;
const COLUMNS = ["Metric", "Labels", "Kind", "Value"];

export class UserMetrics {
  constructor() {
    const { element, note } = panel("Metrics of your code");
    this.element = element;
    this.note = note;
    this.body = el("tbody");
    const head = el("tr", {}, ...COLUMNS.map((text, index) => el("th", { scope: "col", class: index === 3 ? "number" : null, text })));
    element.append(el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table of metrics of your code" }, el("table", {}, el("caption", { class: "hidden", text: "Metrics of your code" }), el("thead", {}, head), this.body)));
    element.hidden = true;
    this.rows = new KeyedList(this.body, (row) => row.key, () => new Row());
  }

  update(found) {
    const rows = summed(found);
    this.element.hidden = rows.length === 0;
    setText(this.note, rows.length > ROWS_MAX ? `${ROWS_MAX} of ${format.plural(rows.length, "series", "series")}` : format.plural(rows.length, "series", "series"));
    this.rows.update(rows.slice(0, ROWS_MAX));
  }
}

function summed(found) {
  const rows = new Map();
  for (const each of found) {
    const labels = Object.entries(each.kind === "gauge" ? { ...each.labels, task: each.task } : each.labels).map(([name, value]) => `${name}=${value}`).join(", ");
    const key = JSON.stringify([each.name, each.kind, labels]);
    const row = rows.get(key) || { key, name: each.name, kind: each.kind, labels, value: 0, count: 0, sum: 0 };
    row.value += each.value;
    row.count += each.count || 0;
    row.sum += each.sum || 0;
    rows.set(key, row);
  }
  return [...rows.values()].sort((one, other) => (one.key < other.key ? -1 : 1));
}

class Row {
  constructor() {
    this.cells = COLUMNS.map((_, index) => el("td", { class: index === 3 ? "number" : index === 1 ? "wrap" : null }));
    this.element = el("tr", {}, ...this.cells);
  }

  update(row) {
    const value = row.kind === "histogram" ? `${format.number(row.count ? row.sum / row.count : 0)} mean of ${format.count(row.count)}` : format.number(row.value);
    [row.name, format.shortened(row.labels, 200), row.kind, value].forEach((text, index) => setText(this.cells[index], text));
  }
}
