// Requests to the API, and its events. The token stays in this tab: there is no cookie.

const KEY = "clonos-token";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Takes the token out of the address, where it would stay in the history. */
export function takeToken() {
  const match = /(?:^#|&)token=([^&]+)/.exec(location.hash);
  if (match) {
    setToken(decodeURIComponent(match[1]));
    history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  }
}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

function headers(more = {}) {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}`, ...more } : more;
}

async function refusal(answer) {
  let error = { code: "error", message: `The server answered with the status ${answer.status}.` };
  try {
    error = (await answer.json()).error || error;
  } catch { /* no JSON: the status has to do */ }
  return new ApiError(answer.status, error.code, error.message);
}

export async function get(path) {
  const answer = await fetch(`api/v1${path}`, { headers: headers(), cache: "no-store" });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

export async function post(path, body) {
  const isForm = body instanceof FormData;
  const answer = await fetch(`api/v1${path}`, { method: "POST", headers: headers(isForm ? {} : { "Content-Type": "application/json" }), body: isForm ? body : JSON.stringify(body || {}) });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

export function jobPath(id, rest = "") {
  return `/jobs/${encodeURIComponent(id)}${rest}`;
}

/** Reads the events of a job until `signal` aborts; connects again after a break. `onState` gets "live", "lost" or "ended". */
export async function readEvents(id, firstLine, signal, onEvent, onState) {
  let line = firstLine;
  let pause = 500;
  let hasEnded = false;
  while (!signal.aborted && !hasEnded) {
    try {
      const answer = await fetch(`api/v1${jobPath(id, `/events?after=${line}`)}`, { headers: headers(), cache: "no-store", signal });
      if (!answer.ok) throw await refusal(answer);
      onState("live");
      pause = 500;
      for await (const [name, data] of messages(answer.body)) {
        if (name === "log") line = data.next;
        if (name === "ended") hasEnded = true;
        onEvent(name, data);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && (error.status === 401 || error.status === 404)) { onState("lost", error); return; }
    }
    if (hasEnded) { onState("ended"); return; }
    onState("lost");
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, 5000);
  }
}

async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      let name = "message";
      const data = [];
      for (const row of part.split("\n")) {
        if (row.startsWith("event: ")) name = row.slice(7);
        else if (row.startsWith("data: ")) data.push(row.slice(6));
      }
      if (data.length) yield [name, JSON.parse(data.join("\n"))];
    }
  }
}
