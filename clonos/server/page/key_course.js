// What a key has gone through at a step since the last checkpoint: its records, prompts, replies, calls of tools, and state.

import { announce, el, panel, setText } from "./dom.js";
import * as format from "./format.js";
import { jobPath, post } from "./api.js";

const SHOWN = 2000;

export class KeyCourse {
  /** `steps`: those of the plan. */
  constructor(jobId, steps) {
    this.jobId = jobId;
    const keyed = steps.filter((step) => step.keyed);
    keyed.sort((one, other) => other.kind.endsWith("_async") - one.kind.endsWith("_async"));
    const { element, note, heading } = panel("Key");
    this.element = element;
    setText(note, "what a key has gone through since the last checkpoint");
    this.step = el("select", { id: "key-step" }, ...keyed.map((step) => el("option", { value: step.name, text: format.shortened(step.name, 40) })));
    this.key = el("input", { type: "text", id: "key-key", required: true, autocomplete: "off", placeholder: "customer-17" });
    this.button = el("button", { type: "submit", class: "is-small", text: "Show" });
    heading.append(el("form", { class: "toolbar", on: { submit: (event) => { event.preventDefault(); this.look(); } } }, el("label", { for: "key-step" }, "Step"), this.step, el("label", { for: "key-key" }, "Key"), this.key, this.button));
    this.said = el("p", { class: "empty", text: "Give the step and the key, as the log shows it. The task of the key is captured and replayed, while the job goes on." });
    this.found = el("div");
    element.append(this.said, this.found);
    element.hidden = keyed.length === 0;
  }

  async look() {
    if (this.button.disabled) return;
    const [step, key] = [this.step.value, this.key.value];
    this.button.disabled = true;
    this.found.replaceChildren();
    setText(this.said, `Replaying what ${step} has done since the last checkpoint ...`);
    announce(this.said.textContent);
    try {
      const course = await post(jobPath(this.jobId, "/key"), { step, key });
      setText(this.said, summary(course));
      this.found.replaceChildren(...elements(course));
      announce(`The key ${key} of ${step}: shown`);
    } catch (error) {
      setText(this.said, error.message);
    }
    this.button.disabled = Boolean(this.isOver);
  }

  end() {
    this.isOver = true;
    this.button.disabled = true;
  }
}

function summary(course) {
  const records = new Set(course.steps.filter((passage) => passage.event === "record").flatMap((passage) => passage.records.map((each) => each.number ?? each.record))).size;
  const costs = Object.entries(course.costs).map(([currency, amount]) => money(amount, currency));
  return `${course.task} since checkpoint ${course.epoch}: ${[format.plural(records, "record"), format.plural(course.calls, "call"), ...tokensOf(course), ...costs].join(", ")}`;
}

function tokensOf(used) {
  return used.prompt_tokens || used.completion_tokens ? [`${format.count(used.prompt_tokens)} + ${format.count(used.completion_tokens)} tokens`] : [];
}

function money(amount, currency) {
  return `${Number(amount.toFixed(4))} ${currency}`;
}

function elements(course) {
  let known = [];
  const passages = course.steps.map((passage) => {
    const calls = passage.calls.map((call, index) => {
      const element = callElement(call, index + 1 + passage.calls_as_before, known);
      if (call.kind === "model") known = [...call.messages, ...(call.answered ? [replyOf(call)] : [])];
      return element;
    });
    return passageElement(passage, calls);
  });
  const states = course.states.flatMap((each) => each.state.map((value) => stateElement(`State now: ${value.name}`, value)));
  const notes = [...course.notes, ...(course.error ? [`The replay ended: ${course.error}`] : [])];
  return [el("ol", { class: "course" }, ...passages), ...states, notes.length ? el("ul", { class: "notes" }, ...notes.map((text) => el("li", { text }))) : null].filter(Boolean);
}

function passageElement(passage, calls) {
  const names = { record: "Record", event: "Event", timer: "Timer or watermark" };
  const head = passage.records.length ? passage.records : [{ number: null, record: "" }];
  return el("li", { class: `passage is-${passage.event}` },
    ...head.map((each) => el("h3", {}, el("span", { class: "badge", text: `${names[passage.event] || passage.event}${each.number === null || passage.event !== "record" ? "" : ` ${format.count(each.number)}`}` }), " ", el("span", { class: "code", text: format.shortened(each.record, SHOWN) }))),
    passage.calls_as_before ? el("p", { class: "muted", text: `${format.plural(passage.calls_as_before, "call")} as before` }) : null,
    calls.length ? el("ol", { class: "calls" }, ...calls) : null,
    passage.open ? el("p", {}, el("span", { class: "badge is-warn", text: "under way" })) : null,
    passage.awaits ? el("p", {}, el("span", { class: "badge is-warn", text: `awaits the event ${passage.awaits}` })) : null,
    passage.error ? el("p", { class: "is-error", text: passage.error }) : null,
    passage.result === null ? null : el("p", { class: "result" }, el("span", { class: "muted", text: "result " }), el("span", { class: "code", text: format.shortened(passage.result, SHOWN) })),
    ...(JSON.stringify(passage.after) === JSON.stringify(passage.before) ? [] : passage.after).map((value) => stateElement(`State after: ${value.name}`, value)),
    ...passage.notes.map((text) => el("p", { class: "muted", text })));
}

function callElement(call, number, known) {
  const used = [...tokensOf(call), ...(call.currency ? [money(call.cost, call.currency)] : [])].join(", ");
  const kind = call.kind === "model" ? `${call.service}, ${call.model}` : call.kind === "event" ? `event ${call.request}` : `${call.service}(${format.shortened(call.request, SHOWN)})`;
  const head = el("p", { class: "call" }, el("span", { class: "muted", text: `${number} ` }), el("span", { class: call.kind === "model" ? null : "code", text: kind }),
    call.effect ? el("span", { class: "badge is-warn", text: "effect" }) : null, used ? el("span", { class: "muted", text: used }) : null);
  if (call.kind !== "model") return el("li", {}, head, answerElement(call));
  const isPrefix = known.every((message, index) => call.messages[index] && call.messages[index].role === message.role && call.messages[index].text === message.text);
  const before = isPrefix ? known.length : 0;
  return el("li", {}, head,
    before ? el("details", {}, el("summary", { text: `${format.plural(before, "message")} as before` }), ...call.messages.slice(0, before).map(messageElement)) : null,
    ...call.messages.slice(before).map(messageElement), answerElement(call));
}

function answerElement(call) {
  if (!call.answered) return el("p", { class: "is-open", text: "The log has no outcome." });
  if (call.error) return el("p", { class: "is-error", text: format.shortened(call.error, SHOWN) });
  if (call.kind === "model") return messageElement(replyOf(call));
  return el("p", { class: "code answer", text: `→ ${format.shortened(call.result || "", SHOWN)}` });
}

function replyOf(call) {
  return { role: "assistant", text: [call.text, ...call.tool_calls.map((each) => `-> ${each}`)].filter(Boolean).join("\n") };
}

function messageElement(message) {
  const side = ["user", "assistant", "tool", "system"].includes(message.role) ? message.role : "other";
  return el("div", { class: `message is-${side}` }, el("span", { class: "role", text: message.role }), el("p", { text: format.shortened(message.text, SHOWN) }));
}

function stateElement(title, value) {
  const shown = value.messages.length ? value.messages.map(messageElement) : [el("p", { class: "code", text: format.shortened(value.text, SHOWN) })];
  return el("details", {}, el("summary", { text: value.messages.length ? `${title}, ${format.plural(value.messages.length, "message")}` : title }), ...shown);
}
