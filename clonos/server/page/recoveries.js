// Recoveries as bars, phase by phase, while they happen.

import { KeyedList, announce, el, panel, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";

const PHASES = [
  { from: "failed", to: "detected", name: "notice", title: "the death of its process is noticed" },
  { from: "detected", to: "view", name: "place", title: "the successor is placed on a standby" },
  { from: "view", to: "gathered", name: "gather", title: "its log is gathered from the tasks that hold it" },
  { from: "gathered", to: "replayed", name: "replay", title: "the log is replayed" },
  { from: "replayed", to: "caught_up", name: "catch up", title: "the input that came meanwhile is worked off, while new input is taken" },
];
const SHOWN_MAX = 8;

export class Recoveries {
  constructor() {
    const { element, note } = panel("Recoveries");
    this.element = element;
    this.note = note;
    this.items = new Map();
    this.before = new Map(); // incarnations and pids of all tasks when a recovery began
    this.last = new Map();
    this.lastAt = 0; // when `last` was, by the server's clock
    this.said = new Map();
    this.offset = 0; // of this clock behind the server's, ms
    this.list = el("ol", { class: "recoveries" });
    this.empty = el("p", { class: "empty", text: "No task has failed since this driver began." });
    this.legend = el("ul", { class: "legend", "aria-label": "Legend" }, ...PHASES.map((phase, index) => el("li", {}, el("span", { class: `swatch s${index + 1}` }), `${phase.name}: ${phase.title}`)));
    element.append(this.empty, this.list, this.legend);
    this.legend.hidden = true;
    this.rows = new KeyedList(this.list, (item) => item.number, (item) => new Bar(item));
    this.isDrawing = false;
    this.isOver = false; // the job has ended, and with it what was in progress
  }

  /** Takes a status: what the tasks are now. */
  onStatus(status, isOver = false) {
    this.isOver = isOver;
    this.total = status.job.recoveries;
    this.offset = Date.now() - new Date(status.at);
    for (const recovery of status.recoveries) this.take(recovery);
    this.last = new Map(status.tasks.map((task) => [task.name, `${task.incarnation} ${task.pid}`]));
    this.lastAt = +new Date(status.at);
    for (const [number, before] of this.before) {
      const item = this.items.get(number);
      if (!item || item.isJudged) continue;
      const others = [...before].filter(([name]) => !this.failedAround(item).has(name));
      item.others = others.length;
      item.moved = others.filter(([name, life]) => this.last.get(name) !== life).map(([name]) => name);
      item.isJudged = item.recovery.is_over;
    }
    this.draw();
  }

  failedAround(item) {
    const found = new Set([item.recovery.task]);
    for (const other of this.items.values()) if (Math.abs(other.recovery.number - item.recovery.number) < 50 && other.began >= item.began - 2000) found.add(other.recovery.task);
    return found;
  }

  /** Takes a recovery, as it was when an event was sent. */
  onRecovery(recovery) {
    this.take(recovery);
    this.draw();
  }

  take(recovery) {
    let item = this.items.get(recovery.number);
    const began = recovery.phases.length ? +new Date(recovery.phases[0].at) : 0;
    if (!item) {
      item = { number: recovery.number, recovery, others: null, moved: [], isJudged: false };
      this.items.set(recovery.number, item);
      // A short recovery may be over when it is first heard of: what was before it is known all the same.
      if (this.last.size && (!recovery.is_over || began >= this.lastAt)) this.before.set(recovery.number, this.last);
    }
    item.recovery = recovery;
    item.began = began;
    this.say(recovery);
    for (const number of this.items.keys()) if (number <= recovery.number - 200) { this.items.delete(number); this.before.delete(number); }
  }

  say(recovery) {
    const said = this.said.get(recovery.number) || 0;
    if (said < 1 && !recovery.is_over) { this.said.set(recovery.number, 1); announce(`${recovery.task} has failed and recovers: ${recovery.cause}`); }
    if (said < 2 && recovery.is_over) {
      this.said.set(recovery.number, 2);
      if (said === 1 && recovery.duration_ms !== null) announce(`${recovery.task} recovered in ${format.milliseconds(recovery.duration_ms)}, no record lost`);
    }
  }

  get open() {
    return this.isOver ? [] : [...this.items.values()].filter((item) => !item.recovery.is_over && !this.isSuperseded(item));
  }

  isSuperseded(item) {
    return [...this.items.values()].some((other) => other.number > item.number && other.recovery.task === item.recovery.task);
  }

  /** Recoveries as marks in curves. */
  get marks() {
    return [...this.items.values()].filter((item) => item.began).map((item) => {
      const length = item.recovery.duration_ms;
      return { at: item.began / 1000, until: (length === null ? Date.now() - this.offset : item.began + length) / 1000, text: `recovery of ${item.recovery.task}${length === null ? "" : `, ${format.milliseconds(length)}`}` };
    });
  }

  draw() {
    const shown = [...this.items.values()].sort((one, other) => other.number - one.number).slice(0, SHOWN_MAX);
    this.empty.hidden = shown.length > 0;
    this.legend.hidden = shown.length === 0;
    const total = Math.max(this.total || 0, this.items.size);
    setText(this.note, total ? `${format.plural(total, "recovery", "recoveries")}${total > SHOWN_MAX ? `, the last ${SHOWN_MAX} shown` : ""}; milliseconds since the failure` : "");
    const now = Date.now() - this.offset;
    const spans = shown.map((item) => ({ ...item, isGrowing: !this.isOver && !item.recovery.is_over && !this.isSuperseded(item), isOver: this.isOver, now }));
    const longest = Math.max(1, ...spans.map((item) => drawnOf(item)));
    this.rows.update(spans.map((item) => ({ ...item, longest })));
    if (this.open.length && !this.isDrawing) {
      this.isDrawing = true;
      requestAnimationFrame(() => { this.isDrawing = false; this.draw(); });
    }
  }
}

function totalOf(item) {
  const phases = item.recovery.phases;
  const last = phases.length ? phases[phases.length - 1].offset_ms : 0;
  return item.isGrowing ? Math.max(last, item.now - item.began) : last;
}

/** Length of a whole bar. Catching up may take much longer than the recovery itself, which must stay visible. */
function drawnOf(item) {
  const live = item.recovery.phases.find((phase) => phase.name === "replayed");
  return live ? live.offset_ms + caughtUp(totalOf(item) - live.offset_ms, live.offset_ms) : totalOf(item);
}

function caughtUp(length, live) {
  return Math.min(length, 0.7 * Math.max(live, 1));
}

class Bar {
  constructor(item) {
    this.who = el("div", { class: "who" });
    this.when = el("div", { class: "when" });
    this.track = el("div", { class: "track", role: "img" });
    this.parts = PHASES.map((phase, index) => {
      const part = el("span", { class: `s${index + 1}` });
      this.track.append(part);
      return part;
    });
    this.what = el("p", { class: "what" });
    this.element = el("li", { class: "recovery", "data-task": item.recovery.task }, this.who, this.track, this.when, this.what);
  }

  update(item) {
    const { recovery } = item;
    setText(this.who, recovery.task);
    const at = new Map(recovery.phases.map((phase) => [phase.name, phase.offset_ms]));
    const end = totalOf(item);
    const texts = [];
    PHASES.forEach((phase, index) => {
      const part = this.parts[index];
      const from = at.get(phase.from);
      const isLast = from !== undefined && !at.has(phase.to);
      const to = at.get(phase.to) ?? (isLast && item.isGrowing ? end : from);
      const length = from === undefined ? 0 : Math.max(0, to - from);
      part.hidden = from === undefined || (isLast && !item.isGrowing);
      const drawn = index === PHASES.length - 1 ? caughtUp(length, from) : length;
      const isCut = drawn < length;
      const share = (100 * drawn) / item.longest;
      part.style.flex = `0 0 ${share.toFixed(2)}%`;
      const base = `s${index + 1}${isLast && item.isGrowing ? " is-growing" : ""}${share < 6 ? " tight" : ""}${isCut ? " is-cut" : ""}`;
      setAttribute(part, "class", base);
      setText(part, share >= 14 ? `${phase.name} ${format.milliseconds(length)}` : share >= 6 ? format.milliseconds(length) : "");
      if (!part.hidden) texts.push(`${phase.name} ${format.milliseconds(length)}`);
    });
    setAttribute(this.track, "aria-label", `${recovery.task}: ${texts.join(", ") || "noticed"}`);
    const live = recovery.duration_ms ?? undefined;
    const began = recovery.phases.length ? format.clock(recovery.phases[0].at) : "";
    setText(this.when, `${began} · ${live === undefined ? (item.isGrowing ? "recovering" : item.isOver ? "until the job ended" : "failed again") : `live in ${format.milliseconds(live)}`}`);
    const calls = recovery.replayed_calls || recovery.executed_calls ? [`${format.count(recovery.replayed_calls)} calls replayed, ${format.count(recovery.executed_calls)} executed`] : [];
    const parts = [recovery.cause, `${format.plural(recovery.replayed_records, "record")} replayed`, ...calls];
    const text = parts.filter(Boolean).join(" · ");
    if (this.text !== text + item.others + item.moved.length) {
      this.text = text + item.others + item.moved.length;
      const others = item.others === null ? null : item.moved.length === 0
        ? el("span", { class: "calm", text: ` · the other ${format.plural(item.others, "task")} kept ${item.others === 1 ? "its process" : "their processes"}` })
        : el("span", { text: ` · also moved: ${item.moved.slice(0, 3).join(", ")}` });
      this.what.replaceChildren(text, ...(others ? [others] : []));
    }
  }
}
