// Charts of the last hour, kept by the console itself.

import { about, cluster, get } from "./api.js";
import { bytes, count, fill, h, lineChart, milliseconds, problem, rate, withCode } from "./dom.js";

const MAX_SAMPLES = 720;
const perSecond = (value) => `${bytes(value)}/s`;
const CHARTS = [
  { title: "Records written per second", unit: rate, lines: [["", "records"]] },
  { title: "Produce at brokers", unit: milliseconds, lines: [["p50", "produce_p50"], ["p99", "produce_p99"]] },
  { title: "Fetch at brokers, with its wait", unit: milliseconds, lines: [["p50", "fetch_p50"], ["p99", "fetch_p99"]] },
  { title: "Round trip to brokers", unit: milliseconds, lines: [["p50", "round_trip_p50"], ["p99", "round_trip_p99"]] },
  { title: "Bytes", unit: perSecond, lines: [["written", "bytes_in"], ["read", "bytes_out"], ["replicated", "bytes_replicated"]] },
  { title: "Requests to partitions per second", unit: rate, lines: [["produce", "produce_requests"], ["fetch", "fetch_requests"]] },
  { title: "Records that all groups are behind", unit: (value) => count(Math.round(value)), whole: true, lines: [["", "lag"]] },
  { title: "Rebalances of groups per minute", unit: rate, factor: 60, lines: [["", "rebalances"]] },
  { title: "Under-replicated partitions", unit: count, whole: true, lines: [["", "under_replicated"]] },
  { title: "Partitions without a leader", unit: count, whole: true, lines: [["", "leaderless"]] },
  { title: "Brokers down", unit: count, whole: true, lines: [["", "brokers_down"]] },
];
const ALWAYS = ["records", "round_trip_p50"]; // the others are there if brokers have /metrics, or something happened

export function chartsView(main, { signal }) {
  const charts = h("div", { class: "charts" });
  main.append(h("h1", {}, "The last hour"), charts, h("p", { class: "quiet" },
    "Kept in the memory of this console, every 5 seconds. The round trip is that of a small request of the console to each broker, over the last minute. Times of produce and fetch over the last minute, bytes, requests and rebalances come from /metrics of Tidelog brokers. A fetch of a consumer waits for records. ",
    about.prometheus ? ["For longer than an hour: ", h("a", { href: about.prometheus, target: "_blank", rel: "noreferrer noopener" }, "Prometheus"), "."]
      : withCode("Prometheus keeps them for longer: `--prometheus URL` puts a link to yours here.")));
  const names = CHARTS.flatMap(({ lines }) => lines.map((line) => line[1]));
  let found = null;
  async function load() {
    try {
      const loaded = await get("/api/charts", { name: names });
      if (signal.aborted) return;
      found = loaded;
      draw();
    } catch (error) { fill(charts, problem(error)); }
  }
  function draw() {
    fill(charts, CHARTS.filter(({ lines }) => lines.some(([, name]) => ALWAYS.includes(name) || found[name].length > 1)).map(({ title, unit, whole, factor = 1, lines }) =>
        h("div", { class: "card" }, h("h2", {}, title), lineChart(lines.map(([name, series]) => [name, factor === 1 ? found[series] : found[series].map(([ms, value]) => [ms, value * factor])]), { unit, whole }))));
  }
  function add({ detail: { at_ms, values } }) { // what the page has is not sent again
    if (!found) return;
    for (const name of names) {
      if (name in values) found[name].push([at_ms, values[name]]);
      if (found[name].length > MAX_SAMPLES) found[name].shift();
    }
    if (!document.hidden) draw();
  }
  load();
  cluster.addEventListener("sample", add, { signal });
  cluster.addEventListener("all", load, { signal }); // after a reconnection
}
