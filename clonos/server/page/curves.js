// Curves over time, drawn by uPlot: one span of time for all, a readout under the pointer, marks of recoveries and
// checkpoints.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { el, panel, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";

const KEPT_S = 3600;
const HEIGHT = 190;
const NEAR_PX = 7;
const SPANS = [[60, "1 min"], [600, "10 min"], [3600, "1 h"]];
const dark = matchMedia("(prefers-color-scheme: dark)");

/** The span of time that all curves of a job show: the last seconds, or what was chosen with the pointer. */
export class TimeSpan {
  constructor() {
    this.seconds = 600;
    this.chosen = null;
    this.curves = [];
    this.marks = { recoveries: [], checkpoints: [] };
    this.buttons = SPANS.map(([seconds, text]) => el("button", { type: "button", class: "is-small", text, on: { click: () => this.show(seconds) } }));
    this.back = el("button", { type: "button", class: "is-small", text: "Back to now", on: { click: () => this.choose(null) } });
    const hint = el("span", { class: "muted", text: "Drag over a curve to zoom." });
    this.element = el("div", { class: "toolbar span", role: "group", "aria-label": "Span of time of the curves" }, ...this.buttons, this.back, hint);
    this.press();
  }

  show(seconds) {
    this.seconds = seconds;
    this.choose(null);
  }

  choose(range) {
    this.chosen = range;
    this.press();
    for (const curves of this.curves) curves.draw();
  }

  press() {
    this.buttons.forEach((button, index) => setAttribute(button, "aria-pressed", String(!this.chosen && SPANS[index][0] === this.seconds)));
    this.back.hidden = !this.chosen;
  }

  /** Takes what is marked in the curves. `recoveries`: [{at, until, text}], `checkpoints`: [{at, text}], in seconds. */
  mark(marks) {
    Object.assign(this.marks, marks);
    for (const curves of this.curves) curves.plot?.redraw(false);
  }
}

/** One plot with one or two curves. `series`: [{name, label, color, isDashed}]; `text` formats a value. */
export class Curves {
  constructor(title, series, text, span) {
    const { element, note } = panel(title);
    this.element = element;
    this.note = note;
    this.title = title;
    this.series = series;
    this.text = text;
    this.span = span;
    span.curves.push(this);
    this.holder = el("figure", { class: "plot", role: "img", "aria-label": title });
    const entry = (kind, words) => el("li", {}, el("span", { class: `swatch ${kind}` }), words);
    const legend = el("ul", { class: "legend", "aria-label": `Legend of ${title}` }, ...series.map((each) => entry(`curve${each.color}${each.isDashed ? " is-dashed" : ""}`, each.label)), entry("lost", "recovery"), entry("checkpoint", "checkpoint"));
    element.append(this.holder, legend);
    this.points = new Map(series.map((each) => [each.name, []]));
    new ResizeObserver(() => this.resize()).observe(this.holder);
    dark.addEventListener("change", () => { this.plot?.destroy(); this.plot = null; this.draw(); });
  }

  /** Time of the last point, in milliseconds; 0 without one. */
  get lastMs() {
    return Math.max(0, ...this.series.map(({ name }) => 1000 * (this.points.get(name).at(-1)?.[0] ?? 0)));
  }

  /** Takes points that the server has, and that are later than those at hand. */
  load(found) {
    for (const { name } of this.series) {
      const points = this.points.get(name);
      const last = points.length ? points[points.length - 1][0] : 0;
      for (const [at, value] of found[name] || []) if (at / 1000 > last) points.push([at / 1000, value]);
      trim(points);
    }
    this.draw();
  }

  /** Adds one point to each curve. */
  add(at, values) {
    for (const { name } of this.series) {
      if (values[name] === undefined || values[name] === null) continue;
      const points = this.points.get(name);
      if (points.length && points[points.length - 1][0] >= at) continue;
      points.push([at, values[name]]);
      trim(points);
    }
    this.draw();
  }

  data() {
    const [first, last] = this.range;
    const within = this.series.map(({ name }) => this.points.get(name).filter(([at]) => at >= first - 2 && at <= last + 2));
    const times = [...new Set(within.flatMap((points) => points.map(([at]) => at)))].sort((one, other) => one - other);
    return [times, ...within.map((points) => { const values = new Map(points); return times.map((at) => values.get(at) ?? null); })];
  }

  get range() {
    if (this.span.chosen) return this.span.chosen;
    const all = this.series.flatMap(({ name }) => { const points = this.points.get(name); return points.length ? [points[0][0], points[points.length - 1][0]] : []; });
    const last = all.length ? Math.max(...all) : Date.now() / 1000;
    return [Math.max(last - this.span.seconds, Math.min(...(all.length ? all : [last]), last - 30)), last];
  }

  draw() {
    const data = this.data();
    const now = this.series.map(({ name, label }) => { const points = this.points.get(name); return points.length ? `${label} ${this.text(points[points.length - 1][1])}` : ""; }).filter(Boolean).join(", ");
    this.now = now;
    if (!this.isPointed) setText(this.note, now);
    setAttribute(this.holder, "aria-label", `${this.title}: ${now || "no data yet"}`);
    if (this.plot) { this.plot.setData(data); return; }
    const width = this.holder.clientWidth;
    if (!width) return;
    const style = getComputedStyle(document.documentElement);
    this.color = (name) => style.getPropertyValue(name).trim();
    const color = this.color;
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1, size: 4 }, font: "12px system-ui, sans-serif" };
    this.plot = new uPlot({
      width, height: HEIGHT, padding: [10, 28, 0, 0],
      cursor: { y: false, drag: { x: true, y: false, setScale: false }, sync: { key: "job" }, bind: { dblclick: () => () => this.span.choose(null) } },
      legend: { show: false },
      scales: { x: { time: true, range: () => this.range }, y: { range: (_, __, most) => [0, Math.max(1, (most || 0) * 1.12)] } },
      axes: [{ ...axis, space: 70, size: 34, values: (_, ticks) => ticks.map((tick) => format.clock(tick * 1000)) }, { ...axis, size: 62, space: 34, values: (_, ticks) => ticks.map((tick) => this.text(tick)) }],
      series: [
        {},
        ...this.series.map((each) => ({ label: each.label, stroke: color(each.color), width: 2, dash: each.isDashed ? [6, 4] : undefined, fill: each.isFilled ? `${color(each.color)}1f` : undefined, points: { show: false }, spanGaps: true })),
      ],
      hooks: { drawAxes: [(plot) => this.drawMarks(plot)], setCursor: [(plot) => this.read(plot)], setSelect: [(plot) => this.zoom(plot)] },
    }, data, this.holder);
  }

  /** Draws recoveries as bands from the failure until the task was live, and checkpoints as ticks at the bottom. */
  drawMarks(plot) {
    const { ctx, bbox } = plot;
    const [first, last] = this.range;
    const ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const { at, until } of this.span.marks.recoveries) {
      if (until < first || at > last) continue;
      const from = plot.valToPos(at, "x", true);
      const width = Math.max(2 * ratio, plot.valToPos(until, "x", true) - from);
      ctx.fillStyle = `${this.color("--dot-lost")}66`;
      ctx.fillRect(from, bbox.top, width, bbox.height);
      ctx.fillStyle = this.color("--dot-lost");
      ctx.beginPath();
      ctx.moveTo(from - 4 * ratio, bbox.top);
      ctx.lineTo(from + width + 4 * ratio, bbox.top);
      ctx.lineTo(from + width / 2, bbox.top + 6 * ratio);
      ctx.fill();
    }
    ctx.fillStyle = this.color("--calm");
    for (const { at } of this.span.marks.checkpoints) {
      if (at >= first && at <= last) ctx.fillRect(plot.valToPos(at, "x", true) - ratio / 2, bbox.top + bbox.height - 6 * ratio, ratio, 6 * ratio);
    }
    ctx.restore();
  }

  /** Says what is under the pointer: the values, and a mark beside it. */
  read(plot) {
    const { left, idx } = plot.cursor;
    const at = idx === null || idx === undefined ? undefined : plot.data[0][idx];
    this.isPointed = left >= 0 && at !== undefined;
    if (!this.isPointed) { setText(this.note, this.now); return; }
    const values = this.series.map(({ label }, index) => { const value = plot.data[index + 1][idx]; return value === null || value === undefined ? "" : `${label} ${this.text(value)}`; });
    const here = plot.posToVal(left, "x");
    const near = NEAR_PX * (plot.posToVal(1, "x") - plot.posToVal(0, "x"));
    const marks = [...this.span.marks.recoveries.filter((mark) => here >= mark.at - near && here <= mark.until + near), ...this.span.marks.checkpoints.filter((mark) => Math.abs(mark.at - here) <= near).slice(-1)];
    setText(this.note, [format.clock(at * 1000), ...values.filter(Boolean), ...marks.slice(0, 2).map((mark) => mark.text)].join(" · "));
  }

  zoom(plot) {
    if (plot.select.width < 6) return;
    const range = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.span.choose(range);
  }

  resize() {
    const width = this.holder.clientWidth;
    if (!width) return;
    if (!this.plot) this.draw();
    else if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
  }
}

function trim(points) {
  const last = points.length ? points[points.length - 1][0] : 0;
  let over = 0;
  while (over < points.length && points[over][0] < last - KEPT_S) over += 1;
  if (over) points.splice(0, over);
}
