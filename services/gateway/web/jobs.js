// The table of jobs.

import { colour, count, el, lossOf, pace, span } from "/web/dom.js";

const ENDED = ["SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"];
const FILTERS = {
  all: () => true,
  waiting: (job) => job.state === "QUEUED",
  running: (job) => job.state !== "QUEUED" && !ENDED.includes(job.state),
  ended: (job) => ENDED.includes(job.state),
};

export function drawJobs(target, jobs, { filter, text, chosen }, open) {
  const wanted = text.trim().toLowerCase();
  const shown = jobs.filter(FILTERS[filter]).filter((job) =>
    !wanted || [job.id, job.name, job.tenant, job.user, job.reason, job.state].some((value) => value.toLowerCase().includes(wanted)));
  const now = Date.now() / 1000;
  target.replaceChildren(...shown.map((job) => row(job, now, chosen, open)));
  return shown.length;
}

function row(job, now, chosen, open) {
  const place = job.state === "QUEUED" && job.queue_position ? ` #${job.queue_position}` : "";
  const types = job.gpu_types.length ? ` ${job.gpu_types.join("/")}` : "";
  const since = job.finished_s ?? now;
  return el("tr", {
    tabindex: 0, class: job.id === chosen ? "chosen" : "",
    onclick: () => open(job.id),
    onkeydown: (event) => { if (event.key === "Enter") open(job.id); },
  },
  el("td", { class: "id" }, job.id),
  el("td", {}, job.name),
  el("td", {}, el("i", { class: `dot ${colour(job.tenant)}` }), job.tenant),
  el("td", {}, `${job.gpus}${types}`),
  el("td", {}, el("span", { class: `chip ${job.state}` }, job.state + place)),
  el("td", { class: Object.keys(job.notices).length ? "why notice" : "why", title: job.message }, explain(job)),
  el("td", { class: "n" }, job.minibatches ? count(job.minibatches) : "–"),
  el("td", { class: "n" }, ENDED.includes(job.state) ? "–" : pace(job, now)),
  el("td", { class: "n" }, lossOf(job)),
  el("td", { class: "n" }, span(since - job.submitted_s)));
}

function explain(job) {
  if (["RUNNING", "STARTING", "SUSPENDED"].includes(job.state) && job.where && !job.held) return [job.where, ...Object.values(job.notices)].join("; ");
  if (job.state === "SUCCEEDED") return job.where;
  const line = job.state === "FAILED" && job.deciding_line ? job.deciding_line : job.message;
  return line.length > 110 ? `${line.slice(0, 110)}…` : line;
}
