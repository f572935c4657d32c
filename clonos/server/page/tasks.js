// The table of tasks: where each runs, what protects it, what it does.

import { KeyedList, el, panel, setAttribute, setText, svg, toast } from "./dom.js";
import * as format from "./format.js";
import { jobPath, post } from "./api.js";
import { TaskDetails } from "./task_details.js";

const SHOWN_MAX = 100;
const POINTS = 60;
const COLUMNS = [
  { label: "Task" }, { label: "State" }, { label: "Records in", number: true }, { label: "Last minute" }, { label: "Busy" }, { label: "Backlog", number: true },
  { label: "Process" }, { label: "Standbys", number: true }, { label: "Keepers", number: true }, { label: "Survives" },
];

export class Tasks {
  constructor(jobId, isInjectionAllowed, log, stacks) {
    this.jobId = jobId;
    this.isInjectionAllowed = isInjectionAllowed;
    this.history = new Map();
    this.filter = el("input", { type: "search", id: "task-filter", placeholder: "step, host or state", on: { input: () => this.draw() } });
    const { element, note, heading } = panel("Tasks", el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table of tasks" }));
    this.details = new TaskDetails(log, () => this.open(null), (task) => this.capture(task), stacks);
    this.element = element;
    this.note = note;
    heading.append(el("div", { class: "toolbar" }, el("label", { for: "task-filter" }, "Filter"), this.filter));
    const head = el("tr", {}, ...COLUMNS.map((column) => el("th", { scope: "col", class: column.number ? "number" : null, text: column.label })));
    if (isInjectionAllowed) head.append(el("th", { scope: "col" }, el("span", { class: "hidden", text: "Kill" })));
    this.body = el("tbody");
    const table = el("table", { class: "cards" }, el("caption", { class: "hidden", text: "Tasks of the job" }), el("thead", {}, head), this.body);
    element.querySelector(".scroll").append(table);
    this.rows = new KeyedList(this.body, (task) => task.name, (task) => new Row(this, task));
    this.more = el("p", { class: "empty" });
    element.append(this.more);
  }

  update(status) {
    this.status = status;
    for (const task of status.tasks) {
      const points = this.history.get(task.name) || [];
      points.push(task.rates.records_in_per_s);
      if (points.length > POINTS) points.shift();
      this.history.set(task.name, points);
    }
    this.draw();
  }

  /** Shows the tasks of a vertex only. */
  search(words) {
    this.filter.value = words;
    this.draw();
    this.element.scrollIntoView({ block: "nearest" });
  }

  /** Shows what is known of a task; of the same one again, or of null: nothing. */
  open(name) {
    this.opened = name === this.opened ? null : name;
    this.draw();
    if (this.opened) this.details.element.scrollIntoView({ block: "nearest" });
  }

  draw() {
    if (!this.status) return;
    this.details.update(this.status.tasks.find((task) => task.name === this.opened) || null, this.status.at);
    const words = this.filter.value.trim().toLowerCase();
    const tasks = this.status.tasks.filter((task) => !words || `${task.name} ${task.host} ${task.domain} ${task.phase} ${task.pid} ${task.steps.join(" ")}`.toLowerCase().includes(words));
    this.rows.update(tasks.slice(0, SHOWN_MAX));
    const processes = new Set(this.status.tasks.map((task) => task.pid)).size;
    setText(this.note, `${format.plural(this.status.tasks.length, "task")} in ${format.plural(processes, "process", "processes")}, ${this.status.slots.length - processes < 0 ? 0 : this.status.slots.length - processes} spare`);
    setText(this.more, tasks.length > SHOWN_MAX ? `${tasks.length - SHOWN_MAX} more: use the filter.` : tasks.length ? "" : "No task matches.");
    this.more.hidden = tasks.length > 0 && tasks.length <= SHOWN_MAX;
  }

  /** Keeps what a task has done since the last checkpoint. */
  async capture(name) {
    try {
      const answer = await post(jobPath(this.jobId, "/capture"), { task: name });
      toast(`The epoch of ${name} is in ${answer.epoch}`);
    } catch (error) {
      toast(error.message);
    }
  }

  async kill(name) {
    try {
      const answer = await post(jobPath(this.jobId, "/kill"), { task: name });
      toast(`Killed the process of ${answer.tasks.join(", ")}`);
    } catch (error) {
      toast(error.message);
    }
  }
}

class Row {
  constructor(table, task) {
    this.table = table;
    this.cells = COLUMNS.map((column, index) => el("td", { class: column.number ? "number" : null, "data-label": index ? column.label : null }));
    this.name = el("button", { type: "button", class: "link", "aria-expanded": "false", on: { click: () => table.open(task.name) } });
    this.cells[0].append(this.name);
    this.badge = el("span", { class: "badge" });
    this.cells[1].append(this.badge);
    this.cells[1].classList.add("bare");
    this.line = svg("polyline", {});
    this.cells[3].append(svg("svg", { class: "spark", viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" }, this.line));
    this.busy = el("span");
    this.blocked = el("span", { class: "blocked" });
    this.busyText = el("span");
    this.blockedText = el("small");
    this.cells[4].append(el("span", { class: "meter", "aria-hidden": "true" }, this.busy, this.blocked), this.busyText, this.blockedText);
    this.rate = el("span");
    this.total = el("small");
    this.cells[2].append(this.rate, this.total);
    this.pid = el("span");
    this.place = el("small");
    this.cells[6].append(this.pid, this.place);
    this.element = el("tr", { "data-task": task.name }, ...this.cells);
    if (table.isInjectionAllowed) {
      this.button = el("button", { type: "button", class: "is-small is-danger", "aria-label": `Kill the process of ${task.name}`, text: "Kill", on: { click: () => table.kill(task.name) } });
      this.element.append(el("td", { class: "bare right" }, this.button));
    }
  }

  update(task) {
    const [, , , , , backlog, , standbys, keepers, survives] = this.cells;
    setText(this.name, task.name);
    setAttribute(this.name, "title", `${task.steps.join(", ")}: show what is known of this task`);
    setAttribute(this.name, "aria-expanded", String(this.table.opened === task.name));
    const isSettled = ["live", "suspended", "final", "ended"].includes(task.phase);
    setText(this.badge, format.phase(task));
    setAttribute(this.badge, "class", `badge ${task.phase === "live" ? "is-good" : task.phase === "final" || task.phase === "ended" ? "" : task.phase === "lost" ? "is-bad" : "is-warn"}`);
    setAttribute(this.element, "class", isSettled ? null : "is-recovering");
    setText(this.rate, format.rate(task.rates.records_in_per_s));
    setText(this.total, `${format.count(task.counters.records_in || 0)} so far`);
    setAttribute(this.line, "points", points(this.table.history.get(task.name) || []));
    this.busy.style.width = `${Math.round(task.rates.busy_ratio * 100)}%`;
    this.blocked.style.width = `${Math.round((task.rates.backpressure_ratio || 0) * 100)}%`;
    const blocked = task.rates.backpressure_ratio || 0;
    setText(this.busyText, format.percent(task.rates.busy_ratio));
    setText(this.blockedText, blocked >= 0.01 ? `${format.percent(blocked)} held back` : "");
    setText(backlog, format.count(task.counters.pending_records ?? task.counters.backlog_elements ?? task.counters.backlog_bytes));
    setText(this.pid, task.pid ? task.domain : isSettled ? "–" : "waits for one");
    setText(this.place, task.pid ? `pid ${task.pid} on ${task.host}` : "");
    setText(standbys, task.hot_standbys ? `${task.standbys} (${task.hot_standbys} hot)` : task.standbys);
    setText(keepers, task.keepers);
    setText(survives, task.losses_survived === null ? "any loss" : format.plural(task.losses_survived, "loss", "losses"));
    if (this.button) this.button.disabled = !task.pid;
  }
}

function points(values) {
  if (!values.length) return "";
  const most = Math.max(1, ...values);
  const span = Math.max(20, values.length) - 1;
  return values.map((value, index) => `${(100 * (index + span + 1 - values.length)) / span},${(19 - (18 * value) / most).toFixed(1)}`).join(" ");
}
