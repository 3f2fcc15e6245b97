// Pipelines of this machine: every query with its rates, lag, batch duration, and the last error in one sentence.

import { get } from "./api.js";
import { bytes, count, fill, h, moment, pill, problem, rate, table, withCode } from "./dom.js";

const KINDS = { running: "good", idle: "good", starting: "warn", stopping: "warn", waiting: "warn", failed: "bad" };

export function pipelinesView(main, { signal }) {
  const list = h("div", {}, h("p", { class: "quiet" }, "Looking for pipelines…"));
  main.append(h("h1", {}, "Pipelines"), list);

  async function load() {
    try {
      const found = await get("/api/pipelines");
      if (signal.aborted) return;
      fill(list, found.length ? found.map(card) : h("div", { class: "card empty" }, withCode("No pipeline has run on this machine. `tidelog pipeline new` writes one.")));
    } catch (error) { fill(list, h("div", { class: "card empty" }, error.message)); }
  }

  function card(pipeline) {
    const progress = pipeline.progress ?? {};
    const ms = (value) => (value === null || value === undefined ? "–" : `${count(value)} ms`);
    return h("div", { class: "card" },
      h("h2", {}, pipeline.name, " ", pill(pipeline.state, KINDS[pipeline.state] ?? "plain")),
      h("p", { class: "quiet" }, h("span", { class: "mono" }, pipeline.file), `, started ${moment(Date.parse(pipeline.started_at))}, last heard ${moment(Date.parse(pipeline.updated_at))}`),
      pipeline.error ? problem(pipeline.error) : null,
      table([
        { title: "query", cell: (each) => each.name }, { title: "state", cell: (each) => pill(each.state, KINDS[each.state] ?? "plain") },
        { title: "rows in", number: true, cell: (each) => count(each.rows_in) }, { title: "rows in/s", number: true, cell: (each) => rate(each.rows_in_per_second) },
        { title: "bytes/s", number: true, cell: (each) => bytes(each.bytes_in_per_second) }, { title: "rows out", number: true, cell: (each) => count(each.rows_out) },
        { title: "rows behind", number: true, cell: (each) => count(each.lag) }, { title: "batches", number: true, cell: (each) => count(each.batches) },
        { title: "last batch", number: true, cell: (each) => ms(each.batch_duration_ms) },
      ], progress.queries ?? [], { empty: "No query has reported yet." }),
      h("div", { class: "bar losses" }, losses(progress),
        (pipeline.dead_letter_topics ?? []).map((topic) => h("a", { href: `#/topic/${encodeURIComponent(topic)}?from=latest` }, `Dead letters in ${topic}`)),
        pipeline.spark_ui ? h("a", { href: pipeline.spark_ui, target: "_blank", rel: "noreferrer noopener" }, "Spark UI") : null));
  }

  function losses(progress) {
    const found = [["dead_letters", "dead letters"], ["skipped_records", "skipped records"]].filter(([name]) => progress[name]).map(([name, title]) => pill(`${count(progress[name])} ${title}`, "warn"));
    return [...found, ...Object.entries(progress.violations ?? {}).filter(([, rows]) => rows).map(([name, rows]) => pill(`${name} violated by ${count(rows)} rows`, "warn"))];
  }
  load();
  const timer = setInterval(() => document.hidden || load(), 3000);
  signal.addEventListener("abort", () => clearInterval(timer));
}
