// History of a job as a timeline: a lane for each kind of event, over all drivers of the job; and as a list.

import { KeyedList, el, panel, setAttribute, setText, svg } from "./dom.js";
import * as format from "./format.js";

const LANES = [
  { name: "drivers", kinds: ["start", "end", "driver_death", "plan_change"] },
  { name: "checkpoints", kinds: ["checkpoint", "checkpoint_abandoned"] },
  { name: "tasks", kinds: ["failure", "recovery", "caught_up", "rollback"] },
  { name: "places", kinds: ["move", "rescale"] },
  { name: "records", kinds: ["capture"] },
  { name: "alarms", kinds: ["alarm"] },
];
const SPANS = [["all", "All", Infinity], ["day", "Day", 86_400_000], ["hour", "Hour", 3_600_000], ["minutes", "10 min", 600_000], ["minute", "1 min", 60_000]];
const LANE = 26;
const AXIS = 30;
const LEFT = 88;
const NARROW = 340; // what a drawing has at least
const MARK = 3; // width of an event without length
const ROWS = 60;
const DAY_MS = 86_400_000;
const LOOK_EVERY_MS = 5000;

export class History {
  /** `load` resolves to the document of the history. */
  constructor(load) {
    this.load = load;
    this.lines = [];
    this.loadedAt = 0;
    this.span = Infinity;
    const { element, note, heading } = panel("History");
    this.element = element;
    this.note = note;
    this.buttons = SPANS.map(([, text, length]) => el("button", { type: "button", class: "is-small", "aria-pressed": String(length === this.span), text, on: { click: () => this.choose(length) } }));
    heading.append(el("div", { class: "toolbar", role: "group", "aria-label": "Length of the timeline" }, ...this.buttons));
    this.drawing = svg("svg", { class: "history", role: "img" });
    this.list = el("ol", { class: "events" });
    this.rows = new KeyedList(this.list, (line) => line.key, (line) => ({
      element: el("li", { "data-event": line.event }, el("time", { datetime: line.at, title: line.at, text: moment(line.at) }), el("span", { class: "kind", text: kindOf(line) }), el("span", { class: "text", text: line.text })),
      update() {},
    }));
    this.told = el("summary", { text: "List of the events" });
    element.append(this.drawing, el("details", {}, this.told, el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "List of the events" }, this.list)));
    element.hidden = true;
    new ResizeObserver(() => this.draw()).observe(element);
  }

  /** Loads the history again if it is old, or if something has just happened. */
  async refresh(isNew) {
    if (!isNew && Date.now() - this.loadedAt < LOOK_EVERY_MS) return;
    this.loadedAt = Date.now();
    try {
      this.lines = (await this.load()).lines;
    } catch { return; /* the events say when the connection is lost */ }
    this.draw();
  }

  choose(length) {
    this.span = length;
    SPANS.forEach(([, , each], index) => setAttribute(this.buttons[index], "aria-pressed", String(each === length)));
    this.draw();
  }

  draw() {
    this.element.hidden = this.lines.length === 0;
    if (!this.lines.length) return;
    const last = Math.max(...this.lines.map((line) => +new Date(line.at)));
    const shown = this.lines.filter((line) => last - new Date(line.at) <= this.span);
    const first = this.span === Infinity ? Math.min(...shown.map(beginOf)) : last - this.span;
    const count = (event) => shown.filter((line) => line.event === event).length;
    setText(this.note, `${format.plural(count("start"), "start")} of a driver, ${format.plural(count("failure"), "failure")}, ${format.plural(count("checkpoint"), "checkpoint")} in ${format.duration(last - first)}`);
    setAttribute(this.drawing, "aria-label", `Timeline of the job: ${this.note.textContent}. The list below has the events.`);
    this.drawLanes(shown, first, Math.max(last, first + 1));
    this.drawList(shown.filter((line) => line.event !== "checkpoint"));
  }

  drawList(told) {
    const seen = new Map();
    const rows = told.map((line) => {
      const key = `${line.at} ${line.event} ${line.text}`;
      seen.set(key, (seen.get(key) || 0) + 1);
      return { ...line, key: `${seen.get(key)} ${key}` };
    });
    setText(this.told, `List of the events without checkpoints${rows.length > ROWS ? `: the last ${ROWS} of ${format.count(rows.length)}` : ""}`);
    this.rows.update(rows.slice(-ROWS).reverse());
  }

  drawLanes(lines, first, last) {
    const whole = Math.max(NARROW, this.drawing.clientWidth || NARROW);
    setAttribute(this.drawing, "viewBox", `0 0 ${whole} ${LANES.length * LANE + AXIS}`);
    const place = (at) => LEFT + ((Math.max(at, first) - first) / (last - first)) * (whole - LEFT - MARK);
    const parts = LANES.flatMap((lane, index) => [
      svg("text", { x: 0, y: index * LANE + 17, text: lane.name }),
      svg("line", { x1: LEFT, x2: whole, y1: (index + 1) * LANE - 3, y2: (index + 1) * LANE - 3, class: "rule" }),
    ]);
    const lengths = lines.filter((line) => line.began_at);
    for (const line of [...lengths, ...lines.filter((each) => !each.began_at)]) { // instants over what lasts
      const index = LANES.findIndex((lane) => lane.kinds.includes(line.event));
      if (index < 0) continue; // of a later version
      const from = place(beginOf(line));
      const width = Math.max(MARK, place(+new Date(line.at)) - from);
      const title = svg("title", { text: `${moment(line.at)} ${kindOf(line)}: ${line.text}` });
      parts.push(svg("rect", { x: from.toFixed(1), y: index * LANE + 4, width: width.toFixed(1), height: LANE - 9, rx: 1.5, class: "mark", "data-event": line.event }, title));
    }
    const ticks = whole < 600 ? 2 : 5;
    for (let tick = 0; tick <= ticks; tick += 1) {
      const at = first + ((last - first) * tick) / ticks;
      const anchor = tick === 0 ? "start" : tick === ticks ? "end" : "middle";
      const text = last - first > DAY_MS ? moment(new Date(at).toISOString(), true) : format.clock(new Date(at).toISOString());
      parts.push(svg("text", { x: place(at).toFixed(1), y: LANES.length * LANE + 16, "text-anchor": anchor, text }));
    }
    this.drawing.replaceChildren(...parts);
  }
}

function beginOf(line) {
  return +new Date(line.began_at || line.at);
}

function kindOf(line) {
  return line.event.replaceAll("_", " ");
}

/** The time of day; with its date if it was on another day, or `isDated`. */
function moment(iso, isDated = false) {
  const isToday = new Date(iso).toDateString() === new Date().toDateString();
  return isToday && !isDated ? format.clock(iso) : `${new Date(iso).toLocaleDateString("en-CA")} ${format.clock(iso)}`;
}
