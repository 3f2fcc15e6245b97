// Groups: lag in records and in seconds with its trend, members, and offsets that can be reset after a preview.

import { about, change, focus, focusButton, get, groupStar, inFocus, NO_FAVOURITES, remember, star } from "./api.js";
import { count, duration, fill, h, lineChart, pill, problem, table, waiting } from "./dom.js";

const TRENDS = { growing: ["↑ growing", "bad"], shrinking: ["↓ shrinking", "good"], steady: ["→ steady", "plain"] };
const trend = (name) => (name ? pill(...TRENDS[name]) : h("span", { class: "quiet" }, "–"));
const INTERVAL = 5000;

export function groupsView(main, { query, signal }) {
  let groups = [];
  let lags = {};
  const list = h("div", {}, waiting());
  const box = h("input", { type: "search", placeholder: "Filter groups  ( / )", "aria-label": "Filter groups", value: query.get("filter") ?? "", oninput: () => { remember("groups", { filter: box.value }); draw(); loadLags(); } });
  main.append(h("h1", {}, "Groups"), h("div", { class: "bar" }, box, focusButton(() => { draw(); loadLags(); })), list);
  const shown = () => groups.filter((each) => inFocus(groupStar(each.id)) && each.id.toLowerCase().includes(box.value.toLowerCase()));

  function draw() {
    fill(list, table([
      { title: "", cell: (each) => star(groupStar(each.id), each.id, draw) },
      { title: "group", cell: (each) => h("a", { href: `#/group/${encodeURIComponent(each.id)}` }, each.id) },
      { title: "protocol", minor: true, cell: (each) => each.kind || "–" },
      { title: "state", minor: true, cell: (each) => pill(each.state, each.state === "Stable" ? "good" : each.state === "Empty" ? "plain" : "warn") },
      { title: "coordinator", number: true, minor: true, cell: (each) => each.coordinator },
      { title: "records behind", number: true, cell: (each) => count(lags[each.id]?.lag) },
      { title: "trend", cell: (each) => trend(lags[each.id]?.trend) },
    ], shown(), { onrow: (each) => { location.hash = `#/group/${encodeURIComponent(each.id)}`; }, empty: !groups.length ? "No groups yet." : focus.on ? `No group matches. ${NO_FAVOURITES}` : "No group matches." }));
  }

  async function loadLags() {
    const ids = shown().slice(0, 50).map((each) => each.id);
    if (!ids.length) return;
    try { lags = { ...lags, ...(await get("/api/groups/lag", { group: ids })) }; if (!signal.aborted) draw(); } catch { /* the next round tries again */ }
  }

  async function load() {
    try { groups = await get("/api/groups"); if (!signal.aborted) { draw(); await loadLags(); } } catch (error) { fill(list, problem(error)); }
  }
  load();
  const timer = setInterval(() => document.hidden || load(), INTERVAL);
  signal.addEventListener("abort", () => clearInterval(timer));
}

export function groupView(main, { args: [id], signal }) {
  const body = h("div", {}, waiting());
  main.append(h("h1", {}, id), body);
  let members = 0;
  if (about.manage) main.append(h("h2", {}, "Reset offsets"), resetForm(id, load, () => members));

  async function load() {
    try {
      const found = await get(`/api/groups/${encodeURIComponent(id)}`);
      if (signal.aborted) return;
      members = found.members.length;
      const known = found.partitions.filter((each) => each.seconds !== null);
      const seconds = known.length ? Math.max(...known.map((each) => each.seconds)) : null;
      fill(body, h("div", { class: "figures" },
        [[found.state, "state"], [count(found.lag), "records behind"], [duration(seconds), "time behind"], [found.members.length, "members"], [`${found.kind}${found.assignor ? `, ${found.assignor}` : ""}`, "protocol"]]
          .map(([value, title]) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, title))), h("div", { class: "figure" }, h("b", {}, trend(found.trend)), h("span", {}, "trend of the lag"))),
        h("div", { class: "card" }, h("h2", {}, "Records behind"), found.lag === null ? h("div", { class: "empty" }, "The group has committed nothing, so its lag is not known.") : lineChart([["", found.history]], { unit: (value) => count(Math.round(value)), whole: true })),
        h("h2", {}, "Partitions"), table([
          { title: "topic", cell: (each) => h("a", { href: `#/topic/${encodeURIComponent(each.topic)}` }, each.topic) },
          { title: "partition", cell: (each) => each.partition },
          { title: "committed", number: true, minor: true, cell: (each) => count(each.committed) },
          { title: "end", number: true, minor: true, cell: (each) => count(each.end) },
          { title: "records behind", number: true, cell: (each) => count(each.lag) },
          { title: "time behind", number: true, cell: (each) => duration(each.seconds) },
          { title: "member", minor: true, cell: (each) => each.member ?? h("span", { class: "quiet" }, "nobody") },
        ], found.partitions, { empty: "No partition is committed or assigned." }),
        h("h2", {}, "Members"), table([
          { title: "member", cell: (each) => each.instance ?? each.id }, { title: "client", cell: (each) => each.client }, { title: "host", cell: (each) => each.host },
          { title: "partitions", number: true, cell: (each) => each.partitions },
        ], found.members, { empty: "No members." }));
    } catch (error) { fill(body, problem(error)); }
  }
  load();
  const timer = setInterval(() => document.hidden || load(), INTERVAL);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function resetForm(id, reload, members) {
  const target = h("select", { "aria-label": "Reset to" }, ["earliest", "latest", "offset", "time", "shift by"].map((each) => h("option", {}, each)));
  const at = h("input", { placeholder: "offset, ISO time or shift", "aria-label": "Offset, time or shift", onkeydown: (event) => event.key === "Enter" && preview() });
  const result = h("div");
  const showField = () => {
    at.hidden = ["earliest", "latest"].includes(target.value);
    at.type = target.value === "time" ? "datetime-local" : "text";
    at.placeholder = target.value === "shift by" ? "-100" : "offset";
    fill(result);
  };
  target.addEventListener("change", showField);
  showField();
  const wanted = () => {
    const text = at.value.trim();
    if (target.value === "time") {
      if (Number.isNaN(Date.parse(text))) throw new Error("Give a time, such as 2026-01-31T12:00.");
      return `@${Date.parse(text)}`;
    }
    if (target.value === "shift by") return /^[+-]/.test(text) ? text : `+${text}`;
    return target.value === "offset" ? text || "none" : target.value;
  };
  async function preview() {
    try {
      const rows = await get(`/api/groups/${encodeURIComponent(id)}`, { reset_to: wanted() });
      fill(result, table([
        { title: "topic", cell: (each) => each.topic }, { title: "partition", number: true, cell: (each) => each.partition },
        { title: "committed", number: true, cell: (each) => count(each.committed) }, { title: "new", number: true, cell: (each) => count(each.new) },
        { title: "moves by", number: true, cell: (each) => count(each.new - each.committed) },
      ], rows, { empty: "The group has committed nothing." }),
      rows.length && members() ? h("p", { class: "quiet" }, `The group has ${members()} ${members() === 1 ? "member" : "members"}: stop its consumers before the reset.`) : null,
      rows.length ? h("button", { type: "button", class: "danger below", onclick: () => change("reset-offsets", { group: id, to: wanted() }).then(() => { result.replaceChildren(); reload(); }).catch(() => {}) }, "Reset the offsets") : null);
    } catch (error) { fill(result, problem(error)); }
  }
  return h("div", { class: "card" }, h("div", { class: "bar" }, h("span", {}, "to"), target, at, h("button", { type: "button", onclick: preview }, "Preview")), result);
}
