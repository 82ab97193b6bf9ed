// The form and the document of a job: each follows the other, and the server checks the document while it is written.
const CHECK_MS = 500;
const form = document.getElementById("job-form");
const text = document.getElementById("document");
const METHOD = ["training_config.training_type", "training_config.framework.type"];
let timer = 0;
let known = {};  // the document that was read last

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function at(path) {
  return path.split(".").reduce((found, name) => (isObject(found) ? found[name] : undefined), known);
}

// Sets a value of the document; undefined takes it away, with the objects that are empty then below the sections.
function put(path, value) {
  const names = path.split(".");
  const parents = [known];
  for (const name of names.slice(0, -1)) {
    const parent = parents.at(-1);
    if (!isObject(parent[name])) {
      if (value === undefined) return;
      parent[name] = {};
    }
    parents.push(parent[name]);
  }
  if (value !== undefined) {
    parents.at(-1)[names.at(-1)] = value;
    return;
  }
  delete parents.at(-1)[names.at(-1)];
  for (let depth = parents.length - 1; depth > 1 && !Object.keys(parents[depth]).length; depth -= 1) {
    delete parents[depth - 1][names[depth - 1]];
  }
}

const lines = (value) => value.split("\n").map((line) => line.trim()).filter(Boolean);
const ofSplit = (source, split) => (String(source?.split ?? "train").startsWith("validation") ? "validation" : "train") === split;

// The sources of this split as the lines say, those of the other one as they are; what else is known of a path stays.
function sources(control) {
  const { split } = control.dataset;
  const before = Array.isArray(known.data_config?.sources) ? known.data_config.sources : [];
  const others = before.filter((source) => !ofSplit(source, split));
  const mine = lines(control.value).map((path) => before.find((source) => source?.path === path && ofSplit(source, split))
    ?? (split === "train" ? { path } : { path, split }));
  return split === "train" ? [...mine, ...others] : [...others, ...mine];
}

const numbered = (value) => (value.trim() !== "" && Number.isFinite(Number(value)) ? Number(value) : value);
const READ = {
  text: (control) => control.value,
  choice: (control) => control.value,
  flag: (control) => control.value === "true",
  whole: (control) => numbered(control.value),
  number: (control) => numbered(control.value),
  texts: (control) => control.value.split(",").map((each) => each.trim()).filter(Boolean),
  map: (control) => Object.fromEntries(lines(control.value).map((line) => {
    const [key, ...value] = line.split("=");
    return [key.trim(), value.join("=").trim()];
  })),
  sources,
};

function shown(control) {
  const value = at(control.dataset.path);
  if (control.dataset.kind === "sources") {
    return Array.isArray(value) ? value.filter((each) => ofSplit(each, control.dataset.split)).map((each) => each?.path ?? "").join("\n") : "";
  }
  if (value === undefined || value === null) return "";
  if (Array.isArray(value)) return value.join(", ");
  if (isObject(value)) return Object.entries(value).map(([key, each]) => `${key}=${each}`).join("\n");
  return String(value);
}

// A select offers a value of the document that is none of its own, too: the check says what is wrong with it.
function show(control) {
  const value = shown(control);
  if (control.tagName === "SELECT" && ![...control.options].some((option) => option.value === value)) control.add(new Option(value, value));
  if (control.value !== value) control.value = value;
}

function fill() {
  for (const control of form.querySelectorAll("[data-path]")) if (control !== document.activeElement) show(control);
}

function method() {
  const [training, framework] = METHOD.map((path) => String(at(path) ?? ""));
  const part = document.getElementById("hyperparameters");
  const wanted = `${training || (framework === "CUSTOM" ? "CUSTOM" : "")} ${framework}`;
  if (part.dataset.method === wanted) return;
  part.dataset.method = wanted;
  const query = new URLSearchParams([["training_type", training], ["framework", framework]].filter(([, value]) => value));
  htmx.ajax("GET", `${form.dataset.hyperparameters}?${query}`, { target: "#hyperparameters", swap: "outerHTML" }).then(fill);
}

function check() {
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
  method();
}

function write(control) {
  const value = READ[control.dataset.kind](control);
  const isEmpty = control.value.trim() === "" && control.dataset.kind !== "sources";
  put(control.dataset.path, isEmpty ? undefined : value);
  text.value = JSON.stringify(known, null, 2);
}

// Puts what is wrong beside the fields that it is about, and opens the groups that they are in.
function mark() {
  for (const old of form.querySelectorAll(".wrong")) old.remove();
  for (const control of form.querySelectorAll("[aria-invalid]")) {
    control.removeAttribute("aria-invalid");
    control.setAttribute("aria-describedby", `${control.id}-hint`);
  }
  for (const item of document.querySelectorAll("#check [data-field], #data [data-field]")) {
    const { field, message } = item.dataset;
    const found = [...form.querySelectorAll("[data-path]")]
      .filter((each) => field && (field === each.dataset.path || field.startsWith(`${each.dataset.path}.`)));
    const control = found[0];
    if (!control || control.hasAttribute("aria-invalid")) continue;
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
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  if (!event.target.dataset.path) return;
  write(event.target);
  check();
});
form.addEventListener("change", (event) => METHOD.includes(event.target.dataset.path) && method());
text.addEventListener("input", () => {
  read();
  check();
});
document.addEventListener("change", (event) => event.target.name === "project" && check());
document.addEventListener("htmx:afterSwap", (event) => {
  if (["check", "data"].includes(event.detail.target.id)) mark();
});
read();
check();
