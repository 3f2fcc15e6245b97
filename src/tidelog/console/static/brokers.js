// Brokers: addresses, leaders, log directories, settings.

import { about, carryOut, change, cluster, get } from "./api.js";
import { bytes, count, fill, h, pill, problem, table, withCode, waiting } from "./dom.js";
import { confirm } from "./dialogs.js";
import { settingsTable } from "./topics.js";

export function brokersView(main, { signal }) {
  const list = h("div");
  main.append(h("h1", {}, "Brokers"), list);
  function draw() {
    const led = {};
    const hosted = {};
    for (const each of cluster.partitions.values()) {
      led[each.leader] = (led[each.leader] ?? 0) + 1;
      for (const replica of each.replicas) hosted[replica] = (hosted[replica] ?? 0) + 1;
    }
    fill(list, table([
      { title: "broker", cell: (each) => h("a", { href: `#/broker/${each.id}` }, each.id) },
      { title: "state", cell: (each) => h("span", {}, each.up ? pill("up", "good") : pill("down", "bad"), " ", each.id === cluster.controller ? pill("controller") : null) },
      { title: "address", minor: true, cell: (each) => each.up ? `${each.host}:${each.port}` : "–" }, { title: "rack", minor: true, cell: (each) => each.rack ?? "–" },
      { title: "leads", number: true, cell: (each) => count(led[each.id] ?? 0) }, { title: "replicas", number: true, minor: true, cell: (each) => count(hosted[each.id] ?? 0) },
      { title: "", cell: (each) => about.manage && about.local ? action(each) : "" },
    ], cluster.brokers, { empty: "Asking the cluster…" }));
  }
  function action(each) {
    return each.up
      ? h("button", { type: "button", class: "danger", onclick: () => confirm(`Kill broker ${each.id}?`, "It is ended with SIGKILL, as by a crash. Its partitions get other leaders.", "Kill", () => carryOut("kill-broker", { broker: each.id })) }, "Kill")
      : h("button", { type: "button", onclick: () => change("start-broker", { broker: each.id }).catch(() => {}) }, "Start");
  }
  draw();
  for (const name of ["all", "change"]) cluster.addEventListener(name, draw, { signal });
}

export function brokerView(main, { args: [id], signal }) {
  const body = h("div", {}, waiting("Asking the broker…"));
  const log = h("div");
  const settings = h("div");
  main.append(h("h1", {}, `Broker ${id}`), body, log, settings);
  let isUp = null;
  const state = () => cluster.brokers.find((each) => String(each.id) === id)?.up ?? false;
  function check() { // asks when the broker comes up, and does not wait for one that is down
    if (!cluster.loaded || state() === isUp) return;
    isUp = state();
    fill(settings);
    if (isUp) load();
    else fill(body, h("div", { class: "card empty" }, withCode(`Broker ${id} is not in the cluster now. ${about.local ? `\`tidelog start ${id}\` starts it.` : "Its log says why; this page shows it when it is back."}`)));
    if (about.local) loadLog();
  }
  async function load() {
    try {
      const found = await get(`/api/brokers/${id}`);
      if (signal.aborted || !state()) return;
      fill(body, h("h2", {}, "Log directories"), table([
        { title: "path", cell: (each) => h("span", { class: "mono" }, each.path) }, { title: "state", cell: (each) => each.error ? pill(each.error, "bad") : pill("online", "good") },
        { title: "replicas", number: true, cell: (each) => count(each.replicas) }, { title: "size", number: true, cell: (each) => bytes(each.bytes) },
      ], found.directories),
      found.metrics ? h("p", {}, h("a", { href: found.metrics, target: "_blank", rel: "noreferrer noopener" }, "Metrics for Prometheus")) : null);
      fill(settings, h("h2", {}, "Settings"), settingsTable(found.settings, "broker", id, load));
    } catch (error) { fill(body, problem(error)); }
  }
  async function loadLog() { // of a broker that is down too: it says why
    try {
      const found = await get(`/api/brokers/${id}/log`);
      if (signal.aborted) return;
      const lines = h("pre", { class: "mono log", tabindex: 0, role: "log", "aria-label": "Log of the broker" }, found.lines.join("\n") || "It is empty.");
      fill(log, h("h2", {}, "Log"), h("div", { class: "bar" }, h("span", { class: "quiet" }, `The last ${count(found.lines.length)} lines of `, h("span", { class: "mono" }, found.file)), h("button", { type: "button", onclick: loadLog }, "Read again")), lines);
      lines.scrollTop = lines.scrollHeight;
    } catch (error) { fill(log, h("h2", {}, "Log"), problem(error)); }
  }
  check();
  for (const name of ["all", "change"]) cluster.addEventListener(name, check, { signal });
}
