// What every page needs: times of the reader's zone, confirmations, notices, copying, and the stream of changes.

const RELATIVE_MS = 15_000;
const UNITS = [["day", 86_400], ["hour", 3_600], ["minute", 60], ["second", 1]];
const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

function ago(moment) {
  const seconds = (moment - Date.now()) / 1000;
  const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each) ?? UNITS.at(-1);
  return relative.format(Math.round(seconds / size), unit);
}

function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    const text = absolute.format(moment);
    time.title = time.dateTime;
    time.textContent = "relative" in time.dataset ? ago(moment) : text;
    if ("relative" in time.dataset) time.title = text;
  }
}

// Asks before an action that destroys something; the form is sent when the person agrees. Until then no change of the
// page replaces the form, which could not be sent any more. Nor does one replace what is being pressed, or the click
// would be lost. The part that holds it is asked for anew afterwards.
const asking = { form: null, held: new Set() };

function askAnew() {
  // Not by an event: htmx would drop one that comes too soon after the last.
  // A part that another one's answer holds is asked for with that one.
  const asked = new Set([...asking.held].map((part) => (part.hasAttribute("hx-get") ? part : document.querySelector(`[hx-select-oob*="#${part.id}"]`))));
  for (const part of asked) {
    const url = part?.isConnected && part.getAttribute("hx-get");
    if (url) htmx.ajax("GET", url, { source: part, headers: { "X-Background": "true" } }).catch(() => {}); // the next change asks again
  }
  asking.held.clear();
}

function confirmed(form) {
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-title").textContent = form.dataset.confirmTitle;
  document.getElementById("confirm-text").textContent = form.dataset.confirm;
  document.getElementById("confirm-yes").textContent = form.dataset.confirmYes;
  dialog.returnValue = "no";
  asking.form = form;
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

document.addEventListener("htmx:confirm", (event) => {
  const form = event.target.closest?.("form[data-confirm]");
  if (!form) return;
  event.preventDefault();
  confirmed(form).then((agreed) => {
    if (agreed) event.detail.issueRequest(true);
    asking.form = null;
    askAnew();
  });
});
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const { target, requestConfig } = detail;
  const isAsked = asking.form && target?.contains(asking.form);
  const isPressed = requestConfig.headers["X-Background"] && target?.querySelector(":active");
  if (!isAsked && !isPressed) return;
  detail.shouldSwap = false;
  asking.held.add(target);
});
document.addEventListener("htmx:oobBeforeSwap", ({ detail }) => {
  const { target } = detail;
  if (!target.contains(asking.form) && !target.querySelector(":active")) return;
  detail.shouldSwap = false;
  asking.held.add(target);
});
// What is dragged away, or released in another window, has no pointerup.
for (const released of ["pointerup", "pointercancel", "keyup", "dragend", "blur"]) {
  addEventListener(released, () => setTimeout(() => asking.form || askAnew())); // the click comes first
}

// Browsers give the clipboard only to pages over HTTPS or of their own machine. Everywhere they copy what is selected.
async function copied(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {} // it may be forbidden: the selection may still be copied
  }
  const area = document.createElement("textarea"), before = document.activeElement;
  area.className = "unseen";
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  before.focus({ preventScroll: true });
  return isCopied;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if ("dismiss" in button.dataset) button.closest(".notice").remove();
  if ("copy" in button.dataset) button.textContent = await copied(button.dataset.copy) ? "Copied" : "Not copied: the browser forbids it";
});

// A part that is replaced keeps the focus. htmx does so for elements with an id; others are found by what they are: a
// link by where it leads, a button by the form that it sends, and then by the words.
const FOCUSABLE = "a[href], button, summary, input, select, textarea, [tabindex]";
let focused = null;

const whatItIs = (element) => [
  element.tagName, element.getAttribute("href") ?? element.form?.getAttribute("action") ?? "", element.name ?? "",
  element.matches("a[href]") ? "" : element.getAttribute("aria-label") ?? element.textContent.trim(),
].join(" ");
const alikeIn = (part, what) => [...part.querySelectorAll(FOCUSABLE)].filter((each) => whatItIs(each) === what);

document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const element = document.activeElement, part = detail.target;
  focused = null;
  if (!part?.id || element === part || !part.contains(element) || (element.id && element.id !== part.id)) return;
  const what = whatItIs(element);
  focused = { part: part.id, what, place: alikeIn(part, what).indexOf(element) };
});
document.addEventListener("htmx:afterSwap", () => {
  if (!focused) return;
  const { part, what, place } = focused, here = document.getElementById(part);
  focused = null;
  if (!here || document.activeElement !== document.body) return;
  const alike = alikeIn(here, what);
  alike[Math.min(place, alike.length - 1)]?.focus({ preventScroll: true });
});

// A page that asks by itself, or that holds what was typed, stays when the sign-in has ended.
document.addEventListener("htmx:beforeOnLoad", (event) => {
  const { xhr, requestConfig } = event.detail;
  const isTyped = document.querySelector("[data-stay]") !== null;
  if (xhr.status !== 401 || !(isTyped || requestConfig.headers["X-Background"])) return;
  event.preventDefault();
  if (document.getElementById("signed-out") || document.getElementById("live-state")?.textContent === "signed out") return;
  const notice = document.createElement("div"), text = document.createElement("p"), link = document.createElement("a");
  notice.id = "signed-out";
  notice.className = "notice failed";
  notice.setAttribute("role", "alert");
  link.href = `${xhr.getResponseHeader("HX-Redirect")}?next=${encodeURIComponent(location.pathname + location.search)}`;
  link.textContent = "Sign in again";
  text.append(`Your sign-in has ended. ${isTyped ? "What you typed stays here, and is here again after the next one." : "This page no longer changes."} `, link);
  notice.append(text);
  document.getElementById("notices").append(notice);
});
// Drafts are of the person who leaves.
document.addEventListener("submit", ({ target }) => "leaves" in target.dataset && sessionStorage.clear());

document.addEventListener("htmx:load", (event) => showTimes(event.target));
document.addEventListener("htmx:configRequest", (event) => {
  // A request that no person started does not extend the session.
  if (event.detail.triggeringEvent?.type === "live") event.detail.headers["X-Background"] = "true";
});
showTimes(document);
setInterval(() => document.hidden || showTimes(document), RELATIVE_MS);

// Pages that show nothing live do not load what follows changes.
async function followChanges() {
  if (!document.querySelector("[data-live]")) return;
  document.removeEventListener("htmx:afterSettle", followChanges);
  (await import("./live.js")).follow();
}

if (document.getElementById("live-state")) {
  document.addEventListener("htmx:afterSettle", followChanges);
  followChanges();
}
