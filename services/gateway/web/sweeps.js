// The table of sweeps.

import { el, figure, span } from "/web/dom.js";

export function drawSweeps(target, sweeps, chosen, open) {
  const now = Date.now() / 1000;
  target.replaceChildren(...sweeps.map((sweep) => row(sweep, now, chosen, open)));
  return sweeps.length;
}

function row(sweep, now, chosen, open) {
  return el("tr", {
    tabindex: 0, class: sweep.id === chosen ? "chosen" : "",
    onclick: () => open(sweep.id),
    onkeydown: (event) => { if (event.key === "Enter") open(sweep.id); },
  },
  el("td", { class: "id" }, sweep.id),
  el("td", {}, sweep.name),
  el("td", {}, el("span", { class: `chip ${sweep.state}` }, sweep.state.replace("_", " "))),
  el("td", { class: "n" }, `${started(sweep)}/${sweep.planned}`),
  el("td", { class: "n" }, sweep.counts.RUNNING ?? 0),
  el("td", {}, sweep.metric),
  el("td", { class: "n" }, figure(sweep.best_value, 4)),
  el("td", { class: "why" }, chosenValues(sweep.best_parameters)),
  el("td", { class: "n" }, span((sweep.ended_s ?? now) - sweep.submitted_s)));
}

export function started(sweep) { return Object.values(sweep.counts).reduce((sum, number) => sum + number, 0); }

export function chosenValues(parameters) {
  return Object.entries(parameters).map(([name, value]) => `${name} ${typeof value === "number" ? figure(value, 4) : value}`).join(" · ");
}
