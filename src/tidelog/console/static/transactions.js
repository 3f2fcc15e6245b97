// Transactions: open and hanging ones first.

import { about, carryOut, get } from "./api.js";
import { count, duration, fill, h, moment, pill, problem, table, waiting } from "./dom.js";
import { confirm } from "./dialogs.js";

const OPEN = ["Ongoing", "PrepareCommit", "PrepareAbort"];
const OFTEN = 5000;
const SELDOM = 30000; // looking for hanging ones asks the leaders of all partitions

export function transactionsView(main, { signal }) {
  const hanging = h("div");
  const list = h("div", {}, waiting());
  main.append(h("h1", {}, "Transactions"), hanging, list);

  async function load() {
    try {
      const found = await get("/api/transactions");
      if (signal.aborted) return;
      found.sort((one, other) => OPEN.includes(other.state) - OPEN.includes(one.state) || one.transactional_id.localeCompare(other.transactional_id));
      fill(list, table([
        { title: "transactional id", cell: (each) => each.transactional_id }, { title: "producer", number: true, minor: true, cell: (each) => each.producer_id },
        { title: "state", cell: (each) => state(each) }, { title: "open for", number: true, cell: (each) => age(each) === null ? "–" : duration(age(each)) },
        { title: "partitions", minor: true, cell: (each) => (each.partitions ?? []).join(", ") || "–" }, { title: "coordinator", number: true, minor: true, cell: (each) => each.coordinator },
        { title: "", cell: (each) => about.manage && each.state === "Ongoing" ? button(() => abort(each)) : "" },
      ], found, { empty: "No transactional ids yet." }));
    } catch (error) { fill(list, problem(error)); }
  }

  async function loadHanging() {
    try {
      const found = await get("/api/transactions/hanging");
      if (signal.aborted) return;
      fill(hanging, found.length ? [h("div", { class: "error" }, "No coordinator knows these transactions, so none will end them. Consumers with read_committed wait before each."), table([
        { title: "partition", cell: (each) => `${each.topic}-${each.partition}` }, { title: "producer", number: true, cell: (each) => each.producer_id },
        { title: "state", cell: () => pill("hanging", "bad") }, { title: "last write", minor: true, cell: (each) => moment(each.last_ms) },
        { title: "first offset", number: true, minor: true, cell: (each) => count(each.start_offset) },
        { title: "", cell: (each) => about.manage ? button(() => abortHanging(each)) : "" },
      ], found), h("h2", {}, "Of coordinators")] : null);
    } catch (error) { fill(hanging, problem(error)); }
  }

  const button = (work) => h("button", { type: "button", class: "danger", onclick: work }, "Abort");
  const age = (each) => (each.start_ms > 0 && OPEN.includes(each.state) ? (Date.now() - each.start_ms) / 1000 : null);
  const state = (each) => age(each) !== null && age(each) * 1000 > each.timeout_ms ? pill("hanging", "bad") : pill(each.state, OPEN.includes(each.state) ? "warn" : "plain");

  async function abort(each) {
    const done = await confirm("Abort the transaction?", `The producer ${each.transactional_id} is fenced: it must be restarted before it can write again.`, "Abort", () => carryOut("abort-transaction", { id: each.transactional_id }));
    if (done) load();
  }

  async function abortHanging(each) {
    const { topic, partition, producer_id } = each;
    const done = await confirm("Abort the transaction?", `What producer ${producer_id} wrote to ${topic}-${partition} in it is never shown to consumers with read_committed.`, "Abort", () => carryOut("abort-hanging", { topic, partition, producer_id }));
    if (done) loadHanging();
  }

  for (const [work, pause] of [[load, OFTEN], [loadHanging, SELDOM]]) {
    work();
    const timer = setInterval(() => document.hidden || work(), pause);
    signal.addEventListener("abort", () => clearInterval(timer));
  }
}
