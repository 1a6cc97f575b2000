// Selecting jobs: those on the page, or all that match, and acting on them.
//
// Selected is what is ticked. "All that match" are the query's filters, which the API applies itself, so that it is not a million
// ids that travel; how many they are is asked for before anything is done. While something is selected live figures wait (live.js),
// so that no row moves under a finger. The list may change, come and go when nothing is selected, so it is looked for each time.

import { act, askWhen, follow, jobs, question, renew, say } from "./act.js";
import { hold, release } from "./live.js";

const section = () => document.querySelector("[data-select]");
const WORDS = {
  retry: ["Retry", "What is retried runs again as soon as a slot is free.", false],
  cancel: ["Cancel", "What waits will not run; what runs is asked to end.", false],
  kill: ["Kill", "What is killed is dead, and can be retried later.", true],
  delete: ["Delete", "What is deleted cannot be brought back.", true],
};

let all = false; // all that match, and not only what is ticked
let last = null; // the box that was ticked last, for a range with Shift

const boxes = () => [...document.querySelectorAll("[data-select] input[data-pick]")];
const ticked = () => boxes().filter((box) => box.checked);

function show() {
  const picked = ticked().length;
  const bar = section()?.querySelector("[data-picked]");
  if (!bar) return;
  const whole = section().querySelector("[data-pick-page]");
  if (picked < boxes().length) all = false;
  bar.hidden = picked === 0;
  const known = section().dataset.allNumber;
  bar.querySelector("[data-picked-number]").textContent = all ? (known === undefined ? "All" : Number(known).toLocaleString("en")) : picked;
  bar.querySelector("[data-picked-words]").textContent = all ? "that match selected" : "selected";
  const more = bar.querySelector("[data-pick-all]");
  if (more) {
    more.hidden = picked < boxes().length;
    more.setAttribute("aria-pressed", String(all));
    more.classList.toggle("is-on", all);
    more.textContent = all ? "Only those on this page" : (more.dataset.said ??= more.textContent);
  }
  if (whole) {
    whole.checked = picked > 0 && picked === boxes().length;
    whole.indeterminate = picked > 0 && picked < boxes().length;
  }
  if (picked > 0) hold("selected");
  else release("selected");
}

function tick(checked) {
  for (const box of boxes()) box.checked = checked;
  if (!checked) all = false;
  show();
}

/** Tick everything between two boxes. */
function range(from, to) {
  const list = boxes();
  const [a, b] = [list.indexOf(from), list.indexOf(to)].sort((x, y) => x - y);
  if (a >= 0) for (const box of list.slice(a, b + 1)) box.checked = to.checked;
}

/** Return what is meant: the API's own filters, or ids. */
const meant = () => (all ? JSON.parse(section().dataset.all) : { ids: ticked().map((box) => box.value) });

/** Return how many are meant; of all that match as the API counts them now. */
async function howMany(verb, which) {
  if (!all) return which.ids.length;
  const when = verb === "reschedule" ? { in: "1s" } : {};
  return (await act(`api/v1/jobs/${verb}_all`, { ...which, ...when, dry_run: true })).matched;
}

async function perform(verb) {
  const which = meant();
  const number = await howMany(verb, which);
  if (number === 0) {
    say(`There is nothing to ${verb} among them.`, "");
    return;
  }
  let more = {};
  if (verb === "reschedule") {
    more = await askWhen(`Reschedule ${jobs(number)}?`);
    if (more === null) return;
  } else {
    const [word, detail, danger] = WORDS[verb];
    if ((await question(`${word} ${jobs(number)}?`, { go: `${word} ${jobs(number)}`, danger, detail })) === null) return;
  }
  const done = await follow(await act(`api/v1/jobs/${verb}_all`, { ...which, ...more }));
  const rest = (done.matched ?? 0) - done.changed;
  const left = rest > 0 ? ` ${jobs(rest)} had nothing to ${verb}.` : "";
  renew(`${jobs(done.changed)}: ${verb === "retry" ? "retried" : verb === "cancel" ? "cancelled" : `${verb}${verb.endsWith("e") ? "d" : "ed"}`}.${left}`);
}

function start() {
  document.documentElement.dataset.picks = "";
  document.addEventListener("click", (event) => {
    const box = event.target.closest("input[data-pick]");
    if (box) {
      if (event.shiftKey && last) range(last, box);
      last = box;
      show();
    } else if (event.target.closest("[data-pick-page]")) {
      tick(event.target.checked);
    } else if (event.target.closest("[data-pick-all]")) {
      all = !all;
      show();
    } else if (event.target.closest("[data-pick-none]")) {
      tick(false);
    }
  });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-verb]");
    if (!button) return;
    button.disabled = true;
    try {
      await perform(button.dataset.verb);
    } catch (error) {
      say(error.message, "bad");
    } finally {
      button.disabled = false;
    }
  });
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog");
    if (field || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "x") tick(ticked().length < boxes().length);
    else if (event.key === "Escape" && ticked().length) tick(false);
  });
  show(); // a browser that goes back may have kept ticks
}

start();
