// The selection in the list of jobs: it stays when the list is refreshed, and says which actions are possible.
const MOST_COMPARED = 20, REFRESH_MS = 3_000;
const selected = new Set();
let lastPicked = null;

const boxes = () => [...document.querySelectorAll("#job-list input[name=job]")];

function show() {
  const all = boxes();
  const count = selected.size;
  document.getElementById("selected-count").textContent = count
    ? `${count} selected`
    : "Select jobs to compare them or to act on several at once.";
  for (const button of document.querySelectorAll("#selection button")) button.disabled = count === 0;
  const jobs = count === 1 ? "the selected job" : `the ${count} selected jobs`;
  for (const { dataset } of document.querySelectorAll("#selection form[data-confirm]")) {
    dataset.confirmTitle = `${dataset.verb} ${jobs}?`;
  }
  document.getElementById("compare-button").disabled = count < 2 || count > MOST_COMPARED;
  const every = document.getElementById("pick-all");
  if (!every) return;
  every.checked = count > 0 && count === all.length;
  every.indeterminate = count > 0 && count < all.length;
}

// Jobs that have left the page are no longer selected.
function restore() {
  const here = new Set(boxes().map((box) => box.value));
  for (const id of selected) if (!here.has(id)) selected.delete(id);
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
// At once: a form that is sent before htmx has settled takes the boxes along, too.
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

// A page that the browser restores has boxes that are checked already.
for (const box of boxes()) if (box.checked) selected.add(box.value);
show();
