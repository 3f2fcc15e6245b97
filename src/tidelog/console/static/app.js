// The page: navigation, the state of the connection, and one view at a time.

import { about, cluster, get } from "./api.js";
import { fill, h, problem } from "./dom.js";
import { accessView } from "./access.js";
import { brokersView, brokerView } from "./brokers.js";
import { chartsView } from "./charts.js";
import { clusterView } from "./cluster.js";
import { groupsView, groupView } from "./groups.js";
import { loginView, logoutButton } from "./login.js";
import { pipelinesView } from "./pipelines.js";
import { topicsView, topicView } from "./topics.js";
import { transactionsView } from "./transactions.js";

const VIEWS = [
  ["cluster", "Cluster", clusterView],
  ["topics", "Topics", topicsView],
  ["topic", null, topicView],
  ["groups", "Groups", groupsView],
  ["group", null, groupView],
  ["transactions", "Transactions", transactionsView],
  ["pipelines", "Pipelines", pipelinesView],
  ["brokers", "Brokers", brokersView],
  ["broker", null, brokerView],
  ["access", "Access", accessView],
  ["charts", "Charts", chartsView],
];
const PARENTS = { topic: "topics", group: "groups", broker: "brokers" };

let leave = null;

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decodeURIComponent);
  const found = VIEWS.find((each) => each[0] === name) ?? VIEWS[0];
  leave?.();
  const main = document.getElementById("main");
  main.replaceChildren();
  const controller = new AbortController();
  leave = () => controller.abort();
  fill(document.getElementById("nav"), VIEWS.filter((each) => each[1]).map(([id, title]) =>
    h("a", { href: `#/${id}`, "aria-current": id === (PARENTS[found[0]] ?? found[0]) ? "page" : undefined }, title)));
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  document.title = `${found[1] ?? rest[0] ?? ""} · Tidelog console`;
  found[2](main, { args: rest, query: new URLSearchParams(query), signal: controller.signal });
}

function showState() {
  const status = document.getElementById("status");
  const { leaderless, under, down } = cluster.counts;
  const problem = !cluster.connected ? ["the console does not answer", "bad"]
    : cluster.error ? [`no broker answers`, "bad"]
    : !cluster.loaded ? ["connecting", "warn"]
    : leaderless ? [`${leaderless} without a leader`, "bad"]
    : down ? [`${down} ${down === 1 ? "broker" : "brokers"} down`, "bad"]
    : under ? [`${under} under-replicated`, "warn"]
    : ["healthy", "good"];
  status.textContent = problem[0];
  status.className = `pill ${problem[1]}`;
  status.title = cluster.error ?? "";
}

function chooseTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("tidelog.theme", theme);
}

const stored = localStorage.getItem("tidelog.theme");
chooseTheme(stored ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () =>
  chooseTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

function onKey(event) {
  if (event.target.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { const box = document.querySelector("input[type=search]"); if (box) { event.preventDefault(); box.focus(); } }
  const number = "123456789".indexOf(event.key);
  if (number >= 0) location.hash = `#/${VIEWS.filter((each) => each[1])[number][0]}`;
}


async function start() {
  const main = document.getElementById("main");
  try {
    Object.assign(about, await get("/api/about"));
  } catch (error) {
    fill(main, problem(error));
    document.getElementById("status").remove();
    return;
  }
  if (about.login && !about.user) {
    document.getElementById("status").remove();
    loginView(main);
    return;
  }
  if (about.user) document.getElementById("theme").before(logoutButton());
  cluster.addEventListener("state", showState);
  cluster.addEventListener("all", showState);
  addEventListener("hashchange", route);
  document.addEventListener("keydown", onKey);
  cluster.connect();
  route();
}

start();
