// Rows of an arrow: what a step has just emitted.

import { el, panel, setText } from "./dom.js";
import * as format from "./format.js";
import { jobPath, post } from "./api.js";

const ROWS = 5;

export class Peek {
  constructor(jobId, edges) {
    this.jobId = jobId;
    this.edges = edges.filter((edge) => edge.step);
    const { element, note, heading } = panel("Rows");
    this.element = element;
    this.note = note;
    setText(note, "the next rows of an arrow");
    this.choice = el("select", { id: "peek-arrow" }, ...this.edges.map((edge, index) => el("option", { value: index, text: `${format.shortened(edge.source, 40)} → ${format.shortened(edge.target, 40)}` })));
    this.button = el("button", { type: "button", text: `Show ${ROWS} rows`, on: { click: () => this.look() } });
    heading.append(el("div", { class: "toolbar" }, el("label", { for: "peek-arrow" }, "Arrow"), this.choice, this.button));
    this.said = el("p", { class: "empty", text: "Choose an arrow, here or in the graph." });
    this.list = el("ol", { class: "rows" });
    element.append(this.said, this.list);
    element.hidden = this.edges.length === 0;
  }

  /** Looks at the rows between two vertices. */
  show(source, target) {
    const index = this.edges.findIndex((edge) => edge.source === source && edge.target === target);
    if (index < 0) return;
    this.choice.value = index;
    this.element.scrollIntoView({ block: "nearest" });
    this.look();
  }

  async look() {
    const edge = this.edges[this.choice.value];
    if (!edge || this.button.disabled) return;
    this.button.disabled = true;
    this.list.replaceChildren();
    setText(this.said, `Waiting for rows of ${edge.step} ...`);
    try {
      const { rows } = await post(jobPath(this.jobId, "/peek"), { step: edge.step, count: ROWS });
      this.list.replaceChildren(...rows.map((text) => el("li", { text })));
      setText(this.said, rows.length ? `The step ${edge.step} has just emitted:` : `The step ${edge.step} has emitted no row in the last seconds.`);
    } catch (error) {
      setText(this.said, error.message);
    }
    this.button.disabled = this.isOver;
  }

  end() {
    this.isOver = true;
    this.button.disabled = true;
  }
}
