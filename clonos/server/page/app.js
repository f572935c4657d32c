// The page: asks for the token, and shows the job of a driver or the jobs of a server.

import { ApiError, get, setToken, takeToken } from "./api.js";
import { ask, el, setText } from "./dom.js";
import { JobView } from "./job_view.js";
import { ListView } from "./list_view.js";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const TEXTS = { live: "live", lost: "connection lost, trying again", ended: "the job has ended: this is its last state" };
let view = null;
let isAsking = false;

function onState(state, error) {
  connection.className = `connection is-${state}`;
  setText(connection, TEXTS[state] || "");
  if (error) onError(error);
}

async function onError(error) {
  if (!(error instanceof ApiError) || error.status !== 401) {
    if (!main.querySelector("h1")) main.replaceChildren(el("h1", { class: "hidden", text: "Clonos" }), el("p", { class: "notice is-bad", text: error instanceof ApiError ? error.message : "The server cannot be reached. Its job may have ended." }));
    setText(connection, TEXTS.lost);
    return;
  }
  if (isAsking) return;
  isAsking = true;
  const values = await ask("Token", "The program that serves this page printed it when it started: clonos run after # in its address, clonos serve in a line of its own. It stays in this tab.", "Open", { fields: [{ name: "token", label: "Token", kind: "password", isRequired: true }] });
  isAsking = false;
  if (values?.token) { setToken(values.token.trim()); show(); }
  else main.replaceChildren(el("h1", { class: "hidden", text: "Clonos" }), el("p", { class: "notice is-warn", text: "Without a token there is nothing to show. Reload the page to enter it." }));
}

async function show() {
  view?.stop();
  try {
    const match = /^#\/jobs\/(.+)$/.exec(location.hash);
    const cluster = await get("/cluster");
    let id = match && decodeURIComponent(match[1]);
    if (!id && cluster.kind === "driver") id = (await get("/jobs")).jobs[0]?.id;
    view = id ? new JobView(main, id, onState) : new ListView(main, cluster, onState);
    await view.start();
  } catch (error) {
    onError(error);
  }
}

takeToken();
addEventListener("hashchange", show);
show();
