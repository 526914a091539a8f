// Elements without HTML strings: nothing that a job writes can become markup.

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const tenants = [];

// A colour per tenant, in order of appearance; the same for the whole visit.
export function colour(tenant) {
  if (!tenants.includes(tenant)) tenants.push(tenant);
  return `t${tenants.indexOf(tenant) % 8}`;
}

export function clock(seconds) { return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false }); }

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${String(s % 60).padStart(2, "0")}`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}`;
  return `${Math.floor(s / 86400)}d${Math.floor((s % 86400) / 3600)}h`;
}

export function figure(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && (Math.abs(value) < 0.001 || Math.abs(value) >= 1e9)) return value.toExponential(1);
  return value.toLocaleString("en", { maximumSignificantDigits: digits });
}

// A rate is living until so many seconds after the last measured time, or so many mini-batches at that rate.
const QUIET_S = 30, QUIET_MINIBATCHES = 8;

// A job's rate; when it runs and its last mini-batch is long ago: how long.
export function pace(job, now) {
  if (job.rate_per_s === null) return "–";
  const quiet = job.state === "RUNNING" && job.rate_per_s && job.measured_until_s !== null ? now - job.measured_until_s : 0;
  if (quiet <= Math.max(QUIET_S, QUIET_MINIBATCHES / (job.rate_per_s || 1))) return `${figure(job.rate_per_s)}/s`;
  return `last mini-batch ${quiet < 60 ? `${Math.round(quiet)} s` : quiet < 7200 ? `${Math.round(quiet / 60)} min` : span(quiet)} ago`;
}

// A job's loss, or `nan`, `inf`, `-inf`.
export function lossOf(job) { return job.loss === null && job.loss_nonfinite ? job.loss_nonfinite : figure(job.loss); }

export function count(value) {
  if (value >= 10_000) return `${figure(value / 1000)}k`;
  return String(value ?? "–");
}

// What stands over everything in the drawer.
export function top(title, id, close, ...more) {
  return el("div", { class: "top" },
    el("h2", {}, title), el("span", { class: "id muted" }, id), ...more, el("button", { onclick: close, "aria-label": "close" }, "✕"));
}

// The drawer of something that is not known here: a link to another cell, or a slip of the keyboard.
export function missing(target, kind, id, close) {
  target.replaceChildren(
    top(`No such ${kind}`, id, close),
    el("div", { class: "because" }, `This cell knows no ${kind} with the id ${id}.`));
}
