"use strict";
// Draws the recording in the element `data`. Every text is set as text, never as markup.
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
byId("data").remove();
const { about, calls, epochs, waits, rows } = data;
const [AT, KIND, LABEL, CALL, EPOCH, LEN, BODY] = [0, 1, 2, 3, 4, 5, 6];
const KINDS = ["host →", "→ host", "server →", "→ server", "event", "problem", "fault", "probe", "backoff", "close", "output", "command"];
const SIGNS = ["↓", "↑", "↑", "↓", "●", "●", "✕", "◆", "‖", "■", "›", "▶"];
const GROUPS = [["messages", [0, 1, 2, 3]], ["events", [4, 5]], ["faults", [6]], ["probes", [7]], ["backoff", [8]], ["close steps", [9]], ["output", [10]], ["commands", [11]]];
const OUTCOMES = [["open", "--off"], ["reply", "--good"], ["tool error", "--warn"], ["error", "--odd"], ["failed", "--bad"], ["cancelled", "--off"], ["answered by the guard", "--busy"]];
const FRONT = about.guard ? "host" : "application", MIDDLE = about.guard ? "guard" : "link";
const ROW = 24, MAX_HEIGHT = 16e6;
const end = Math.max(1, rows.length ? rows[rows.length - 1][AT] : 1);
let view = { from: 0, to: end * 1.01 };
let shown = [], chosen = -1, only = -1, hidden = new Set(), words = "";

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const seconds = (at) => (at / 1e6).toFixed(3);
function span(micros) {
  return micros < 1000 ? micros + " µs" : micros < 1e6 ? (micros / 1000).toFixed(1) + " ms" : (micros / 1e6).toFixed(2) + " s";
}
const size = (len) => (len < 1000 ? len + " B" : len < 1e6 ? (len / 1e3).toFixed(1) + " kB" : (len / 1e6).toFixed(1) + " MB");

// Calls are drawn in as few lines as possible: a call takes the first line that is free when it begins.
const callOrder = calls.map((_, index) => index).sort((a, b) => calls[a][1] - calls[b][1]);
const callLine = new Int32Array(calls.length);
let lineCount = 0;
{
  const free = [];
  for (const index of callOrder) {
    const [, from, to] = calls[index];
    let line = free.findIndex((until) => until <= from);
    if (line < 0) line = Math.min(free.length, 63);
    free[line] = Math.max(to ?? end, from + 1);
    callLine[index] = line;
  }
  lineCount = Math.max(1, free.length);
}
// The longest call so far, to find where the visible calls begin.
const callEnds = new Float64Array(calls.length);
callOrder.reduce((most, index, place) => (callEnds[place] = Math.max(most, calls[index][2] ?? end)), 0);

function lowerBound(length, isBefore) {
  let low = 0, high = length;
  while (low < high) { const middle = (low + high) >> 1; if (isBefore(middle)) low = middle + 1; else high = middle; }
  return low;
}

// Drawing.
const Y = { axis: 20, host: 52, guard: 106, server: 160, calls: 200 };
const LEFT = 98;
let colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["back", "sheet", "edge", "text", "faint", "good", "busy", "warn", "odd", "bad", "off", "focus", "chosen"]) colours["--" + name] = style.getPropertyValue("--" + name).trim();
}
function surface(id) {
  const canvas = byId(id), ratio = devicePixelRatio || 1, { width, height } = canvas.getBoundingClientRect();
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const paint = canvas.getContext("2d");
  paint.setTransform(ratio, 0, 0, ratio, 0, 0);
  paint.clearRect(0, 0, width, height);
  paint.font = "11px system-ui, sans-serif";
  paint.textBaseline = "middle";
  return [paint, width, height];
}
function tint(paint, colour, alpha, x, y, width, height, round = 0) {
  paint.globalAlpha = alpha;
  paint.fillStyle = colours[colour];
  paint.beginPath();
  paint.roundRect(x, y, Math.max(width, 1), height, round);
  paint.fill();
  paint.globalAlpha = 1;
}

function drawAxis(paint, width, height, x) {
  const range = view.to - view.from, steps = [1, 2, 5];
  let step = 1, n = 0;
  while (step < range / Math.max(2, (width - LEFT) / 110)) step = steps[++n % 3] * 10 ** Math.floor(n / 3);
  paint.strokeStyle = colours["--edge"];
  paint.fillStyle = colours["--faint"];
  paint.textAlign = "center";
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
    const place = x(at);
    paint.beginPath(); paint.moveTo(place, Y.axis); paint.lineTo(place, height); paint.stroke();
    const unit = step >= 1e5 ? (at / 1e6).toFixed(step >= 1e6 ? 0 : 1) + " s" : step >= 100 ? (at / 1e3).toFixed(step >= 1000 ? 0 : 1) + " ms" : at + " µs";
    paint.fillText(unit, place, 10);
  }
  paint.textAlign = "left";
}

// A mark is drawn once for each kind and pixel, so that a million marks cost no more than the width of the canvas.
function drawMarks(paint, x, range, visible) {
  const first = lowerBound(rows.length, (index) => rows[index][AT] < view.from);
  const isSparse = visible < 600;
  const lastPixel = new Int32Array(12).fill(-9);
  for (let index = first; index < rows.length && rows[index][AT] <= view.to; index++) {
    const row = rows[index], kind = row[KIND], place = x(row[AT]), pixel = Math.floor(place);
    if (only >= 0 && row[CALL] !== only && kind < 4) continue;
    if (lastPixel[kind] === pixel) continue;
    lastPixel[kind] = pixel;
    if (kind < 4 || kind === 7 || kind === 11) {
      const isHost = kind < 2 || kind === 11, top = isHost ? Y.host : Y.guard, bottom = isHost ? Y.guard : Y.server;
      const isDown = kind === 0 || kind === 3 || kind === 7 || kind === 11;
      const colour = kind === 7 ? "--warn" : kind === 11 ? "--off" : isDown ? "--busy" : "--good";
      paint.strokeStyle = paint.fillStyle = colours[colour];
      paint.globalAlpha = isSparse ? 0.9 : 0.35;
      paint.beginPath(); paint.moveTo(place, top + 9); paint.lineTo(place, bottom - 9); paint.stroke();
      if (isSparse) {
        const tip = isDown ? bottom - 9 : top + 9, back = isDown ? -6 : 6;
        paint.beginPath(); paint.moveTo(place, tip); paint.lineTo(place - 3.5, tip + back); paint.lineTo(place + 3.5, tip + back); paint.fill();
      }
      paint.globalAlpha = 1;
    } else if (kind === 6) {
      paint.strokeStyle = colours["--bad"]; paint.lineWidth = 2;
      paint.beginPath(); paint.moveTo(place - 4, Y.server - 4); paint.lineTo(place + 4, Y.server + 4); paint.moveTo(place + 4, Y.server - 4); paint.lineTo(place - 4, Y.server + 4); paint.stroke();
      paint.lineWidth = 1;
    } else if (kind === 9) {
      tint(paint, "--warn", 1, place - 2.5, Y.server + 11, 5, 5, 1);
    } else if (kind === 10) {
      tint(paint, "--off", 1, place - 1, Y.server + 11, 2, 5);
    } else {
      paint.fillStyle = colours[kind === 5 ? "--bad" : kind === 8 ? "--warn" : "--good"];
      paint.beginPath(); paint.arc(place, Y.guard, kind === 5 ? 4 : 3, 0, 7); paint.fill();
    }
  }
}

function drawCalls(paint, x, width, height) {
  const room = height - Y.calls - 6, line = Math.max(2, Math.min(16, room / lineCount)), first = lowerBound(calls.length, (place) => callEnds[place] < view.from);
  for (let place = first; place < calls.length; place++) {
    const index = callOrder[place], [label, from, to, , outcome] = calls[index];
    if (from > view.to) break;
    if ((to ?? end) < view.from) continue;
    const left = Math.max(LEFT, x(from)), right = Math.min(width, x(to ?? end)), y = Y.calls + callLine[index] * line;
    if (y > height) continue;
    const isDim = only >= 0 && only !== index;
    tint(paint, OUTCOMES[outcome][1], isDim ? 0.15 : to === null ? 0.4 : 0.85, left, y, right - left, Math.max(1.5, line - 2), line > 8 ? 3 : 0);
    if (line >= 13 && right - left > 46 && !isDim) {
      paint.save(); paint.beginPath(); paint.rect(left + 4, y, right - left - 8, line); paint.clip();
      paint.fillStyle = colours["--sheet"]; paint.fillText(label, left + 6, y + line / 2 - 0.5); paint.restore();
    }
  }
}

function draw() {
  const [paint, width, height] = surface("canvas"), range = view.to - view.from;
  const x = (at) => LEFT + ((at - view.from) / range) * (width - LEFT - 8);
  drawAxis(paint, width, height, x);
  const firstRow = lowerBound(rows.length, (index) => rows[index][AT] < view.from), lastRow = lowerBound(rows.length, (index) => rows[index][AT] <= view.to);
  paint.save();
  paint.beginPath(); paint.rect(LEFT, 0, width - LEFT, height); paint.clip();
  for (const [y] of [[Y.host], [Y.guard], [Y.server]]) { paint.strokeStyle = colours["--edge"]; paint.beginPath(); paint.moveTo(LEFT, y); paint.lineTo(width, y); paint.stroke(); }
  let labelled = -99;
  for (const [number, from, ready, to, isFailure] of epochs) {
    if (from > view.to || (to ?? end) < view.from) continue;
    const left = x(from), right = x(to ?? end), isUp = ready !== null;
    tint(paint, "--busy", 0.18, left, Y.server - 9, right - left, 18, 4);
    if (isUp) tint(paint, "--good", 0.3, x(ready), Y.server - 9, right - x(ready), 18, 4);
    if (isFailure) tint(paint, "--bad", 0.9, right - 2, Y.server - 9, 2, 18);
    const start = Math.max(LEFT, left);
    if (right - start > 52 && start > labelled) { paint.fillStyle = colours["--text"]; paint.fillText("epoch " + number, start + 5, Y.server + 18); labelled = start + 52; }
  }
  for (const [from, to, isParked] of waits) if (from <= view.to && to >= view.from) tint(paint, isParked ? "--bad" : "--warn", 0.35, x(from), Y.guard - 7, x(to) - x(from), 14, 3);
  drawMarks(paint, x, range, lastRow - firstRow);
  drawCalls(paint, x, width, height);
  if (chosen >= 0) { paint.strokeStyle = colours["--focus"]; paint.setLineDash([4, 3]); paint.beginPath(); paint.moveTo(x(rows[chosen][AT]), Y.axis); paint.lineTo(x(rows[chosen][AT]), height); paint.stroke(); paint.setLineDash([]); }
  paint.restore();
  paint.font = "600 12px system-ui, sans-serif"; paint.fillStyle = colours["--text"];
  for (const [name, y] of [[FRONT, Y.host], [MIDDLE, Y.guard], ["server", Y.server], ["calls", Y.calls + 8]]) paint.fillText(name, 12, y);
  drawMap();
  byId("range").textContent = seconds(Math.max(0, view.from)) + " – " + seconds(Math.min(end, view.to)) + " s · " + (lastRow - firstRow).toLocaleString("en") + " steps";
}

function drawMap() {
  const [paint, width, height] = surface("map"), x = (at) => (at / (end * 1.01)) * width;
  const counts = new Uint32Array(Math.ceil(width) + 1);
  for (const row of rows) counts[Math.floor(x(row[AT]))]++;
  const most = counts.reduce((a, b) => Math.max(a, b), 1);
  for (const [, from, ready, to] of epochs) tint(paint, ready === null ? "--busy" : "--good", 0.16, x(from), 0, x(to ?? end) - x(from) - 1, height);
  paint.fillStyle = colours["--faint"];
  counts.forEach((count, at) => { if (count) { const tall = 3 + (height - 8) * Math.log1p(count) / Math.log1p(most); paint.fillRect(at, height - tall, 1, tall); } });
  let last = -9;
  for (const row of rows) if (row[KIND] === 6) { const at = Math.floor(x(row[AT])); if (at !== last) tint(paint, "--bad", 1, at, 0, 2, 5); last = at; }
  const isAll = view.from <= 0 && view.to >= end;
  if (!isAll) { paint.strokeStyle = colours["--focus"]; paint.lineWidth = 2; tint(paint, "--focus", 0.12, x(view.from), 0, x(view.to) - x(view.from), height); paint.strokeRect(x(view.from), 1, Math.max(3, x(view.to) - x(view.from)), height - 2); }
}

let isPlanned = false;
function redraw() {
  if (isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(() => { isPlanned = false; draw(); });
}
function setView(from, to) {
  const range = Math.min(Math.max(to - from, 20), end * 1.01), start = Math.min(Math.max(from, 0), end * 1.01 - range);
  view = { from: start, to: start + range };
  redraw();
}
function zoom(factor, around = (view.from + view.to) / 2) {
  setView(around - (around - view.from) * factor, around + (view.to - around) * factor);
}

// The list: only the rows that can be seen are elements.
function filter() {
  const isShown = (row) => !hidden.has(row[KIND]) && (only < 0 || row[CALL] === only || (row[CALL] < 0 && row[KIND] > 3 && row[AT] >= calls[only][1] && row[AT] <= (calls[only][2] ?? end)))
    && (!words || row[LABEL].toLowerCase().includes(words) || (row[BODY] && row[BODY].toLowerCase().includes(words)));
  shown = [];
  for (let index = 0; index < rows.length; index++) if (isShown(rows[index])) shown.push(index);
  // The old rows would keep the list as high as it was.
  byId("window").replaceChildren();
  byId("window").style.transform = "";
  byId("space").style.height = Math.min(shown.length * ROW, MAX_HEIGHT) + "px";
  showKinds();
  showWindow();
  redraw();
}
function firstVisible() {
  const list = byId("list"), tall = shown.length * ROW;
  if (tall <= MAX_HEIGHT) return Math.floor(list.scrollTop / ROW);
  // The element is lower than the rows, so the scroll position is a share of them.
  const share = list.scrollTop / Math.max(1, MAX_HEIGHT - list.clientHeight);
  return Math.floor(share * (shown.length - list.clientHeight / ROW));
}
function showWindow() {
  const list = byId("list"), first = Math.max(0, firstVisible() - 4), count = Math.ceil(list.clientHeight / ROW) + 10;
  const place = shown.length * ROW <= MAX_HEIGHT ? first * ROW : list.scrollTop - 4 * ROW;
  const box = byId("window");
  box.style.transform = "translateY(" + place + "px)";
  const elements = [];
  for (let at = first; at < Math.min(shown.length, first + count); at++) {
    const index = shown[at], row = rows[index];
    const element = make("div", { class: "row k" + row[KIND] + (index === chosen ? " chosen" : ""), role: "option", id: "row-" + index, "aria-selected": String(index === chosen), "data-index": index },
      make("span", { class: "time" }, seconds(row[AT])), make("span", { class: "k" + row[KIND] }, SIGNS[row[KIND]]),
      make("span", { class: "where" }, where(row[KIND])), make("span", { class: "label" }, row[LABEL]),
      make("span", { class: "size" }, row[LEN] ? size(row[LEN]) : ""), make("span", { class: "call" }, row[CALL] >= 0 ? "call " + (row[CALL] + 1) : ""));
    elements.push(element);
  }
  box.replaceChildren(...elements);
}
const where = (kind) => [FRONT + " → " + MIDDLE, MIDDLE + " → " + FRONT, "server → " + MIDDLE, MIDDLE + " → server"][kind] || KINDS[kind];

function showKinds() {
  const buttons = GROUPS.map(([name, kinds]) => {
    const count = rowCounts(kinds);
    if (!count) return null;
    const isOn = !kinds.every((kind) => hidden.has(kind));
    return make("button", { type: "button", "aria-pressed": String(isOn), onclick: () => { for (const kind of kinds) if (isOn) hidden.add(kind); else hidden.delete(kind); filter(); } }, name + " " + count.toLocaleString("en"));
  }).filter(Boolean);
  if (only >= 0) buttons.unshift(make("button", { type: "button", class: "only", onclick: () => showOnly(-1) }, "call " + (only + 1) + " only ✕"));
  byId("kinds").replaceChildren(...buttons);
}
const totals = new Uint32Array(12);
for (const row of rows) totals[row[KIND]]++;
const rowCounts = (kinds) => kinds.reduce((sum, kind) => sum + totals[kind], 0);

function showOnly(call) {
  only = call;
  byId("one").textContent = only >= 0 ? "All calls" : "Only this call";
  filter();
  if (call >= 0) {
    const [, from, to] = calls[call], room = Math.max(((to ?? end) - from) * 0.15, 50);
    setView(from - room, (to ?? end) + room);
    byId("list").scrollTop = 0;
  } else if (chosen >= 0) choose(chosen);
}

function choose(index, isFromGraph) {
  chosen = index;
  const row = rows[index], call = calls[row[CALL]];
  byId("what").textContent = row[LABEL];
  const facts = [["Time", seconds(row[AT]) + " s"], ["Step", (index + 1).toLocaleString("en") + " of " + rows.length.toLocaleString("en") + " · " + where(row[KIND])]];
  if (row[EPOCH]) facts.push(["Epoch", row[EPOCH]]);
  if (row[LEN]) facts.push(["Size", size(row[LEN])]);
  if (call) {
    facts.push(["Call", row[CALL] + 1 + " · " + call[0] + " · " + OUTCOMES[call[4]][0] + (call[2] === null ? "" : " after " + span(call[2] - call[1]))]);
    if (call[5]) facts.push(["Failure", call[5]]);
  }
  byId("about").replaceChildren(...facts.flatMap(([term, value]) => [make("dt", {}, term), make("dd", {}, String(value))]));
  byId("body").textContent = bodyOf(row);
  byId("one").disabled = row[CALL] < 0;
  const at = lowerBound(shown.length, (place) => shown[place] < index), list = byId("list");
  const top = at * ROW;
  if (shown.length * ROW <= MAX_HEIGHT && (top < list.scrollTop || top + ROW > list.scrollTop + list.clientHeight)) list.scrollTop = isFromGraph ? top - list.clientHeight / 2 : top < list.scrollTop ? top : top + ROW - list.clientHeight;
  list.setAttribute("aria-activedescendant", "row-" + index);
  if (row[AT] < view.from || row[AT] > view.to) setView(row[AT] - (view.to - view.from) / 2, row[AT] + (view.to - view.from) / 2);
  showWindow();
  redraw();
}
function bodyOf(row) {
  if (!row[BODY]) return row[KIND] < 4 || row[KIND] === 7 ? (about.redacted ? "The content of messages was left out of this recording (--redact)." : "This message is not in the file: the file would be too large.") : "";
  let text = row[BODY];
  if (text.length >= 4000) return text + "\n\n… the first 4,000 characters of " + size(row[LEN]);
  try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* shown as it is */ }
  return text;
}
function step(by) {
  if (!shown.length) return;
  const at = chosen < 0 ? (by > 0 ? -1 : shown.length) : lowerBound(shown.length, (place) => shown[place] < chosen) - (by > 0 && !shown.includes(chosen) ? 1 : 0);
  choose(shown[Math.min(Math.max(at + by, 0), shown.length - 1)]);
}

// The mouse and the keyboard.
function place(event) {
  const box = byId("canvas").getBoundingClientRect(), width = box.width - LEFT - 8;
  return { at: view.from + ((event.clientX - box.left - LEFT) / width) * (view.to - view.from), x: event.clientX - box.left, y: event.clientY - box.top, perPixel: (view.to - view.from) / width };
}
function callAt({ at, y, perPixel }) {
  const height = byId("canvas").getBoundingClientRect().height, line = Math.max(2, Math.min(16, (height - Y.calls - 6) / lineCount)), number = Math.floor((y - Y.calls) / line);
  if (y < Y.calls) return -1;
  return callOrder.find((index) => callLine[index] === number && calls[index][1] <= at + 2 * perPixel && (calls[index][2] ?? end) >= at - 2 * perPixel) ?? -1;
}
function rowAt({ at, y, perPixel }) {
  const near = lowerBound(rows.length, (index) => rows[index][AT] < at - 6 * perPixel), kinds = y < (Y.host + Y.guard) / 2 + 14 && y < Y.guard - 10 ? [0, 1, 11] : y < Y.guard + 10 ? [4, 5, 8] : [2, 3, 6, 7, 9, 10];
  let best = -1, distance = 6 * perPixel;
  for (let index = near; index < rows.length && rows[index][AT] <= at + 6 * perPixel && index < near + 5000; index++) {
    const away = Math.abs(rows[index][AT] - at);
    if (kinds.includes(rows[index][KIND]) && away <= distance) { best = index; distance = away; }
  }
  return best;
}
let drag = null;
const canvas = byId("canvas");
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) { const by = ((event.deltaX || event.deltaY) / 800) * (view.to - view.from); setView(view.from + by, view.to + by); }
  else zoom(Math.exp(event.deltaY / 400), place(event).at);
}, { passive: false });
canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, from: view.from, to: view.to, moved: false }; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener("pointermove", (event) => {
  const spot = place(event), tip = byId("tip");
  if (drag) {
    if (Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
    if (drag.moved) setView(drag.from - (event.clientX - drag.x) * spot.perPixel, drag.to - (event.clientX - drag.x) * spot.perPixel);
    return;
  }
  const call = callAt(spot), row = call < 0 ? rowAt(spot) : -1;
  tip.hidden = call < 0 && row < 0;
  if (call >= 0) tip.textContent = "call " + (call + 1) + " · " + calls[call][0] + " · " + OUTCOMES[calls[call][4]][0] + (calls[call][2] === null ? "" : " after " + span(calls[call][2] - calls[call][1]));
  if (row >= 0) tip.textContent = seconds(rows[row][AT]) + " s · " + rows[row][LABEL];
  tip.style.left = Math.min(spot.x + 12, canvas.clientWidth - 300) + "px";
  tip.style.top = spot.y + 48 + "px";
});
canvas.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
canvas.addEventListener("pointerup", (event) => {
  const wasMoved = drag && drag.moved;
  drag = null;
  if (wasMoved) return;
  const spot = place(event), call = callAt(spot), row = call >= 0 ? rows.findIndex((entry) => entry[CALL] === call) : rowAt(spot);
  if (row >= 0) choose(row, true);
});
canvas.addEventListener("dblclick", (event) => { const call = callAt(place(event)); if (call >= 0) showOnly(call); });
const map = byId("map");
let mapFrom = null;
const mapAt = (event) => { const box = map.getBoundingClientRect(); return ((event.clientX - box.left) / box.width) * end * 1.01; };
map.addEventListener("pointerdown", (event) => { mapFrom = mapAt(event); map.setPointerCapture(event.pointerId); });
map.addEventListener("pointermove", (event) => { if (mapFrom !== null) { const at = mapAt(event); if (Math.abs(at - mapFrom) > end / 300) setView(Math.min(at, mapFrom), Math.max(at, mapFrom)); } });
map.addEventListener("pointerup", (event) => { const at = mapAt(event), range = view.to - view.from; if (Math.abs(at - mapFrom) <= end / 300) setView(at - range / 2, at + range / 2); mapFrom = null; });
const list = byId("list");
list.addEventListener("scroll", () => requestAnimationFrame(showWindow));
list.addEventListener("click", (event) => { const row = event.target.closest(".row"); if (row) choose(Number(row.dataset.index)); });
list.addEventListener("dblclick", (event) => { const row = event.target.closest(".row"); if (row && rows[row.dataset.index][CALL] >= 0) showOnly(rows[row.dataset.index][CALL]); });
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input")) { if (event.key === "Escape") { event.target.value = words = ""; event.target.blur(); filter(); } return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const by = (view.to - view.from) / 6;
  const keys = { "/": () => byId("find").focus(), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: () => setView(0, end * 1.01), ArrowLeft: () => setView(view.from - by, view.to - by), ArrowRight: () => setView(view.from + by, view.to + by),
    ArrowDown: () => step(1), ArrowUp: () => step(-1), j: () => step(1), k: () => step(-1), c: () => { if (chosen >= 0 && rows[chosen][CALL] >= 0) showOnly(only >= 0 ? -1 : rows[chosen][CALL]); }, Escape: () => showOnly(-1) };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});
let waiting = 0;
byId("find").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => { words = byId("find").value.toLowerCase(); filter(); }, 120); });
byId("in").addEventListener("click", () => zoom(0.6));
byId("out").addEventListener("click", () => zoom(1 / 0.6));
byId("all").addEventListener("click", () => setView(0, end * 1.01));
byId("next").addEventListener("click", () => step(1));
byId("previous").addEventListener("click", () => step(-1));
byId("one").addEventListener("click", () => { if (chosen >= 0) showOnly(only >= 0 ? -1 : rows[chosen][CALL]); });
new ResizeObserver(() => { showWindow(); redraw(); }).observe(document.body);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); redraw(); });

document.title = about.file + " · everlink timeline";
byId("title").textContent = about.file;
byId("facts").textContent = [rows.length.toLocaleString("en") + " steps", calls.length.toLocaleString("en") + " calls", epochs.length.toLocaleString("en") + (epochs.length === 1 ? " epoch" : " epochs"), (end / 1e6).toFixed(1) + " s", about.redacted ? "redacted" : "", "recorded by everlink " + about.everlink].filter(Boolean).join(" · ");
const notes = [...about.notes, ...(about.short ? ["Some messages are listed without their text, because the file would be too large."] : [])];
byId("notes").hidden = notes.length === 0;
byId("notes").textContent = notes.join("\n");
const used = new Set(calls.map((call) => call[4]));
byId("legend").replaceChildren(...OUTCOMES.map(([name, colour], index) => {
  if (!used.has(index)) return null;
  const swatch = make("i");
  swatch.style.background = "var(" + colour + ")";
  return make("span", {}, swatch, name);
}).filter(Boolean));
readColours();
byId("one").disabled = true;
byId("body").textContent = "Click a step or a call, or press ↓.\n\n↓ ↑    next and previous step\n+ −    zoom, as the mouse wheel does\n← →    move, as dragging does\n0      show everything\nc      only the call of this step, and all calls again\n/      search";
filter();
