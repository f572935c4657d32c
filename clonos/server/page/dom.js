// Elements without HTML in strings: what comes from a job is text, and becomes text only.

const SVG = "http://www.w3.org/2000/svg";

/** Creates an element. Properties: `class`, `text`, `on` (listeners by event), others are attributes. */
export function el(name, properties = {}, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** Creates an element of SVG. */
export function svg(name, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, name), properties, children);
}

function fill(element, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") element.textContent = value;
    else if (key === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets a text only if it differs, so that selections and screen readers are left alone. */
export function setText(element, text) {
  const value = String(text);
  if (element.textContent !== value) element.textContent = value;
}

/** Sets or removes an attribute, only if it differs. */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, String(value));
  }
}

/** Keeps one element per item under a parent, in their order. `create(item)` returns an object with `element` and `update(item)`. */
export class KeyedList {
  constructor(parent, keyOf, create) {
    this.parent = parent;
    this.keyOf = keyOf;
    this.create = create;
    this.rows = new Map();
  }

  update(items) {
    const left = new Set(this.rows.keys());
    let place = this.parent.firstElementChild;
    for (const item of items) {
      const key = this.keyOf(item);
      left.delete(key);
      let row = this.rows.get(key);
      if (!row) this.rows.set(key, (row = this.create(item)));
      row.update(item);
      if (row.element === place) place = place.nextElementSibling;
      else this.parent.insertBefore(row.element, place);
    }
    for (const key of left) {
      this.rows.get(key).element.remove();
      this.rows.delete(key);
    }
  }
}

/** A panel: a section with a heading. */
export function panel(title, ...children) {
  const id = `panel-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  const note = el("p");
  const heading = el("header", {}, el("h2", { id, text: title }), note);
  return { element: el("section", { class: "panel", "aria-labelledby": id }, heading, ...children), note, heading };
}

/** Says something to screen readers. */
export function announce(text, isUrgent = false) {
  document.getElementById(isUrgent ? "alerts" : "announcer").textContent = text;
}

/** Shows and says a short text for some seconds. */
export function toast(text) {
  const shown = el("div", { text });
  document.getElementById("toasts").append(shown);
  announce(text);
  setTimeout(() => shown.remove(), 5000);
}

/** Asks for a confirmation. Resolves to the values of the fields, or to null. */
export function ask(title, text, action, { isDanger = false, fields = [] } = {}) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => el(field.kind === "file" ? "input" : "input", { id: `field-${field.name}`, name: field.name, type: field.kind || "text", required: field.isRequired, min: field.min, accept: field.accept, autocomplete: "off", placeholder: field.placeholder }));
    const labels = fields.map((field, index) => el("div", { class: "field" }, el("label", { for: inputs[index].id, text: field.label }), inputs[index]));
    const cancel = el("button", { type: "button", text: "Back", on: { click: () => dialog.close() } });
    const confirm = el("button", { type: "submit", class: isDanger ? "is-danger" : "is-main", text: action });
    let values = null;
    const form = el("form", { method: "dialog", on: { submit: () => { values = Object.fromEntries(inputs.map((input) => [input.name, input.type === "file" ? input.files[0] : input.type === "checkbox" ? input.checked : input.value])); } } },
      el("h2", { id: "dialog-title", text: title }), text ? el("p", { text }) : null, ...labels, el("div", { class: "actions" }, cancel, confirm));
    const dialog = el("dialog", { "aria-labelledby": "dialog-title", on: { close: () => { dialog.remove(); resolve(values); } } }, form);
    document.body.append(dialog);
    dialog.showModal();
  });
}
