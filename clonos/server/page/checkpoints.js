// Checkpoints: how long each took, as bars and as a table.

import { el, panel, setText } from "./dom.js";
import * as format from "./format.js";

const BARS = 40;
const ROWS = 15;

export class Checkpoints {
  constructor() {
    const { element, note } = panel("Checkpoints");
    this.element = element;
    this.note = note;
    this.bars = el("div", { class: "bars", role: "img", "aria-label": "Durations of the last checkpoints" });
    this.empty = el("p", { class: "empty", text: "No checkpoint has begun yet." });
    this.body = el("tbody");
    const head = el("tr", {}, ...["Number", "Begun", "Took", "Size", "State"].map((text, index) => el("th", { scope: "col", class: [0, 2, 3].includes(index) ? "number" : null, text })));
    this.table = el("details", {}, el("summary", { text: "Table of the last checkpoints" }), el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table of checkpoints" }, el("table", {}, el("caption", { class: "hidden", text: "Last checkpoints" }), el("thead", {}, head), this.body)));
    element.append(this.empty, this.bars, this.table);
  }

  /** Checkpoints as marks in curves. */
  get marks() {
    return this.found.filter((each) => each.completed_at).map((each) => ({ at: +new Date(each.completed_at) / 1000, text: `checkpoint ${each.number}, ${format.milliseconds(each.duration_ms)}` }));
  }

  found = [];

  update(checkpoints) {
    this.found = checkpoints;
    this.empty.hidden = checkpoints.length > 0;
    this.bars.hidden = this.table.hidden = checkpoints.length === 0;
    const done = checkpoints.filter((each) => each.duration_ms !== null);
    if (done.length) {
      const mean = done.reduce((sum, each) => sum + each.duration_ms, 0) / done.length;
      setText(this.note, `last ${done[0].number}: ${format.milliseconds(done[0].duration_ms)}${done[0].bytes === null ? "" : `, ${format.bytes(done[0].bytes)}`}; mean of ${done.length}: ${format.milliseconds(mean)}`);
    }
    const shown = checkpoints.slice(0, BARS).reverse();
    const longest = Math.max(1, ...shown.map((each) => each.duration_ms || 0));
    while (this.bars.children.length > shown.length) this.bars.lastChild.remove();
    while (this.bars.children.length < shown.length) this.bars.append(el("span"));
    shown.forEach((each, index) => {
      const bar = this.bars.children[index];
      bar.style.height = `${each.duration_ms === null ? 40 : Math.max(4, (100 * each.duration_ms) / longest)}%`;
      bar.className = each.status;
      bar.title = `checkpoint ${each.number}: ${each.duration_ms === null ? each.status : format.milliseconds(each.duration_ms)}`;
    });
    const rows = checkpoints.slice(0, ROWS);
    while (this.body.children.length > rows.length) this.body.lastChild.remove();
    while (this.body.children.length < rows.length) this.body.append(el("tr", {}, ...[0, 1, 2, 3, 4].map((index) => el("td", { class: [0, 2, 3].includes(index) ? "number" : null }))));
    rows.forEach((each, index) => {
      const texts = [each.number, format.clock(each.begun_at), format.milliseconds(each.duration_ms), format.bytes(each.bytes), each.status];
      texts.forEach((text, place) => setText(this.body.children[index].children[place], text));
    });
  }
}
