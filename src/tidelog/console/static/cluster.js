// The cluster, moving: brokers as columns, partitions as rows, replicas as cells, and what happened below.

import { about, carryOut, change, cluster, focus, focusButton, get, inFocus, key, NO_FAVOURITES, remember } from "./api.js";
import { clock, count, fill, h, pill, problem, withCode, VirtualRows } from "./dom.js";
import { ask, confirm } from "./dialogs.js";

const ROW = 26;
const FLASH_MS = 2200; // as in style.css
const KINDS = { broker: "bad", "broker up": "good", controller: "plain", election: "plain", leaderless: "bad", shrink: "warn", expand: "good", move: "plain", topic: "plain", rebalance: "warn", group: "plain", change: "plain" };

export function clusterView(main, { query, signal }) {
  const filter = { text: query.get("filter") ?? "", internal: query.has("internal"), troubles: query.has("troubles") };
  const figures = h("div", { class: "figures" });
  const head = h("div", { class: "grid-head" });
  const grid = h("div", { class: "grid", tabindex: 0, role: "region", "aria-label": "Replicas by broker" }, head);
  const side = h("aside", { class: "card", "aria-live": "polite" });
  const timeline = h("div", { class: "timeline", tabindex: 0, role: "log", "aria-label": "Events" });
  const positions = new Map();
  const columns = new Map(); // of brokers in the grid
  let selected = partitionOf(query.get("partition") ?? "");

  const toggle = (name, title) => h("button", { type: "button", "aria-pressed": filter[name], onclick: (event) => {
    filter[name] = !filter[name];
    event.target.setAttribute("aria-pressed", filter[name]);
    share();
    drawAll();
  } }, title);
  main.append(
    h("h1", {}, title()), figures,
    h("div", { class: "bar" },
      h("input", { type: "search", placeholder: "Filter topics  ( / )", "aria-label": "Filter topics", value: filter.text, oninput: (event) => { filter.text = event.target.value; share(); drawAll(); } }),
      toggle("troubles", "Only troubles"), focusButton(drawAll), toggle("internal", "Internal topics")),
    h("div", { class: "columns" }, h("div", {}, grid,
      h("div", { class: "legend" }, h("span", {}, chip("leader", "leads"), "leader"), h("span", {}, chip("sync", "in sync"), "in sync"), h("span", {}, chip("lagging", "behind"), "out of sync"), h("span", {}, chip("offline", "down"), "its broker or disk is gone"), h("span", {}, "★ controller")),
    ), side),
    h("h2", {}, "Timeline of the last hour"), h("div", { class: "card" }, timeline));

  const rows = new VirtualRows(grid, ROW, drawRow, 46);
  const up = () => new Set(cluster.brokers.filter((each) => each.up).map((each) => each.id));
  let live = up();

  function share() {
    remember("cluster", { filter: filter.text, troubles: filter.troubles, internal: filter.internal, partition: selected?.replace("\n", "-") });
  }

  function visible() {
    const text = filter.text.toLowerCase();
    return [...cluster.partitions.values()].filter((each) =>
      (filter.internal || !each.internal || each.leader === null) && each.topic.toLowerCase().includes(text)
      && (!filter.troubles || each.leader === null || each.sync.length < each.replicas.length)
      && inFocus(each.topic));
  }

  function drawAll() {
    live = up();
    const led = leads();
    columns.clear();
    cluster.brokers.forEach((each, index) => columns.set(each.id, index + 2));
    head.style.gridTemplateColumns = `var(--grid-name) repeat(${cluster.brokers.length}, minmax(74px, 150px))`;
    fill(head, h("div", { class: "grid-name quiet" }, "partition"), cluster.brokers.map((each) =>
      h("div", { class: `grid-broker ${each.up ? "" : "down"} ${each.id === cluster.controller ? "controller" : ""}`, title: each.up ? `${each.host}:${each.port}${each.rack ? `, rack ${each.rack}` : ""}` : "not in the cluster" },
        h("b", {}, h("a", { href: `#/broker/${each.id}` }, each.id)), each.up ? `leads ${count(led.get(each.id) ?? 0)}` : "down")));
    const items = visible();
    positions.clear();
    items.forEach((each, index) => positions.set(key(each.topic, each.partition), index));
    rows.space.querySelector(".empty")?.remove();
    rows.set(items);
    drawFigures();
    if (!items.length) rows.space.append(h("div", { class: "empty" }, !cluster.loaded ? "Asking the cluster…" : focus.on ? `No partition matches. ${NO_FAVOURITES}` : cluster.partitions.size ? "No partition matches." : "No topics yet."));
  }

  function leads() {
    const led = new Map();
    for (const each of cluster.partitions.values()) led.set(each.leader, (led.get(each.leader) ?? 0) + 1);
    return led;
  }

  function drawFigures() {
    const now = cluster.counts;
    const figure = (value, title, bad) => h("div", { class: `figure ${value && bad ? bad : ""}` }, h("b", {}, count(value)), h("span", {}, title));
    fill(figures, figure(cluster.brokers.length - now.down, "brokers up"), figure(now.down, "brokers down", "bad"), figure(now.topics, "topics"),
      figure(now.partitions, "partitions"), figure(now.leaderless, "without a leader", "bad"), figure(now.under, "under-replicated", "warn"), figure(now.moved, "not led by the first replica"));
  }

  function drawRow(item) {
    const name = `${item.topic}-${item.partition}`;
    const row = h("div", { class: `grid-row ${selected === key(item.topic, item.partition) ? "selected" : ""}`, "data-partition": name },
      h("div", { class: "grid-name mono", title: name }, h("a", { href: `#/topic/${encodeURIComponent(item.topic)}` }, item.topic), h("span", {}, `-${item.partition}`)));
    const now = performance.now();
    for (const broker of item.replicas) { // of 100 brokers only those that have it
      const state = replicaState(item, broker);
      const cell = h("button", { class: "grid-cell", type: "button", "data-broker": broker, "aria-label": `${name} on broker ${broker}: ${LABELS[state]}`, onclick: () => select(item) },
        chip(state, LABELS[state], now - (item.changed.get(broker) ?? -FLASH_MS)));
      cell.style.gridColumn = columns.get(broker);
      row.append(cell);
    }
    row.style.gridTemplateColumns = head.style.gridTemplateColumns;
    return row;
  }

  function replicaState(item, broker) {
    if (!live.has(broker)) return "offline";
    if (item.leader === broker) return "leader";
    return item.sync.includes(broker) ? "sync" : "lagging";
  }

  async function select(item) {
    const before = selected;
    selected = key(item.topic, item.partition);
    share();
    for (const each of [before, selected]) if (positions.has(each)) rows.redraw(positions.get(each));
    fill(side, h("h2", {}, `${item.topic}-${item.partition}`), h("p", { class: "quiet" }, "Asking its replicas…"));
    try {
      const found = await get(`/api/partitions/${encodeURIComponent(item.topic)}/${item.partition}`);
      if (selected === key(item.topic, item.partition) && !signal.aborted) showPartition(found);
    } catch (error) {
      fill(side, h("h2", {}, `${item.topic}-${item.partition}`), problem(error));
    }
  }

  function showPartition(found) {
    const where = `${found.topic}-${found.partition}`;
    const actions = about.manage ? [
      h("button", { type: "button", onclick: () => change("elect", { topic: found.topic, partitions: [found.partition] }).catch(() => {}) }, "Elect the first replica"),
      h("button", { type: "button", onclick: () => move(found) }, "Move"),
      found.moving ? h("button", { type: "button", onclick: () => change("move", { topic: found.topic, partition: found.partition, replicas: null }).catch(() => {}) }, "Cancel the move") : null] : null;
    fill(side, h("h2", {}, where),
      h("p", {}, `Epoch ${found.leader_epoch}, high watermark ${count(found.high_watermark)}, min.insync.replicas ${found.min_in_sync}.`),
      h("table", {}, h("thead", {}, h("tr", {}, ["replica", "state", "behind"].map((title) => h("th", { scope: "col", class: title === "behind" ? "number" : undefined }, title)))),
        h("tbody", {}, found.replicas.map((id) => h("tr", {}, h("td", {}, id),
          h("td", {}, id === found.leader ? pill("leader", "good") : found.in_sync.includes(id) ? pill("in sync", "good") : pill("out of sync", "warn")),
          h("td", { class: "number" }, found.lag[id] === null || found.lag[id] === undefined ? "?" : count(found.lag[id])))))),
      h("h2", {}, "Why"),
      h("ul", { class: "why" }, found.why.map((line) => h("li", {}, withCode(line)))),
      h("div", { class: "bar" }, actions, h("button", { type: "button", onclick: () => select({ topic: found.topic, partition: found.partition }) }, "Ask again")));
  }

  function move(found) {
    return ask(`Move ${found.topic}-${found.partition}`, "New replicas are copied first, then the old ones are removed.", [
      { name: "replicas", title: "Brokers, the preferred leader first", value: found.replicas.join(",") }], "Move",
    (answer) => carryOut("move", { topic: found.topic, partition: found.partition, replicas: answer.replicas.split(",").map((each) => each.trim()) }));
  }

  function drawEvents() {
    const shown = cluster.events.slice(-300).reverse();
    fill(timeline, shown.length ? shown.map((event) => h("div", { class: "event" },
      h("time", {}, clock(event.at_ms)), h("span", { class: "kind" }, pill(event.kind, KINDS[event.kind] ?? "plain")), h("span", {}, withCode(event.text))))
      : h("div", { class: "empty" }, "Nothing has happened since the console was started."));
  }

  const on = (name, work) => cluster.addEventListener(name, work, { signal });
  on("all", drawAll);
  on("change", ({ detail }) => {
    const now = up();
    if (now.size !== live.size || [...now].some((each) => !live.has(each)) || filter.troubles) drawAll();
    else {
      for (const name of detail) {
        const index = positions.get(name);
        if (index !== undefined) { rows.items[index] = cluster.partitions.get(name); rows.redraw(index); }
      }
      drawFigures();
      const led = leads();
      for (const [index, each] of cluster.brokers.entries()) {
        const cell = head.children[index + 1];
        cell.classList.toggle("controller", each.id === cluster.controller);
        if (each.up) cell.lastChild.textContent = `leads ${count(led.get(each.id) ?? 0)}`;
      }
    }
    if (selected && detail.includes(selected) && cluster.partitions.has(selected)) select(cluster.partitions.get(selected));
  });
  on("events", drawEvents);
  drawAll();
  drawEvents();
  drawHelp();
  if (selected) {
    const [topic, partition] = selected.split("\n");
    select({ topic, partition: Number(partition) });
  }

  function drawHelp() {
    fill(side, h("h2", {}, "Click on a replica"), h("p", { class: "quiet" }, "It shows how far behind it is, why it is out of sync, since when, and what would bring it back."),
      about.local && about.manage ? h("div", {}, h("h2", {}, "Try a failover"), h("div", { class: "bar" }, cluster.brokers.slice(0, 12).map((each) => brokerButton(each)))) : null);
  }

  function brokerButton(broker) {
    const [name, title] = broker.up ? ["kill-broker", `Kill broker ${broker.id}`] : ["start-broker", `Start broker ${broker.id}`];
    return h("button", { type: "button", class: broker.up ? "danger" : "", onclick: () => (broker.up
      ? confirm(`${title}?`, "It is ended with SIGKILL, as by a crash. Its partitions get other leaders.", title, () => carryOut(name, { broker: broker.id }))
      : change(name, { broker: broker.id }).catch(() => {})) }, title);
  }
  on("all", () => !selected && drawHelp());
  on("change", () => !selected && drawHelp());
}

const title = () => (about.title || "cluster").replace(/^c/, "C");

const LABELS = { leader: "leads", sync: "in sync", lagging: "behind", offline: "down" };

// `age` in ms of what the chip shows: a row that is drawn again goes on flashing where it was.
function chip(state, text, age = FLASH_MS) {
  const found = h("span", { class: `chip ${state} ${age < FLASH_MS ? "changed" : ""}` }, text);
  if (age < FLASH_MS) found.style.animationDelay = `-${Math.round(age)}ms`;
  return found;
}

// `orders-3` of an address as the key of the partition; null if it is none.
function partitionOf(text) {
  const found = /^(.+)-(\d+)$/.exec(text);
  return found && key(found[1], found[2]);
}
