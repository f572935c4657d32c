// What the threads of a job are at now, and what a task spends its time with, as a flame graph.

import { announce, el, panel, setText, svg } from "./dom.js";
import * as format from "./format.js";
import { jobPath, post } from "./api.js";

const SECONDS = 5;
const ROW = 18;
const LEAST = 1; // width of a box that is drawn
const READ = 22; // width of a box that has a text
const REACHED = 24; // width of a box that the keyboard reaches
const NARROW = 320;
const MOST = 10;
const WAITING = "(waits for its slot)";

export class Stacks {
  constructor(jobId) {
    this.jobId = jobId;
    const { element, note, heading } = panel("Threads");
    this.element = element;
    this.note = note;
    this.title = heading.querySelector("h2");
    heading.append(el("div", { class: "toolbar" }, el("button", { type: "button", class: "is-small", text: "Close", on: { click: () => { element.hidden = true; } } })));
    this.said = el("p", { class: "empty" });
    this.found = el("div", { class: "stacks" });
    element.append(this.said, this.found);
    element.hidden = true;
  }

  /** Shows the threads of a task; null: all of the job. */
  async threads(task) {
    const dump = await this.ask(task ? `Threads of ${task}` : "Threads", "Asking the processes ...", "/threads", { task });
    if (!dump) return;
    const threads = dump.processes.reduce((sum, process) => sum + process.threads.length, 0);
    setText(this.said, [`${format.plural(threads, "thread")} in ${format.plural(dump.processes.length, "process", "processes")}; the innermost line is the last`, ...dump.silent].join(". "));
    this.found.replaceChildren(...dump.processes.flatMap((process) => [
      el("h3", { text: `Process ${process.pid} on ${process.host}${process.is_driver ? ", the driver" : ""}` }),
      ...process.threads.map((thread) => threadElement(thread, Boolean(task) || (Boolean(thread.task) && !thread.is_waiting))),
    ]));
  }

  /** Samples a task, and draws what it was at. */
  async flame(task) {
    const flame = await this.ask(`Flame graph of ${task}`, `Looking at ${task} for ${SECONDS} s ...`, "/flame", { task, seconds: SECONDS });
    if (!flame) return;
    setText(this.said, `${format.plural(flame.samples, "sample")} in ${SECONDS} s. A function is as wide as its share of them, above its caller; a click makes it as wide as the picture. Functions in C count for those that called them.`);
    const root = treeOf(flame);
    const drawing = svg("svg", { class: "flame", role: "group", "aria-label": `Flame graph of ${task}. The table below has the functions with most samples.` });
    this.found.replaceChildren(drawing, mostElement(root));
    drawFlame(drawing, root, root);
  }

  async ask(title, doing, path, body) {
    setText(this.title, title);
    setText(this.said, doing);
    this.found.replaceChildren();
    this.element.hidden = false;
    this.element.scrollIntoView({ block: "nearest" });
    announce(doing);
    const number = (this.number = (this.number || 0) + 1);
    try {
      const answer = await post(jobPath(this.jobId, path), body);
      if (number !== this.number) return null; // something else was asked meanwhile
      announce(`${title}: shown`);
      return answer;
    } catch (error) {
      if (number === this.number) setText(this.said, error.message);
      return null;
    }
  }
}

function threadElement(thread, isOpen) {
  const where = thread.is_waiting ? ": waits for its slot" : thread.step ? `: in step ${thread.step}` : "";
  const properties = thread.arguments.flatMap((each) => [el("dt", { text: each.name }), el("dd", { text: each.value })]);
  return el("details", { open: isOpen }, el("summary", { text: `${thread.name}${where}` }),
    properties.length ? el("dl", { class: "properties" }, ...properties) : null, el("ol", { class: "rows frames" }, ...thread.frames.map((text) => el("li", { text }))));
}

function treeOf(flame) {
  const root = { name: flame.task, times: 0, called: new Map(), parent: null };
  for (const line of flame.folded.split("\n").filter(Boolean)) {
    const cut = line.lastIndexOf(" ");
    const times = Number(line.slice(cut + 1));
    let node = root;
    node.times += times;
    for (const name of line.slice(0, cut).split(";")) {
      if (!node.called.has(name)) node.called.set(name, { name, times: 0, called: new Map(), parent: node });
      node = node.called.get(name);
      node.times += times;
    }
  }
  return root;
}

function depthOf(node) {
  return 1 + Math.max(0, ...[...node.called.values()].map(depthOf));
}

/** Draws a tree with `chosen` as wide as the picture. */
function drawFlame(drawing, root, chosen) {
  const whole = Math.max(NARROW, drawing.clientWidth || NARROW);
  const callers = [];
  for (let node = chosen.parent; node; node = node.parent) callers.unshift(node);
  const height = (callers.length + depthOf(chosen)) * ROW;
  drawing.setAttribute("viewBox", `0 0 ${whole} ${height}`);
  const boxes = [];
  const draw = (node, left, width, level) => {
    if (width < LEAST) return;
    boxes.push(boxElement(node, root, left, width, height - (level + 1) * ROW, () => { drawFlame(drawing, root, node); drawing.querySelector("[data-chosen]")?.focus(); }, node === chosen));
    let at = left;
    for (const each of node.called.values()) {
      draw(each, at, (width * each.times) / node.times, level + 1);
      at += (width * each.times) / node.times;
    }
  };
  callers.forEach((node, level) => boxes.push(boxElement(node, root, 0, whole, height - (level + 1) * ROW, () => { drawFlame(drawing, root, node); drawing.querySelector("[data-chosen]")?.focus(); }, false)));
  draw(chosen, 0, whole, callers.length);
  drawing.replaceChildren(...boxes);
}

function boxElement(node, root, left, width, top, choose, isChosen) {
  const text = `${node.name}: ${format.plural(node.times, "sample")}, ${format.percent(node.times / root.times)}`;
  const shade = [...node.name].reduce((sum, each) => sum + each.codePointAt(0), 0) % 3;
  const isReached = width >= REACHED;
  return svg("g", { class: node.name === WAITING ? "is-waiting" : `shade-${shade}`, role: isReached ? "button" : null, tabindex: isReached ? "0" : null, "aria-label": isReached ? text : null, "data-chosen": isChosen,
    on: { click: choose, keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } } } },
  svg("title", { text }), svg("rect", { x: left.toFixed(1), y: top, width: Math.max(LEAST, width - 1).toFixed(1), height: ROW - 1, rx: 2 }),
  width >= READ ? svg("svg", { x: (left + 3).toFixed(1), y: top, width: (width - 5).toFixed(1), height: ROW }, svg("text", { x: 0, y: 13, text: node.name })) : null); // an svg cuts off what is too long
}

/** A table of the functions in which most samples were. */
function mostElement(root) {
  const own = new Map();
  const add = (node) => {
    const below = [...node.called.values()];
    const times = node.times - below.reduce((sum, each) => sum + each.times, 0);
    if (node !== root) own.set(node.name, (own.get(node.name) || 0) + times);
    below.forEach(add);
  };
  add(root);
  const rows = [...own].sort((one, other) => other[1] - one[1]).slice(0, MOST).filter(([, times]) => times);
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Functions with most samples" }, el("table", {}, el("caption", { class: "hidden", text: "Functions with most samples" }),
    el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "Function" }), el("th", { scope: "col", class: "number", text: "Share" }))),
    el("tbody", {}, ...rows.map(([name, times]) => el("tr", {}, el("td", { class: "wrap code", text: name }), el("td", { class: "number", text: format.percent(times / root.times) }))))));
}
