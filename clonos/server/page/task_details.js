// What is known of one task: where it runs, its state, its hottest key, its watermark, its log.

import { el, panel, setText } from "./dom.js";
import * as format from "./format.js";
import { lineElement } from "./log_view.js";

const LINES = 12;

export class TaskDetails {
  /** `log`: the log of the job; `onClose` runs when it is closed by its button, `onCapture` with the name of the task. `stacks` shows what it is at. */
  constructor(log, onClose, onCapture, stacks) {
    this.log = log;
    const { element, note, heading } = panel("Task");
    this.element = element;
    this.note = note;
    this.title = heading.querySelector("h2");
    this.list = el("dl", { class: "properties" });
    this.lines = el("ol");
    this.scroll = el("div", { class: "log", tabindex: "0", role: "region", "aria-label": "Log of the task" }, this.lines);
    this.said = el("p", { class: "empty", text: "The job's log has no line of this task." });
    heading.append(el("div", { class: "toolbar" },
      el("button", { type: "button", class: "is-small", text: "All its lines", on: { click: () => this.log.search(this.name) } }),
      el("button", { type: "button", class: "is-small", text: "Keep its epoch", title: "Writes what the task has done since the last checkpoint, for clonos replay", on: { click: () => onCapture(this.name) } }),
      el("button", { type: "button", class: "is-small", text: "Threads", title: "Shows what the task is at now, with its record", on: { click: () => stacks.threads(this.name) } }),
      el("button", { type: "button", class: "is-small", text: "Flame graph", title: "Looks at the task for 5 s, and draws what it spends its time with", on: { click: () => stacks.flame(this.name) } }),
      el("button", { type: "button", class: "is-small", text: "Close", on: { click: onClose } })));
    element.append(this.list, this.said, this.scroll);
    element.hidden = true;
  }

  /** Shows a task; null shows none. */
  update(task, at) {
    this.element.hidden = !task;
    if (!task) return;
    this.name = task.name;
    setText(this.title, `Task ${task.name}`);
    const { counters } = task;
    setText(this.note, format.phase(task));
    const rows = [
      ["steps", task.steps.join(", ")],
      ["process", task.pid ? `${task.pid} on ${task.host}, failure domain ${task.domain}` : "waits for one"],
      ["slot", task.slot || "–"],
      ["incarnation", `${format.incarnation(task.incarnation)} (driver.view: a new one with each recovery or move)`],
      ["state", counters.state_bytes === undefined ? "none" : `about ${format.bytes(counters.state_bytes)}`],
      ["causal log", `${format.bytes(counters.log_memory_bytes || 0)} held, ${format.bytes(counters.determinant_bytes || 0)} written so far`],
      ["in-flight log", `${format.bytes(counters.inflight_memory_bytes || 0)} in memory, ${format.bytes(counters.inflight_disk_bytes || 0)} on disk`],
      ["hottest key", task.hot_key ? `${format.shortened(task.hot_key, 200)}, ${format.percent(task.hot_key_share)} of its latest records` : "none stands out"],
      ["watermark", task.watermark ? `${task.watermark.replace("T", " ").replace("Z", " UTC")} (${format.watermark(task.watermark, at).replace("watermark ", "")})` : "none"],
      ["late records", format.count(counters.late_records || 0)],
      ["records", `${format.count(counters.records_in || 0)} in, ${format.rate(task.rates.records_in_per_s)}; ${format.rate(task.rates.records_out_per_s)} out`],
      ["protection", `${format.plural(task.standbys, "standby", "standbys")}, ${format.plural(task.keepers, "keeper")} ready`],
    ];
    while (this.list.children.length > 2 * rows.length) this.list.lastChild.remove();
    while (this.list.children.length < 2 * rows.length) this.list.append(el("dt"), el("dd"));
    rows.forEach(([name, text], index) => { setText(this.list.children[2 * index], name); setText(this.list.children[2 * index + 1], text); });
    const lines = this.log.linesOf(task.name, LINES);
    const known = lines.map((line) => line.number).join();
    this.said.hidden = lines.length > 0;
    this.scroll.hidden = lines.length === 0;
    if (this.known !== `${task.name} ${known}`) { this.known = `${task.name} ${known}`; this.lines.replaceChildren(...lines.map(lineElement)); }
  }
}
