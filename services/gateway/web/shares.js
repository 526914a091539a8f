// The tenants as a tree: what of the GPUs is theirs, what they use, lend and borrow, and what they are owed.

import { bar } from "/web/chart.js";
import { colour, el } from "/web/dom.js";

export function drawShares(target, tenants) {
  const most = Math.max(1, ...tenants.map((tenant) => Math.max(tenant.granted_gpus, tenant.guaranteed_gpus, tenant.gpu_limit ?? 0)));
  target.replaceChildren(...[...below("", tenants, 0)].map(([tenant, depth]) => row(tenant, depth, most)));
}

// Each tenant behind the one above it, with its depth; one with a parent that is not among them stands at the top.
function* below(parent, tenants, depth) {
  const names = new Set(tenants.map((tenant) => tenant.name));
  for (const tenant of tenants) {
    if (tenant.parent !== parent && !(depth === 0 && !names.has(tenant.parent))) continue;
    yield [tenant, depth];
    yield* below(tenant.name, tenants, depth + 1);
  }
}

function row(tenant, depth, most) {
  const own = tenant.granted_gpus - tenant.borrowed_gpus;
  const parts = [{ kind: `own ${colour(tenant.name)}`, size: own }, { kind: "borrowed", size: tenant.borrowed_gpus }];
  const said = `granted ${tenant.granted_gpus}, of them borrowed ${tenant.borrowed_gpus}; guaranteed ${tenant.guaranteed_gpus}`;
  return el("tr", {},
    el("td", { class: `d${Math.min(depth, 4)}` }, el("i", { class: `dot ${colour(tenant.name)}` }), tenant.name),
    el("td", { class: "part", title: said }, bar(said, parts, most, tenant.guaranteed_gpus || null)),
    ...[tenant.granted_gpus, tenant.guaranteed_gpus, tenant.gpu_limit ?? "–", tenant.borrowed_gpus, tenant.lent_gpus, tenant.waiting_gpus, tenant.owed_gpus]
      .map((number) => el("td", { class: "n" }, number || "–")));
}
