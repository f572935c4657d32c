// The graph of a job: vertices in layers, from left to right, or from top to bottom on narrow screens.

import { el, setAttribute, setText, svg } from "./dom.js";
import * as format from "./format.js";

const NODE_HEIGHT = 104;
const NARROW = 680;
const DOTS_MAX = 18;
const BLOCKED_FROM = 0.1;
const SETTLED = new Set(["live", "suspended", "final", "ended"]);

/** Layers of the vertices: each after all that it reads. Long edges pass through layers at places of their own. */
export function layersOf(vertices, edges) {
  const layer = new Map(vertices.map((vertex) => [vertex.name, 0]));
  for (let pass = 0; pass < vertices.length; pass += 1) {
    let hasChanged = false;
    for (const edge of edges) {
      const least = (layer.get(edge.source) ?? 0) + 1;
      if ((layer.get(edge.target) ?? 0) < least) { layer.set(edge.target, least); hasChanged = true; }
    }
    if (!hasChanged) break;
  }
  const layers = [];
  for (const vertex of vertices) (layers[layer.get(vertex.name)] ||= []).push(vertex.name);
  const segments = [];
  for (const edge of edges) {
    const path = [edge.source];
    for (let level = layer.get(edge.source) + 1; level < layer.get(edge.target); level += 1) {
      const place = `\u0000${edge.source}\u0000${edge.target}\u0000${level}`;
      layers[level].push(place);
      path.push(place);
    }
    path.push(edge.target);
    segments.push(path);
  }
  order(layers, segments);
  return { layers, paths: segments };
}

/** Orders each layer by the mean place of its neighbours, a few times, so that edges cross rarely. */
function order(layers, paths) {
  const before = new Map();
  const after = new Map();
  for (const path of paths) {
    for (let index = 1; index < path.length; index += 1) {
      (before.get(path[index]) || before.set(path[index], []).get(path[index])).push(path[index - 1]);
      (after.get(path[index - 1]) || after.set(path[index - 1], []).get(path[index - 1])).push(path[index]);
    }
  }
  const sort = (layer, beside, neighbours) => {
    const place = new Map((beside || []).map((name, index) => [name, index]));
    const weight = new Map(layer.map((name, index) => {
      const found = (neighbours.get(name) || []).map((other) => place.get(other)).filter((value) => value !== undefined);
      return [name, found.length ? found.reduce((sum, value) => sum + value, 0) / found.length : index];
    }));
    layer.sort((one, other) => weight.get(one) - weight.get(other));
  };
  for (let round = 0; round < 4; round += 1) {
    for (let index = 1; index < layers.length; index += 1) sort(layers[index], layers[index - 1], before);
    for (let index = layers.length - 2; index >= 0; index -= 1) sort(layers[index], layers[index + 1], after);
  }
}

export class Graph {
  /** `onVertex` gets the name of a vertex that was clicked, `onEdge` source and target of an arrow. */
  constructor(plan, onVertex, onEdge) {
    this.plan = plan;
    this.onVertex = onVertex;
    this.onEdge = onEdge;
    this.layout = layersOf(plan.vertices, plan.edges);
    this.drawing = svg("svg", { class: "graph", role: "img", "aria-label": "Graph of the job" });
    this.list = el("ul", { class: "hidden" });
    this.element = el("div", {}, this.drawing, this.list);
    this.status = null;
    this.isVertical = null;
    new ResizeObserver(() => this.place()).observe(this.element);
  }

  /** Draws the graph again, because vertices have changed. */
  redraw() {
    this.width = 0;
    this.place();
  }

  /** Draws the graph for the width at hand. */
  place() {
    const width = Math.max(280, Math.floor(this.element.clientWidth));
    if (width === this.width) return;
    this.width = width;
    const { layers, paths } = this.layout;
    const widest = Math.max(...layers.map((layer) => layer.length));
    this.isVertical = width < NARROW || layers.length * 150 > width;
    const positions = new Map();
    let height;
    let nodeWidth;
    if (this.isVertical) {
      nodeWidth = Math.max(90, Math.min(230, Math.floor((width - 8 - (widest - 1) * 14) / widest)));
      const step = NODE_HEIGHT + 74;
      layers.forEach((layer, level) => layer.forEach((name, index) => {
        positions.set(name, { x: (width * (index + 0.5)) / layer.length, y: level * step + NODE_HEIGHT / 2 + 4 });
      }));
      height = (layers.length - 1) * step + NODE_HEIGHT + 8;
    } else {
      nodeWidth = Math.max(96, Math.min(210, Math.floor((width - (layers.length - 1) * 116) / layers.length)));
      const gap = layers.length > 1 ? (width - 4 - nodeWidth * layers.length) / (layers.length - 1) : 0;
      const used = Math.min(gap, 220);
      const left = (width - nodeWidth * layers.length - used * (layers.length - 1)) / 2;
      height = widest * (NODE_HEIGHT + 22) - 14;
      layers.forEach((layer, level) => layer.forEach((name, index) => {
        positions.set(name, { x: left + level * (nodeWidth + used) + nodeWidth / 2, y: (height * (index + 0.5)) / layer.length });
      }));
    }
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawing.setAttribute("width", width);
    this.drawing.setAttribute("height", height);
    this.draw(positions, paths, nodeWidth);
    if (this.status) this.update(this.status);
  }

  draw(positions, paths, nodeWidth) {
    const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { class: "arrow", d: "M0 0 L8 4 L0 8 z" }));
    this.edges = this.plan.edges.map((edge, index) => new Edge(edge, paths[index].map((name) => positions.get(name)), this.isVertical, nodeWidth));
    this.nodes = this.plan.vertices.map((vertex) => new Node(vertex, positions.get(vertex.name), nodeWidth));
    for (const node of this.nodes) node.element.addEventListener("click", () => this.onVertex(node.vertex.name));
    for (const { edge, line, label } of this.edges) for (const part of [line, label]) part.addEventListener("click", () => this.onEdge(edge.source, edge.target));
    this.drawing.replaceChildren(
      svg("defs", {}, arrow),
      ...this.edges.map((edge) => edge.line),
      ...this.nodes.map((node) => node.element),
      ...this.edges.map((edge) => edge.label),
    );
  }

  update(status) {
    this.status = status;
    if (!this.nodes) return;
    const tasks = new Map(this.plan.vertices.map((vertex) => [vertex.name, []]));
    for (const task of status.tasks) tasks.get(task.vertex)?.push(task);
    for (const node of this.nodes) node.update(tasks.get(node.vertex.name), status.at);
    const lines = [];
    for (const edge of this.edges) {
      const found = status.edges.find((each) => each.source === edge.edge.source && each.target === edge.edge.target);
      if (!found) continue;
      edge.update(found, status.at);
      lines.push(`${found.source} to ${found.target}: ${format.rate(found.records_per_s)}, back-pressure ${format.percent(found.backpressure_ratio)}${found.watermark ? `, ${format.watermark(found.watermark, status.at)}` : ""}`);
    }
    while (this.list.children.length < lines.length) this.list.append(el("li"));
    lines.forEach((line, index) => setText(this.list.children[index], line));
  }
}

class Node {
  constructor(vertex, position, width) {
    this.vertex = vertex;
    const [left, top] = [position.x - width / 2, position.y - NODE_HEIGHT / 2];
    const letters = Math.max(8, Math.floor((width - 24) / 8.6));
    this.second = svg("text", { class: "line", x: left + 14, y: top + 44 });
    this.third = svg("text", { class: "line", x: left + 14, y: top + 62 });
    this.width = width - 28;
    this.left = left + 14;
    this.busy = svg("rect", { class: "busy", x: left + 14, y: top + NODE_HEIGHT - 14, width: 0, height: 5, rx: 2.5 });
    this.blocked = svg("rect", { class: "blocked", x: left + 14, y: top + NODE_HEIGHT - 14, width: 0, height: 5, rx: 2.5 });
    const shown = Math.min(vertex.tasks, DOTS_MAX, Math.floor((width - 24) / 14));
    this.dots = Array.from({ length: shown }, (_, index) => svg("circle", { class: "dot", cx: left + 19 + index * 14, cy: top + 78, r: 4.5 }));
    const more = shown < vertex.tasks && shown > 2 ? svg("text", { class: "line", x: left + 14 + shown * 14, y: top + 82, text: `+${vertex.tasks - shown}` }) : null;
    this.element = svg("g", { class: "node" },
      svg("title", { text: `${vertex.name}: ${vertex.steps.join(", ")}` }),
      svg("rect", { class: "body", x: left, y: top, width, height: NODE_HEIGHT, rx: 12 }),
      svg("text", { class: "name", x: left + 14, y: top + 25, text: format.shortened(vertex.name, letters) }),
      this.second, this.third, ...this.dots, more,
      svg("rect", { class: "busy-track", x: left + 14, y: top + NODE_HEIGHT - 14, width: this.width, height: 5, rx: 2.5 }),
      this.busy, this.blocked);
  }

  update(tasks) {
    const sum = tasks.reduce((total, task) => total + task.rates.records_in_per_s, 0);
    setText(this.second, this.width > 120 ? `${format.plural(this.vertex.tasks, "task")} · ${format.rate(sum)}` : format.rate(sum));
    const kind = this.vertex.is_source ? "source" : this.vertex.has_sink ? "sink" : "";
    const backlog = tasks.reduce((total, task) => total + (task.counters.backlog_elements || 0), 0);
    setText(this.third, backlog ? `backlog ${format.count(backlog)}` : kind);
    const busy = Math.max(0, ...tasks.map((task) => task.rates.busy_ratio));
    const blocked = Math.max(0, ...tasks.map((task) => task.rates.backpressure_ratio || 0));
    setAttribute(this.busy, "width", (this.width * Math.min(1, busy)).toFixed(1));
    setAttribute(this.blocked, "width", (this.width * Math.min(1 - busy, blocked)).toFixed(1));
    setAttribute(this.blocked, "x", (this.left + this.width * Math.min(1, busy)).toFixed(1));
    this.dots.forEach((dot, index) => setAttribute(dot, "class", `dot ${dotClass(tasks[index])}`));
    const isRecovering = tasks.some((task) => !SETTLED.has(task.phase) && task.phase !== "waiting" || task.isDown);
    setAttribute(this.element, "class", isRecovering ? "node is-recovering" : "node");
  }
}

function dotClass(task) {
  if (!task || task.phase === "final" || task.phase === "ended") return "";
  if (task.phase === "live") return "is-live";
  return task.phase === "waiting" || task.phase === "lost" ? "is-lost" : "is-recovering";
}

class Edge {
  constructor(edge, points, isVertical, nodeWidth) {
    this.edge = edge;
    const half = isVertical ? NODE_HEIGHT / 2 : nodeWidth / 2;
    const first = { ...points[0] };
    const last = { ...points[points.length - 1] };
    const along = isVertical ? "y" : "x";
    first[along] += half + 2;
    last[along] -= half + 4;
    const route = [first, ...points.slice(1, -1), last];
    let path = `M${first.x} ${first.y}`;
    for (let index = 1; index < route.length; index += 1) {
      const [from, to] = [route[index - 1], route[index]];
      const middle = (from[along] + to[along]) / 2;
      path += isVertical ? ` C${from.x} ${middle} ${to.x} ${middle} ${to.x} ${to.y}` : ` C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
    }
    const center = Math.floor((route.length - 1) / 2);
    const [from, to] = [route[center], route[center + 1]];
    const at = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
    this.line = svg("path", { class: "edge", d: path, "marker-end": "url(#arrow)" });
    this.rate = svg("text", { x: at.x, y: at.y - 1 });
    this.sub = svg("text", { class: "sub", x: at.x, y: at.y + 13 });
    this.box = svg("rect", { x: at.x - 46, y: at.y - 15, width: 92, height: 32, rx: 6 });
    this.at = at;
    this.label = svg("g", { class: "label" }, this.box, this.rate, this.sub);
  }

  update(found, at) {
    const isBlocked = (found.backpressure_ratio || 0) >= BLOCKED_FROM;
    const isFlowing = (found.records_per_s || 0) > 0;
    setAttribute(this.line, "class", `edge${isFlowing ? " is-flowing" : ""}${isBlocked ? " is-blocked" : ""}`);
    setAttribute(this.line, "stroke-width", (2 + Math.min(4, Math.log10(1 + (found.records_per_s || 0)))).toFixed(1));
    setText(this.rate, format.rate(found.records_per_s));
    const second = isBlocked ? `${format.percent(found.backpressure_ratio)} held back` : found.watermark ? format.watermark(found.watermark, at).replace("watermark ", "wm ") : this.edge.exchange;
    setText(this.sub, second);
    setAttribute(this.sub, "class", isBlocked ? "sub is-blocked" : "sub");
    const width = Math.max(8 + format.rate(found.records_per_s).length * 7, 8 + second.length * 6.2);
    setAttribute(this.box, "width", width.toFixed(0));
    setAttribute(this.box, "x", (this.at.x - width / 2).toFixed(1));
  }
}

/** What the colors of the graph mean. */
export function graphLegend() {
  const entry = (swatch, text) => el("li", {}, el("span", { class: `swatch ${swatch}` }), text);
  return el("ul", { class: "legend", "aria-label": "Legend" },
    entry("is-round live", "live task"), entry("is-round recovering", "recovering"), entry("is-round lost", "waits for a process"),
    entry("busy", "busy"), entry("lost", "held back by receivers"));
}
