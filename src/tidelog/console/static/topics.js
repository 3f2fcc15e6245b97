// Topics: the list, one topic with its partitions and settings, and its messages.

import { about, carryOut, cluster, focus, focusButton, get, inFocus, NO_FAVOURITES, remember, star } from "./api.js";
import { bytes, count, duration, fill, h, lineChart, moment, pill, problem, rate, table, withCode, waiting } from "./dom.js";
import { ask, confirm } from "./dialogs.js";
import { messagesView } from "./messages.js";

export function topicsView(main, { query, signal }) {
  let topics = [];
  let internal = query.has("internal");
  const list = h("div", {}, waiting());
  const box = h("input", { type: "search", placeholder: "Filter topics  ( / )", "aria-label": "Filter topics", value: query.get("filter") ?? "", oninput: () => { share(); draw(); } });
  const share = () => remember("topics", { filter: box.value, internal });
  main.append(h("h1", {}, "Topics"), h("div", { class: "bar" }, box,
    focusButton(draw),
    h("button", { type: "button", "aria-pressed": internal, onclick: (event) => { internal = !internal; event.target.setAttribute("aria-pressed", internal); share(); draw(); } }, "Internal topics"), h("span", { class: "grow" }),
    about.manage ? h("button", { type: "button", class: "primary", onclick: create }, "Create a topic") : null), list);

  function draw() {
    const text = box.value.toLowerCase();
    const shown = topics.filter((each) => (internal || !each.internal) && inFocus(each.name) && each.name.toLowerCase().includes(text));
    fill(list, table([
      { title: "", cell: (each) => star(each.name, each.name, draw) },
      { title: "topic", cell: (each) => h("a", { href: `#/topic/${encodeURIComponent(each.name)}` }, each.name) },
      { title: "partitions", number: true, minor: true, cell: (each) => count(each.partitions) },
      { title: "replicas", number: true, minor: true, cell: (each) => each.replicas },
      { title: "size", number: true, minor: true, cell: (each) => bytes(each.bytes) },
      { title: "records/s", number: true, cell: (each) => rate(each.rate) },
      { title: "state", cell: (each) => each.leaderless ? pill(`${each.leaderless} without a leader`, "bad") : each.under_replicated ? pill(`${each.under_replicated} under-replicated`, "warn") : pill("healthy", "good") },
    ], shown, { onrow: (each) => { location.hash = `#/topic/${encodeURIComponent(each.name)}`; }, empty: !topics.length ? "No topics yet." : focus.on ? `No topic matches. ${NO_FAVOURITES}` : "No topic matches." }));
  }

  async function create() {
    const done = await ask("Create a topic", "Settings that are left out have the broker's defaults.", [
      { name: "topic", title: "Name" }, { name: "partitions", title: "Partitions", value: "3" },
      { name: "factor", title: "Replicas of each", value: String(Math.min(3, cluster.brokers.length || 1)) },
      { name: "settings", title: "Settings, one KEY=VALUE on each line", lines: 3 }], "Create",
    (wanted) => carryOut("create-topic", { ...wanted, settings: pairsOf(wanted.settings) }));
    if (done) load();
  }

  async function load() {
    try { topics = await get("/api/topics"); if (!signal.aborted) draw(); } catch (error) { fill(list, problem(error)); }
  }
  load();
  cluster.addEventListener("all", load, { signal });
  cluster.addEventListener("sample", () => document.hidden || load(), { signal });
}

export function topicView(main, { args: [name, tab = "messages"], query, signal }) {
  const body = h("div", {}, tab === "messages" ? null : waiting());
  const tabs = ["messages", "partitions", "producers", "settings"];
  const heading = h("h1");
  const drawHeading = () => fill(heading, name, " ", star(name, name, drawHeading));
  drawHeading();
  main.append(heading, h("div", { class: "bar" }, h("nav", { class: "tabs", "aria-label": "Parts of the topic" }, tabs.map((each) =>
    h("a", { "aria-current": each === tab ? "page" : undefined, href: `#/topic/${encodeURIComponent(name)}/${each}` }, each[0].toUpperCase() + each.slice(1)))),
    about.manage ? [
      h("button", { type: "button", onclick: produce }, "Produce a record"),
      h("button", { type: "button", onclick: grow }, "Add partitions"),
      h("button", { type: "button", class: "danger", onclick: remove }, "Delete")] : null), body);

  function produce() {
    return ask("Produce a record", `Into ${name}. An empty key means none.`, [
      { name: "key", title: "Key" }, { name: "value", title: "Value", lines: 5 }, { name: "kind", title: "The value is", choice: ["the text above", "null: a tombstone"] },
      { name: "headers", title: "Headers, one NAME=VALUE on each line", lines: 2 }, { name: "partition", title: "Partition (empty: by the key)" }], "Produce",
    (wanted) => carryOut("produce", { topic: name, key: wanted.key || null, value: wanted.kind.startsWith("null") ? null : wanted.value, headers: pairsOf(wanted.headers), partition: wanted.partition.trim() || null }));
  }
  function grow() {
    const now = [...cluster.partitions.values()].filter((each) => each.topic === name).length;
    return ask("Add partitions", `${name} has ${count(now)} now. Records with a key may go to other partitions from then on. This cannot be undone.`, [{ name: "count", title: "Partitions in all", value: String(now + 1) }], "Add",
      (wanted) => carryOut("add-partitions", { topic: name, count: wanted.count }));
  }
  async function remove() {
    const done = await confirm(`Delete ${name}?`, "All its records are deleted. This cannot be undone.", "Delete", () => carryOut("delete-topic", { topic: name }));
    if (done) location.hash = "#/topics";
  }

  if (tab === "messages") { messagesView(body, name, query, signal); return; }
  load();

  async function load() {
    try {
      const found = await get(`/api/topics/${encodeURIComponent(name)}${tab === "producers" ? "/producers" : ""}`);
      if (signal.aborted) return;
      tab === "producers" ? fill(body, producers(found)) : tab === "settings" ? fill(body, settingsTable(found.settings, "topic", name, load)) : fill(body, h("div", { class: "card" }, h("h2", {}, "Records per second"), lineChart([["", found.rates]])), partitions(found));
    } catch (error) { fill(body, problem(error)); }
  }

  function producers(found) {
    return table([
      { title: "partition", cell: (each) => each.partition }, { title: "producer id", number: true, cell: (each) => count(each.producer_id) },
      { title: "epoch", number: true, cell: (each) => each.epoch }, { title: "last sequence", number: true, minor: true, cell: (each) => count(each.last_sequence) },
      { title: "last wrote", cell: (each) => moment(each.last_ms) },
      { title: "transaction", cell: (each) => each.transaction_start === null ? h("span", { class: "quiet" }, "none open") : pill(`open since offset ${count(each.transaction_start)}`, "warn") },
    ], found, { empty: "No producer with idempotence or transactions has written lately. Leaders keep no state of others." });
  }

  function partitions(found) {
    const rows = [...cluster.partitions.values()].filter((each) => each.topic === name);
    const at = (each, field) => found.offsets[each.partition]?.[field];
    return table([
      { title: "partition", cell: (each) => each.partition },
      { title: "leader", cell: (each) => each.leader ?? pill("none", "bad") },
      { title: "epoch", minor: true, cell: (each) => each.epoch },
      { title: "replicas", cell: (each) => each.replicas.join(", ") },
      { title: "in sync", cell: (each) => h("span", {}, each.sync.join(", "), " ", each.sync.length < each.replicas.length ? pill("under-replicated", "warn") : null) },
      { title: "start", number: true, cell: (each) => count(at(each, "start")) },
      { title: "last stable", number: true, cell: (each) => count(at(each, "last_stable")) },
      { title: "high watermark", number: true, cell: (each) => count(at(each, "high_watermark")) },
      { title: "end", number: true, cell: (each) => count(at(each, "end")) },
    ], rows);
  }
  if (tab === "partitions") cluster.addEventListener("change", load, { signal });
}

export function settingsTable(settings, kind, name, reload) {
  const box = h("input", { type: "search", placeholder: "Filter settings  ( / )", "aria-label": "Filter settings", oninput: draw });
  const list = h("div");
  async function edit(each) {
    let value = "";
    const now = each.sensitive ? "hidden" : [each.value ?? "not set", readable(each)].filter(Boolean).join(", ");
    const done = await ask(each.name, [each.about, `Now ${now} (${each.source}).`].filter(Boolean).join(" "), [{ name: "value", title: "Value (empty: back to the default)", value: each.value ?? "" }], "Set",
      async (wanted) => {
        await carryOut("set", { kind, name, key: each.name, value: wanted.value === "" ? null : wanted.value });
        value = wanted.value;
      });
    if (!done) return;
    if (value === "") { setTimeout(reload, 1000); return; } // the default comes from a broker, which may hear of it later
    Object.assign(each, { value: each.sensitive ? null : value, source: kind === "topic" ? "topic" : "this broker" });
    draw();
  }
  function draw() {
    fill(list, table([
      { title: "setting", cell: (each) => [h("span", { class: "mono" }, each.name), each.about ? h("div", { class: "quiet small" }, withCode(each.about)) : null] },
      { title: "value", cell: (each) => each.sensitive ? h("i", {}, "hidden") : h("span", {}, h("span", { class: "mono" }, each.value ?? "–"), " ", h("span", { class: "quiet" }, readable(each))) },
      { title: "from", minor: true, cell: (each) => each.source === "default" ? h("span", { class: "quiet" }, "default") : pill(each.source, "good") },
      { title: "", cell: (each) => about.manage && !each.read_only ? h("button", { type: "button", onclick: () => edit(each) }, "Edit") : "" },
    ], settings.filter((each) => each.name.includes(box.value.toLowerCase()))));
  }
  draw();
  return h("div", {}, h("div", { class: "bar" }, box), list);
}

// `604800000` of retention.ms is 7 days, and the largest number stands for no limit.
function readable({ name, value }) {
  const number = value && /^\d+$/.test(value) ? Number(value) : null;
  if (number === null || number < 1000) return "";
  if (number >= 2 ** 63 - 1024) return "no limit";
  return name.endsWith(".ms") ? duration(number / 1000) : name.endsWith(".bytes") ? bytes(number) : "";
}

function pairsOf(text) {
  return Object.fromEntries(text.split("\n").filter((line) => line.trim()).map((line) => {
    if (!line.includes("=")) throw new Error(`Expected NAME=VALUE, found ${line.trim()}.`);
    return [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()];
  }));
}
