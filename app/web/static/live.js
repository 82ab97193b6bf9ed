// One stream of changes for the whole page, while it is visible.
//
// An element with data-live="TOPIC …" receives the event `live` when one of its topics has changed, at most once a
// second, or once in data-pace seconds, and after the last change; htmx elements ask for themselves anew with
// hx-trigger="live". Those whose answer may be 204 have no throttle of htmx's: it would drop the last change, since
// the element stays. A script that adds such elements itself calls `follow` again.
const POLL_MS = 5_000, POLLS_BEFORE_STREAM = 6, CLAIM_MS = 250;
// Browsers open six connections to a server over HTTP/1.1: the streams of all tabs leave some to pages and actions.
const MOST_STREAMS = 3;

const label = document.getElementById("live-state");
const address = label?.dataset.url;
const me = Math.random();
const channel = globalThis.BroadcastChannel && new BroadcastChannel("trainyard-live");
const streams = new Set(); // of other tabs, which answered
const told = new Map(); // element's key → when it got its last event
const due = new Set(); // keys of elements that will get one
let topics = "", after = "", made = label?.dataset.made;
let gap = 1_100; // htmx has its own throttle of a second, which would drop an earlier event
let source = null, timer = 0, round = 0, claims = false, polls = 0, wasOffline = false;

function show(text) {
  if (label.textContent !== text) label.textContent = text;
}

// Numbers and buttons of the page look alive, but are not any more.
function showEnd() {
  show("signed out");
  const notice = document.createElement("div"), text = document.createElement("p"), link = document.createElement("a");
  notice.className = "notice failed";
  link.href = location.href;
  link.textContent = "Sign in again";
  text.append("You are signed out: the sign-in has ended, or its key is no longer valid. This page is not updated. ", link);
  notice.append(text);
  document.getElementById("notices").replaceChildren(notice);
}

// A server with many viewers asks them to come less often.
const pollAfter = () => Math.max(POLL_MS, gap - 100);
const query = () => new URLSearchParams({ topic: topics, ...(after ? { after } : made ? { made } : {}) });
const wanted = () => [...new Set([...document.querySelectorAll("[data-live]")].flatMap((each) => each.dataset.live.split(/\s+/)))]
  .filter(Boolean).sort().join(",");

// A tab that is asked and has a stream, or asked before, says so.
if (channel) {
  channel.onmessage = ({ data }) => {
    if (data.to === me) streams.add(data.from);
    else if (data.asks !== undefined && claims && (source || me < data.asks)) channel.postMessage({ to: data.asks, from: me });
  };
}

async function claim() {
  claims = true;
  if (!channel) return true;
  streams.clear();
  channel.postMessage({ asks: me });
  await new Promise((resolve) => setTimeout(resolve, CLAIM_MS));
  claims = streams.size < MOST_STREAMS;
  return claims;
}

// A part is not replaced while a person answers a question or types in it. While it waits for an answer it hears of no
// change: htmx would ask again for the old element, which the answer has replaced, and so not at all.
function isBusy(element) {
  const focused = document.activeElement;
  return element.classList.contains("htmx-request") || document.querySelector("dialog[open]") || (focused !== document.body && element.contains(focused) && focused.matches("input:not([type=checkbox], [type=radio]), select, textarea"));
}

function tell(key) {
  const element = [...document.querySelectorAll("[data-live]")].find((each) => keyOf(each) === key);
  if (element && isBusy(element)) {
    setTimeout(tell, gap, key);
    return;
  }
  due.delete(key);
  if (!element) return;
  told.set(key, Date.now());
  element.dispatchEvent(new CustomEvent("live"));
}

const keyOf = (element) => `${element.id} ${element.dataset.live}`;

function take({ changed, id, pace }) {
  after = id;
  gap = 1_000 * pace + 100;
  const now = Date.now();
  for (const element of document.querySelectorAll("[data-live]")) {
    if (!element.dataset.live.split(/\s+/).some((topic) => changed.includes(topic))) continue;
    const key = keyOf(element), pace = Math.max(gap, 1_000 * (element.dataset.pace ?? 0));
    if (due.has(key)) continue;
    due.add(key);
    setTimeout(tell, Math.max(0, (told.get(key) ?? 0) + pace - now), key);
  }
}

function stop() {
  round += 1;
  clearTimeout(timer);
  source?.close();
  source = null;
  claims = false;
}

async function start() {
  stop();
  if (document.hidden || !topics) return;
  const mine = round, isFree = await claim();
  if (mine !== round) return;
  polls = 0;
  if (!isFree) return poll();
  source = new EventSource(`${address}?${query()}`);
  source.onopen = () => show("live");
  source.onmessage = (event) => take(JSON.parse(event.data));
  source.onerror = (event) => {
    // The server has said why it ends, or has not opened it: the answer to a poll tells more.
    if (event.data !== undefined || source.readyState === EventSource.CLOSED) {
      stop();
      poll();
    } else show("offline");
  };
}

async function poll() {
  const mine = round;
  try {
    const answer = await fetch(`${address}/marks?${query()}`, { headers: { "X-Background": "true", "HX-Request": "true" } });
    if (mine !== round) return;
    if (answer.status === 401) return showEnd();
    if (!answer.ok) throw new Error(answer.status);
    take(await answer.json());
    show(`every ${Math.round(pollAfter() / 1_000)} s`);
    if (wasOffline || ++polls >= POLLS_BEFORE_STREAM) {
      wasOffline = false;
      return start();
    }
  } catch {
    if (mine !== round) return;
    wasOffline = true;
    show("offline");
  }
  timer = setTimeout(poll, pollAfter());
}

export function follow() {
  const found = wanted();
  if (found === topics) return;
  if (topics) after = made = "";
  topics = found;
  start();
}

if (address) {
  document.addEventListener("visibilitychange", start);
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => event.persisted && start());
  document.addEventListener("htmx:afterSettle", follow);
}
