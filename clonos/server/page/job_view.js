// The view of one job.

import { KeyedList, announce, ask, el, panel, setAttribute, setText, toast } from "./dom.js";
import * as format from "./format.js";
import { get, jobPath, post, readEvents } from "./api.js";
import { Graph, graphLegend } from "./graph.js";
import { Recoveries } from "./recoveries.js";
import { Tasks } from "./tasks.js";
import { Curves, TimeSpan } from "./curves.js";
import { Checkpoints } from "./checkpoints.js";
import { History } from "./history.js";
import { LogView } from "./log_view.js";
import { Peek } from "./peek.js";
import { Stacks } from "./stacks.js";
import { KeyCourse } from "./key_course.js";
import { UserMetrics } from "./user_metrics.js";

const ENDED = new Set(["FAILED", "CANCELED", "FINISHED"]);
const LOG_REQUESTS_MAX = 20;
const BADGES = { RUNNING: "is-good", RECOVERING: "is-warn", FAILING: "is-bad", FAILED: "is-bad", CANCELLING: "is-warn", CREATED: "is-warn" };

export class JobView {
  constructor(main, id, onState) {
    this.main = main;
    this.id = id;
    this.onState = onState;
    this.abort = new AbortController();
  }

  async start() {
    const [job, status, series] = await Promise.all([get(jobPath(this.id)), get(jobPath(this.id, "/status")), get(jobPath(this.id, "/metrics"))]);
    if (this.abort.signal.aborted) return;
    document.title = `${job.name} · Clonos`;
    this.job = job;
    this.build(job, status);
    for (const curves of this.curves) curves.load(series.series);
    this.showMetrics(series);
    this.onStatus(status);
    await this.loadCheckpoints();
    readEvents(this.id, await this.loadLog(), this.abort.signal, (name, data) => this.onEvent(name, data), (state, error) => this.onState(state, error));
  }

  stop() {
    this.abort.abort();
  }

  build(job, status) {
    this.badge = el("span", { class: "badge" });
    this.identity = el("p", { class: "identity" });
    this.buttons = [
      el("button", { type: "button", text: "Savepoint", on: { click: () => this.savepoint() } }),
      el("button", { type: "button", text: "Rescale", on: { click: () => this.rescale() } }),
      el("button", { type: "button", text: "Threads", title: "Shows what the threads of driver and slots are at", on: { click: () => this.stacks.threads(null) } }),
      el("button", { type: "button", text: "Stop", on: { click: () => this.stopJob() } }),
      el("button", { type: "button", class: "is-danger", text: "Cancel", on: { click: () => this.cancelJob() } }),
    ];
    this.buttons[0].hidden = !status.savepoints_supported;
    const head = el("div", { class: "head" }, el("div", {}, el("div", { class: "title" }, el("h1", { text: job.name }), this.badge), this.identity), el("div", { class: "actions" }, ...this.buttons));
    this.failure = el("div", { class: "notice is-bad" });
    this.failure.hidden = true;
    this.figures = new Map(["Throughput", "Backlog", "Checkpoint", "Recoveries", "Running for"].map((name) => [name, el("dd", { text: "–" })]));
    const figures = el("dl", { class: "figures" }, ...[...this.figures].map(([name, value]) => el("div", {}, el("dt", { text: name }), value)));
    this.graph = new Graph(job.plan, (vertex) => this.tasks.search(vertex), (source, target) => this.peek.show(source, target));
    this.peek = new Peek(this.id, job.plan.edges);
    this.keyCourse = new KeyCourse(this.id, job.plan.steps);
    const graph = panel("Graph", this.graph.element, graphLegend());
    setText(graph.note, "a click on a step shows its tasks, one on an arrow its rows");
    this.alarms = new Alarms();
    this.savepoints = new Savepoints();
    this.load = new Load();
    this.recoveries = new Recoveries();
    this.log = new LogView();
    this.stacks = new Stacks(this.id);
    this.tasks = new Tasks(this.id, status.injection_allowed, this.log, this.stacks);
    this.span = new TimeSpan();
    this.throughput = new Curves("Throughput", [{ name: "records_in_per_s", label: "read", color: "--curve-1", isFilled: true }, { name: "records_out_per_s", label: "at the last step", color: "--curve-2", isDashed: true }], format.rate, this.span);
    this.latency = new Curves("Latency", [{ name: "latency_ms_p50", label: "median", color: "--curve-1" }, { name: "latency_ms_p99", label: "99 %", color: "--curve-2" }], format.milliseconds, this.span);
    this.backlog = new Curves("Backlog", [{ name: "backlog", label: "elements", color: "--curve-1", isFilled: true }], format.count, this.span);
    this.curves = [this.throughput, this.latency, this.backlog];
    this.latency.element.hidden = true;
    this.checkpoints = new Checkpoints();
    this.checkpoints.element.classList.add("is-wide"); // while there is no curve of the latency
    this.history = new History(() => get(jobPath(this.id, "/history")));
    this.userMetrics = new UserMetrics();
    this.main.replaceChildren(head, this.failure, this.alarms.element, this.savepoints.element, this.load.element, figures, graph.element, this.peek.element, this.keyCourse.element, this.recoveries.element, this.tasks.element, this.tasks.details.element, this.stacks.element,
      this.span.element, el("div", { class: "pair" }, this.throughput.element, this.latency.element, this.backlog.element, this.checkpoints.element), this.history.element, this.userMetrics.element, this.log.element, details(job));
    this.graph.place();
  }

  showMetrics({ series, user }) {
    this.userMetrics.update(user || []);
    if (!(series.latency_ms_p50 || []).length) return;
    this.latency.element.hidden = false;
    setAttribute(this.checkpoints.element, "class", "panel");
    this.latency.load(series);
  }

  onEvent(name, data) {
    if (name === "status") this.onStatus(data);
    else if (name === "recovery") { this.recoveries.onRecovery(data); this.span.mark({ recoveries: this.recoveries.marks }); }
    else if (name === "alarm") { this.alarms.add([data]); announce(`Alarm: ${data.text}. ${data.advice}`, true); }
    else if (name === "log") this.log.add(data.lines);
    else if (name === "ended") announce(`The job ${data.name} is ${data.status}`);
  }

  onStatus(status) {
    const { job } = status;
    const down = new Set(this.recoveries.open.map((item) => item.recovery.task));
    this.status = status;
    setText(this.badge, job.stopped && job.status === "FINISHED" ? "FINISHED (stopped)" : job.stopped && job.status === "RUNNING" ? "STOPPING" : job.status);
    setAttribute(this.badge, "class", `badge ${BADGES[job.status] || ""}`);
    setText(this.identity, `${job.id} · started ${format.clock(job.started_at)}`);
    const isOver = ENDED.has(job.status);
    for (const button of this.buttons) button.disabled = isOver || job.status === "CANCELLING";
    this.failure.hidden = !job.error;
    if (job.error) this.failure.replaceChildren(el("strong", { text: "The job has failed" }), el("pre", { text: job.error }));
    this.recoveries.onStatus(status, isOver);
    this.span.mark({ recoveries: this.recoveries.marks });
    if (isOver) { this.peek.end(); this.keyCourse.end(); }
    if (isOver) status = { ...status, tasks: status.tasks.map((task) => ({ ...task, phase: task.phase === "final" ? "final" : "ended" })) };
    this.graph.update({ ...status, tasks: status.tasks.map((task) => (down.has(task.name) && task.phase !== "live" ? { ...task, isDown: true } : task)) });
    this.tasks.update(status);
    this.alarms.add(status.alarms);
    this.savepoints.update(isOver ? [] : status.savepoints);
    this.showWidths(status.tasks);
    const change = status.rescale && status.rescale.phase !== "done" ? [status.rescale.phase === "refused" ? `The tasks go on as before: ${status.rescale.text}` : `Change of the numbers or places of tasks: ${status.rescale.text}`] : [];
    this.load.update(isOver ? [] : [...change, ...status.scaling.map((advice) => `${advice.step}: ${advice.text}`), ...status.skew]);
    this.showFigures(status);
    this.history.refresh(isOver !== this.wasOver);
    this.wasOver = isOver;
    const totals = this.totals(status);
    const at = new Date(status.at) / 1000;
    if (!isOver) for (const curves of this.curves) curves.add(at, totals);
    if (job.checkpoint !== this.lastCheckpoint || isOver) { this.lastCheckpoint = job.checkpoint; this.loadCheckpoints(); }
    if (!this.latency.element.hidden || !this.userMetrics.element.hidden || isOver || this.ticks++ % 5 === 0) this.loadMetrics();
  }

  /** Draws the graph again when vertices have other numbers of tasks. */
  showWidths(tasks) {
    let hasChanged = false;
    for (const vertex of tasks.length ? this.job.plan.vertices : []) {
      const found = tasks.filter((task) => task.vertex === vertex.name).length;
      hasChanged ||= found !== vertex.tasks;
      vertex.tasks = found;
    }
    if (hasChanged) this.graph.redraw();
  }

  ticks = 0;

  async loadMetrics() {
    try {
      this.showMetrics(await get(jobPath(this.id, `/metrics?since=${Math.max(0, Math.floor(this.latency.lastMs || this.throughput.lastMs - 10_000))}`)));
    } catch { /* the events say when the connection is lost */ }
  }

  totals(status) {
    const sources = new Set(this.job.plan.vertices.filter((vertex) => vertex.is_source).map((vertex) => vertex.name));
    const feeding = new Set(this.job.plan.edges.map((edge) => edge.source));
    const sum = (tasks) => tasks.reduce((total, task) => total + task.rates.records_in_per_s, 0);
    return {
      records_in_per_s: sum(status.tasks.filter((task) => sources.has(task.vertex))),
      records_out_per_s: sum(status.tasks.filter((task) => !feeding.has(task.vertex))),
      backlog: status.tasks.reduce((total, task) => total + (task.counters.backlog_elements ?? task.counters.backlog_bytes ?? 0), 0),
    };
  }

  showFigures(status) {
    const { job } = status;
    const totals = this.totals(status);
    const end = job.ended_at ? new Date(job.ended_at) : new Date(status.at);
    const rows = { Throughput: format.rate(totals.records_in_per_s), Backlog: format.count(totals.backlog), Checkpoint: job.checkpoint || "none yet", Recoveries: job.recoveries, "Running for": format.duration(end - new Date(job.started_at)) };
    for (const [name, text] of Object.entries(rows)) setText(this.figures.get(name), text);
  }

  /** Loads the lines of the log so far, also of a job that has ended. Returns the number of the last one. */
  async loadLog() {
    let after = 0;
    for (let request = 0; request < LOG_REQUESTS_MAX; request += 1) {
      const found = await get(jobPath(this.id, `/logs?after=${after}`)).catch(() => ({ lines: [], next: after }));
      if (!found.lines.length) break;
      this.log.add(found.lines);
      after = found.next;
    }
    return after;
  }

  async loadCheckpoints() {
    try {
      this.checkpoints.update((await get(jobPath(this.id, "/checkpoints"))).checkpoints);
      this.span.mark({ checkpoints: this.checkpoints.marks });
    } catch { /* the events say when the connection is lost */ }
  }

  async request(path, body, said) {
    try {
      await post(jobPath(this.id, path), body);
      toast(said);
    } catch (error) {
      toast(error.message);
    }
  }

  async savepoint() {
    const values = await ask("Take a savepoint", "The job goes on. The savepoint is yours: it is never deleted.", "Take it", { fields: [{ name: "path", label: "Where to (empty: a place that the job chooses)", placeholder: "s3://bucket/savepoints" }] });
    if (values) await this.request("/savepoint", { path: values.path || null }, "A savepoint was requested");
  }

  async rescale() {
    const { vertices } = this.job.plan;
    const fields = vertices.map((vertex, index) => ({ name: `width-${index}`, kind: "number", min: 1, label: vertex.steps.join(", "), placeholder: `${vertex.tasks} now` }));
    fields.push({ name: "place", kind: "checkbox", label: "Place all tasks anew: spread them over the processes that the job has now, such as those of a host that came back" });
    const values = await ask("Change the numbers or places of tasks", "All tasks stand for a moment, and go on with the numbers that you enter. An empty field leaves the number as it is.", "Change", { fields });
    if (!values) return;
    const asked = vertices.map((vertex, index) => [vertex.name, Number(values[`width-${index}`])]).filter(([, tasks]) => tasks);
    if (asked.length || values.place) await this.request("/rescale", { widths: Object.fromEntries(asked), place_anew: values.place }, asked.length ? "Other numbers of tasks were requested" : "Other places of the tasks were requested");
  }

  async stopJob() {
    const values = await ask(`Stop ${this.job.name}?`, "It takes a final checkpoint, commits all output so far, and ends. It can be resumed.", "Stop");
    if (values) await this.request("/stop", {}, "A stop was requested");
  }

  async cancelJob() {
    const values = await ask(`Cancel ${this.job.name}?`, "It ends at once, without a final checkpoint. A resume repeats what came after the last one.", "Cancel the job", { isDanger: true });
    if (values) await this.request("/cancel", {}, "The end of the job was requested");
  }
}

class Alarms {
  constructor() {
    const { element, note } = panel("Alarms");
    this.element = element;
    this.note = note;
    this.found = new Map();
    this.list = el("ul", { class: "alarms" });
    element.append(this.list);
    element.hidden = true;
    this.rows = new KeyedList(this.list, (alarm) => alarm.number, (alarm) => ({
      element: el("li", {}, el("p", { class: "text", text: alarm.text }), el("p", { class: "advice", text: alarm.advice }), el("time", { datetime: alarm.at, text: format.clock(alarm.at) })),
      update() {},
    }));
  }

  add(alarms) {
    for (const alarm of alarms) this.found.set(alarm.number, alarm);
    this.element.hidden = this.found.size === 0;
    const shown = [...this.found.values()].sort((one, other) => other.number - one.number);
    setText(this.note, `${format.plural(shown.length, "alarm")}${shown.length > 5 ? ", the last 5 shown" : ""}`);
    this.rows.update(shown.slice(0, 5));
  }
}

/** Savepoints that are being written. */
class Savepoints {
  constructor() {
    this.list = el("ul", { class: "savepoints" });
    const { element, note } = panel("Savepoints", this.list);
    setText(note, "being written");
    this.element = element;
    this.element.hidden = true;
    this.rows = new KeyedList(this.list, (savepoint) => savepoint.path, (savepoint) => {
      const bar = el("progress", { "aria-label": `Objects of the savepoint ${savepoint.path}` });
      const text = el("p", { class: "text" });
      return {
        element: el("li", {}, text, bar),
        update: (now) => {
          setText(text, now.text);
          setAttribute(bar, "max", Math.max(1, now.objects_total));
          setAttribute(bar, "value", now.objects_done);
        },
      };
    });
  }

  update(savepoints) {
    this.element.hidden = savepoints.length === 0;
    this.rows.update(savepoints);
  }
}

/** What the steps should have: their widths, and busy tasks that get far more than the others. */
class Load {
  constructor() {
    this.list = el("ul", { class: "load" });
    const { element, note } = panel("Widths and skew", this.list);
    setText(note, "only steps that scale= names change their width by themselves");
    this.element = element;
    this.element.hidden = true;
    this.rows = new KeyedList(this.list, (sentence) => sentence.index, () => {
      const element = el("li", {});
      return { element, update: (sentence) => setText(element, sentence.text) };
    });
  }

  update(sentences) {
    this.element.hidden = sentences.length === 0;
    this.rows.update(sentences.map((text, index) => ({ text, index })));
  }
}

function details(job) {
  const { element } = panel("Options and outputs");
  const rows = (entries) => el("dl", { class: "properties" }, ...entries.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]));
  const outputs = job.outputs.length ? rows(job.outputs.map((output, index) => [`output ${index + 1}`, output])) : null;
  const options = Object.entries(job.options).map(([name, value]) => [name, value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value)]);
  const steps = job.plan.steps.map((step) => [step.name, `${step.kind}, ${format.plural(step.parallelism, "task")}, in ${step.vertex}`]);
  element.append(...[outputs, el("details", {}, el("summary", { text: `${job.plan.steps.length} steps` }), rows(steps)), el("details", {}, el("summary", { text: `${options.length} options` }), rows(options))].filter(Boolean));
  return element;
}
