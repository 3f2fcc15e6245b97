// Building blocks of the page. Text is always a text node: what comes from a cluster is data, never markup.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("aria-")) element.setAttribute(name, String(value));
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value" || name === "checked" || name === "disabled" || name === "open") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, props = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props)) element.setAttribute(name, String(value));
  append(element, children);
  return element;
}

export const count = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en"));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 ? count(Math.round(value)) : value.toFixed(value > 0 && value < 10 ? 1 : 0);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

export function milliseconds(value) {
  return `${value >= 100 ? count(Math.round(value)) : value.toFixed(value < 10 ? 1 : 0)} ms`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

// Times are those of the person at the screen, everywhere on the page.
export function moment(ms) {
  return ms < 0 ? "no time" : localTime(ms).replace("T", " ");
}

export function localTime(ms) {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 23);
}

// Commands in `backquotes` are set as code.
export const withCode = (text) => String(text).split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));

export const problem = (error) => h("div", { class: "error", role: "alert" }, withCode(error.message ?? error));

export function pill(text, kind = "plain") {
  return h("span", { class: `pill ${kind}` }, text);
}

export const waiting = (text = "Asking the cluster…") => h("p", { class: "quiet", role: "status" }, text);

export function toast(text, kind = "good") {
  const note = h("div", { class: kind }, text);
  document.getElementById("toast").append(note);
  setTimeout(() => note.remove(), kind === "bad" ? 9000 : 4500);
}

// A list of any length: only the rows that are seen exist.
export class VirtualRows {
  constructor(scroller, rowHeight, render, headHeight = 0) {
    this.scroller = scroller;
    this.rowHeight = rowHeight;
    this.render = render;
    this.headHeight = headHeight;
    this.items = [];
    this.shown = new Map();
    this.space = h("div", { class: "space" });
    this.space.style.position = "relative";
    scroller.append(this.space);
    scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(scroller);
  }

  set(items) {
    this.items = items;
    this.space.style.height = `${items.length * this.rowHeight}px`;
    this.clear();
    this.draw();
  }

  clear() {
    for (const row of this.shown.values()) row.remove();
    this.shown.clear();
  }

  redraw(index) {
    const row = this.shown.get(index);
    if (!row) return;
    const fresh = this.row(index);
    row.replaceWith(fresh);
    this.shown.set(index, fresh);
  }

  row(index) {
    const row = this.render(this.items[index], index);
    row.style.top = `${index * this.rowHeight}px`;
    return row;
  }

  draw() {
    const first = Math.max(0, Math.floor((this.scroller.scrollTop - this.headHeight) / this.rowHeight) - 8);
    const last = Math.min(this.items.length, first + Math.ceil(this.scroller.clientHeight / this.rowHeight) + 16);
    for (const [index, row] of this.shown) {
      if (index < first || index >= last) { row.remove(); this.shown.delete(index); }
    }
    for (let index = first; index < last; index += 1) {
      if (!this.shown.has(index)) {
        const row = this.row(index);
        this.shown.set(index, row);
        this.space.append(row);
      }
    }
  }
}

// A table of which at most `limit` rows are drawn, with a button for more.
export function table(columns, rows, { onrow, limit = 300, empty = "Nothing here." } = {}) {
  if (!rows.length) return h("div", { class: "card empty" }, withCode(empty));
  const kind = (column) => [column.number && "number", column.minor && "minor"].filter(Boolean).join(" ") || undefined;
  const body = h("tbody");
  const draw = (from, to) => {
    for (const row of rows.slice(from, to)) {
      const open = onrow ? () => onrow(row) : undefined;
      body.append(h("tr", {
        class: onrow ? "link" : undefined, onclick: open, tabindex: onrow ? 0 : undefined,
        onkeydown: onrow ? (event) => event.key === "Enter" && event.target === event.currentTarget && open() : undefined,
      }, columns.map((column) => h("td", { class: kind(column) }, column.cell(row)))));
    }
  };
  draw(0, limit);
  const element = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, h("tr", {}, columns.map((column) =>
      h("th", { class: kind(column), scope: "col" }, column.title)))), body));
  if (rows.length > limit) {
    let drawn = limit;
    element.append(h("button", { type: "button", onclick: (event) => {
      draw(drawn, drawn + limit);
      drawn += limit;
      if (drawn >= rows.length) event.target.remove();
    } }, `Show more of ${count(rows.length)}`));
  }
  return element;
}

// Lines of one unit over the same time: `series` is a list of [name, points]; points are [ms, value].
export function lineChart(series, { unit = rate, whole = false } = {}) {
  const lines = series.filter(([, points]) => points.length > 1);
  if (!lines.length) return h("div", { class: "empty" }, "No samples yet: the first come within 15 seconds.");
  const all = lines.flatMap(([, points]) => points);
  const from = Math.min(...lines.map(([, points]) => points[0][0]));
  const to = Math.max(...lines.map(([, points]) => points.at(-1)[0]));
  const highest = all.reduce((top, point) => Math.max(top, point[1]), 0);
  const top = niceTop(highest, whole);
  const x = (ms) => (600 * (ms - from)) / (to - from || 1);
  const y = (value) => 100 - (96 * value) / top;
  const path = (points) => points.map(([ms, value], index) => `${index && ms - points[index - 1][0] < GAP_MS ? "L" : "M"}${x(ms).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const named = lines.map(([name, points]) => `${name ? `${name} ` : ""}${unit(points.at(-1)[1])}`);
  const newest = named.join(", ");
  return h("div", { class: "plot" },
    h("div", { class: "plot-top" }, h("span", { class: "quiet" }, unit(top)), h("b", {}, lines.length === 1 ? newest : named.map((text, index) => h("span", { class: `key line-${index}` }, text)))),
    svg("svg", { class: "chart", viewBox: "0 0 600 104", preserveAspectRatio: "none", role: "img",
      "aria-label": `From ${clock(from)} to ${clock(to)}: newest ${newest}, highest ${unit(highest)}` },
    [4, 52, 100].map((line) => svg("line", { x1: 0, x2: 600, y1: line, y2: line })),
    lines.map(([, points], index) => svg("path", { d: path(points), class: `line-${index}` }))),
    h("div", { class: "plot-foot quiet" }, h("span", {}, clock(from)), h("span", {}, clock(to))));
}

const GAP_MS = 60_000; // without samples for longer than this, the line is broken

// The end of the scale: 1, 2 or 5 times a power of ten.
function niceTop(highest, whole) {
  if (highest <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(highest));
  const found = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= highest);
  return whole ? Math.max(1, found) : found;
}
