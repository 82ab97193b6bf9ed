// The selection in the list of jobs: it stays when the list is refreshed and on its other pages, and says which actions
// are possible.
const MOST_COMPARED = 20, REFRESH_MS = 3_000, KEPT = "selected-jobs";
const bar = document.getElementById("selection"), compare = document.getElementById("compare");
const selected = new Set(kept());
let lastPicked = null;

const boxes = () => [...document.querySelectorAll("#job-list input[name=job]")];

// Which list this is, whatever its page, order and columns. Another list begins with nothing selected.
function list() {
  const query = new URLSearchParams(location.search);
  for (const name of ["page_token", "order_by", "column"]) query.delete(name);
  return `${query}`;
}

function kept() {
  try {
    const { of, jobs } = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
    return of === list() && Array.isArray(jobs) ? jobs : [];
  } catch { // what another version of this page has stored
    return [];
  }
}

// Forms send these fields alone, never the boxes: a job that is not counted is not acted on.
function addHidden() {
  for (const each of compare.querySelectorAll("input")) each.remove();
  for (const id of selected) {
    const field = document.createElement("input");
    [field.type, field.name, field.value] = ["hidden", "job", id];
    compare.append(field);
  }
}

function show() {
  const all = boxes(), here = new Set(all.map((box) => box.value));
  const count = selected.size, elsewhere = [...selected].filter((id) => !here.has(id));
  const most = Number(bar.dataset.most), more = elsewhere.length ? `, ${elsewhere.length} of them not on this page` : "";
  document.getElementById("selected-count").textContent = count
    ? `${count} selected${more}${count > most ? `; actions take at most ${most}` : ""}`
    : "Select jobs to compare them or to act on several at once.";
  addHidden();
  if (count) sessionStorage.setItem(KEPT, JSON.stringify({ of: list(), jobs: [...selected] }));
  else sessionStorage.removeItem(KEPT);
  for (const button of bar.querySelectorAll("form button")) button.disabled = count === 0 || count > most;
  document.getElementById("unselect").hidden = count === 0;
  const jobs = count === 1 ? "the selected job" : `the ${count} selected jobs`;
  for (const { dataset } of bar.querySelectorAll("form[data-confirm]")) {
    dataset.confirmTitle = `${dataset.verb} ${jobs}?`;
  }
  document.getElementById("compare-button").disabled = count < 2 || count > MOST_COMPARED;
  const every = document.getElementById("pick-all");
  if (!every) return;
  const picked = count - elsewhere.length;
  every.checked = picked > 0 && picked === all.length;
  every.indeterminate = picked > 0 && picked < all.length;
}

function restore() {
  for (const box of boxes()) box.checked = selected.has(box.value);
  show();
}

function pick(box, checked) {
  box.checked = checked;
  if (checked) selected.add(box.value);
  else selected.delete(box.value);
}

document.addEventListener("click", (event) => {
  const box = event.target;
  if (box.id === "pick-all") {
    for (const each of boxes()) pick(each, box.checked);
  } else if (box.id === "unselect") {
    selected.clear();
    for (const each of boxes()) each.checked = false;
  } else if (box.name === "job" && box.type === "checkbox") {
    const all = boxes();
    const [from, to] = [all.findIndex((each) => each.value === lastPicked), all.indexOf(box)];
    // With Shift all from the one picked before.
    const range = event.shiftKey && from >= 0 ? all.slice(Math.min(from, to), Math.max(from, to) + 1) : [box];
    for (const each of range) pick(each, box.checked);
    lastPicked = box.value;
  } else return;
  show();
});
// At once, before htmx has settled: the list never shows without its selection.
document.addEventListener("htmx:afterSwap", restore);

// A busy cluster changes all the time: the list asks less often than it hears of it, and always after the last change.
let timer = 0, refreshed = 0;

function refresh() {
  const list = document.getElementById("job-list");
  if (list.classList.contains("htmx-request")) { // the answer replaces it, and with it what htmx would ask next
    timer = setTimeout(refresh, REFRESH_MS);
    return;
  }
  [timer, refreshed] = [0, Date.now()];
  list.dispatchEvent(new CustomEvent("refresh"));
}

document.addEventListener("live", (event) => {
  if (event.target.id !== "job-list" || timer) return;
  timer = setTimeout(refresh, Math.max(0, refreshed + REFRESH_MS - Date.now()));
}, true);
document.addEventListener("htmx:configRequest", ({ detail }) => {
  if (detail.triggeringEvent?.type === "refresh") detail.headers["X-Background"] = "true";
});

// A page that the browser has kept whole may be older than the selection.
addEventListener("pageshow", ({ persisted }) => {
  if (!persisted) return;
  selected.clear();
  for (const id of kept()) selected.add(id);
  restore();
});
restore();
