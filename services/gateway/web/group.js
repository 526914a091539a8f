// One array or DAG: how many of its jobs are how, and each of them.

import { get, post } from "/web/api.js";
import { clock, el, missing, span, top } from "/web/dom.js";

const ENDED = ["SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"];
const JOBS_SHOWN = 300;

export function ended(group) { return ENDED.reduce((sum, state) => sum + (group.counts[state] ?? 0), 0); }

// A bar of the jobs that have ended, and the counts by state.
export function progress(group) {
  const states = Object.entries(group.counts).map(([state, number]) => `${number} ${state.toLowerCase()}`).join(", ");
  const done = ended(group);
  return el("span", { title: states },
    el("progress", { max: group.jobs, value: done, "aria-label": `${done} of ${group.jobs} ended` }), ` ${done}/${group.jobs}`, states ? `: ${states}` : "");
}

// Fill the drawer with what is known of an array or a DAG.
export async function drawGroup(target, id, close, open) {
  const path = `/v1/groups/${encodeURIComponent(id)}`;
  const [group, jobs] = await Promise.all([get(path), get(`/v1/jobs?array=${encodeURIComponent(id)}&order=oldest&limit=${JOBS_SHOWN}`)]);
  if (!group) return missing(target, "array or DAG", id, close);
  const lives = ended(group) < group.jobs;
  target.replaceChildren(
    top(group.name, group.id, close, el("span", { class: `chip ${group.state}` }, group.state),
      ...(lives ? ["pause", "resume", "cancel"].map((change) => el("button", { onclick: (event) => ask(group, path, change, event.target) }, change)) : [])),
    el("div", { class: "because" }, progress(group)),
    facts(group), el("h3", {}, "Jobs"), members(group, jobs.items, open));
}

async function ask(group, path, change, button) {
  if (change === "cancel" && !confirm(`End all jobs of ${group.name}?`)) return;
  button.disabled = true;
  try { await post(`${path}/${change}`); } catch (error) { alert(error.message); }
}

function facts(group) {
  const known = [
    ["kind", group.kind === "dag" ? "DAG" : "array"],
    ["at once", group.at_once === null ? "all" : `at most ${group.at_once}`],
    ["tenant, user", `${group.tenant}, ${group.user || "–"}`],
    ["submitted", clock(group.submitted_s)],
  ];
  return el("dl", { class: "facts" }, ...known.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function members(group, jobs, open) {
  const names = new Map(jobs.map((job) => [job.id, job.name]));
  const hidden = group.jobs - jobs.length;
  const waits = group.kind === "dag"; // the jobs of an array wait for the same, if for anything
  const heads = ["Id", "Name", "State", ...(waits ? ["After"] : []), "Why / where"];
  return el("div", { class: "scroll" },
    el("table", {},
      el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", {}, head)), el("th", { class: "n" }, "Took"))),
      el("tbody", {}, ...jobs.map((job) => row(job, waits ? names : null, open)))),
    hidden > 0 ? el("p", { class: "empty" }, `and ${hidden} behind these: `, el("code", {}, `sanjaya jobs ${group.id}`)) : null);
}

function row(job, names, open) {
  const took = job.first_started_s === null ? null : (job.finished_s ?? Date.now() / 1000) - job.first_started_s;
  return el("tr", {
    tabindex: 0, onclick: () => open(job.id),
    onkeydown: (event) => { if (event.key === "Enter") open(job.id); },
  },
  el("td", { class: "id" }, job.id),
  el("td", {}, job.name),
  el("td", {}, el("span", { class: `chip ${job.state}` }, job.state)),
  names && el("td", {}, job.after.map(({ on, condition }) => `${names.get(on) ?? on}${condition === "ok" ? "" : `:${condition}`}`).join(", ")),
  el("td", { class: "why", title: job.message }, job.where && !ENDED.includes(job.state) ? job.where : job.message),
  el("td", { class: "n" }, span(took)));
}
