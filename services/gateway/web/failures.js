// What has failed in the last day, by reason.

import { bar } from "/web/chart.js";
import { el, span } from "/web/dom.js";

export function drawFailures(target, { items, trials }) {
  target.replaceChildren(...items.map((group) => row(group, trials)));
}

function row(group, trials) {
  const said = `${group.trials} of ${trials} failed attempts`;
  return el("tr", {},
    el("td", {}, group.key ? group.key.replaceAll("_", " ") : "not judged yet"),
    el("td", { class: "part", title: said }, bar(said, [{ kind: "failed", size: group.trials }], trials)),
    el("td", { class: "n" }, group.trials),
    el("td", { class: "n" }, group.jobs),
    el("td", { class: "n" }, group.users),
    el("td", { class: "n" }, span(group.p50_s)),
    el("td", { class: "n" }, span(group.p95_s)),
    el("td", { class: "n" }, hours(group.gpu_s)));
}

function hours(seconds) { return (seconds / 3600).toFixed(seconds < 36000 ? 2 : 0); }
