"use strict";
// Shows the stream of /events. Every text is set as text, never as markup.
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const POINTS = 120;
const CLASSES = { ready: "good", opening: "busy", handshaking: "busy", draining: "warn", closing: "warn", waiting: "warn", parked: "bad" };
const servers = new Map();
let order = { key: "id", down: false };
let only = null;
let canRestart = false;
let token = "";
let asked = null;

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const COLUMNS = [
  ["Server", "name", ""], ["State", "state", ""], ["Epoch", "epoch", "number"], ["Up", "uptime", "number"], ["Failures", "failures", "number"],
  ["Next attempt", "next", "number"], ["In flight", "in_flight", "number"], ["Calls/s", "rate", ""], ["Latency p50", "latency", ""],
];

function makeHeads() {
  for (const [title, key, kind] of COLUMNS) {
    const button = make("button", { type: "button", onclick: () => sortBy(key) }, title);
    byId("heads").append(make("th", { scope: "col", class: kind, "data-key": key }, button));
  }
  byId("heads").append(make("th", { scope: "col", id: "actions" }, make("span", { class: "hidden" }, "Actions")));
}

function sortBy(key) {
  order = order.key === key ? (order.down ? { key: "id", down: false } : { key, down: true }) : { key, down: false };
  for (const head of byId("heads").children) {
    if (head.dataset.key === order.key) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  arrange();
}

const sortValue = {
  id: (s) => s.data.id, name: (s) => nameOf(s.data).toLowerCase(), state: (s) => shownState(s.data), epoch: (s) => s.data.epoch,
  uptime: (s) => s.data.uptime ?? -1, failures: (s) => s.data.failures, next: (s) => s.data.next_attempt ?? Infinity,
  in_flight: (s) => s.data.in_flight, rate: (s) => last(s)?.[0] ?? 0, latency: (s) => last(s)?.[1] ?? -1,
};
const last = (server) => server.history[server.history.length - 1];
const nameOf = (data) => data.name || "server " + data.id;
const shownState = (data) => (data.silent && data.state === "ready" ? "silent" : data.state);
const classOf = (state) => (state === "silent" ? "warn" : CLASSES[state] || "");

function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return seconds.toFixed(1) + " s";
  if (seconds < 100) return Math.round(seconds) + " s";
  const [d, h, m] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  return d ? d + " d " + h + " h" : h ? h + " h " + m + " min" : m + " min " + Math.floor(seconds % 60) + " s";
}

function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 10 ? value.toFixed(1) + " ms" : value < 1000 ? Math.round(value) + " ms" : (value / 1000).toFixed(1) + " s";
}

function makePlot(width, height, lines) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of [["viewBox", "0 0 " + width + " " + height], ["width", width], ["height", height], ["role", "img"], ["preserveAspectRatio", "none"]]) svg.setAttribute(name, value);
  const paths = ["area", ...lines].map((name) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", name);
    svg.append(path);
    return path;
  });
  return { svg, paths, width, height };
}

// Draws rows of values; a missing value is a gap. The area is below the first row.
function draw(plot, rows, top, label) {
  const step = plot.width / (POINTS - 1);
  const y = (value) => (plot.height - 1 - (value / top) * (plot.height - 3)).toFixed(1);
  rows.forEach((row, index) => {
    let line = "", area = "", start = null, end = null;
    row.forEach((value, at) => {
      const x = ((POINTS - row.length + at) * step).toFixed(1);
      if (value === null || value === undefined) { end = null; return; }
      line += (end === null ? "M" : "L") + x + " " + y(value);
      if (end === null) area += (start === null ? "" : "V" + plot.height + "Z") + "M" + x + " " + plot.height;
      area += "L" + x + " " + y(value);
      start = start ?? x;
      end = x;
      // A single value between gaps is a dot.
      if (row[at + 1] === null && (at === 0 || row[at - 1] === null)) line += "h.1";
    });
    plot.paths[index + 1].setAttribute("d", line);
    if (index === 0) plot.paths[0].setAttribute("d", rows.length === 1 && area ? area + "V" + plot.height + "Z" : "");
  });
  plot.svg.setAttribute("aria-label", label);
}

const greatest = (values, least) => values.reduce((most, value) => Math.max(most, value ?? 0), least);

function makeServer(data) {
  const server = { data, history: [], at: 0, isOpen: false, cells: {}, rate: makePlot(96, 22, ["one"]), latency: makePlot(96, 22, ["one"]) };
  const cells = server.cells;
  cells.name = make("strong");
  cells.version = make("small");
  cells.toggle = make("button", { type: "button", "aria-expanded": "false", onclick: () => setOpen(server, !server.isOpen) }, cells.name, cells.version);
  cells.state = make("span", { class: "state" });
  for (const name of ["epoch", "uptime", "failures", "next", "in_flight"]) cells[name] = make("td", { class: "number" });
  cells.rate = make("output");
  cells.latency = make("output");
  cells.restart = make("button", { type: "button", class: "restart", onclick: () => ask(server) }, "Restart");
  server.row = make("tr", {}, make("th", { scope: "row", class: "name" }, cells.toggle), make("td", {}, cells.state), cells.epoch, cells.uptime, cells.failures,
    cells.next, cells.in_flight, make("td", {}, make("span", { class: "plot" }, server.rate.svg, cells.rate)),
    make("td", {}, make("span", { class: "plot" }, server.latency.svg, cells.latency)), make("td", { class: "number" }, cells.restart));
  server.body = make("tbody", { class: "row", "data-id": data.id }, server.row);
  return server;
}

function makeDetail(server) {
  const chart = (lines) => {
    const plot = makePlot(400, 132, lines);
    plot.svg.setAttribute("width", "100%");
    plot.top = make("span", { class: "top" });
    plot.box = make("div", { class: "chart" }, plot.top, plot.svg);
    return plot;
  };
  const axis = () => make("div", { class: "axis", "aria-hidden": "true" }, make("span", {}, "2 minutes ago"), make("span", {}, "now"));
  server.bigRate = chart(["one"]);
  server.bigLatency = chart(["one", "two"]);
  server.facts = make("dl");
  server.list = make("ol");
  const keys = make("span", {}, make("span", { class: "key" }, "p50"), " ", make("span", { class: "key two" }, "p99"));
  const panes = make("div", { class: "panes" },
    make("section", { class: "pane" }, make("h3", {}, "Calls per second"), server.bigRate.box, axis()),
    make("section", { class: "pane" }, make("h3", {}, "Time of a call", keys), server.bigLatency.box, axis()),
    make("section", { class: "pane facts" }, make("h3", {}, "Since the guard started"), server.facts),
    make("section", { class: "pane failures" }, make("h3", {}, "Last failures"), server.list));
  server.detail = make("tr", { class: "detail" }, make("td", { colspan: COLUMNS.length + 1 }, panes));
  server.body.append(server.detail);
}

function setOpen(server, isOpen) {
  server.isOpen = isOpen;
  server.cells.toggle.setAttribute("aria-expanded", String(isOpen));
  if (isOpen && !server.detail) makeDetail(server);
  if (server.detail) server.detail.hidden = !isOpen;
  if (isOpen) showDetail(server);
}

function show(server) {
  const { data, cells } = server;
  const name = nameOf(data), state = shownState(data);
  setText(cells.name, name);
  setText(cells.version, [data.version, data.protocol].filter(Boolean).join(" · "));
  setText(cells.state, state);
  cells.state.className = "state " + classOf(state);
  setText(cells.epoch, String(data.epoch));
  setText(cells.failures, data.failures ? data.failures + (data.budget ? " of " + data.budget : "") : "0");
  cells.failures.classList.toggle("has-failures", data.failures > 0);
  setText(cells.in_flight, String(data.in_flight));
  cells.restart.hidden = !canRestart;
  cells.restart.setAttribute("aria-label", "Restart " + name);
  const now = last(server) || [0, null, null];
  setText(cells.rate, now[0] ? now[0].toFixed(now[0] < 10 ? 1 : 0) : "0");
  setText(cells.latency, milliseconds(now[1]));
  if (server.isVisible) drawSmall(server);
  showTimes(server);
  if (server.isOpen) showDetail(server);
}

// Only rows on the screen are drawn, so that 200 servers cost no more than 20.
const visibility = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const server = servers.get(Number(entry.target.parentElement?.dataset.id));
    if (!server) continue;
    server.isVisible = entry.isIntersecting;
    if (server.isVisible) drawSmall(server);
  }
}, { rootMargin: "200px" });

function drawSmall(server) {
  const rates = server.history.map((sample) => sample[0]), medians = server.history.map((sample) => sample[1]);
  const now = last(server) || [0, null, null];
  draw(server.rate, [rates], greatest(rates, 1), "calls per second, now " + now[0] + ", most " + greatest(rates, 0));
  draw(server.latency, [medians], greatest(medians, 1), "median time of a call, now " + milliseconds(now[1]));
}

// Times run on between two updates.
function showTimes(server) {
  const { data, cells } = server, passed = (performance.now() - server.at) / 1000;
  setText(cells.uptime, data.uptime === null ? "–" : span(data.uptime + passed));
  setText(cells.next, data.next_attempt === null ? "–" : "in " + span(Math.max(0, data.next_attempt - passed)));
  if (server.isOpen && server.list) {
    for (const item of server.list.children) if (item.firstChild.dateTime) setText(item.firstChild, span(Number(item.dataset.ago) + passed) + " ago");
  }
}

function showDetail(server) {
  const { data, history } = server;
  const rates = history.map((sample) => sample[0]), medians = history.map((sample) => sample[1]), slow = history.map((sample) => sample[2]);
  const top = greatest(rates, 1), most = greatest(slow, 1);
  setText(server.bigRate.top, top.toFixed(top < 10 ? 1 : 0) + " calls/s");
  setText(server.bigLatency.top, milliseconds(most));
  draw(server.bigRate, [rates], top, "calls per second in the last two minutes, most " + top);
  draw(server.bigLatency, [medians, slow], most, "time of a call in the last two minutes: p50 and p99, most " + milliseconds(most));
  const facts = [["Calls", data.calls], ["Settled", data.settled], ["Without a reply", data.lost], ["Restarts", data.restarts], ["In this state", span(data.since)],
    ["Sessions of hosts", data.sessions], ["Reached by", data.transport === "process" ? "standard streams" : "HTTP"]];
  server.facts.replaceChildren(...facts.flatMap(([term, value]) => [make("dt", {}, term), make("dd", {}, typeof value === "number" ? value.toLocaleString("en") : String(value))]));
  const items = data.recent.map((failure) => make("li", { "data-ago": failure.ago }, make("time", { datetime: "PT" + Math.round(failure.ago) + "S" }, span(failure.ago) + " ago"),
    make("span", { class: "kind " + (failure.kind === "call" ? "call" : "server") }, failure.kind), make("span", {}, failure.text)));
  server.list.replaceChildren(...(items.length ? items : [make("li", {}, make("span"), make("span"), make("span", { class: "faint" }, "None since the guard started."))]));
}

function receive(message, isWhole) {
  const data = JSON.parse(message.data), news = [];
  canRestart = data.restart;
  const seen = new Set();
  let isNew = false;
  for (const entry of data.servers) {
    seen.add(entry.id);
    let server = servers.get(entry.id);
    if (!server) { server = makeServer(entry); servers.set(entry.id, server); visibility.observe(server.row); isNew = true; }
    const before = server.data;
    if (entry.history) server.history = entry.history.slice(-POINTS);
    else if (entry.sample && entry.samples !== before.samples) {
      server.history.push(entry.sample);
      if (server.history.length > POINTS) server.history.shift();
    }
    if (shownState(before) !== shownState(entry)) news.push(nameOf(entry) + ": " + shownState(entry));
    server.data = entry;
    server.at = performance.now();
    show(server);
  }
  for (const [id, server] of servers) if (!seen.has(id)) { visibility.unobserve(server.row); server.body.remove(); servers.delete(id); isNew = true; }
  if (servers.size === 1 && isNew) for (const server of servers.values()) setOpen(server, true);
  if (isNew || isWhole || news.length || only || order.key !== "id") arrange();
  if (news.length) setText(byId("news"), news.length > 5 ? news.length + " servers changed their state" : news.join("; "));
  setText(byId("about"), "everlink " + data.everlink + " · process " + data.pid + " · running for " + span(data.running) +
    (canRestart ? "" : " · to restart servers here, start the guard with --status-token FILE") + " · programs read /events, /metrics, and JSON at /");
}

// Puts the rows in order, hides those that the filter leaves out, and counts the states.
function arrange() {
  const words = byId("find").value.trim().toLowerCase();
  const value = sortValue[order.key], sign = order.down ? -1 : 1;
  const sorted = [...servers.values()].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    return (x < y ? -1 : x > y ? 1 : a.data.id - b.data.id) * sign;
  });
  const counts = new Map();
  let shown = 0;
  const table = byId("servers");
  sorted.forEach((server, index) => {
    const state = shownState(server.data);
    counts.set(state, (counts.get(state) || 0) + 1);
    const matches = (!only || only === state) && (!words || (nameOf(server.data) + " " + state).toLowerCase().includes(words));
    server.body.hidden = !matches;
    shown += matches ? 1 : 0;
    // A row that is in its place is not moved, so that it keeps the focus.
    const place = table.tBodies[index];
    if (place !== server.body) table.insertBefore(server.body, place || null);
  });
  if (only && !counts.has(only)) counts.set(only, 0);
  const states = [...counts].sort((a, b) => b[1] - a[1]);
  byId("counts").replaceChildren(...states.map(([state, count]) => make("button", {
    type: "button", "aria-pressed": String(only === state), "data-state": state,
    onclick: () => { only = only === state ? null : state; arrange(); byId("counts").querySelector("[data-state='" + state + "']")?.focus(); },
  }, make("b", {}, String(count)), state)));
  byId("empty").hidden = shown > 0 || servers.size === 0;
  const up = (counts.get("ready") || 0), down = servers.size - up;
  document.title = servers.size === 1 ? shownState(sorted[0].data) + " · " + nameOf(sorted[0].data) : (down ? down + " of " + servers.size + " not ready" : "all " + servers.size + " ready") + " · everlink";
}

function ask(server) {
  asked = server;
  setText(byId("ask-title"), "Restart " + nameOf(server.data) + "?");
  setText(byId("ask-error"), "");
  byId("ask-field").hidden = token !== "";
  byId("ask").showModal();
  (token ? byId("ask-yes") : byId("ask-token")).focus();
}

async function restart(event) {
  event.preventDefault();
  const given = token || byId("ask-token").value.trim();
  const fail = (text) => { token = ""; byId("ask-field").hidden = false; setText(byId("ask-error"), text); byId("ask-token").focus(); };
  if (!given || !/^[\x21-\x7e]+$/.test(given)) return fail("Paste the token first.");
  byId("ask-yes").disabled = true;
  try {
    const response = await fetch("/servers/" + asked.data.id + "/restart", { method: "POST", headers: { Authorization: "Bearer " + given }, credentials: "omit", redirect: "error" });
    if (!response.ok) return fail((await response.text()).slice(0, 200));
    // The token is kept in the memory of this page only.
    token = given;
    byId("ask-token").value = "";
    byId("ask").close();
    setText(byId("news"), "Restart of " + nameOf(asked.data) + " was requested");
  } catch { fail("The guard could not be reached."); } finally { byId("ask-yes").disabled = false; }
}

function connect() {
  const stream = new EventSource("/events");
  const setLink = (kind, text) => { byId("link").className = kind; setText(byId("link"), text); byId("main").classList.toggle("stale", kind === "lost"); };
  stream.onopen = () => setLink("live", "live");
  // The browser connects again by itself, unless the response was an error.
  stream.onerror = () => {
    setLink("lost", "connection lost");
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  };
  stream.addEventListener("snapshot", (message) => receive(message, true));
  stream.addEventListener("update", (message) => receive(message, false));
}

makeHeads();
byId("find").addEventListener("input", arrange);
byId("ask-form").addEventListener("submit", restart);
byId("ask-no").addEventListener("click", () => byId("ask").close());
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input")) { event.preventDefault(); byId("find").focus(); }
  if (event.key === "Escape" && event.target === byId("find")) { byId("find").value = ""; arrange(); }
});
setInterval(() => { if (!document.hidden) for (const server of servers.values()) if (server.isVisible) showTimes(server); }, 250);
connect();
