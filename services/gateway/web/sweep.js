// One sweep: what it looks for, its curves, its trials.

import { get, post } from "/web/api.js";
import { curves } from "/web/chart.js";
import { clock, count, el, figure, missing, span, top } from "/web/dom.js";
import { chosenValues, started } from "/web/sweeps.js";

const TRIALS_SHOWN = 300;

// Fill the drawer with what is known of a sweep.
export async function drawSweep(target, id, close, open) {
  const path = `/v1/sweeps/${encodeURIComponent(id)}`;
  const [sweep, told] = await Promise.all([get(path), get(`${path}/curves?limit=4000`)]);
  if (!sweep) return missing(target, "sweep", id, close);
  target.replaceChildren(
    top(sweep.name, sweep.id, close,
      el("span", { class: `chip ${sweep.state}` }, sweep.state.replace("_", " ")),
      sweep.state === "RUNNING" ? el("button", { onclick: (event) => cancel(sweep, path, event.target) }, "cancel") : null),
    el("div", { class: "because" }, el("b", {}, sweep.reason), ` ${sweep.message}`),
    facts(sweep), el("h3", {}, "Curves"), drawn(sweep, told),
    el("h3", {}, "Trials"), trials(sweep, open));
}

async function cancel(sweep, path, button) {
  if (!confirm(`End ${sweep.name} with all its trials?`)) return;
  button.disabled = true;
  try { await post(`${path}/cancel`); } catch (error) { alert(error.message); }
}

function facts(sweep) {
  const bound = sweep.target === null ? "" : `, ${sweep.direction === "maximize" ? "at least" : "at most"} ${figure(sweep.target, 4)}`;
  const states = Object.entries(sweep.counts).map(([state, number]) => `${number} ${state.toLowerCase()}`).join(", ");
  const known = [
    ["looks for", `${sweep.direction === "maximize" ? "most" : "least"} ${sweep.metric}${bound}`],
    ["best", sweep.best_value === null ? "–" : `${figure(sweep.best_value, 4)} by trial ${sweep.best_trial}: ${chosenValues(sweep.best_parameters)}`],
    ["trials", `${started(sweep)} of ${sweep.planned}${states ? `: ${states}` : ""}`],
    ["how", `${sweep.spec.sampler}, pruned by ${sweep.spec.pruner}`],
    ["command", sweep.spec.trial.command.join(" ")],
    ["submitted", `${clock(sweep.submitted_s)} by ${sweep.submitted_by}`],
  ];
  return el("dl", { class: "facts" }, ...known.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function drawn(sweep, told) {
  const pruned = new Set(sweep.trials.filter((trial) => trial.state === "PRUNED").map((trial) => trial.number));
  const kind = (curve) => (curve.number === sweep.best_trial ? "best" : pruned.has(curve.number) ? "pruned" : "trial");
  const order = { pruned: 0, trial: 1, best: 2 };
  const lines = told.trials
    .map((curve) => ({ kind: kind(curve), points: curve.points.map((point) => [point.step, point.value]) }))
    .sort((one, other) => order[one.kind] - order[other.kind]);
  const said = sweep.best_value === null ? "" : figure(sweep.best_value, 4);
  return el("div", { class: "charts" },
    curves(`best ${sweep.metric} so far`, [{ points: stairs(sweep, told) }], { said, level: sweep.target }),
    curves("trials", lines, { level: sweep.target, along: (first, last) => `step ${count(first)} to ${count(last)}` }));
}

// The best value holds until a better one is reported.
function stairs(sweep, told) {
  const points = told.best.flatMap((point, index) => (index ? [[point.time_s, told.best[index - 1].value], [point.time_s, point.value]] : [[point.time_s, point.value]]));
  if (!points.length) return points;
  const [, best] = points[points.length - 1];
  return [...points, [(sweep.ended_s ?? Date.now() / 1000) - sweep.submitted_s, best]];
}

function trials(sweep, open) {
  const shown = sweep.trials.slice(-TRIALS_SHOWN);
  const hidden = sweep.trials.length - shown.length;
  return el("div", { class: "scroll" },
    el("table", {},
      el("thead", {}, el("tr", {}, ...["#", "Parameters", "State", "Why"].map((head) => el("th", {}, head)), ...["Step", "Last", "Best"].map((head) => el("th", { class: "n" }, head)))),
      el("tbody", {}, ...shown.map((trial) => row(trial, sweep, open)))),
    hidden ? el("p", { class: "empty" }, `and ${hidden} before these: `, el("code", {}, `sanjaya sweep show ${sweep.id}`)) : null);
}

function row(trial, sweep, open) {
  const state = trial.state === "RUNNING" ? trial.job_state ?? trial.state : trial.state;
  return el("tr", {
    tabindex: 0, class: trial.number === sweep.best_trial ? "chosen" : "", title: trial.job_id,
    onclick: () => open(trial.job_id),
    onkeydown: (event) => { if (event.key === "Enter") open(trial.job_id); },
  },
  el("td", { class: "id" }, trial.number, trial.favourite ? el("span", { title: "goes before the others" }, " ★") : null),
  el("td", { class: "why" }, chosenValues(trial.parameters)),
  el("td", {}, el("span", { class: `chip ${state}` }, state)),
  el("td", { class: "why" }, trial.message),
  el("td", { class: "n" }, trial.last_step === null ? "–" : count(trial.last_step)),
  el("td", { class: "n" }, figure(trial.last_value, 4)),
  el("td", { class: "n", title: trial.ended_s === null ? "" : `in ${span(trial.ended_s - trial.started_s)}` }, figure(trial.best_value, 4)));
}
