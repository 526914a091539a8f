// Servers and their GPUs as cells, coloured by tenant; tenants with their use.

import { colour, el } from "/web/dom.js";

const SHOWN_STATE = { SUSPENDED: "suspended", STARTING: "starting", MIGRATING: "starting", STOPPING: "starting" };

export function drawNodes(target, nodes, gpus, jobs, chosen, open) {
  const byNode = Map.groupBy ? Map.groupBy(gpus, (gpu) => gpu.node_id) : group(gpus);
  const byId = new Map(jobs.map((job) => [job.id, job]));
  target.replaceChildren(
    ...nodes.map((node) => card(node, (byNode.get(node.id) ?? []).filter((gpu) => gpu.state !== "away" || node.gpus === 0), byId, chosen, open)),
  );
  if (!nodes.length) target.append(el("p", { class: "empty" }, "No node has joined yet. Start one: ", el("code", {}, "sanjaya agent")));
}

function group(gpus) {
  const found = new Map();
  for (const gpu of gpus) found.set(gpu.node_id, [...(found.get(gpu.node_id) ?? []), gpu]);
  return found;
}

function card(node, gpus, byId, chosen, open) {
  const types = node.gpu_types.join(", ") || "no GPUs";
  const away = node.state === "LOST" || node.state === "LEFT";
  return el("div", { class: `node${away ? " away" : ""}`, title: node.note || node.address },
    el("div", { class: "title" },
      el("b", {}, node.id),
      node.state === "UP" ? null : el("span", { class: `chip ${node.state}` }, node.state.toLowerCase()),
      node.clock_skew_s ? el("span", { class: "chip warn", title: "nothing is decided by it; dates in its files and lines are wrong" }, `clock ${off(node.clock_skew_s)}`) : null,
      node.pool ? el("span", { class: "chip", title: "set apart: only trials are placed here" }, `pool ${node.pool}`) : null,
      el("span", { class: "muted" }, `${node.free} of ${node.gpus} free · ${types}`)),
    el("div", { class: "muted host", title: "promised to jobs that ask for CPUs or memory; the others share the rest" }, host(node)),
    el("div", { class: "cells" }, ...gpus.map((gpu) => place(gpu, byId, chosen, open))));
}

// CPUs and memory of the host that jobs are promised, of what there is.
function host(node) {
  if (!node.cpus) return "";
  return `CPUs ${node.cpus_promised}/${node.cpus} · memory ${gib(node.memory_promised_bytes)}/${gib(node.memory_bytes)} GiB${used(node)}`;
}

// What everything that runs there has used in the last minute that was measured.
function used(node) {
  if (node.cpu_utilisation_ratio === null) return "";
  return ` · in use ${Math.round(100 * node.cpu_utilisation_ratio)} % and ${gib(node.memory_used_bytes)}/${gib(node.host_memory_bytes)} GiB`;
}

// A clock against the log's, in the largest unit that it is off by.
function off(seconds) {
  const [unit, name] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([each]) => Math.abs(seconds) >= each) ?? [1, "s"];
  return `${Math.round(Math.abs(seconds) / unit)} ${name} ${seconds > 0 ? "ahead" : "behind"}`;
}

const gib = (bytes) => Math.round(bytes / 2 ** 30);

// A GPU: one button per job that holds it or is a guest there, side by side where several do.
function place(gpu, byId, chosen, open) {
  const jobs = [...(gpu.state === "busy" ? gpu.jobs : []), ...gpu.guests];
  if (jobs.length < 2) return cell(gpu, jobs[0] ?? null, byId.get(jobs[0]), chosen, open);
  return el("div", { class: "packed" }, ...jobs.map((id) => cell(gpu, id, byId.get(id), chosen, open)));
}

function cell(gpu, id, job, chosen, open) {
  if (id === null) {
    return el("div", { class: `gpu ${gpu.state}`, title: `${gpu.id}: ${gpu.state}${gpu.note ? `, ${gpu.note}` : ""}` }, el("small", {}, gpu.index), gpu.state === "free" ? "" : gpu.state);
  }
  const more = SHOWN_STATE[job?.state] ?? "";
  const name = job?.name ?? id;
  const tenant = job?.tenant ?? gpu.tenant;
  const more_jobs = gpu.jobs.length + gpu.guests.length - 1;
  const title = `${gpu.id} · ${name} (${id}) · ${tenant}${job ? ` · ${job.state.toLowerCase()}` : ""}${gpu.guests.includes(id) ? " · guest" : ""}${more_jobs > 0 ? ` · shares the GPU with ${more_jobs} more` : ""}`;
  const marked = id === chosen ? " chosen" : "";
  return el("button", { class: `gpu busy ${colour(tenant)} ${more}${marked}`, title, onclick: () => open(id) },
    el("small", {}, gpu.index), el("span", {}, name));
}

export function drawTenants(target, tenants) {
  target.replaceChildren(...tenants.map((tenant) => {
    const limit = tenant.gpu_limit === null ? "" : ` of ${tenant.gpu_limit}`;
    const waiting = tenant.jobs.QUEUED ? ` · ${tenant.jobs.QUEUED} waiting` : "";
    return el("span", { title: `its jobs hold ${tenant.held_gpus}; granted, with those of jobs that wait for a place: ${tenant.granted_gpus}` },
      el("i", { class: `dot ${colour(tenant.name)}` }), `${tenant.name} ${tenant.held_gpus}${limit} ${(tenant.gpu_limit ?? tenant.held_gpus) === 1 ? "GPU" : "GPUs"}${waiting}`);
  }));
}
