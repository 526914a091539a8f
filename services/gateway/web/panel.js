// One job: why, curves, attempts, story, output.

import { get } from "/web/api.js";
import { clock, count, el, figure, lossOf, missing, pace, span, top } from "/web/dom.js";
import { chart } from "/web/chart.js";

// Fill the drawer with what is known of a job.
export async function drawPanel(target, id, close) {
  const path = `/v1/jobs/${encodeURIComponent(id)}`;
  const [job, why, story, metrics, logs] = await Promise.all([
    get(path), get(`${path}/why`), get(`${path}/story`), get(`${path}/metrics?limit=1500`), get(`${path}/logs?tail=60`),
  ]);
  if (!job) return missing(target, "job", id, close);
  const kept = target.querySelector("pre.log")?.scrollTop ?? null;
  target.replaceChildren(
    top(job.name, job.id, close, el("span", { class: `chip ${job.state}` }, job.state)),
    because(why), ...notices(job), facts(job), el("h3", {}, "What each service said"), checks(why),
    ...(metrics.points.length || Object.keys(metrics.reported).length ? [el("h3", {}, "Curves"), curves(metrics)] : []),
    ...(job.attempts.length ? [el("h3", {}, "Attempts"), attempts(job.attempts)] : []),
    el("h3", {}, "Story"), tell(story), el("h3", {}, "Output"), output(logs.items));
  const log = target.querySelector("pre.log");
  log.scrollTop = kept ?? log.scrollHeight;
}

function offset(number) {
  return el("a", { href: `/v1/events?from_offset=${number}&limit=1`, target: "_blank", rel: "noopener", title: "the event on the log" }, `#${number}`);
}

function because(why) {
  const numbers = Object.entries(why.numbers).map(([name, value]) => `${name} ${value}`).join(" · ");
  return el("div", { class: "because" },
    el("b", {}, why.reason), ` for ${span(Date.now() / 1000 - why.since_s)}: ${why.message} `, offset(why.offset),
    numbers ? el("div", { class: "muted" }, numbers) : null,
    why.deciding_line && why.failure ? el("div", { class: "mono" }, `${why.failure}: ${why.deciding_line}`) : null);
}

// What is wrong with the latest attempt.
function notices(job) {
  return Object.entries(job.notices).map(([code, message]) => el("div", { class: "because notice" }, el("b", {}, code), `: ${message}`));
}

// CPUs and memory of the host that it asks for.
function beside({ cpus, memory_bytes }) {
  const parts = [cpus && `${cpus} CPU${cpus === 1 ? "" : "s"}`, memory_bytes && `${(memory_bytes / 2 ** 30).toFixed(1)} GiB of memory`];
  return parts.filter(Boolean).join(", ") || null;
}

function facts(job) {
  const known = [
    ["tenant, user", `${job.tenant}, ${job.user || "–"}`],
    ["wants", `${job.gpus} GPU${job.gpus === 1 ? "" : "s"}${job.gpu_types.length ? ` of ${job.gpu_types.join(", ")}` : ""}, priority ${job.priority}, ${job.class}`],
    ["beside each GPU", beside(job.spec)],
    ["command", job.spec.command.join(" ")],
    ["waits for", job.after.map(({ on, condition }) => `${on}:${condition}`).join(", ") || null],
    ["part of", job.group_id],
    ["where", job.where || "–"],
    ["progress", job.minibatches ? `${count(job.minibatches)} mini-batches, ${pace(job, Date.now() / 1000)}, loss ${lossOf(job)}` : null],
    ["converged", job.converged_epoch === null ? null : `at epoch ${job.converged_epoch}; best loss ${figure(job.best_loss)} at epoch ${job.best_epoch}; ${job.gpu_s_since_converged.toFixed(1)} GPU seconds after that when it was found`],
    ["status", job.status || null],
    ["folder on the node", job.folder],
    ["keeps", job.output_folder],
    ["attempt", `${job.attempt}, ${job.failed_attempts} failed, ${job.retries_used} of ${job.max_retries} retries used, ${job.preemptions} times moved`],
    ["submitted", `${clock(job.submitted_s)} by ${job.submitted_by}`],
    ["exit", job.exit_code === null && job.signal === null ? null : job.signal === null ? `code ${job.exit_code}` : `signal ${job.signal}`],
  ].filter(([, value]) => value !== null);
  return el("dl", { class: "facts" }, ...known.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function checks(why) {
  return el("table", { class: "checks" }, el("tbody", {}, ...why.checks.map((check) => el("tr", {},
    el("td", {}, check.check.replace("_", " ")),
    el("td", {}, check.message || "–"),
    el("td", { class: "muted" }, check.verdict),
    el("td", {}, check.offset === null ? "" : offset(check.offset))))));
}

function curves({ points, reported }) {
  const measured = points.length ? [
    chart("loss", points.filter((point) => point.loss !== null), (point) => point.loss),
    chart("mini-batches/s", points, (point) => point.rate_per_s),
  ] : [];
  const told = Object.entries(reported).map(([name, reports]) => chart(`${name} (reported)`, reports, (report) => report.value));
  return el("div", { class: "charts" }, ...measured, ...told);
}

function attempts(rows) {
  return el("table", {}, el("tbody", {}, ...rows.map((row) => el("tr", {},
    el("td", {}, row.attempt),
    el("td", {}, row.placement.map((task) => `${task.node_id}:${task.gpu_indices.join(",")}`).join("  ")),
    el("td", {}, row.outcome || "now"),
    el("td", { class: "why" }, row.failure ? `${row.failure}` : row.message),
    el("td", { class: "n" }, span((row.ended_s ?? Date.now() / 1000) - row.placed_s))))));
}

function tell(story) {
  return el("ol", { class: "story" }, ...story.told.map((line) => el("li", {},
    el("time", {}, clock(line.time_s)),
    el("span", { class: `d${Math.min(line.depth, 4)}${line.aside ? " aside" : ""}` }, el("b", { class: "muted" }, `${line.source} `), line.text),
    offset(line.offset))));
}

function output(lines) {
  return el("pre", { class: "log" }, ...(lines.length ? lines.map((line) => el("span", { class: line.stream }, `${line.text}\n`)) : ["nothing yet"]));
}
