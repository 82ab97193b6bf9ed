// Curves: `chart` draws one or several runs of a metric for any page; the rest is the page of a job's curves.

const RUN_COLORS = 8;
const MOST_DOTS = 8; // at the cursor: one is an element for each curve of a chart, and a page has many charts
const DASHES = [[], [6, 3], [2, 3]];
const scheme = matchMedia("(prefers-color-scheme: dark)");
const charts = new Set();
let resolved = new Map();

// A canvas knows no variables: an element says which color one has now.
function color(variable) {
  if (!resolved.has(variable)) {
    const probe = document.createElement("i");
    probe.style.color = `var(${variable})`;
    document.body.append(probe);
    resolved.set(variable, getComputedStyle(probe).color);
    probe.remove();
  }
  return resolved.get(variable);
}

scheme.addEventListener("change", () => {
  resolved = new Map();
  for (const each of charts) each.plot.redraw();
});

// The color and the dashes of the nth run: no two of 24 are alike.
export function runStyle(n) {
  return { color: `--run-${n % RUN_COLORS}`, dash: DASHES[Math.floor(n / RUN_COLORS) % DASHES.length] };
}

export function shortNumber(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace(/\.?0+e\+?/, "e");
  return size >= 1e4 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
}

// The mean of the values so far, of which older ones weigh less; without the pull of its beginning to zero.
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0, total = 0;
  return values.map((value) => {
    if (value == null) return value;
    sum = sum * weight + (1 - weight) * value;
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

function faint(text) {
  return text.replace("rgb(", "rgba(").replace(")", ", .3)");
}

// Draws into `target`, an element of the wanted width. Options:
//   runs: [{label, xs, ys, low?, high?, color?, dash?}], each with its own ascending xs; low and high are a band
//   axis: {label, time?}; log; smooth: 0 to 1; height; sync: the key of the charts whose cursors move together
//   extent: [least, greatest] of x; marks: [{x, text?, strong?}]; decimals are shortened
//   onCursor(values by run, x) – values are null where the cursor is off; onZoom(least, greatest, or nothing: all)
// Returns {update(options), draw(), png(title), destroy()}; update changes what is given and draws anew.
export function chart(target, options) {
  const self = {
    options: { log: false, smooth: 0, height: 200, marks: [], axis: { label: "Step" }, sync: "curves", ...options },
    update(changed) {
      Object.assign(self.options, changed);
      self.draw();
    },
    draw() {
      const key = shapeOf(self.options);
      if (self.plot && self.key === key) self.plot.setData(columnsOf(self.options).data);
      else {
        self.plot?.destroy();
        self.plot = plotOf(target, self.options);
      }
      self.key = key;
    },
    png: (title) => picture(self.plot, title),
    destroy() {
      sizes.unobserve(target);
      charts.delete(self);
      self.plot?.destroy();
    },
  };
  charts.add(self);
  owners.set(target, self);
  self.draw();
  sizes.observe(target);
  return self;
}

// What needs another plot when it changes; everything else only needs other points.
function shapeOf({ runs, log, smooth, axis, extent, height }) {
  return JSON.stringify([runs.map((run) => [run.label, run.color, Boolean(run.low)]), log, smooth > 0, axis, !extent, height]);
}

const owners = new WeakMap();
const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const self = owners.get(target);
    if (self?.plot && contentRect.width && Math.abs(self.plot.width - contentRect.width) >= 1) {
      self.plot.setSize({ width: Math.floor(contentRect.width), height: self.options.height });
    }
  }
});

function plotOf(target, options) {
  const { series, bands, data, shown } = columnsOf(options);
  const ink = { stroke: () => color("--soft"), grid: { stroke: () => color("--line"), width: 1 }, ticks: { show: false } };
  const marks = (plot) => drawMarks(plot, options.marks);
  return new uPlot({
    width: Math.max(120, Math.floor(target.clientWidth)),
    height: options.height,
    legend: { show: false },
    padding: [12, 12, 0, 0],
    scales: {
      x: { time: Boolean(options.axis.time), ...(options.extent && { range: () => spread(options.extent) }) },
      y: options.log ? { distr: 3 } : { range: (_, least, greatest) => roomy(least, greatest) },
    },
    axes: [
      { ...ink, size: options.axis.time ? 40 : 26, space: 70, ...(!options.axis.time && { values: (_, at) => at.map(tick) }) },
      { ...ink, size: 54, space: 32, values: (_, at) => at.map(tick) },
    ],
    series: [{}, ...series],
    bands,
    cursor: {
      y: false,
      drag: { x: Boolean(options.onZoom), y: false, setScale: false },
      points: { show: series.length <= MOST_DOTS, size: 6 },
      sync: { key: options.sync, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      bind: { dblclick: () => () => options.onZoom?.() },
    },
    hooks: {
      drawClear: [marks],
      setCursor: [(plot) => options.onCursor?.(...valuesAt(plot, shown))],
      setSelect: [(plot) => zoomed(plot, options.onZoom)],
    },
  }, data, target);
}

// A constant curve is a line in the middle.
function roomy(least, greatest) {
  if (least == null) return [0, 1];
  if (least !== greatest) return uPlot.rangeNum(least, greatest, 0.1, true);
  const room = Math.abs(least) / 10 || 1;
  return [least - room, least + room];
}

const tick = (value) => (value == null ? "" : shortNumber(value));
const spread = ([least, greatest]) => (least === greatest ? [least - 1, greatest + 1] : [least, greatest]);

// One table over all xs, which uPlot draws; `shown` has the column of each run's curve.
function columnsOf({ runs, log, smooth }) {
  const positive = (values) => (log ? values.map((value) => (value > 0 ? value : null)) : values);
  const series = [], bands = [], tables = [], shown = [];
  runs.forEach((run, n) => {
    const style = { ...(runs.length > 1 ? runStyle(n) : { color: "--accent", dash: [] }), ...run };
    const line = { stroke: () => color(style.color), dash: style.dash, width: 1.75, spanGaps: runs.length > 1, points: { size: 4 } };
    const quiet = { ...line, stroke: () => faint(color(style.color)), width: 1, points: { show: false } };
    const columns = [run.xs];
    const add = (column, look) => {
      columns.push(positive(column));
      return series.push(look);
    };
    if (run.low) {
      const nothing = { ...quiet, stroke: "transparent" };
      bands.push({ series: [add(run.high, nothing), add(run.low, nothing)], fill: () => faint(color(style.color)) });
    }
    if (smooth) add(run.ys, quiet);
    shown.push(add(smoothed(run.ys, smooth), line));
    tables.push(columns);
  });
  const data = tables.length === 1 ? tables[0] : uPlot.join(tables);
  return { series, bands, data, shown };
}

function valuesAt(plot, shown) {
  const at = plot.cursor.idx;
  if (at == null) return [null, null];
  return [shown.map((column) => nearest(plot.data[column], at)), plot.data[0][at]];
}

// Runs rarely have points at the same x: the last one before the cursor counts.
function nearest(values, at) {
  while (at >= 0 && values[at] === undefined) at -= 1;
  return at < 0 ? null : values[at];
}

function zoomed(plot, onZoom) {
  const { left, width } = plot.select;
  if (width < 4) return;
  onZoom?.(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}

function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  for (const { x, text, strong } of marks) {
    const left = Math.round(plot.valToPos(x, "x", true));
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = color(strong ? "--waiting" : "--edge");
    ctx.setLineDash(strong ? [] : [3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    ctx.textAlign = left > bbox.left + bbox.width - 20 * devicePixelRatio ? "right" : "center";
    if (text) ctx.fillText(text, left, bbox.top - 3 * devicePixelRatio);
  }
  ctx.restore();
}

function picture(plot, title) {
  const source = plot.ctx.canvas, head = 28 * devicePixelRatio;
  const canvas = document.createElement("canvas");
  canvas.width = source.width;
  canvas.height = source.height + head;
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = color("--ground");
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = color("--text");
  ctx.font = `600 ${14 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.fillText(title, 10 * devicePixelRatio, 20 * devicePixelRatio);
  ctx.drawImage(source, 0, head);
  canvas.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${title.replace(/[^\w.-]+/g, "-")}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
}

// The page of a job's curves.

const WAIT_MS = 60, LIVE_MS = 1_000, WHOLE_EVERY = 10, MOST_ROWS = 40, MOST_NAMES = 50, MOST_POINTS = 1000;
const AXES = {
  step: { label: "Step" },
  epoch: { label: "Epoch" },
  time: { label: "Time", time: true },
  tokens: { label: "Tokens" },
};

// Straight between the known points, and on as before behind the last one.
function along(table, step) {
  let high = table.findIndex(([at]) => at >= step);
  if (high === 0) return table[0][1];
  if (high < 0) high = table.length - 1;
  const [[x0, y0], [x1, y1]] = [table[high - 1], table[high]];
  return x1 === x0 ? y1 : y0 + ((step - x0) * (y1 - y0)) / (x1 - x0);
}

class CurvesPage {
  constructor(root) {
    this.root = root;
    this.form = root.querySelector("form");
    this.status = root.querySelector("[data-status]");
    this.panels = new Map();
    this.inSight = new Set();
    this.tables = { epochs: [], tokens: [] };
    this.attempts = null;
    this.marks = [];
    this.refreshes = 0;
    this.sight = new IntersectionObserver((entries) => this.moved(entries), { rootMargin: "200px" });
    for (const section of root.querySelectorAll(".curve")) this.add(section);
    this.readUrl();
    this.form.addEventListener("input", (event) => event.target.type !== "number" && this.changed());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.changed(true);
    });
    this.form.elements.whole.addEventListener("click", () => this.zoom());
    root.addEventListener("click", (event) => this.clicked(event));
    root.addEventListener("live", () => this.soon(LIVE_MS));
    addEventListener("popstate", () => {
      this.readUrl();
      this.askAll();
      this.drawAll();
    });
  }

  get settings() {
    const { x, smooth, log, marks, find, from_step: from, to_step: to } = this.form.elements;
    return {
      x: x.value, smooth: Number(smooth.value), log: log.checked, marks: marks.checked, find: find.value.trim().toLowerCase(),
      from: from.value, to: to.value,
    };
  }

  readUrl() {
    const given = new URLSearchParams(location.search), { elements } = this.form;
    const without = { x: "step", smooth: 0, find: "", from_step: "", to_step: "" };
    for (const [name, value] of Object.entries(without)) elements[name].value = given.get(name) ?? value;
    elements.log.checked = given.has("log");
    if (!elements.x.value) elements.x.value = "step";
    this.filter();
  }

  // A zoom is a step back in the history; other settings change the address alone.
  writeUrl(isZoom = false) {
    const { x, smooth, log, find, from, to } = this.settings, query = new URLSearchParams();
    const kept = { x: x === "step" ? "" : x, smooth: smooth || "", log: log ? "1" : "", find, from_step: from, to_step: to };
    for (const [name, value] of Object.entries(kept)) if (value !== "") query.set(name, value);
    const url = query.size ? `?${query}` : location.pathname;
    const isNew = isZoom && new URL(url, location.href).search !== location.search;
    history[isNew ? "pushState" : "replaceState"](null, "", url);
  }

  filter() {
    const { find, smooth } = this.settings;
    this.form.querySelector("[data-smooth]").textContent = smooth ? smooth.toFixed(2) : "off";
    for (const [name, panel] of this.panels) panel.section.hidden = find !== "" && !name.toLowerCase().includes(find);
    for (const group of this.root.querySelectorAll("[data-group]")) {
      group.hidden = !group.querySelector(".curve:not([hidden])");
    }
  }

  changed(asks = false) {
    this.writeUrl(asks);
    this.filter();
    if (asks) this.askAll();
    this.drawAll();
  }

  askAll() {
    for (const panel of this.panels.values()) panel.stale = true;
    this.soon(0);
  }

  // Asks for a part of the run, or with nothing for the whole.
  zoom(least, greatest) {
    const { elements } = this.form;
    const [from, to] = least === undefined ? ["", ""] : this.stepsBetween(least, greatest);
    if (from === null) return;
    elements.from_step.value = from;
    elements.to_step.value = to;
    this.changed(true);
  }

  stepsBetween(least, greatest) {
    if (this.settings.x === "step") return [Math.max(0, Math.floor(least)), Math.max(0, Math.ceil(greatest))];
    let from = null, to = null;
    for (const { data } of this.panels.values()) {
      data?.steps.forEach((step, n) => {
        const x = this.position(step, data.at[n]);
        if (x < least || x > greatest) return;
        from = Math.min(from ?? step, step);
        to = Math.max(to ?? step, step);
      });
    }
    return [from, to];
  }

  add(section) {
    const panel = { section, name: section.dataset.metric, plot: section.querySelector(".curve-plot"), stale: true };
    panel.value = section.querySelector(".curve-value");
    this.panels.set(panel.name, panel);
    this.sight.observe(section);
  }

  moved(entries) {
    for (const { target, isIntersecting } of entries) {
      const panel = this.panels.get(target.dataset.metric);
      this.inSight[isIntersecting ? "add" : "delete"](panel);
      if (isIntersecting && panel.data && !panel.stale) this.draw(panel);
    }
    if ([...this.inSight].some((panel) => panel.stale)) this.soon(WAIT_MS);
  }

  // Asks once for everything that is wanted until then; a request at a time.
  soon(wait) {
    if (wait === LIVE_MS && document.hidden) return;
    if (this.waiting) {
      this.again = true;
      return;
    }
    this.waiting = true;
    setTimeout(async () => {
      await this.ask();
      this.waiting = false;
      if (this.again || [...this.inSight].some((panel) => panel.stale && !panel.failed)) {
        this.again = false;
        this.soon(LIVE_MS);
      }
    }, wait);
  }

  async ask() {
    const stale = [...this.inSight].filter((panel) => panel.stale);
    this.refreshes += stale.length ? 0 : 1;
    const isWhole = stale.length > 0 || this.refreshes % WHOLE_EVERY === 0;
    const wanted = (stale.length ? stale : [...this.inSight]).slice(0, MOST_NAMES);
    const { from, to } = this.settings;
    const newest = Math.min(...wanted.map(({ data }) => (data?.steps.at(-1) ?? -1) + 1));
    const begin = isWhole || from || to ? from : String(Math.max(0, newest));
    try {
      const answer = await this.fetch(wanted, begin, to, stale.length === 0);
      this.status.textContent = "";
      this.take(answer, wanted, isWhole || from || to ? null : newest);
    } catch (error) {
      for (const panel of wanted) panel.failed = true;
      this.status.textContent = `The curves could not be loaded (${error.message}). Reload the page to try again.`;
    }
  }

  async fetch(wanted, from, to, isBackground) {
    const widest = Math.max(100, ...wanted.map(({ plot }) => plot.clientWidth));
    const query = new URLSearchParams({ max_points: Math.min(MOST_POINTS, Math.ceil(widest / 50) * 100) });
    if (from) query.set("from_step", from);
    if (to) query.set("to_step", to);
    for (const { name } of wanted) query.append("names", name);
    const headers = isBackground ? { "X-Background": "true" } : {};
    const answer = await fetch(`${this.root.dataset.url}?${query}`, { headers, redirect: "manual" });
    if (answer.type === "opaqueredirect") location.reload(); // signed out meanwhile
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return answer.json();
  }

  // Replaces the points of the panels, or with `from` those from that step on.
  take(answer, wanted, from) {
    const isNewAttempt = this.attempts !== null && answer.attempts.length !== this.attempts.length;
    this.attempts = answer.attempts;
    this.saved = answer.checkpoints;
    this.tables = { epochs: answer.epochs, tokens: answer.tokens };
    for (const [name, table] of [["epoch", "epochs"], ["tokens", "tokens"]]) {
      this.form.querySelector(`option[value=${name}]`).disabled = !this.tables[table].length;
    }
    if (this.form.elements.x.selectedOptions[0].disabled) {
      this.form.elements.x.value = "step";
      this.writeUrl();
    }
    for (const panel of wanted) {
      const found = answer.series[panel.name] ?? { steps: [], at: [], values: [], lost: [], lost_count: 0 };
      panel.data = from === null || !panel.data ? found : joined(panel.data, found, from);
      panel.stale = panel.data.steps.length > 2 * MOST_POINTS;
      panel.failed = false;
    }
    if (isNewAttempt) for (const panel of this.panels.values()) panel.stale = true; // its steps replace others
    this.addNew(answer.groups);
    this.drawAll();
  }

  addNew(groups) {
    for (const [group, names] of Object.entries(groups)) {
      const box = this.root.querySelector(`[data-group="${group}"]`);
      for (const name of names.filter((each) => !this.panels.has(each))) {
        const section = document.getElementById("curve-panel").content.firstElementChild.cloneNode(true);
        section.dataset.metric = name;
        section.querySelector("h3").textContent = name;
        section.querySelector(".curve-plot").setAttribute("aria-label", name); // until it is drawn
        for (const button of section.querySelectorAll("button")) button.setAttribute("aria-label", `${button.textContent} of ${name}`);
        box.querySelector(".curves").append(section);
        this.add(section);
        document.getElementById("no-curves").hidden = true;
      }
    }
    this.filter();
  }

  position(step, at) {
    const { x } = this.settings;
    if (x === "time") return at;
    const table = x === "epoch" ? this.tables.epochs : x === "tokens" ? this.tables.tokens : [];
    return table.length > 1 ? along(table, step) : step;
  }

  // The xs and ys of a panel in the order of x: steps that were repeated are later than those behind them.
  pointsOf({ steps, at, values }) {
    const points = steps.map((step, n) => [this.position(step, at[n]), values[n]]);
    if (this.settings.x === "time") points.sort(([one], [other]) => one - other);
    return { xs: points.map(([x]) => x), ys: points.map(([, y]) => y) };
  }

  drawAll() {
    const found = [...this.inSight].filter(({ data }) => data?.steps.length);
    const ends = found.flatMap(({ data }) => {
      const { xs } = this.pointsOf(data);
      return [xs[0], xs.at(-1)];
    });
    this.extent = ends.length ? [Math.min(...ends), Math.max(...ends)] : undefined;
    this.marks = this.settings.marks ? this.marked() : [];
    for (const panel of this.inSight) if (panel.data) this.draw(panel);
  }

  marked() {
    const started = (this.attempts ?? []).filter(({ number }) => number > 1);
    return [
      ...started.map(({ number, step, at }) => ({ x: this.position(step, at), text: `#${number}`, strong: true })),
      ...(this.saved ?? []).map(({ step, best, at }) => ({ x: this.position(step, at), text: best ? "★" : "" })),
    ];
  }

  draw(panel) {
    const { data, section, plot } = panel, { x, smooth } = this.settings;
    const log = this.settings.log && data.values.some((value) => value > 0); // else there would be nothing
    this.describe(panel, null);
    section.classList.toggle("is-empty", !data.steps.length);
    if (!data.steps.length || section.hidden) return;
    const given = {
      runs: [{ label: panel.name, ...this.pointsOf(data) }],
      axis: AXES[x], log, smooth, extent: this.extent, marks: this.marks, height: 190,
      onCursor: (values, at) => this.describe(panel, values?.[0], at),
      onZoom: (least, greatest) => this.zoom(least, greatest),
    };
    if (panel.chart) panel.chart.update(given);
    else panel.chart = chart(plot, given);
    if (panel.table) this.fillTable(panel);
    const finite = data.values.filter((value) => value !== null);
    const ends = finite.length ? `, least ${shortNumber(Math.min(...finite))}, greatest ${shortNumber(Math.max(...finite))}` : "";
    plot.setAttribute("aria-label", `${panel.name}: ${panel.value.textContent}${ends}`);
  }

  // The value at the cursor, or the newest one.
  describe({ data, value }, at, x) {
    const { x: axis } = this.settings;
    if (at != null) {
      const where = axis === "time" ? new Date(x * 1000).toLocaleTimeString() : `${axis} ${shortNumber(x)}`;
      value.textContent = `${shortNumber(at)} at ${where}`;
    } else if (!data.steps.length) value.textContent = "No points here";
    else {
      const lost = data.lost_count ? ` · ${data.lost[0][1] === "nan" ? "NaN" : "infinite"} at step ${data.lost[0][0]}` : "";
      value.textContent = `${shortNumber(data.values.at(-1))} at step ${data.steps.at(-1)}${lost}`;
    }
  }

  clicked(event) {
    const button = event.target.closest("button[data-do]");
    if (!button) return;
    const panel = this.panels.get(button.closest(".curve").dataset.metric);
    if (button.dataset.do === "png") panel.chart?.png(panel.name);
    if (button.dataset.do === "csv") location.assign(this.fileUrl(panel));
    if (button.dataset.do === "table") this.toggleTable(panel, button);
  }

  fileUrl({ name }) {
    const { from, to } = this.settings, query = new URLSearchParams({ names: name });
    if (from) query.set("from_step", from);
    if (to) query.set("to_step", to);
    return `${this.root.dataset.file}?${query}`;
  }

  toggleTable(panel, button) {
    const opened = !panel.table;
    for (const each of this.panels.values()) {
      each.table?.remove();
      each.table = null;
      each.section.querySelector("[data-do=table]").setAttribute("aria-expanded", "false");
    }
    if (!opened) return;
    button.setAttribute("aria-expanded", "true");
    panel.table = document.getElementById("curve-table").content.firstElementChild.cloneNode(true);
    panel.table.setAttribute("aria-label", `Values of ${panel.name}`);
    panel.section.append(panel.table);
    if (panel.data) this.fillTable(panel);
  }

  fillTable({ data, table }) {
    const count = data.steps.length, rows = Math.min(MOST_ROWS, count);
    const body = table.querySelector("tbody");
    body.replaceChildren();
    for (let n = 0; n < rows; n += 1) {
      const at = rows < 2 ? 0 : Math.round((n * (count - 1)) / (rows - 1)), row = body.insertRow();
      const cells = [data.steps[at], new Date(data.at[at] * 1000).toLocaleString(), exact(data.values[at])];
      for (const text of cells) row.insertCell().textContent = text;
    }
    table.querySelector("caption").textContent = `${rows} of ${count} points here, evenly chosen; the CSV file has more`;
  }
}

function exact(value) {
  if (value === null) return "no number";
  return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential().replace("e+", "e") : value;
}

function joined(old, found, from) {
  let kept = old.steps.length;
  while (kept > 0 && old.steps[kept - 1] >= from) kept -= 1;
  const both = (name) => [...old[name].slice(0, kept), ...found[name]];
  return {
    steps: both("steps"), at: both("at"), values: both("values"),
    lost: old.lost.length ? old.lost : found.lost, lost_count: old.lost_count + found.lost_count,
  };
}

const root = document.getElementById("curves");
if (root) new CurvesPage(root);
