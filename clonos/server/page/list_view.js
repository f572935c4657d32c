// The list of jobs of a server, and the form that submits one.

import { KeyedList, ask, el, panel, setAttribute, setText, toast } from "./dom.js";
import * as format from "./format.js";
import { get, post } from "./api.js";

const BADGES = { RUNNING: "is-good", RECOVERING: "is-warn", FAILING: "is-bad", FAILED: "is-bad", CANCELLING: "is-warn", CREATED: "is-warn" };
const COLUMNS = ["Job", "Status", "Started", "Ran for", "Checkpoint", "Recoveries", "Error"];
const EVERY_MS = 1000;

export class ListView {
  constructor(main, cluster, onState) {
    this.main = main;
    this.cluster = cluster;
    this.onState = onState;
    this.isOver = false;
  }

  async start() {
    document.title = "Jobs · Clonos";
    const { element, note, heading } = panel("Jobs");
    this.note = note;
    if (this.cluster?.submission_allowed) heading.append(el("button", { type: "button", class: "is-main", text: "Submit a job", on: { click: () => this.submit() } }));
    this.body = el("tbody");
    const head = el("tr", {}, ...COLUMNS.map((text) => el("th", { scope: "col", text })));
    element.append(el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table of jobs" }, el("table", { class: "cards" }, el("caption", { class: "hidden", text: "Jobs of this server" }), el("thead", {}, head), this.body)));
    this.empty = el("p", { class: "empty", text: "This server has no job yet." });
    element.append(this.empty);
    this.main.replaceChildren(el("h1", { class: "hidden", text: "Jobs" }), element);
    this.rows = new KeyedList(this.body, (job) => job.id, () => new JobRow());
    await this.load();
  }

  stop() {
    this.isOver = true;
    clearTimeout(this.timer);
  }

  async load() {
    if (this.isOver) return;
    try {
      const { jobs } = await get("/jobs");
      this.onState("live");
      this.empty.hidden = jobs.length > 0;
      setText(this.note, format.plural(jobs.length, "job"));
      this.rows.update(jobs);
    } catch (error) {
      this.onState("lost", error);
      if (error.status === 401) return;
    }
    if (!this.isOver) this.timer = setTimeout(() => this.load(), EVERY_MS);
  }

  async submit() {
    const values = await ask("Submit a job", "The server runs the code of the file.", "Submit", { fields: [
      { name: "job", label: "Python file, or a .zip or .tar.gz archive", kind: "file", isRequired: true, accept: ".py,.zip,.gz,.tgz" },
      { name: "file", label: "File in the archive that has the job (empty: the only one)", placeholder: "job.py" },
      { name: "options", label: "Options", placeholder: "parallelism=2 checkpoint_every=1s" },
    ] });
    if (!values?.job) return;
    const form = new FormData();
    form.append("job", values.job, values.job.name);
    if (values.file) form.append("file", values.file);
    const options = Object.fromEntries(values.options.split(/\s+/).filter(Boolean).map((pair) => { const at = pair.indexOf("="); return at < 0 ? [pair, ""] : [pair.slice(0, at), pair.slice(at + 1)]; }));
    form.append("options", JSON.stringify(options));
    try {
      const found = await post("/jobs", form);
      toast(`Submitted ${found.name || values.job.name}`);
    } catch (error) {
      toast(error.message);
    }
  }
}

class JobRow {
  constructor() {
    this.cells = COLUMNS.map((label, index) => el("td", { "data-label": index ? label : null, class: index === 6 ? "wrap" : null }));
    this.link = el("a");
    this.badge = el("span", { class: "badge" });
    this.cells[0].append(this.link);
    this.cells[1].append(this.badge);
    this.cells[1].classList.add("bare");
    this.element = el("tr", {}, ...this.cells);
  }

  update(job) {
    setText(this.link, job.name);
    setAttribute(this.link, "href", `#/jobs/${encodeURIComponent(job.id)}`);
    setText(this.badge, job.status);
    setAttribute(this.badge, "class", `badge ${BADGES[job.status] || ""}`);
    const end = job.ended_at ? new Date(job.ended_at) : new Date();
    const texts = [format.clock(job.started_at), format.duration(end - new Date(job.started_at)), job.checkpoint || "–", job.recoveries, format.shortened((job.error || "").split("\n")[0], 160)];
    texts.forEach((text, index) => setText(this.cells[index + 2], text));
  }
}
