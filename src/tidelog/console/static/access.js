// Users, permissions and quotas, where the cluster has them.

import { get } from "./api.js";
import { bytes, count, fill, h, pill, problem, table } from "./dom.js";

export function accessView(main, { signal }) {
  const body = h("div", {}, h("p", { class: "quiet" }, "Asking the cluster…"));
  main.append(h("h1", {}, "Access"), body);

  const part = (title, found, columns, empty) => [h("h2", {}, title),
    found.reason ? h("div", { class: "card empty" }, found.reason) : table(columns, found.rows, { empty })];

  async function load() {
    try {
      const { users, acls, quotas } = await get("/api/access");
      if (signal.aborted) return;
      fill(body,
        part("Users", users, [
          { title: "user", cell: (each) => each.user }, { title: "logs in with", cell: (each) => each.mechanisms },
        ], "No users with a SCRAM password. `tidelog user add` makes one."),
        part("Permissions", acls, [
          { title: "principal", cell: (each) => each.principal },
          { title: "permission", cell: (each) => pill(each.permission, each.permission === "deny" ? "bad" : "good") },
          { title: "operation", cell: (each) => each.operation },
          { title: "on", cell: (each) => each.pattern === "prefixed" ? [`${each.resource}s that begin with `, h("code", {}, each.name)] : each.name === "*" ? `every ${each.resource}` : [`${each.resource} `, h("code", {}, each.name)] },
          { title: "from", cell: (each) => (each.host === "*" ? "everywhere" : each.host) },
        ], "No rules: `tidelog acl add` makes one."),
        part("Quotas", quotas, [
          { title: "for", cell: (each) => each.entity },
          { title: "quotas", cell: (each) => Object.entries(each.quotas).map(([name, value]) => `${name} ${name.endsWith("byte_rate") ? `${bytes(value)}/s` : name.endsWith("percentage") ? `${count(value)} %` : count(value)}`).join(", ") },
        ], "No quotas. `tidelog quota set` sets one."));
    } catch (error) { fill(body, problem(error)); }
  }
  load();
}
