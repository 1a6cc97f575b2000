/* Live: the page follows the store.

   A stream of server-sent events (api/v1/live) tells about every second how things are. Counters change with it at once; and every
   few seconds the page is asked for again, and its parts that are marked (an id, and data-live) are brought up to date in place,
   so that what is open, focused or scrolled stays so. If there are other parts than before, all of it is. The server alone decides
   what is shown.

   Nothing is asked while the tab is hidden, while the user has paused it, or while something holds it: rows are selected, a
   dialog is open. A mark in the header says which: live, paused, reconnecting.

   For others:  hold(reason) and release(reason);  refresh() at once, say after an action;
                events on window: laneway:figures (detail: what the stream told), laneway:refreshed (the page has changed).
   An element with data-keep is left alone; rows with data-id are the same ones wherever they stand. */

/** The least time between two loads of the page, milliseconds. */
const EVERY = 1000 * Number(document.getElementById("main")?.dataset.every || 4);
/** A stream that was refused is asked for again after this. */
const LATER = 5000;
/** A stream that breaks is no news before this has passed: the server ends it once a minute. */
const PATIENCE = 2500;

const root = document.documentElement.dataset.root ?? "/";
const mark = document.querySelector("[data-live-mark]");
const holds = new Set();

let stream = null;
let mood = "";
let last = performance.now(); // the page has just been written
let asking = null;
let worry = 0;
let again = 0;

/** Begin to follow. */
export function follow() {
  if (!mark || !("EventSource" in window)) return;
  mark.hidden = false;
  mark.addEventListener("click", toggle);
  addEventListener("laneway:pause", toggle);
  document.addEventListener("visibilitychange", settle);
  addEventListener("pagehide", close);
  addEventListener("pageshow", settle);
  settle();
}

/** Stop following until `release` is called with the same reason. */
export function hold(reason) {
  holds.add(reason);
  settle();
}

export function release(reason) {
  holds.delete(reason);
  settle();
}

function toggle() {
  if (holds.has("asked")) release("asked");
  else hold("asked");
}

/** Listen, or do not, as things are. */
function settle() {
  if (!mark) return;
  if (document.hidden || holds.size) {
    close();
    show("paused");
  } else if (!stream) {
    open();
  }
}

// -- the stream ----------------------------------------------------------------------------------------------------

function open() {
  clearTimeout(again);
  stream = new EventSource(`${root}api/v1/live`);
  if (mood !== "live") worried();
  stream.addEventListener("figures", (event) => {
    calm();
    tell(JSON.parse(event.data));
    if (performance.now() - last > EVERY) refresh();
  });
  stream.addEventListener("trouble", () => show("reconnecting"));
  stream.addEventListener("error", () => {
    worried();
    if (stream?.readyState !== EventSource.CLOSED) return; // the browser comes back by itself
    close();
    again = setTimeout(settle, LATER);
    worried();
  });
}

function close() {
  stream?.close();
  stream = null;
  asking?.abort();
  clearTimeout(worry);
  clearTimeout(again);
  worry = 0;
}

function worried() {
  worry ||= setTimeout(() => show("reconnecting"), PATIENCE);
}

function calm() {
  clearTimeout(worry);
  worry = 0;
  show("live");
}

function tell(figures) {
  dispatchEvent(new CustomEvent("laneway:figures", { detail: figures }));
}

const SAID = {
  live: ["live", "Figures are live. Pause them (p)"],
  paused: ["paused", "Figures stand still. Go on (p)"],
  reconnecting: ["reconnecting", "The dashboard does not answer; trying again"],
};

function show(next) {
  if (next === mood) return;
  mood = next;
  const [word, title] = SAID[next];
  mark.dataset.mood = next;
  mark.title = holds.has("selected") ? "Figures stand still while rows are selected" : title;
  mark.querySelector("span").textContent = word;
}

// -- the page ------------------------------------------------------------------------------------------------------

/** Ask for the page again, and bring its live parts up to date. */
export async function refresh() {
  asking?.abort();
  asking = new AbortController();
  last = performance.now();
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: asking.signal, credentials: "same-origin" });
    if (!answer.ok && answer.status !== 404) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const [main, other] = [document, fresh].map((page) => page.getElementById("main"));
    if (parts(main) !== parts(other)) morph(main, other);
    for (const old of document.querySelectorAll("[data-live][id]")) {
      const found = fresh.getElementById(old.id);
      if (found) morph(old, found);
    }
    dispatchEvent(new CustomEvent("laneway:refreshed"));
  } catch (error) {
    if (error.name !== "AbortError") worried();
  }
}

/** Say which live parts there are. If they are others than before, it is another page: a job has ended, the first worker has come. */
function parts(main) {
  return [...main.querySelectorAll("[data-live][id]")].map(({ id }) => id).join(" ");
}

/** Make a node like another one, changing as little as possible. */
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(document.importNode(fresh, true));
  } else if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
  } else if (!old.hasAttribute("data-keep")) {
    morphAttributes(old, fresh);
    morphChildren(old, fresh);
  }
}

function morphAttributes(old, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
}

function morphChildren(old, fresh) {
  if (names(old) !== names(fresh)) putInOrder(old, fresh);
  const olds = [...old.childNodes];
  const news = [...fresh.childNodes];
  news.forEach((child, index) => {
    if (index < olds.length) morph(olds[index], child);
    else old.append(document.importNode(child, true));
  });
  for (const child of olds.slice(news.length)) child.remove();
}

const names = (list) => [...list.children].map((child) => child.dataset.id ?? "").join(" ");

/** Let rows that have a name (data-id) keep their node when others come, go or overtake them: a click means the row that was under it. */
function putInOrder(old, fresh) {
  const known = new Map([...old.children].filter((child) => child.dataset.id).map((child) => [child.dataset.id, child]));
  let next = old.firstChild;
  for (const child of fresh.childNodes) {
    const same = known.get(child.dataset?.id) ?? document.importNode(child, true);
    if (same === next) next = next.nextSibling;
    else old.insertBefore(same, next);
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}
