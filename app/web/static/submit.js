// The form and the document of a job, a sweep or an evaluation: each follows the other, and the server checks the
// document while it is written.
import { forget, keep, kept, MASK } from "./draft.js";

const CHECK_MS = 500;
const form = document.getElementById("job-form");
const text = document.getElementById("document");
const ofJob = (path) => `${form.dataset.job ?? ""}training_config.${path}`;
const KEYED = ["map", "options", "cases"];  // kinds of fields with lines of key=value
const keyed = () => form.querySelectorAll(KEYED.map((kind) => `[data-kind=${kind}]`).join(", "));
const METHOD = [ofJob("training_type"), ofJob("framework.type")];
const NEEDLESS = [ofJob("training_type"), ofJob("base_model")]; // for a script of one's own
const project = document.querySelector("#document-form [name=project]");
const initial = { text: text.defaultValue, project: project.value };
const draftKey = `draft ${form.dataset.owner} ${location.pathname}${location.search}`;
let timer = 0;
const touched = new Set();  // ids of the fields that a person wrote in or left
let wasSubmitted = false;
let known = {};  // the document that was read last
let removed = {};  // what the framework CUSTOM took away, for the way back
let goal = "";  // what has the focus once rows have changed
let before = null;  // what stood here before it was started anew

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
// Names of parameters of a sweep may have dots in them.
const split = (path) => path.match(/^(parameters)\.(.+)\.(\w+)$/)?.slice(1) ?? path.split(".");
const follow = (names) => names.reduce((found, name) => (typeof found === "object" ? found?.[name] : undefined), known);
const at = (path) => follow(split(path));

// Sets a value of the document; undefined takes it away, with the objects that are empty then below the sections.
function put(path, value) {
  const names = Array.isArray(path) ? path : split(path);
  const parents = [known];
  for (const name of names.slice(0, -1)) {
    const parent = parents.at(-1);
    if (!isObject(parent[name]) && !Array.isArray(parent[name])) {
      if (value === undefined) return;
      parent[name] = {};
    }
    parents.push(parent[name]);
  }
  if (value !== undefined) {
    parents.at(-1)[names.at(-1)] = value;
    return;
  }
  if (Array.isArray(parents.at(-1))) parents.at(-1).splice(names.at(-1), 1);
  else delete parents.at(-1)[names.at(-1)];
  for (let depth = parents.length - 1; depth > 1 && isObject(parents[depth - 1]) && !Object.keys(parents[depth]).length; depth -= 1) {
    delete parents[depth - 1][names[depth - 1]];
  }
}

const lines = (value) => value.split("\n").map((line) => line.trim()).filter(Boolean);
const ofSplit = (source, part) => (String(source?.split ?? "train").startsWith("validation") ? "validation" : "train") === part;

// The sources of this split as the lines say, those of the other one as they are; what else is known of a path stays.
function sources(control) {
  const { split: part } = control.dataset;
  const found = at(control.dataset.path), before = Array.isArray(found) ? found : [];
  const others = before.filter((source) => !ofSplit(source, part));
  const mine = lines(control.value).map((path) => before.find((source) => source?.path === path && ofSplit(source, part))
    ?? (part === "train" ? { path } : { path, split: part }));
  return part === "train" ? [...mine, ...others] : [...others, ...mine];
}

const listed = (value) => value.split(",").map((each) => each.trim()).filter(Boolean);
const typed = (value) => listed(value).map((each) => (/^(true|false)$/.test(each) ? each === "true" : numbered(each)));
const numbered = (value) => (value.trim() !== "" && Number.isFinite(Number(value)) ? Number(value) : value);

// A value as JSON, or else a text without quotes.
function option(value) {
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
const isPlain = (value) => typeof value === "string" && value === value.trim() && !value.includes("\n") && option(value) === value;
const shownOption = (value) => (isPlain(value) ? value : JSON.stringify(value));
const entries = (control) => lines(control.value).map((line) => {
  const [key, ...value] = line.split("=");
  return [key.trim(), value.length ? value.join("=").trim() : null, line];
});

const mapped = (control, read) => Object.fromEntries(
  entries(control).filter(([key, value]) => key && value !== null).map(([key, value]) => [key, read(value)]),
);

// Why lines of key=value cannot be part of the document as they are; empty when they can.
function unread(control) {
  if (!KEYED.includes(control.dataset.kind)) return "";
  const seen = new Set();
  for (const [key, value, line] of entries(control)) {
    if (!key || value === null) return `write key=value instead of “${line}”`;
    if (seen.has(key)) return `${key} stands here twice: leave one of them out`;
    seen.add(key);
  }
  return "";
}

const READ = {
  text: (control) => control.value,
  choice: (control) => control.value,
  flag: (control) => control.value === "true",
  whole: (control) => numbered(control.value),
  number: (control) => numbered(control.value),
  texts: (control) => listed(control.value),
  lines: (control) => lines(control.value),
  values: (control) => typed(control.value),
  source: (control) => (isObject(at(control.dataset.path)) ? { ...at(control.dataset.path), path: control.value } : control.value),
  map: (control) => mapped(control, (value) => value),
  options: (control) => mapped(control, option),
  cases: (control) => mapped(control, typed),
  sources,
};

function shown(control) {
  const value = at(control.dataset.path);
  if (control.dataset.kind === "sources") {
    return Array.isArray(value) ? value.filter((each) => ofSplit(each, control.dataset.split)).map((each) => each?.path ?? "").join("\n") : "";
  }
  if (value === undefined || value === null) return "";
  const { kind } = control.dataset;
  if (Array.isArray(value)) return value.join(kind === "lines" ? "\n" : ", ");
  if (kind === "source" && isObject(value)) return String(value.path ?? "");
  if (kind === "options" && isObject(value)) return Object.entries(value).map(([key, each]) => `${key}=${shownOption(each)}`).join("\n");
  if (kind === "cases" && isObject(value)) return Object.entries(value).map(([key, each]) => `${key}=${[each].flat().join(", ")}`).join("\n");
  if (isObject(value)) return Object.entries(value).map(([key, each]) => `${key}=${each}`).join("\n");
  return String(value);
}

// A select offers a value of the document that is none of its own, too: the check says what is wrong with it.
function show(control) {
  const value = shown(control), names = split(control.dataset.path);
  control.disabled = Array.isArray(follow(names.slice(0, -1))) && !/^\d+$/.test(names.at(-1)); // such as of several objectives
  if (control.tagName === "SELECT" && ![...control.options].some((option) => option.value === value)) control.add(new Option(value, value));
  if (control.value !== value) control.value = value;
  if (isLossy(control)) control.disabled = true;
}

// Whether the field cannot say what the document has, such as a value with a comma: it is left to the document then.
function isLossy(control) {
  const { kind, path } = control.dataset, value = at(path);
  if (!["values", "lines", "options", "cases"].includes(kind) || value === undefined || value === null) return false;
  return JSON.stringify(READ[kind](control)) !== JSON.stringify(value);
}

function fill(part = form) {
  for (const control of part.querySelectorAll("[data-path]")) if (control !== document.activeElement) show(control);
  hide();
}

// A script of one's own needs no model: its fields are hidden, unless the document has them.
function hide() {
  const isCustom = at(METHOD[1]) === "CUSTOM";
  for (const control of form.querySelectorAll("[data-path]")) {
    const path = NEEDLESS.find((each) => control.dataset.path === each || control.dataset.path.startsWith(`${each}.`));
    if (path) control.closest(".field").hidden = isCustom && at(path) === undefined;
  }
}

function chooseFramework() {
  const isCustom = at(METHOD[1]) === "CUSTOM";
  for (const path of NEEDLESS) {
    if (isCustom && at(path) !== undefined) {
      removed[path] = at(path);
      put(path, undefined);
    } else if (!isCustom && at(path) === undefined && path in removed) put(path, removed[path]);
  }
  text.value = JSON.stringify(known, null, 2);
  fill();
}

// Parts of the form that depend on the method, or have a row for each of several things, are made by the server.
function parts() {
  const [type, framework] = form.dataset.method?.split(" ") ?? METHOD.map((path) => String(at(path) ?? ""));
  const training = type || (framework === "CUSTOM" ? "CUSTOM" : "");
  for (const part of form.querySelectorAll("[data-part]")) {
    const rows = Object.keys(at(part.dataset.rows ?? "") ?? {});
    const made = [training, framework, ...rows].join(" ");
    if (part.dataset.made === made) continue;
    part.dataset.made = made;
    const asked = [["training_type", training], ["framework", framework], ...rows.map((row) => ["row", row])];
    const query = new URLSearchParams(asked.filter(([, value]) => value));
    // As its own source: of several requests of one element htmx drops all but the first and the last.
    const where = { source: part, target: `#${part.id}`, swap: "outerHTML" };
    htmx.ajax("GET", `${part.dataset.part}?${query}`, where).then(() => {
      const shownPart = document.getElementById(part.id);
      shownPart.dataset.made = made;
      fill(shownPart);
      mark();
      if (goal) document.querySelector(goal)?.focus();
      goal = "";
      parts();
    });
  }
}

// Adds a row that is in the document from then on, or takes one away.
function changeRows(part, { add, remove }) {
  const path = part.dataset.rows, rows = at(path) ?? {};
  goal = `#${part.id} .row:nth-last-of-type(1) [data-path]`;
  if (remove) {
    put([...split(path), remove], undefined);
    goal = `#${part.id} [data-add]`;
  } else if (add) {
    put(path, [...(Array.isArray(rows) ? rows : []), JSON.parse(add)]);
  } else {
    const input = part.querySelector("[list=new-row-list]"), name = input.value.trim();
    if (!name || Object.hasOwn(rows, name)) return input.focus();
    const found = [...input.list.options].find((option) => option.value === name);
    put([path, name], JSON.parse(found?.dataset.start ?? '{"type":"double"}'));
  }
  text.value = JSON.stringify(known, null, 2);
  parts();
  check();
}

function save(sent = false) {
  if (text.value === initial.text && project.value === initial.project) forget(draftKey);
  else if (!form.elements[0].disabled) keep(draftKey, known, { project: project.value, sent });
}

// What was typed is back after a reload, another page or a sign-in; what was sent only for those who go back to it.
function restore() {
  const draft = kept(draftKey);
  if (!draft) return;
  if (draft.sent && performance.getEntriesByType("navigation")[0]?.type === "navigate") {
    forget(draftKey);
    return;
  }
  text.value = draft.text;
  project.value = draft.project;
  document.getElementById("draft").hidden = false;
  document.getElementById("draft-masked").hidden = !draft.text.includes(MASK);
}

function startAnew() {
  const now = { text: text.value, project: project.value };
  ({ text: text.value, project: project.value } = before ?? initial);
  const isBack = before !== null;
  read();
  check();
  before = isBack ? null : now;
  document.getElementById("start-anew").textContent = isBack ? "Start anew" : "Take it back";
  document.getElementById("draft").hidden = true;
}

function check() {
  before = null;
  document.getElementById("start-anew").textContent = "Start anew";
  save();
  ask();
}

function ask() {
  clearTimeout(timer);
  timer = setTimeout(() => htmx.trigger("#check", "check"), CHECK_MS);
}

// The document is the truth: without JSON in it the fields stay as they are, and none can be changed.
function read() {
  let found;
  try {
    found = JSON.parse(text.value);
  } catch {
    found = undefined;
  }
  const isRead = isObject(found);
  for (const control of form.elements) control.disabled = !isRead;
  if (!isRead) return;
  known = found;
  fill();
  parts();
}

function write(control) {
  const value = READ[control.dataset.kind](control);
  const isEmpty = control.value.trim() === "" && control.dataset.kind !== "sources";
  put(control.dataset.path, isEmpty ? undefined : value);
  text.value = JSON.stringify(known, null, 2);
}

// A field that the person has not come to is not wrong yet, only empty; after Submit, or in a report that was asked for, it is.
const mayBeWrong = (control, item) => wasSubmitted || touched.has(control.id) || control.value.trim() !== "" || item.closest("#data");

// Puts what is wrong beside the fields that it is about, and opens the groups that they are in.
function mark() {
  for (const old of form.querySelectorAll(".wrong")) old.remove();
  for (const control of form.querySelectorAll("[aria-invalid]")) {
    control.removeAttribute("aria-invalid");
    control.setAttribute("aria-describedby", `${control.id}-hint`);
  }
  for (const control of keyed()) {
    const message = unread(control);
    if (message && control !== document.activeElement) explain(control, message);
  }
  for (const item of document.querySelectorAll("#check [data-field], #data [data-field]")) {
    const { field, message } = item.dataset;
    const found = [...form.querySelectorAll("[data-path]")]
      .filter((each) => field && (field === each.dataset.path || field.startsWith(`${each.dataset.path}.`)));
    if (!found.length && field) found.push(...[...form.querySelectorAll("[data-path]")].filter((each) => each.dataset.path.startsWith(`${field}.`)));
    const control = found.find((each) => lines(each.value).some((line) => message.includes(line))) ?? found[0];
    if (!control || control.hasAttribute("aria-invalid") || !mayBeWrong(control, item)) continue;
    explain(control, message);
  }
}

function explain(control, message) {
  control.setAttribute("aria-invalid", "true");
  const group = control.closest("details");
  if (group) group.open = true;
  const note = document.createElement("small");
  note.className = "wrong";
  note.id = `${control.id}-wrong`;
  control.setAttribute("aria-describedby", `${note.id} ${control.id}-hint`);
  note.textContent = `✕ ${message}`;
  control.after(note);
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  if (!event.target.dataset.path) return;
  touched.add(event.target.id);
  write(event.target);
  check();
});
form.addEventListener("focusout", ({ target }) => {
  if (!target.dataset.path || touched.has(target.id)) return;
  touched.add(target.id);
  mark();
});
form.addEventListener("click", ({ target }) => {
  if ("add" in target.dataset || "remove" in target.dataset) changeRows(target.closest("[data-rows]"), target.dataset);
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.id === "new-row") changeRows(event.target.closest("[data-rows]"), {});
});
document.getElementById("document-form").addEventListener("submit", () => {
  wasSubmitted = true;
  mark();
});
form.addEventListener("change", ({ target }) => {
  if (target.dataset.path === METHOD[1]) {
    chooseFramework();
    check();
  }
  if (METHOD.includes(target.dataset.path)) parts();
  if (KEYED.includes(target.dataset.kind)) mark();
});
// Lines that cannot be part of the document are not left out silently.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.elt.id !== "document-form") return;
  const wrong = [...keyed()].find(unread);
  if (!wrong) return;
  event.preventDefault();
  mark();
  wrong.focus();
});
document.addEventListener("htmx:beforeOnLoad", ({ detail }) => {
  if (detail.elt.id === "document-form" && detail.xhr.status === 200) save(true);
});
document.getElementById("start-anew").addEventListener("click", startAnew);
text.addEventListener("input", () => {
  read();
  check();
});
document.addEventListener("change", (event) => event.target.name === "project" && check());
document.addEventListener("htmx:afterSwap", (event) => {
  if (["check", "data"].includes(event.detail.target.id)) mark();
});
restore();
read();
ask();
