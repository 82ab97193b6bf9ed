// A shell of a running job in the page: xterm.js, joined with the WebSocket of a session at the gateway.
const STDIN = 0, STDOUT = 1, STDERR = 2, STATUS = 3, RESIZE = 4; // channels of trainyard.session.v1
const CHUNK = 32 << 10; // of what is typed or pasted
const MOST_UNDRAWN = 16 << 20; // bytes of output that may wait to be drawn; more is left out
const RESIZE_MS = 100;
const COLORS = { background: "#10151c", foreground: "#e6ebf2", cursor: "#e6ebf2", selectionBackground: "#33507a" };

const by = (id) => document.getElementById(id);
const box = by("terminal-box"), host = by("terminal"), state = by("terminal-state");
const bytes = new TextEncoder();
let shell = null; // the one that is open, or was the last

// The page's policy allows no inline styles, which xterm.js makes: its rules become a constructed style sheet, and
// attributes of its spans the same declarations by script.
function create(name) {
  if (name !== "style") return document.createElement(name);
  const sheet = new CSSStyleSheet(), stand = document.createElement("span");
  document.adoptedStyleSheets.push(sheet);
  stand.hidden = true;
  Object.defineProperty(stand, "textContent", { set: (rules) => sheet.replaceSync(rules) });
  stand.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
    Element.prototype.remove.call(stand);
  };
  return stand;
}

HTMLSpanElement.prototype.setAttribute = function setAttribute(name, value) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
};

const strictDocument = new Proxy(document, {
  get(target, name) {
    if (name === "createElement") return create;
    const found = Reflect.get(target, name, target);
    return typeof found === "function" ? found.bind(target) : found;
  },
});

class Shell {
  constructor() {
    this.socket = null;
    this.outcome = ""; // what became of the shell, once the gateway has said it
    this.undrawn = 0;
    this.leftOut = 0;
    this.terminal = new Terminal({
      documentOverride: strictDocument, theme: COLORS, minimumContrastRatio: 4.5, cursorBlink: false,
      fontFamily: getComputedStyle(host).fontFamily, fontSize: 14, scrollback: 5000, screenReaderMode: true,
    });
    this.fit = new FitAddon.FitAddon();
    this.terminal.loadAddon(this.fit);
    this.terminal.open(host);
    this.terminal.attachCustomKeyEventHandler((event) => this.takes(event));
    this.terminal.onData((text) => this.type(bytes.encode(text)));
    this.terminal.onBinary((text) => this.type(Uint8Array.from(text, (each) => each.charCodeAt(0))));
    this.terminal.onResize(({ rows, cols }) => this.send(RESIZE, bytes.encode(JSON.stringify({ rows, columns: cols }))));
    this.watch = new ResizeObserver(() => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.fit.fit(), RESIZE_MS);
    });
    this.fit.fit();
  }

  // Ctrl-V pastes, Ctrl-C copies where text is selected, and Ctrl-F6 leaves; all other keys are the job's.
  takes(event) {
    if (event.type !== "keydown" || !event.ctrlKey || event.altKey) return true;
    if (event.key === "F6") {
      event.preventDefault();
      by("end-terminal").focus();
      return false;
    }
    if (event.key.toLowerCase() === "c" && this.terminal.hasSelection()) {
      setTimeout(() => this.terminal.clearSelection());
      return false;
    }
    return event.key.toLowerCase() !== "v";
  }

  connect({ url, protocols }) {
    this.socket = new WebSocket(url, protocols);
    this.socket.binaryType = "arraybuffer";
    this.socket.addEventListener("open", () => {
      this.watch.observe(host);
      say("The shell is open.");
      this.terminal.focus();
    });
    this.socket.addEventListener("message", ({ data }) => this.show(new Uint8Array(data)));
    this.socket.addEventListener("close", (event) => this.ended(event));
  }

  show(message) {
    const payload = message.subarray(1);
    if (message[0] === STATUS) this.outcome = outcomeOf(payload);
    if (message[0] !== STDOUT && message[0] !== STDERR) return;
    if (this.undrawn > MOST_UNDRAWN) {
      this.leftOut += payload.length;
      return;
    }
    this.undrawn += payload.length;
    this.terminal.write(payload, () => this.drawn(payload.length));
  }

  drawn(length) {
    this.undrawn -= length;
    if (!this.leftOut || this.undrawn) return;
    this.terminal.write(`\x1bc[${this.leftOut} bytes of output are left out: they came faster than a page can draw]\r\n`);
    this.leftOut = 0;
  }

  type(data) {
    for (let start = 0; start < data.length; start += CHUNK) this.send(STDIN, data.subarray(start, start + CHUNK));
  }

  send(channel, payload) {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    const message = new Uint8Array(payload.length + 1);
    message[0] = channel;
    message.set(payload, 1);
    this.socket.send(message);
  }

  ended({ reason }) {
    this.stop();
    if (this !== shell) return;
    const isOpened = this.socket.protocol !== "";
    const refused = `The gateway at ${new URL(this.socket.url).host} is not reached, or refuses. Its log says more.`;
    say(this.outcome || (isOpened ? `The session has ended: ${reason || "the connection broke"}.` : refused));
    const hadFocus = box.contains(document.activeElement);
    by("end-terminal").hidden = true;
    allow(true);
    if (hadFocus) by("open-terminal")?.elements.open.focus();
  }

  stop() {
    this.watch.disconnect();
    clearTimeout(this.timer);
    this.terminal.options.disableStdin = true;
  }

  remove() {
    this.stop();
    this.socket?.close();
    this.terminal.dispose();
  }
}

function outcomeOf(payload) {
  try {
    const { exit_code: code, signal, message } = JSON.parse(new TextDecoder().decode(payload));
    if (message) return `The session has ended: ${message}.`;
    return signal ? `The shell was ended by ${signal}.` : `The shell has ended with exit code ${code}.`;
  } catch {
    return "";
  }
}

function say(text, failed = false) {
  state.textContent = text;
  state.classList.toggle("wrong", failed);
}

// The session of this form. Throws an Error with the reason, in the server's words where it has given one.
async function opened(form, size) {
  const body = new URLSearchParams(new FormData(form));
  body.set("rows", size.rows);
  body.set("columns", size.cols);
  const answer = await fetch(form.action, { method: "POST", body, headers: { "HX-Request": "true" } });
  if (answer.headers.has("HX-Redirect")) location.assign(answer.headers.get("HX-Redirect"));
  if (answer.ok) return answer.json();
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  throw new Error(page.querySelector(".notice p")?.textContent.trim() || `the server answers with ${answer.status}`);
}

// The part with the form is replaced when the job begins or ends.
function allow(isAllowed) {
  const form = by("open-terminal");
  if (form) form.elements.open.disabled = !isAllowed;
}

// Larger than all else that pages have together, so only who opens a shell loads it. It defines globals.
async function load() {
  try {
    await Promise.all([import("./vendor/xterm.js"), import("./vendor/xterm-addon-fit.js")]);
  } catch {
    throw new Error("The terminal could not be loaded. Reload the page to try again.");
  }
}

async function open(form) {
  allow(false);
  say("The shell is being opened …");
  try {
    await load();
  } catch (error) {
    allow(true);
    return say(error.message, true);
  }
  shell?.remove();
  box.hidden = false;
  by("end-terminal").hidden = true;
  const made = shell = new Shell();
  try {
    const session = await opened(form, made.terminal);
    by("terminal-recorded").hidden = !session.recorded;
    by("end-terminal").hidden = false;
    made.connect(session);
  } catch (error) {
    made.stop();
    box.hidden = true;
    allow(true);
    say(error.message, true);
  }
}

document.addEventListener("submit", (event) => {
  if (event.target.id !== "open-terminal") return;
  event.preventDefault();
  open(event.target);
});
by("end-terminal").addEventListener("click", () => shell?.socket?.close(1000));
