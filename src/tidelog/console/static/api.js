// Requests to the console's own server, and the state of the cluster from its stream of events.

import { h, toast } from "./dom.js";

export const about = { manage: false, local: false, login: false, user: null, title: "", change_header: "x-tidelog-console" };

async function answerOf(response) {
  const text = await response.text();
  let answer;
  try { answer = JSON.parse(text); } catch { answer = { error: text || `the console answered ${response.status}` }; }
  if (response.ok) return answer;
  if (response.status === 401 && about.user) location.reload(); // the session is over: the page asks for a login
  throw Object.assign(new Error(answer.error ?? `the console answered ${response.status}`), { status: response.status });
}

async function reach(path, options) {
  try { return await fetch(path, options); } catch { throw new Error("The console does not answer. Is `tidelog console` still running?"); }
}

export async function get(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const each of Array.isArray(value) ? value : [value]) if (each !== undefined && each !== "") query.append(name, each);
  }
  return answerOf(await reach(query.size ? `${path}?${query}` : path));
}

export async function post(path, wanted) {
  return answerOf(await reach(path, {
    method: "POST", headers: { "content-type": "application/json", [about.change_header]: "1" }, body: JSON.stringify(wanted),
  }));
}

// In a dialog, which shows the error itself.
export async function carryOut(name, wanted) {
  const answer = await post(`/api/changes/${name}`, wanted);
  toast(answer.done);
  return answer;
}

export async function change(name, wanted) {
  try { return await carryOut(name, wanted); } catch (error) { toast(error.message, "bad"); throw error; }
}

// The address of what is seen, for a colleague. It makes no entry in the history.
export function remember(view, fields) {
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value).map(([name, value]) => [name, value === true ? "1" : value]));
  history.replaceState(null, "", `#/${view}${query.size ? `?${query}` : ""}`);
}

export const key = (topic, partition) => `${topic}\n${partition}`;

// Replicas to flash, and since when: a new leader, those that left or joined the in-sync replicas, and those that a move added. One that changed shortly before goes on flashing when another does.
function changedReplicas(old, now) {
  const found = new Map(old.changed);
  const at = performance.now();
  for (const each of now.replicas) if (old.sync.includes(each) !== now.sync.includes(each) || !old.replicas.includes(each)) found.set(each, at);
  if (old.leader !== now.leader && now.leader !== null) found.set(now.leader, at);
  return found;
}

class Cluster extends EventTarget {
  id = null;
  controller = null;
  brokers = [];
  partitions = new Map();
  events = [];
  error = null;
  connected = false;
  loaded = false;

  connect() {
    const source = new EventSource("/api/stream");
    source.addEventListener("open", () => this.#state({ connected: true }));
    source.addEventListener("error", () => {
      this.#state({ connected: false });
      if (source.readyState !== EventSource.CLOSED) return; // the browser connects again by itself
      setTimeout(() => get("/api/about").then((found) => (found.login && !found.user ? location.reload() : this.connect())).catch(() => this.connect()), 2000);
    });
    source.addEventListener("cluster", (message) => {
      const data = JSON.parse(message.data);
      this.partitions = new Map();
      this.events = [];
      this.loaded = true;
      this.#take(data, false);
      this.#state({ error: data.error });
      this.dispatchEvent(new CustomEvent("all"));
    });
    source.addEventListener("change", (message) => {
      const data = JSON.parse(message.data);
      const isGrown = this.#take(data, true);
      this.dispatchEvent(new CustomEvent(isGrown ? "all" : "change", { detail: data.partitions.map((each) => key(each[0], each[1])) }));
      this.#state({});
    });
    source.addEventListener("events", (message) => {
      this.events.push(...JSON.parse(message.data));
      this.events = this.events.slice(-5000);
      this.dispatchEvent(new CustomEvent("events"));
    });
    source.addEventListener("reachable", (message) => this.#state({ error: JSON.parse(message.data).error }));
    source.addEventListener("sample", (message) => this.dispatchEvent(new CustomEvent("sample", { detail: JSON.parse(message.data) })));
  }

  #state(fields) {
    Object.assign(this, fields);
    this.dispatchEvent(new CustomEvent("state"));
  }

  #take(data, isDifference) {
    const before = this.partitions.size;
    const brokers = this.brokers.length;
    this.id = data.cluster_id;
    this.controller = data.controller;
    this.brokers = data.brokers ?? this.brokers;
    for (const [topic, partition, leader, epoch, replicas, sync, internal] of data.partitions) {
      const old = this.partitions.get(key(topic, partition));
      this.partitions.set(key(topic, partition), {
        topic, partition, leader, epoch, replicas, sync, internal,
        changed: isDifference && old ? changedReplicas(old, { leader, replicas, sync }) : new Map(),
      });
    }
    for (const [topic, partition] of data.removed ?? []) this.partitions.delete(key(topic, partition));
    return this.partitions.size !== before || this.brokers.length !== brokers || Boolean(data.removed?.length);
  }

  get counts() {
    const counts = { topics: new Set(), partitions: 0, leaderless: 0, under: 0, moved: 0 };
    for (const each of this.partitions.values()) {
      counts.topics.add(each.topic);
      counts.partitions += 1;
      counts.leaderless += each.leader === null;
      counts.under += each.sync.length < each.replicas.length;
      counts.moved += each.leader !== null && each.leader !== each.replicas[0];
    }
    return { ...counts, topics: counts.topics.size, down: this.brokers.filter((each) => !each.up).length };
  }
}

export const cluster = new Cluster();

const STARS = "tidelog.favourites";
export const favourites = new Set(JSON.parse(localStorage.getItem(STARS) ?? "[]"));

export function toggleFavourite(name) {
  if (!favourites.delete(name)) favourites.add(name);
  localStorage.setItem(STARS, JSON.stringify([...favourites]));
}

export const groupStar = (group) => `group:${group}`; // no topic has a colon in its name

export function star(name, title, redraw) {
  return h("button", { class: "bare star", type: "button", "aria-label": `Favourite ${title}`, "aria-pressed": favourites.has(name),
    onclick: (event) => { event.stopPropagation(); toggleFavourite(name); redraw(); } }, favourites.has(name) ? "★" : "☆");
}

// Focus mode: the cluster, topics and groups show favourites only, until it is switched off.
const FOCUS = "tidelog.focus";
export const focus = { on: localStorage.getItem(FOCUS) === "on" };
export const inFocus = (name) => !focus.on || favourites.has(name);
export const NO_FAVOURITES = "Focus mode shows favourites only, and there are none. ☆ in the lists of topics and groups marks one.";

export function focusButton(redraw) {
  return h("button", { type: "button", "aria-pressed": focus.on, title: "Show favourites only, here and in the other lists", onclick: (event) => {
    focus.on = !focus.on;
    localStorage.setItem(FOCUS, focus.on ? "on" : "off");
    event.target.setAttribute("aria-pressed", focus.on);
    redraw();
  } }, "★ Focus");
}
