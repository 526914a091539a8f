// The dead letters: records that a service could not take.

import { el, span } from "/web/dom.js";

export function drawLetters(target, letters, open) {
  const now = Date.now() / 1000;
  target.replaceChildren(...letters.map((letter) => row(letter, now, open)));
}

function row(letter, now, open) {
  const { job_id: job } = letter;
  return el("tr", {},
    el("td", { class: "n" }, span(now - letter.time_s)),
    el("td", {}, letter.service),
    el("td", { class: "id" }, job ? el("a", { href: `#${job}`, title: "its story", onclick: () => open(job) }, job) : letter.subject),
    el("td", { title: letter.type }, letter.type.replace(/\.v\d+$/, "").replace(/[._]/g, " ")),
    el("td", { class: "why" }, letter.error),
    el("td", { class: "id" }, letter.record));
}
