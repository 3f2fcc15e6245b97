// Charts of the last hour, kept by the console itself.

import { cluster, get } from "./api.js";
import { bytes, count, fill, h, lineChart, rate } from "./dom.js";

const CHARTS = [
  ["records", "Records written per second", rate],
  ["bytes_in", "Bytes written per second", bytes],
  ["bytes_out", "Bytes read per second", bytes],
  ["bytes_replicated", "Bytes replicated per second", bytes],
  ["produce_requests", "Appends per second", rate],
  ["fetch_requests", "Fetches per second", rate],
  ["under_replicated", "Under-replicated partitions", count],
  ["leaderless", "Partitions without a leader", count],
  ["brokers_down", "Brokers down", count],
];

export function chartsView(main, { signal }) {
  const charts = h("div", { class: "charts" });
  main.append(h("h1", {}, "The last hour"), charts, h("p", { class: "quiet" }, "Kept in the memory of this console. Bytes and requests come from /metrics of Tidelog brokers; Prometheus keeps them for longer."));
  async function load() {
    try {
      const found = await get("/api/charts", { name: CHARTS.map((each) => each[0]) });
      if (!signal.aborted) fill(charts, CHARTS.filter(([name], index) => found[name].length || index === 0).map(([name, title, unit]) => h("div", { class: "card" }, h("h2", {}, title), lineChart(found[name], { unit }))));
    } catch (error) { fill(charts, h("div", { class: "error" }, error.message)); }
  }
  load();
  cluster.addEventListener("sample", load, { signal });
}
