// The curves of several jobs over each other, of which each group may be one curve with its mean and range.
import { chart, runStyle, shortNumber } from "./curves.js";

const GRID = 300, HEIGHT = 220, LIVE_MS = 4_000;
const UNITS = { step: "Step", seconds: "Second", tokens: "Token" };
const root = document.getElementById("compare-charts");

const panels = new Map();
const inSight = new Set();
const labels = root ? JSON.parse(root.dataset.labels) : [];
const groups = root ? JSON.parse(root.dataset.groups) : [];
const form = root?.querySelector("form");
const isGrouped = () => Boolean(form.elements.mean?.checked);

// The value at x, straight between points; nothing outside of the run.
function between({ xs, ys }, x) {
  if (!xs.length || x < xs[0] || x > xs.at(-1)) return null;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  if (xs[low] === x || low === high) return ys[low];
  if (xs[high] === x) return ys[high];
  if (ys[low] === null || ys[high] === null) return null;
  return ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
}

// Where the runs have points; evenly spread where there are many.
function gridOf(runs) {
  const all = [...new Set(runs.flatMap(({ xs }) => xs))].sort((one, other) => one - other);
  if (all.length <= GRID) return all;
  const [first, last] = [all[0], all.at(-1)];
  return Array.from({ length: GRID }, (_, n) => first + ((last - first) * n) / (GRID - 1));
}

function meanOf(runs, n) {
  const found = { xs: [], ys: [], low: [], high: [] };
  for (const x of gridOf(runs)) {
    const values = runs.map((run) => between(run, x)).filter((value) => value !== null);
    if (!values.length) continue;
    found.xs.push(x);
    found.ys.push(values.reduce((sum, value) => sum + value, 0) / values.length);
    found.low.push(Math.min(...values));
    found.high.push(Math.max(...values));
  }
  return { ...found, ...runStyle(n), key: `group ${n + 1}:` };
}

function runsOf(found) {
  const groupOf = (place) => groups.findIndex((places) => places.includes(place));
  const runs = isGrouped()
    ? groups.map((places, n) => meanOf(places.map((place) => found[place]), n))
    : found.map((run, n) => ({ ...run, ...runStyle(groups.length ? groupOf(n) : n), key: `${n + 1}.` }));
  return runs.map((run, n) => ({ ...run, label: `${n}` })).filter(({ xs }) => xs.length);
}

function draw(panel) {
  const runs = runsOf(panel.found), smooth = Number(form.elements.smooth.value);
  form.querySelector("[data-smooth]").textContent = smooth ? smooth.toFixed(2) : "off";
  panel.runs = runs;
  if (!runs.length) {
    panel.value.textContent = "No points yet";
    return;
  }
  const given = {
    runs, smooth, log: form.elements.log.checked, height: HEIGHT, sync: "compare",
    axis: { label: UNITS[root.dataset.by] },
    onCursor: (values, at) => tell(panel, values, at),
  };
  // Bands and lines are other series: a changed number of them needs a new plot.
  if (panel.chart) panel.chart.update(given);
  else panel.chart = chart(panel.plot, given);
}

// The values at the cursor; otherwise which curve ends where.
function tell({ value, runs }, values, at) {
  if (at === null || values === null) value.textContent = "";
  else {
    const found = runs.map(({ key }, n) => `${key} ${shortNumber(values[n])}`);
    value.textContent = `${UNITS[root.dataset.by]} ${shortNumber(at)}: ${found.join(" · ")}`;
  }
}

async function ask(wanted, isBackground) {
  const query = new URLSearchParams(wanted.map(({ section }) => ["metric", section.dataset.metric]));
  const status = root.querySelector("[data-status]");
  try {
    const headers = isBackground ? { "X-Background": "true" } : {};
    const answer = await fetch(`${root.dataset.url}&${query}`, { headers, redirect: "manual" });
    if (answer.type === "opaqueredirect") location.reload(); // signed out meanwhile
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const curves = await answer.json();
    for (const panel of wanted) {
      panel.found = curves[panel.section.dataset.metric] ?? labels.map(() => ({ xs: [], ys: [] }));
      draw(panel);
    }
    status.textContent = "";
  } catch (error) {
    for (const panel of wanted) panel.asked = false;
    status.textContent = `The curves could not be loaded (${error.message}). Reload the page to try again.`;
  }
}

function moved(entries) {
  for (const { target, isIntersecting } of entries) inSight[isIntersecting ? "add" : "delete"](panels.get(target));
  const wanted = [...inSight].filter((panel) => !panel.asked);
  for (const panel of wanted) panel.asked = true;
  if (wanted.length) ask(wanted, false);
}

// What changes while the answer is on its way is asked for after it.
let waiting = false, asks = false, again = false;
function refreshSoon() {
  if (document.hidden) return;
  again ||= asks;
  if (waiting) return;
  waiting = true;
  setTimeout(async () => {
    asks = true;
    for (const panel of panels.values()) panel.asked = inSight.has(panel); // others ask when they are seen
    if (inSight.size) await ask([...inSight], true);
    waiting = asks = false;
    if (again) {
      again = false;
      refreshSoon();
    }
  }, LIVE_MS);
}

if (root) {
  const sight = new IntersectionObserver(moved, { rootMargin: "200px" });
  for (const section of root.querySelectorAll(".curve")) {
    panels.set(section, { section, plot: section.querySelector(".curve-plot"), value: section.querySelector(".curve-value") });
    sight.observe(section);
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => [...panels.values()].filter(({ found }) => found).forEach(draw));
  root.addEventListener("click", ({ target }) => {
    if ("png" in target.dataset) {
      const panel = panels.get(target.closest(".curve"));
      panel.chart?.png(panel.section.dataset.metric);
    }
  });
  root.addEventListener("live", refreshSoon);
}
