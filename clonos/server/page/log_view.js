// The log of the driver, which has the lines of all processes of the job.

import { el, panel, setText } from "./dom.js";
import * as format from "./format.js";

const LINES_MAX = 2000;
const RANKS = { DEBUG: 10, INFO: 20, WARNING: 30, ERROR: 40, CRITICAL: 50 };

export class LogView {
  constructor() {
    const { element, note, heading } = panel("Log");
    this.element = element;
    this.note = note;
    this.lines = [];
    this.level = el("select", { id: "log-level", on: { change: () => this.redraw() } }, ...[["0", "all"], ["20", "info and above"], ["30", "warnings and errors"], ["40", "errors"]].map(([value, text]) => el("option", { value, text })));
    this.words = el("input", { type: "search", id: "log-words", on: { input: () => this.redraw() } });
    this.follow = el("input", { type: "checkbox", id: "log-follow", checked: true });
    heading.append(el("div", { class: "toolbar" }, el("label", { for: "log-level" }, "Level"), this.level, el("label", { for: "log-words" }, "Search"), this.words, el("label", { for: "log-follow" }, this.follow, "Follow")));
    this.list = el("ol");
    this.scroll = el("div", { class: "log", tabindex: "0", role: "region", "aria-label": "Lines of the log" }, this.list);
    this.empty = el("p", { class: "empty", text: "Nothing was logged yet." });
    element.append(this.empty, this.scroll);
    this.scroll.hidden = true;
  }

  add(lines) {
    const known = this.lines.length ? this.lines[this.lines.length - 1].number : 0;
    const news = lines.filter((line) => line.number > known);
    this.lines.push(...news);
    this.lines.splice(0, Math.max(0, this.lines.length - LINES_MAX));
    this.list.append(...news.filter((line) => this.isShown(line)).map(lineElement));
    while (this.list.children.length > LINES_MAX) this.list.firstChild.remove();
    this.after();
  }

  isShown(line) {
    const words = this.words.value.trim().toLowerCase();
    return (RANKS[line.level] || 0) >= Number(this.level.value) && (!words || `${line.text} ${line.logger} ${line.task || ""}`.toLowerCase().includes(words));
  }

  /** Shows the lines of a task. */
  search(words) {
    this.words.value = words;
    this.redraw();
    this.element.scrollIntoView({ block: "nearest" });
    this.words.focus();
  }

  /** The last lines of a task. */
  linesOf(task, count) {
    return this.lines.filter((line) => line.task === task || line.text.includes(`${task} `) || line.text.includes(`[${task}]`)).slice(-count);
  }

  redraw() {
    this.list.replaceChildren(...this.lines.filter((line) => this.isShown(line)).map(lineElement));
    this.after();
  }

  after() {
    this.empty.hidden = this.lines.length > 0;
    this.scroll.hidden = this.lines.length === 0;
    setText(this.note, this.lines.length ? format.plural(this.lines.length, "line") : "");
    if (this.follow.checked) this.scroll.scrollTop = this.scroll.scrollHeight;
  }
}

/** A line of the log as an element of a list. */
export function lineElement(line) {
  let text = line.text;
  const parts = [el("span", { class: "at", text: `${format.clock(line.at)} ` }), el("span", { class: "level", text: `${line.level} ` })];
  if (line.task) {
    parts.push(el("span", { class: "task", text: `${line.task} ` }));
    const own = [`[${line.task}] `, `${line.task}: `, `${line.task} `].find((name) => text.startsWith(name));
    text = own ? text.slice(own.length) : text;
  }
  return el("li", { class: line.level }, ...parts, text);
}
