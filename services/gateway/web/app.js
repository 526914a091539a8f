// The page: loads what there is, follows the log, and draws anew when something has happened.

import { follow, get, onTokenWanted, setToken } from "/web/api.js";
import { drawNodes, drawTenants } from "/web/cluster.js";
import { clock, el } from "/web/dom.js";
import { drawFailures } from "/web/failures.js";
import { drawGroup } from "/web/group.js";
import { drawJobs } from "/web/jobs.js";
import { drawLetters } from "/web/letters.js";
import { drawPanel } from "/web/panel.js";
import { drawShares } from "/web/shares.js";
import { drawSweep } from "/web/sweep.js";
import { drawSweeps } from "/web/sweeps.js";

const $ = (id) => document.getElementById(id);
const view = { filter: "all", text: "", chosen: null, jobs: [], paused: false };
const EVENTS_SHOWN = 150;
const LETTERS_SHOWN = 20;
const FAILURES_SINCE_S = 24 * 3600;
const PLACED = ["STARTING", "RUNNING", "SUSPENDED", "MIGRATING", "STOPPING"].map((state) => `state=${state}`).join("&");
const QUIET = ["job.profiled.v1", "metrics.reported.v1", "timer.fired.v1"];

async function refresh() {
  const wait = { Prefer: "wait=2" };
  const [status, nodes, gpus, jobs, placed, tenants, sweeps] = await Promise.all([
    get("/v1/status", wait), get("/v1/nodes", wait), get("/v1/gpus", wait), get("/v1/jobs?limit=300&grouped=true", wait), get(`/v1/jobs?limit=1000&${PLACED}`, wait), get("/v1/tenants", wait), get("/v1/sweeps?limit=20", wait),
  ]);
  view.jobs = jobs.items;
  drawStatus(status);
  drawTenants($("tenants"), tenants.items);
  // Where no tenant has a guarantee or a place in a tree, the line above the cluster says it all.
  $("shares-panel").hidden = !tenants.items.some((tenant) => tenant.parent || Object.keys(tenant.guarantees).length);
  drawShares($("shares"), tenants.items);
  drawNodes($("nodes"), nodes.items, gpus.items, placed.items, view.chosen, open);
  drawTable();
  $("no-sweeps").hidden = drawSweeps($("sweeps"), sweeps.items, view.chosen, open) > 0;
  if (view.chosen?.startsWith("s-")) await drawSweep($("panel"), view.chosen, close, open);
  else if (/^[ad]-/.test(view.chosen ?? "")) await drawGroup($("panel"), view.chosen, close, open);
  else if (view.chosen) await drawPanel($("panel"), view.chosen, close);
}

// Apart from the rest, which is shown when these cannot be had.
async function refreshLetters() {
  const { total, items } = await get(`/v1/deadletters?limit=${LETTERS_SHOWN}`);
  $("letters-panel").hidden = total === 0;
  $("letters-total").textContent = total;
  drawLetters($("letters"), items, open);
}

async function refreshFailures() {
  const failures = await get(`/v1/failures?since_s=${Math.max(0, Date.now() / 1000 - FAILURES_SINCE_S)}`);
  $("failures-panel").hidden = failures.trials === 0;
  $("failures-total").textContent = failures.trials;
  drawFailures($("failures"), failures);
}

function drawTable() {
  $("no-jobs").hidden = drawJobs($("jobs"), view.jobs, view, open) > 0;
}

function drawStatus(status) {
  const gpus = Object.values(status.gpus).reduce((sum, number) => sum + number, 0);
  const jobs = status.jobs;
  const busy = ["STARTING", "RUNNING", "SUSPENDED", "MIGRATING", "STOPPING"].reduce((sum, state) => sum + (jobs[state] ?? 0), 0);
  $("cell").textContent = status.cell;
  $("figures").replaceChildren(
    el("span", {}, el("b", {}, `${status.gpus.busy ?? 0}/${gpus}`), " GPUs busy"),
    el("span", {}, el("b", {}, busy), " running"),
    el("span", {}, el("b", {}, jobs.QUEUED ?? 0), " waiting"),
    el("span", {}, el("b", {}, jobs.SUCCEEDED ?? 0), " done"),
    el("span", {}, el("b", {}, (jobs.FAILED ?? 0) + (jobs.REJECTED ?? 0)), " failed"),
    el("span", { title: "events on the log, and how many of them this page cannot see yet" }, "log ", el("b", {}, status.next_offset), status.lag > 50 ? ` (${status.lag} behind)` : ""));
  $("shortage").hidden = !status.shortage;
  $("shortage").textContent = `New jobs are refused: ${status.shortage}.`;
  const { light, laws } = status.conservation;
  $("light").className = `light ${light}`;
  $("light").title = "every job in exactly one state and brought on, every GPU accounted for";
  $("light").lastElementChild.textContent = { green: "all accounted for", red: "needs attention", dark: "not checked" }[light];
  $("laws").replaceChildren(...laws.map((law) => el("div", { class: `law${law.holds ? "" : " broken"}` },
    `${law.holds ? "✓" : "✗"} ${law.name} (${law.checked} checked)`, ...law.violations.map((text) => el("div", { class: "mono" }, text)))));
}

// At most one refresh under way, and one more to come when something has happened meanwhile.
let underWay = false, again = false;
async function soon() {
  if (underWay) { again = true; return; }
  underWay = true;
  for (const part of [refresh, refreshLetters, refreshFailures]) {
    try { await part(); } catch (error) { console.warn("cannot refresh:", error.message); }
  }
  await new Promise((done) => setTimeout(done, 700));
  underWay = false;
  if (again) { again = false; soon(); }
}

function open(id) {
  view.chosen = id;
  $("panel").hidden = false;
  location.hash = id;
  soon();
}

function close() {
  view.chosen = null;
  $("panel").hidden = true;
  $("panel").replaceChildren();
  history.replaceState(null, "", location.pathname);
  soon();
}

function showEvent(type, event) {
  soon();
  if (view.paused || QUIET.includes(type)) return;
  const reason = event.data.reason?.message ?? event.data.note ?? "";
  const name = type.replace(/\.v\d+$/, "").replace(/[._]/g, " ");
  const about = event.data.job_id ?? event.data.sweep_id ?? event.data.group_id;
  const subject = about ? el("a", { href: `#${about}`, onclick: () => open(about) }, about) : el("span", {}, event.subject);
  $("events").prepend(el("li", { class: "fresh", title: reason },
    el("time", {}, clock(Date.parse(event.time) / 1000)),
    el("span", {}, el("b", {}, name), " ", subject, event.data.node_id && event.data.job_id ? ` on ${event.data.node_id}` : "")));
  while ($("events").children.length > EVENTS_SHOWN) $("events").lastElementChild.remove();
}

function listen() {
  $("filters").addEventListener("click", (event) => {
    const chosen = event.target.dataset.filter;
    if (!chosen) return;
    view.filter = chosen;
    for (const tab of $("filters").children) tab.setAttribute("aria-selected", tab === event.target);
    drawTable();
  });
  $("search").addEventListener("input", (event) => { view.text = event.target.value; drawTable(); });
  $("pause").addEventListener("click", () => {
    view.paused = !view.paused;
    $("pause").setAttribute("aria-pressed", view.paused);
    $("pause").textContent = view.paused ? "go on" : "pause";
  });
  $("light").addEventListener("click", () => $("light-dialog").showModal());
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    setTheme(dark ? "light" : "dark");
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && view.chosen) close(); });
  addEventListener("hashchange", () => { if (location.hash.length > 1) open(location.hash.slice(1)); });
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("sanjaya-theme", theme);
}

function wantToken() {
  $("token-dialog").showModal();
  return new Promise((done) => $("token-dialog").addEventListener("close", () => { setToken($("token").value); done(); }, { once: true }));
}

let asking = null;
onTokenWanted(() => (asking ??= wantToken().finally(() => { asking = null; })));

const theme = localStorage.getItem("sanjaya-theme");
if (theme) setTheme(theme);
listen();
if (location.hash.length > 1) open(location.hash.slice(1));
await soon();
const recent = (await get("/v1/events?order=newest&limit=60")) ?? { items: [] };
for (const event of recent.items.reverse()) showEvent(event.type, event);
const start = recent.items.length ? `?from_offset=${recent.items[recent.items.length - 1].offset + 1}` : "?from_offset=0";
setInterval(soon, 5000);
await follow(`/v1/events${start}`, {
  onEvent: showEvent,
  onState: (state) => { $("connection").className = `chip ${state}`; $("connection").textContent = state === "open" ? "live" : state; },
});
