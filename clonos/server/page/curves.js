// Curves of the last ten minutes, drawn by uPlot.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { el, panel, setAttribute, setText } from "./dom.js";
import * as format from "./format.js";

const SPAN_S = 600;
const dark = matchMedia("(prefers-color-scheme: dark)");

/** One plot with one or two curves. `series`: [{name, label, color}]; `text` formats a value. */
export class Curves {
  constructor(title, series, text) {
    const { element, note } = panel(title);
    this.element = element;
    this.note = note;
    this.title = title;
    this.series = series;
    this.text = text;
    this.holder = el("figure", { class: "plot", role: "img", "aria-label": title });
    element.append(this.holder);
    this.points = new Map(series.map((each) => [each.name, []]));
    new ResizeObserver(() => this.resize()).observe(this.holder);
    dark.addEventListener("change", () => { this.plot?.destroy(); this.plot = null; this.draw(); });
  }

  get isEmpty() {
    return this.series.every((each) => this.points.get(each.name).length === 0);
  }

  /** Takes all points that the server has. */
  load(found) {
    for (const { name } of this.series) this.points.set(name, (found[name] || []).map(([at, value]) => [at / 1000, value]));
    this.draw();
  }

  /** Adds one point to each curve. */
  add(at, values) {
    for (const { name } of this.series) {
      if (values[name] === undefined || values[name] === null) continue;
      const points = this.points.get(name);
      if (points.length && points[points.length - 1][0] >= at) continue;
      points.push([at, values[name]]);
      while (points.length && points[0][0] < at - SPAN_S) points.shift();
    }
    this.draw();
  }

  data() {
    const times = [...new Set(this.series.flatMap(({ name }) => this.points.get(name).map(([at]) => at)))].sort((one, other) => one - other);
    const columns = this.series.map(({ name }) => {
      const values = new Map(this.points.get(name));
      return times.map((at) => values.get(at) ?? null);
    });
    return [times, ...columns];
  }

  draw() {
    const data = this.data();
    const now = this.series.map(({ name, label }) => { const points = this.points.get(name); return points.length ? `${label} ${this.text(points[points.length - 1][1])}` : ""; }).filter(Boolean).join(", ");
    setText(this.note, now);
    setAttribute(this.holder, "aria-label", `${this.title}: ${now || "no data yet"}`);
    const last = data[0].length ? data[0][data[0].length - 1] : Date.now() / 1000;
    const first = Math.max(last - SPAN_S, Math.min(data[0][0] ?? last, last - 30));
    this.range = [first, last];
    if (this.plot) { this.plot.setData(data); return; }
    const width = this.holder.clientWidth;
    if (!width) return;
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1, size: 4 }, font: "12px system-ui, sans-serif" };
    this.plot = new uPlot({
      width, height: 190, padding: [10, 28, 0, 0],
      cursor: { y: false },
      legend: { live: false },
      scales: { x: { time: true, range: () => this.range }, y: { range: (_, __, most) => [0, Math.max(1, (most || 0) * 1.12)] } },
      axes: [{ ...axis, space: 70, values: (_, ticks) => ticks.map((tick) => format.clock(tick * 1000)) }, { ...axis, size: 62, space: 34, values: (_, ticks) => ticks.map((tick) => this.text(tick)) }],
      series: [
        {},
        ...this.series.map((each) => ({ label: each.label, stroke: color(each.color), width: 2, fill: each.isFilled ? `${color(each.color)}1f` : undefined, points: { show: false }, spanGaps: true })),
      ],
    }, data, this.holder);
  }

  resize() {
    const width = this.holder.clientWidth;
    if (!width) return;
    if (!this.plot) this.draw();
    else if (this.plot.width !== width) this.plot.setSize({ width, height: 190 });
  }
}
