// Pipelines of this machine: every query with its rates, lag, batch duration, and the last error in one sentence.

import { get } from "./api.js";
import { count, fill, h, pill, table } from "./dom.js";

const KINDS = { running: "good", starting: "warn", stopping: "warn", failed: "bad" };

export function pipelinesView(main, { signal }) {
  const list = h("div");
  main.append(h("h1", {}, "Pipelines"), list);

  async function load() {
    try {
      const found = await get("/api/pipelines");
      if (signal.aborted) return;
      fill(list, found.length ? found.map(card) : h("div", { class: "card empty" }, "No pipeline has run on this machine."));
    } catch (error) { fill(list, h("div", { class: "error" }, error.message)); }
  }

  function card(pipeline) {
    const progress = pipeline.progress ?? {};
    return h("div", { class: "card" },
      h("h2", {}, pipeline.name, " ", pill(pipeline.state, KINDS[pipeline.state] ?? "plain")),
      h("p", { class: "quiet" }, `${pipeline.file}, started ${pipeline.started_at}`),
      pipeline.error ? h("div", { class: "error" }, pipeline.error) : null,
      table([
        { title: "query", cell: (each) => each.name }, { title: "state", cell: (each) => each.state },
        { title: "rows in", number: true, cell: (each) => count(each.rows_in) }, { title: "rows out", number: true, cell: (each) => count(each.rows_out) },
        { title: "lag", number: true, cell: (each) => count(each.lag) }, { title: "batches", number: true, cell: (each) => count(each.batches) },
        { title: "last batch", number: true, cell: (each) => each.batch_duration_ms === null || each.batch_duration_ms === undefined ? "–" : `${count(each.batch_duration_ms)} ms` },
      ], progress.queries ?? [], { empty: "No query has reported yet." }),
      progress.dead_letters ? h("p", {}, pill(`${count(progress.dead_letters)} dead letters`, "warn")) : null,
      /^https?:/.test(progress.ui ?? "") ? h("p", {}, h("a", { href: progress.ui, rel: "noreferrer" }, "Spark's own page")) : null);
  }
  load();
  const timer = setInterval(load, 3000);
  signal.addEventListener("abort", () => clearInterval(timer));
}
