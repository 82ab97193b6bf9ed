// A job's log as a list of any length: only the lines in sight are elements, only pages near them are loaded.
//
// A page are the lines with PAGE consecutive numbers. Where some numbers are of other ranks it has fewer lines, which is
// estimated until it was loaded; then the lines in sight keep their place. A row is as high as a line that is not
// wrapped: a wrapped line has several, which are counted when its page is loaded.
const ROW = 20, PAGE = 500, KEPT = 40, OVERSCAN = 10, LOADS = 2;
const TALLEST = 8_000_000; // pixels; browsers have a limit near 17 million
const MOST_FOUND = 200;
const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

const by = (id) => document.getElementById(id);
const log = by("log"), space = by("log-space"), rowsBox = by("log-rows"), form = by("log-search");
const { base, attempt, rank, role } = log.dataset;
const which = rank !== "" ? { rank } : role ? { role } : {}; // whose lines
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const number = new Intl.NumberFormat("en");

let last = Number(log.dataset.last);
let ended = "ended" in log.dataset;
let following = !log.dataset.line;
let selected = Number(log.dataset.line) || 0;
let place = 0; // of the first pixel in sight, in a list of full height
let highlighted = "";
let wrapped = "wrap" in log.dataset;
const pages = new Map(); // index → its lines, and of each of its rows the place of the line; the newest are last
const counts = new Map(); // index → how many lines and rows a page had when it was loaded
const loading = new Set();
let starts = [0]; // index → rows before the page

// Shows what a terminal would: without colors, and of a line that was written over only the last text.
function cleaned(text) {
  const plain = text.replace(ANSI, "");
  return plain.includes("\r") ? plain.split("\r").findLast((each) => each.trim()) ?? "" : plain;
}

function measure() {
  let rows = 0, numbers = 0;
  for (const [index, count] of counts) {
    rows += count.rows;
    numbers += numbersOf(index);
  }
  const density = numbers > 0 ? Math.max(rows / numbers, 1 / PAGE) : 1;
  const total = Math.ceil(last / PAGE);
  starts = [0];
  for (let index = 0; index < total; index++) {
    const guess = Math.max(1, Math.round(numbersOf(index) * density));
    starts.push(starts[index] + (counts.get(index)?.rows ?? guess));
  }
}

const numbersOf = (index) => Math.min(PAGE, last - index * PAGE);

// Keeps a page. How many rows a wrapped line has, only the browser knows; `draw` removes what is measured here.
function put(index, lines) {
  let rows = lines.map((_, n) => n);
  if (wrapped) {
    rowsBox.replaceChildren(...lines.map(rowOf));
    rows = [...rowsBox.children].flatMap((row, n) => Array(Math.max(1, Math.round(row.offsetHeight / ROW))).fill(n));
  }
  pages.delete(index);
  pages.set(index, { lines, rows });
  counts.set(index, { lines: lines.length, rows: rows.length });
}

// Measures what is near anew; what is farther is loaded again.
function rewrap() {
  const row = Math.min(Math.floor(place / ROW), starts.at(-1) - 1), index = pageOf(Math.max(0, row));
  const line = pages.get(index)?.rows[row - starts[index]];
  log.classList.toggle("wrap", wrapped);
  space.style.minWidth = "";
  counts.clear();
  for (const [each, { lines }] of [...pages]) {
    if (Math.abs(each - index) > 1) pages.delete(each);
    else put(each, lines);
  }
  measure();
  moveTo(following ? Infinity : (starts[index] + Math.max(0, pages.get(index)?.rows.indexOf(line) ?? 0)) * ROW);
}

const height = () => starts.at(-1) * ROW;
const farthest = () => Math.max(0, height() - log.clientHeight);

function pageOf(row) {
  let low = 0, high = starts.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle] <= row) low = middle;
    else high = middle - 1;
  }
  return low;
}

// Scrolls to a place. A list that is taller than browsers allow is scrolled in proportion.
function moveTo(wanted) {
  place = Math.min(Math.max(0, wanted), farthest());
  space.style.height = `${Math.min(height(), TALLEST)}px`;
  const room = Math.max(1, Math.min(height(), TALLEST) - log.clientHeight);
  log.scrollTop = height() > TALLEST ? (place / farthest()) * room : place;
  scrolledTo = log.scrollTop;
  draw();
}
let scrolledTo = 0;

function draw() {
  let first = Math.max(0, Math.floor(place / ROW) - OVERSCAN);
  while (isWithin(first)) first--;
  const end = Math.min(starts.at(-1), Math.ceil((place + log.clientHeight) / ROW) + OVERSCAN);
  const drawn = [], wanted = new Set();
  for (let row = first; row < end; row++) {
    const index = pageOf(row), page = pages.get(index);
    if (!page) wanted.add(index);
    if (!isWithin(row)) drawn.push(rowOf(page?.lines[page.rows[row - starts[index]]]));
  }
  rowsBox.replaceChildren(...drawn);
  // As wide as the longest line seen: what is wider than a contained element cannot be scrolled to.
  space.style.minWidth = wrapped ? "" : `${rowsBox.offsetWidth}px`;
  rowsBox.style.transform = `translateY(${log.scrollTop - place + first * ROW}px)`;
  by("log-empty").hidden = last > 0;
  const isSparse = rank !== "" || role || log.dataset.ranks > 1 && [...counts].some(([index, { lines }]) => lines < numbersOf(index));
  by("log-count").textContent = last ? `${isSparse ? "line numbers to " : ""}${number.format(last)}${isSparse ? "" : " lines"}` : "";
  for (const index of wanted) load(index);
}

// Whether a row continues the line of the row before.
function isWithin(row) {
  const index = pageOf(row), rows = pages.get(index)?.rows, n = row - starts[index];
  return n > 0 && rows !== undefined && rows[n] !== undefined && rows[n] === rows[n - 1];
}

function rowOf(line) {
  const row = document.createElement("div");
  row.className = "log-row";
  if (!line) {
    row.textContent = "…";
    return row;
  }
  const [n, at, ofRank, text, isCut] = line;
  const link = document.createElement("a");
  link.href = address({ line: n });
  link.textContent = n;
  link.dataset.n = n;
  link.tabIndex = -1;
  const time = document.createElement("time");
  time.textContent = clock.format(new Date(at));
  time.title = at;
  row.append(link, time);
  if (log.dataset.ranks > 1) {
    const mark = document.createElement("span");
    mark.className = "log-rank";
    mark.textContent = `[${ofRank}]`;
    row.append(mark);
  }
  const shown = document.createElement("span");
  shown.className = "log-line";
  fill(shown, cleaned(text) + (isCut ? " … (select the line to see all)" : ""));
  row.append(shown);
  if (n === selected) row.classList.add("selected");
  return row;
}

// The text, with what is searched for marked.
function fill(element, text) {
  const low = text.toLowerCase();
  let from = 0;
  while (highlighted && low.length === text.length) {
    const found = low.indexOf(highlighted, from);
    if (found < 0) break;
    const mark = document.createElement("mark");
    mark.textContent = text.slice(found, found + highlighted.length);
    element.append(text.slice(from, found), mark);
    from = found + highlighted.length;
  }
  element.append(text.slice(from));
}

function address(changes) {
  const query = new URLSearchParams({ attempt, ...which, ...(wrapped && { wrap: "true" }) });
  if (attempt === "0") query.delete("attempt");
  for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
  return `${base}?${query}`;
}

async function ask(path, query, isBackground = false) {
  const given = new URLSearchParams(query);
  const headers = { "HX-Request": "true", ...(isBackground && { "X-Background": "true" }) };
  const answer = await fetch(`${base}/${path}?${given}`, { headers });
  if (answer.ok) return answer.json();
  if (answer.status === 401) location.reload();
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  throw new Error(page.querySelector("p")?.textContent ?? `the server answered ${answer.status}`);
}

async function load(index, isBackground = false) {
  if (loading.has(index) || (loading.size >= LOADS && !isBackground)) return;
  loading.add(index);
  const first = index * PAGE + 1;
  try {
    const found = await ask("lines.json", { attempt, ...which, first, last: first + PAGE - 1 }, isBackground);
    keep(index, found);
  } catch {
    setTimeout(draw, 3000); // asks again for what is still in sight
    return;
  } finally {
    loading.delete(index);
  }
  draw();
}

function keep(index, found) {
  const row = Math.min(Math.floor(place / ROW), Math.max(0, starts.at(-1) - 1));
  const above = pageOf(row), within = row - starts[above], offset = place - row * ROW;
  put(index, found.lines);
  if (pages.size > KEPT) pages.delete(pages.keys().next().value);
  last = Math.max(last, found.last);
  ended = found.ended;
  if (attempt !== "0" && found.newest > Number(attempt)) by("log-newer").hidden = false;
  measure();
  if (following) moveTo(Infinity);
  else moveTo((starts[above] + within) * ROW + offset);
}

// New lines: the last page, and what is in sight of the one before, which may have had gaps.
async function refresh() {
  if (attempt === "0") {
    const found = await ask("lines.json", { attempt: 1, first: 1, last: 1 }, true);
    return found.last > 0 || found.newest > 1 ? location.reload() : undefined;
  }
  if (ended && last === 0) return;
  const index = Math.max(0, Math.ceil(last / PAGE) - 1), before = last;
  await load(index, true);
  if (pages.has(index - 1)) await load(index - 1, true);
  if (last > before && Math.ceil(last / PAGE) - 1 > index) counts.delete(Math.ceil(last / PAGE) - 1);
  following ? moveTo(Infinity) : draw();
}

function follow(isOn) {
  following = isOn;
  by("log-follow").setAttribute("aria-pressed", String(isOn));
}

async function goTo(n) {
  follow(false);
  const index = Math.floor((Math.min(n, last) - 1) / PAGE);
  while (loading.has(index)) await new Promise((resolve) => setTimeout(resolve, 50));
  if (!pages.has(index)) await load(index, true);
  const { lines, rows } = pages.get(index) ?? { lines: [], rows: [] };
  const at = lines.findIndex(([each]) => each >= n);
  const within = at < 0 ? Math.max(0, lines.length - 1) : at;
  moveTo((starts[index] + Math.max(0, rows.indexOf(within))) * ROW - log.clientHeight / 3);
  select(lines[within]);
}

async function select(line) {
  if (!line) return;
  const [n, at, ofRank, text, isCut] = line;
  selected = n;
  history.replaceState(null, "", address({ ...searched(), line: n }));
  by("log-about").textContent = `Line ${number.format(n)} · ${moment.format(new Date(at))} · rank ${ofRank} · attempt ${attempt}`;
  by("log-link").dataset.copy = new URL(address({ line: n }), location.href).href;
  by("log-link").textContent = "Copy link";
  by("log-text").textContent = cleaned(text);
  by("log-selected").hidden = false;
  draw();
  if (!isCut) return;
  const found = await ask("lines.json", { attempt, first: n, last: n, whole: true });
  if (selected === n) by("log-text").textContent = cleaned(found.lines[0]?.[3] ?? "");
}

// Searching

let searching = 0; // counts searches, so that an older one stops

function searched() {
  const given = new FormData(form);
  const instant = (name) => (given.get(name) ? new Date(given.get(name)).toISOString() : "");
  const words = { q: given.get("q") ?? "", from: instant("from"), to: instant("to") };
  return { ...words, regex: given.has("regex") ? "true" : "", everywhere: given.has("everywhere") ? "true" : "" };
}

async function search(after = "0:0", before = 0) {
  const mine = ++searching, wanted = searched();
  if (!wanted.q && !wanted.from && !wanted.to) return closeSearch();
  highlighted = wanted.regex ? "" : wanted.q.toLowerCase();
  const query = { limit: MOST_FOUND, ...which, ...(!wanted.everywhere && attempt !== "0" && { attempt }) };
  if (wanted.q) query[wanted.regex ? "pattern" : "q"] = wanted.q;
  for (const name of ["from", "to"]) if (wanted[name]) query[name] = wanted[name];
  by("log-results").hidden = false;
  by("log-more").hidden = true;
  by("log-hits").replaceChildren();
  markHit();
  let next = after, lines = before, count = 0;
  while (next && count < MOST_FOUND) {
    say(`Searching … ${number.format(lines)} lines so far`);
    let found;
    try {
      found = await ask("search.json", { ...query, limit: MOST_FOUND - count, after: next });
    } catch (problem) {
      if (mine !== searching) return;
      highlighted = "";
      say(problem.message.charAt(0).toUpperCase() + problem.message.slice(1));
      return draw();
    }
    if (mine !== searching) return;
    by("log-hits").append(...found.lines.map(hitOf));
    count += found.lines.length;
    lines += found.searched;
    next = found.next;
  }
  markHit();
  by("log-more").hidden = !next;
  by("log-more").onclick = () => search(next, lines);
  const what = count === 1 ? "1 line" : `${number.format(count)} lines`;
  say(`${count ? what : "No line"} found; ${next ? "the first" : "all"} ${number.format(lines)} lines were searched.`);
  draw();
}

function say(text) {
  by("log-found").textContent = text;
}

function hitOf(line) {
  const item = document.createElement("li"), link = document.createElement("a");
  const where = document.createElement("span"), shown = document.createElement("span");
  link.href = address({ ...searched(), attempt: line.attempt, line: line.n });
  if (String(line.attempt) === attempt) link.dataset.n = line.n;
  where.textContent = `${form.elements.everywhere?.checked ? `${line.attempt}:` : ""}${line.n} ${clock.format(new Date(line.at))}`;
  fill(shown, cleaned(line.line).slice(0, 300));
  link.append(where);
  item.append(link, " ", shown);
  return item;
}

// Goes to the next hit (1) or the previous one (-1), around the ends.
function step(way) {
  const links = [...by("log-hits").querySelectorAll("a")];
  const now = links.findIndex((link) => link.hasAttribute("aria-current"));
  links.at((now + (now < 0 && way < 0 ? 0 : way)) % links.length)?.click();
}

// Which of the hits one is at.
function markHit(chosen) {
  const links = [...by("log-hits").querySelectorAll("a")];
  for (const link of links) link === chosen ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current");
  chosen?.scrollIntoView({ block: "nearest" });
  by("log-at").textContent = chosen ? `${links.indexOf(chosen) + 1} of ${links.length}` : "";
  by("log-previous").hidden = by("log-next").hidden = !links.length;
}

function closeSearch() {
  searching++;
  highlighted = "";
  by("log-results").hidden = true;
  history.replaceState(null, "", address({ line: selected }));
  draw();
}

// What a person does

log.addEventListener("scroll", () => {
  if (Math.abs(log.scrollTop - scrolledTo) < 1) return;
  scrolledTo = log.scrollTop;
  const room = Math.max(1, Math.min(height(), TALLEST) - log.clientHeight);
  place = height() > TALLEST ? (log.scrollTop / room) * farthest() : log.scrollTop;
  follow(place > farthest() - ROW);
  draw();
});
log.addEventListener("wheel", (event) => {
  if (height() <= TALLEST || event.deltaMode !== 0 || event.ctrlKey || event.shiftKey) return;
  event.preventDefault(); // in proportion a turn of the wheel would jump too far
  follow(false);
  moveTo(place + event.deltaY);
}, { passive: false });
log.addEventListener("keydown", (event) => {
  const step = { ArrowUp: -ROW, ArrowDown: ROW, PageUp: 2 * ROW - log.clientHeight, PageDown: log.clientHeight - 2 * ROW, Home: -Infinity, End: Infinity }[event.key];
  if (step === undefined || event.target !== log || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  follow(step === Infinity);
  moveTo(place + step);
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-n]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const n = Number(link.dataset.n);
  if (!log.contains(link)) {
    markHit(link);
    return goTo(n);
  }
  follow(false);
  select([...pages.values()].flatMap(({ lines }) => lines).find(([each]) => each === n));
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  history.replaceState(null, "", address({ ...searched(), line: selected }));
  search();
});
form.addEventListener("change", (event) => {
  if (!("reload" in event.target.dataset)) return;
  const chosen = { attempt: form.elements.attempt?.value ?? attempt, role: form.elements.role?.value ?? "", rank: form.elements.rank?.value ?? "" };
  if (event.target.name === "role") chosen.rank = ""; // a rank has one role
  if (event.target.name === "rank") chosen.role = "";
  location.assign(address({ ...searched(), ...chosen }));
});
by("log-goto").addEventListener("submit", (event) => {
  event.preventDefault();
  const n = Number(by("log-line").value);
  if (n > 0 && last > 0) goTo(n);
});
by("log-first").addEventListener("click", () => { follow(false); moveTo(0); });
by("log-follow").addEventListener("click", () => { follow(!following || ended); moveTo(following ? Infinity : place); });
by("log-wrap").addEventListener("click", () => {
  wrapped = !wrapped;
  by("log-wrap").setAttribute("aria-pressed", String(wrapped));
  history.replaceState(null, "", address({ ...searched(), line: selected }));
  rewrap();
});
by("log-close").addEventListener("click", closeSearch);
by("log-previous").addEventListener("click", () => step(-1));
by("log-next").addEventListener("click", () => step(1));
by("log-unselect").addEventListener("click", () => {
  selected = 0;
  by("log-selected").hidden = true;
  history.replaceState(null, "", address(searched()));
  draw();
});
log.addEventListener("live", refresh);
addEventListener("resize", () => (wrapped ? rewrap() : moveTo(following ? Infinity : place)));

for (const input of form.querySelectorAll("input[data-moment]")) {
  const given = new Date(input.dataset.moment);
  if (input.dataset.moment) input.value = new Date(given - given.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
measure();
follow(following);
moveTo(following ? Infinity : 0);
if (selected) goTo(selected);
search();
