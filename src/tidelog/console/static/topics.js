// Topics: the list, one topic with its partitions and settings, and its messages.

import { about, change, cluster, favourites, get, toggleFavourite } from "./api.js";
import { bytes, count, fill, h, lineChart, pill, rate, table, waiting } from "./dom.js";
import { ask, confirm } from "./dialogs.js";
import { messagesView } from "./messages.js";

export function topicsView(main, { query, signal }) {
  let topics = [];
  let internal = false;
  let stars = query.has("favourites");
  const list = h("div", {}, waiting());
  const box = h("input", { type: "search", placeholder: "Filter topics  ( / )", "aria-label": "Filter topics", value: query.get("filter") ?? "", oninput: draw });
  const pressed = (title, get_, set) => h("button", { type: "button", "aria-pressed": get_(), onclick: (event) => { set(!get_()); event.target.setAttribute("aria-pressed", get_()); draw(); } }, title);
  main.append(h("h1", {}, "Topics"), h("div", { class: "bar" }, box,
    pressed("Favourites", () => stars, (value) => { stars = value; }), pressed("Internal topics", () => internal, (value) => { internal = value; }), h("span", { class: "grow" }),
    about.manage ? h("button", { type: "button", class: "primary", onclick: create }, "Create a topic") : null), list);

  function draw() {
    const text = box.value.toLowerCase();
    const shown = topics.filter((each) => (internal || !each.internal) && (!stars || favourites.has(each.name)) && each.name.toLowerCase().includes(text));
    fill(list, table([
      { title: "", cell: (each) => h("button", { class: "bare", type: "button", "aria-label": `Favourite ${each.name}`, "aria-pressed": favourites.has(each.name), onclick: (event) => { event.stopPropagation(); toggleFavourite(each.name); draw(); } }, favourites.has(each.name) ? "★" : "☆") },
      { title: "topic", cell: (each) => h("a", { href: `#/topic/${encodeURIComponent(each.name)}` }, each.name) },
      { title: "partitions", number: true, cell: (each) => count(each.partitions) },
      { title: "replicas", number: true, cell: (each) => each.replicas },
      { title: "size", number: true, cell: (each) => bytes(each.bytes) },
      { title: "records/s", number: true, cell: (each) => rate(each.rate) },
      { title: "state", cell: (each) => each.leaderless ? pill(`${each.leaderless} without a leader`, "bad") : each.under_replicated ? pill(`${each.under_replicated} under-replicated`, "warn") : pill("healthy", "good") },
    ], shown, { onrow: (each) => { location.hash = `#/topic/${encodeURIComponent(each.name)}`; }, empty: topics.length ? "No topic matches." : "No topics yet." }));
  }

  async function create() {
    const wanted = await ask("Create a topic", "Settings that are left out have the broker's defaults.", [
      { name: "topic", title: "Name" }, { name: "partitions", title: "Partitions", value: "3" },
      { name: "factor", title: "Replicas of each", value: String(Math.min(3, cluster.brokers.length || 1)) },
      { name: "settings", title: "Settings, one KEY=VALUE on each line", lines: 3 }], "Create");
    if (!wanted) return;
    const settings = Object.fromEntries(wanted.settings.split("\n").filter((line) => line.includes("=")).map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]));
    await change("create-topic", { ...wanted, settings }).then(load).catch(() => {});
  }

  async function load() {
    try { topics = await get("/api/topics"); if (!signal.aborted) draw(); } catch (error) { fill(list, h("div", { class: "error" }, error.message)); }
  }
  load();
  cluster.addEventListener("all", load, { signal });
  cluster.addEventListener("sample", () => document.hidden || load(), { signal });
}

export function topicView(main, { args: [name, tab = "messages"], query, signal }) {
  const body = h("div", {}, tab === "messages" ? null : waiting());
  const tabs = ["messages", "partitions", "settings"];
  main.append(h("h1", {}, name), h("div", { class: "bar" }, tabs.map((each) =>
    h("a", { "aria-current": each === tab ? "page" : undefined, class: `pill ${each === tab ? "good" : "plain"}`, href: `#/topic/${encodeURIComponent(name)}/${each}` }, each)),
    h("span", { class: "grow" }),
    about.manage ? [
      h("button", { type: "button", onclick: produce }, "Produce a record"),
      h("button", { type: "button", onclick: grow }, "Add partitions"),
      h("button", { type: "button", class: "danger", onclick: remove }, "Delete")] : null), body);

  async function produce() {
    const wanted = await ask("Produce a record", `Into ${name}. An empty key means none.`, [
      { name: "key", title: "Key" }, { name: "value", title: "Value", lines: 5 }, { name: "partition", title: "Partition (empty: by the key)" }], "Produce");
    if (wanted) await change("produce", { topic: name, key: wanted.key || null, value: wanted.value, partition: wanted.partition === "" ? null : Number(wanted.partition) }).catch(() => {});
  }
  async function grow() {
    const wanted = await ask("Add partitions", "Records with a key may go to other partitions from then on. This cannot be undone.", [{ name: "count", title: "Partitions in all" }], "Add");
    if (wanted) await change("add-partitions", { topic: name, count: Number(wanted.count) }).catch(() => {});
  }
  async function remove() {
    if (await confirm(`Delete ${name}`, "All its records are deleted. This cannot be undone.", "Delete")) {
      await change("delete-topic", { topic: name }).then(() => { location.hash = "#/topics"; }).catch(() => {});
    }
  }

  if (tab === "messages") { messagesView(body, name, query, signal); return; }
  load();

  async function load() {
    try {
      const found = await get(`/api/topics/${encodeURIComponent(name)}`);
      if (signal.aborted) return;
      tab === "settings" ? fill(body, settingsTable(found.settings, "topic", name, load)) : fill(body, h("div", { class: "card" }, h("h2", {}, "Records per second"), lineChart([["", found.rates]])), partitions(found));
    } catch (error) { fill(body, h("div", { class: "error" }, error.message)); }
  }

  function partitions(found) {
    const rows = [...cluster.partitions.values()].filter((each) => each.topic === name);
    const at = (each, field) => found.offsets[each.partition]?.[field];
    return table([
      { title: "partition", cell: (each) => each.partition },
      { title: "leader", cell: (each) => each.leader ?? pill("none", "bad") },
      { title: "epoch", cell: (each) => each.epoch },
      { title: "replicas", cell: (each) => each.replicas.join(", ") },
      { title: "in sync", cell: (each) => h("span", {}, each.sync.join(", "), " ", each.sync.length < each.replicas.length ? pill("under-replicated", "warn") : null) },
      { title: "start", number: true, cell: (each) => count(at(each, "start")) },
      { title: "last stable", number: true, cell: (each) => count(at(each, "last_stable")) },
      { title: "high watermark", number: true, cell: (each) => count(at(each, "high_watermark")) },
    ], rows);
  }
  if (tab === "partitions") cluster.addEventListener("change", load, { signal });
}

export function settingsTable(settings, kind, name, reload) {
  const box = h("input", { type: "search", placeholder: "Filter settings  ( / )", "aria-label": "Filter settings", oninput: draw });
  const list = h("div");
  async function edit(each) {
    const wanted = await ask(each.name, [each.about, `Now ${each.sensitive ? "hidden" : each.value ?? "not set"} (${each.source}).`].filter(Boolean).join(" "), [{ name: "value", title: "Value (empty: back to the default)", value: each.value ?? "" }], "Set");
    if (wanted) await change("set", { kind, name, key: each.name, value: wanted.value === "" ? null : wanted.value }).then(reload).catch(() => {});
  }
  function draw() {
    fill(list, table([
      { title: "setting", cell: (each) => h("span", { class: "mono", title: each.about }, each.name) },
      { title: "value", cell: (each) => each.sensitive ? h("i", {}, "hidden") : h("span", { class: "mono" }, each.value ?? "–") },
      { title: "from", cell: (each) => each.source === "default" ? h("span", { class: "quiet" }, "default") : pill(each.source, "good") },
      { title: "", cell: (each) => about.manage && !each.read_only ? h("button", { type: "button", onclick: () => edit(each) }, "Edit") : "" },
    ], settings.filter((each) => each.name.includes(box.value.toLowerCase()))));
  }
  draw();
  return h("div", {}, h("div", { class: "bar" }, box), list);
}
