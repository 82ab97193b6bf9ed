// What every page needs: times of the reader's zone, confirmations, notices, copying, and the stream of changes.
import { follow } from "./live.js";

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

// Asks before an action that destroys something; the form is sent when the person agrees.
function confirmed(form) {
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-title").textContent = form.dataset.confirmTitle;
  document.getElementById("confirm-text").textContent = form.dataset.confirm;
  document.getElementById("confirm-yes").textContent = form.dataset.confirmYes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

document.addEventListener("htmx:confirm", (event) => {
  const form = event.target.closest?.("form[data-confirm]");
  if (!form) return;
  event.preventDefault();
  confirmed(form).then((agreed) => agreed && event.detail.issueRequest(true));
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if ("dismiss" in button.dataset) button.closest(".notice").remove();
  if ("copy" in button.dataset) {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  }
});

document.addEventListener("htmx:load", (event) => showTimes(event.target));
document.addEventListener("htmx:configRequest", (event) => {
  // A request that no person started does not extend the session.
  if (event.detail.triggeringEvent?.type === "live") event.detail.headers["X-Background"] = "true";
});
showTimes(document);
setInterval(() => document.hidden || showTimes(document), RELATIVE_MS);
if (document.getElementById("live-state")) follow();
