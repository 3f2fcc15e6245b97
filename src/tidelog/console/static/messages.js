// Messages of a topic: a page of records, filters, a chart of volume that picks the time, and a live view.

import { about, get, remember } from "./api.js";
import { append, clock, count, fill, h, localTime, moment, pill, problem, toast } from "./dom.js";

const MAX_SHOWN = 1000;
const HOUR = 3600000;

export function messagesView(body, topic, query, signal) {
  const path = `/api/topics/${encodeURIComponent(topic)}`;
  const fields = {};
  const field = (name, title, value = "") => {
    fields[name] = h("input", { value: query.get(name) ?? value, placeholder: title, "aria-label": title, size: Math.max(8, title.length), onkeydown: (event) => event.key === "Enter" && load() });
    return fields[name];
  };
  const start = h("select", { "aria-label": "Begin at" }, [["latest", "latest"], ["earliest", "earliest"], ["offset", "offset"], ["time", "time"]].map(([value, title]) => h("option", { value }, title)));
  start.value = query.get("from") ?? "latest";
  if (!start.value) start.value = "latest"; // of an address that somebody has typed
  const showField = () => {
    fields.at.hidden = !["offset", "time"].includes(start.value);
    fields.at.type = start.value === "time" ? "datetime-local" : "text";
    fields.at.step = 1;
    fields.at.setAttribute("aria-label", start.value);
  };
  const showTime = (ms) => { start.value = "time"; showField(); fields.at.value = localTime(ms).slice(0, 19); };
  start.addEventListener("change", showField);
  const list = h("div");
  const note = h("span", { class: "quiet", role: "status" });
  const bars = h("div", { class: "bars" });
  const barsFoot = h("div", { class: "plot-foot quiet" });
  const spans = [[HOUR, "1 h"], [24 * HOUR, "24 h"], [7 * 24 * HOUR, "7 days"]].map(([span, title]) => [span, h("button", { type: "button", onclick: () => loadVolume(span) }, title)]);
  const more = h("button", { type: "button", onclick: () => load(true) }, "More");
  const format = h("select", { "aria-label": "Format of the download" }, [["jsonl", "JSON lines"], ["csv", "CSV"], ["parquet", "Parquet"]].map(([value, title]) => h("option", { value }, title)));
  const live = h("button", { type: "button", "aria-pressed": false, onclick: toggleLive }, "Live");
  let cursor = null;
  let source = null;
  let asking = 0; // the newest question: answers to earlier ones come too late

  body.append(
    h("div", { class: "card" }, h("div", { class: "bar quiet" }, h("span", {}, "Records by time: click on a bar to read from there"), h("span", { class: "grow" }), spans.map(([, button]) => button)), bars, barsFoot),
    h("div", { class: "bar" }, h("label", {}, "from", start), field("at", "offset"), field("partitions", "partitions"), field("key", "key contains"), field("value", "value contains"), field("header", "header contains"), field("path", "JSON path=value"),
      h("button", { type: "button", class: "primary", onclick: () => load() }, "Read"), live, format, h("button", { type: "button", onclick: download }, "Download"), note),
    h("div", { class: "card messages" }, h("div", { class: "message-head", "aria-hidden": "true" }, ["part.", "offset", "time", "key", "value"].map((each) => h("span", {}, each))), list), h("div", { class: "bar" }, more));

  function asked() {
    const at = fields.at.value.trim();
    let from = start.value;
    if (from === "offset") {
      if (!/^\d+$/.test(at)) throw new Error("Give an offset: a number such as 0.");
      from = at;
    }
    if (from === "time") {
      if (Number.isNaN(Date.parse(at))) throw new Error("Give a time, such as 2026-01-31T12:00.");
      from = `@${Date.parse(at)}`;
    }
    return { start: from, ...filters(), limit: 100 };
  }

  const filters = () => ({ partitions: fields.partitions.value, key: fields.key.value, value: fields.value.value, header: fields.header.value, path: fields.path.value });

  function share() { // the time of a colleague may be another: it is sent in UTC
    const at = start.value === "time" && fields.at.value ? new Date(fields.at.value).toISOString() : fields.at.hidden ? "" : fields.at.value;
    const filters = Object.fromEntries(Object.entries(fields).map(([name, input]) => [name, input.value]));
    remember(`topic/${encodeURIComponent(topic)}/messages`, { from: start.value, ...filters, at });
  }

  async function load(further = false) {
    stopLive();
    const number = ++asking;
    note.textContent = "reading…";
    try {
      const wanted = asked();
      share();
      const page = await get(`${path}/messages`, { ...wanted, cursor: further && cursor ? cursor : undefined });
      if (signal.aborted || number !== asking) return;
      cursor = Object.entries(page.next_offsets).map(([number, offset]) => `${number}:${offset}`).join(",");
      if (!further) list.replaceChildren();
      show(start.value === "latest" && !further ? page.records.reverse() : page.records, false);
      note.textContent = `${count(page.records.length)} shown, ${count(page.scanned)} looked at${page.is_at_end ? ", at the end" : ""}`;
      more.hidden = page.is_at_end;
    } catch (error) {
      if (number !== asking) return;
      note.textContent = "";
      more.hidden = true;
      fill(list, problem(error));
    }
  }

  function show(records, onTop) {
    list.querySelector(".empty")?.remove();
    for (const record of records) onTop ? list.prepend(line(record)) : list.append(line(record));
    while (list.children.length > MAX_SHOWN) (onTop ? list.lastChild : list.firstChild).remove();
    if (!list.children.length) list.append(h("div", { class: "empty" }, Object.values(filters()).some(Boolean) ? "No record matches." : "No records here."));
  }

  function toggleLive() {
    if (source) { stopLive(); return; }
    asking += 1;
    more.hidden = true;
    live.setAttribute("aria-pressed", true);
    list.replaceChildren();
    note.textContent = "connecting…";
    const params = new URLSearchParams(Object.entries({ ...filters(), limit: 100 }).filter(([, value]) => value !== ""));
    source = new EventSource(`${path}/tail?${params}`);
    source.addEventListener("records", (message) => {
      const records = JSON.parse(message.data);
      if (records.length) { show(records, true); note.textContent = `live, newest at ${clock(Date.now())}`; }
      else if (!list.children.length) note.textContent = "waiting for new records…"; // from here on none is missed
    });
    source.addEventListener("failed", (message) => { note.textContent = JSON.parse(message.data); });
  }

  function stopLive() {
    source?.close();
    source = null;
    live.setAttribute("aria-pressed", false);
  }

  function download() {
    if (format.value === "parquet" && about.parquet) { toast(about.parquet, "bad"); return; }
    let wanted;
    try { wanted = asked(); } catch (error) { toast(error.message, "bad"); return; }
    const params = new URLSearchParams(Object.entries({ ...wanted, format: format.value }).filter(([, value]) => value !== ""));
    h("a", { href: `${path}/download?${params}`, download: "" }).click();
  }

  async function loadVolume(span) {
    const until = Date.now();
    const since = until - span;
    for (const [each, button] of spans) button.setAttribute("aria-pressed", each === span);
    try {
      const found = await get(`${path}/volume`, { since, until });
      const top = Math.max(1, ...found.map((each) => each[1]));
      fill(bars, found.map(([ms, records]) => {
        const bar = h("span");
        bar.style.height = `${Math.round((60 * records) / top)}px`;
        return h("button", { type: "button", title: `${moment(ms)}: ${count(records)} records`, "aria-label": `${moment(ms)}: ${count(records)} records`, onclick: () => { showTime(ms); load(); } }, bar); // as high as the chart: also an interval with few records is easily hit
      }));
      fill(barsFoot, h("span", {}, moment(since).slice(0, 16)), h("span", {}, `${count(found.reduce((all, each) => all + each[1], 0))} records, at most ${count(Math.max(0, ...found.map((each) => each[1])))} in a bar`), h("span", {}, "now"));
    } catch (error) { fill(bars, h("span", { class: "quiet" }, error.message)); }
  }

  signal.addEventListener("abort", stopLive);
  showField();
  if (start.value === "time" && !Number.isNaN(Date.parse(fields.at.value || query.get("at")))) showTime(Date.parse(query.get("at")));
  load();
  loadVolume(HOUR);
}

function line(record) {
  const state = record.marker ? pill(`${record.marker} marker`, "plain") : record.error ? pill("unreadable", "bad")
    : record.transaction === "aborted" ? pill("aborted", "bad") : record.transaction === "open" ? pill("open transaction", "warn") : null;
  const details = h("details", { class: "message" }, h("summary", {},
    h("span", { class: "mono quiet" }, record.partition), h("span", { class: "mono" }, record.offset), h("span", { class: "mono quiet" }, moment(record.timestamp)),
    h("span", { class: "mono" }, record.key ? record.key.text : h("i", { class: "quiet" }, "no key")),
    h("span", { class: "mono" }, state, state ? " " : "", record.marker || record.error ? record.error ?? "" : record.value ? record.value.text : h("i", { class: "quiet" }, "null"))));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    append(details, [h("div", { class: "quiet" }, `offset ${record.offset}, partition ${record.partition}, ${moment(record.timestamp)}${record.producer_id === null ? "" : `, producer ${record.producer_id}`}${record.transaction ? `, transaction ${record.transaction}` : ""}`),
      payload("key", record.key), payload("value", record.value), record.headers.map(([name, value]) => payload(`header ${name}`, value)),
      record.more_headers ? h("div", { class: "quiet" }, `${count(record.more_headers)} more headers: the download has all of them`) : null]);
  });
  return details;
}

function payload(title, found) {
  if (!found) return h("div", { class: "quiet" }, `${title}: null`);
  let text = found.text;
  if (!["text", "hex"].includes(found.format)) { try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* shown as it is */ } }
  return h("div", {}, h("span", { class: "quiet" }, `${title} (${found.format}, ${count(found.size)} bytes${found.cut ? ", cut: the download has all of it" : ""})`),
    found.problem ? h("div", { class: "error" }, `Not decoded: ${found.problem}`) : null, h("pre", { class: "mono" }, text));
}
