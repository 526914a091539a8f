// The table of jobs; an array or a DAG is one row.

import { colour, count, el, lossOf, pace, span } from "/web/dom.js";
import { ended, progress } from "/web/group.js";

const ENDED = ["SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"];
const FILTERS = {
  all: () => true,
  waiting: (job) => job.state === "QUEUED",
  running: (job) => job.state !== "QUEUED" && !ENDED.includes(job.state),
  ended: (job) => ENDED.includes(job.state),
};

export function drawJobs(target, jobs, { filter, text, chosen }, open) {
  const wanted = text.trim().toLowerCase();
  const shown = jobs.map(whole).filter(FILTERS[filter]).filter((job) =>
    !wanted || [job.id, job.name, job.tenant, job.user, job.reason, job.state].some((value) => value.toLowerCase().includes(wanted)));
  const now = Date.now() / 1000;
  target.replaceChildren(...shown.map((job) => row(job, now, chosen, open)));
  return shown.length;
}

// An array or a DAG in place of its first job, which stands for it in the list.
function whole(job) {
  if (!job.group) return job;
  const { group } = job;
  return { ...job, id: group.id, name: group.name, state: group.state, queue_position: null, finished_s: ended(group) === group.jobs ? job.finished_s : null,
    minibatches: 0, rate_per_s: null, loss: null };
}

function row(job, now, chosen, open) {
  const place = job.queue_position ? ` #${job.queue_position}` : "";
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
  el("td", {}, `${job.group ? `${job.group.jobs} × ` : ""}${job.gpus}${types}`),
  el("td", {}, el("span", { class: `chip ${job.state}` }, job.state + place)),
  job.group ? el("td", { class: "why" }, progress(job.group)) : el("td", { class: Object.keys(job.notices).length ? "why notice" : "why", title: job.message }, explain(job)),
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
