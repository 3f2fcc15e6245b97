// Transactions: open and hanging ones first.

import { about, change, get } from "./api.js";
import { duration, fill, h, pill, table, waiting } from "./dom.js";
import { confirm } from "./dialogs.js";

const OPEN = ["Ongoing", "PrepareCommit", "PrepareAbort"];

export function transactionsView(main, { signal }) {
  const list = h("div", {}, waiting());
  main.append(h("h1", {}, "Transactions"), list);
  async function load() {
    try {
      const found = await get("/api/transactions");
      if (signal.aborted) return;
      found.sort((one, other) => OPEN.includes(other.state) - OPEN.includes(one.state) || one.transactional_id.localeCompare(other.transactional_id));
      fill(list, table([
        { title: "transactional id", cell: (each) => each.transactional_id }, { title: "producer", number: true, cell: (each) => each.producer_id },
        { title: "state", cell: (each) => state(each) }, { title: "open for", number: true, cell: (each) => age(each) === null ? "–" : duration(age(each)) },
        { title: "partitions", cell: (each) => (each.partitions ?? []).join(", ") || "–" }, { title: "coordinator", number: true, cell: (each) => each.coordinator },
        { title: "", cell: (each) => about.manage && each.state === "Ongoing" ? h("button", { type: "button", class: "danger", onclick: () => abort(each) }, "Abort") : "" },
      ], found, { empty: "No transactional ids yet." }));
    } catch (error) { fill(list, h("div", { class: "error" }, error.message)); }
  }
  const age = (each) => (each.start_ms > 0 && OPEN.includes(each.state) ? (Date.now() - each.start_ms) / 1000 : null);
  const state = (each) => age(each) !== null && age(each) * 1000 > each.timeout_ms ? pill("hanging", "bad") : pill(each.state, OPEN.includes(each.state) ? "warn" : "plain");
  async function abort(each) {
    if (await confirm("Abort the transaction", `The producer ${each.transactional_id} is fenced: it cannot write any more until it starts anew.`, "Abort")) await change("abort-transaction", { id: each.transactional_id }).then(load).catch(() => {});
  }
  load();
  const timer = setInterval(() => document.hidden || load(), 5000);
  signal.addEventListener("abort", () => clearInterval(timer));
}
