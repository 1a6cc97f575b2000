/* Keys: `/` searches, `?` helps, `g` and a letter goes somewhere, `p` pauses, `t` changes the colours.

   Nothing happens while the user types, holds Ctrl, Alt or Meta, or has a dialog open. */

const root = document.documentElement.dataset.root ?? "/";
const PLACES = { o: "", j: "jobs", e: "errors", l: "lanes", w: "workers", s: "schedules", h: "history" };
/** The second key of a pair must follow within this, milliseconds. */
const PAIR = 1200;

let goes = 0;

/** Listen for keys. */
export function listenForKeys() {
  const help = document.getElementById("help");
  for (const button of document.querySelectorAll("[data-help]")) {
    button.hidden = false;
    button.addEventListener("click", () => help.showModal());
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isTyping(event.target)) event.target.blur();
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    if (press(event.key, help)) event.preventDefault();
  });
  if (location.hash === "#search") searchField()?.focus();
}

function press(key, help) {
  if (performance.now() - goes < PAIR && key in PLACES) {
    location.assign(root + PLACES[key]);
    return true;
  }
  goes = key === "g" ? performance.now() : 0;
  const act = { "/": search, "?": () => help.showModal(), p: () => send("pause"), t: () => send("theme") }[key];
  act?.();
  return Boolean(act);
}

function search() {
  const field = searchField();
  if (!field) location.assign(`${root}jobs#search`);
  field?.focus();
  field?.select();
}

function searchField() {
  return document.querySelector("[data-search], input[type=search], .search input");
}

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input:not([type=checkbox]), textarea, select"));
}

function send(name) {
  dispatchEvent(new CustomEvent(`laneway:${name}`));
}
