// Acting: every button that changes something goes through here.
//
// A button says what it does in its attributes, and nothing else is needed:
//
//   data-action   the API's path below the root, as "api/v1/queues/mail/pause"
//   data-body     what is sent, as JSON
//   data-confirm  the question that is asked first; # in it stands for how many jobs it is about
//   data-of       how many, where the page knows it
//   data-count-first   how many is asked of the API (dry_run) before the question
//   data-when     the question that asks for a time first (reschedule)
//
//   data-then     where to go afterwards, as an address; else the page is brought up to date
//
// The token that the API wants with an action comes from api/v1/session, and is asked for again when it is too old. What takes
// long is an operation: its progress is shown until it ends. Afterwards the page is brought up to date; what was done is said on it.

import { hold, refresh, release } from "./live.js";

const root = (document.documentElement.dataset.root || "/").replace(/\/+$/, "");
const SAID = "laneway-said";

// -- the API ----------------------------------------------------------------------------------------------------------

let token = null;

/** Ask the API: without a body to look, with one to act; a body that is a text is JSON already. */
export async function ask(path, body) {
  const options = { headers: { Accept: "application/json" }, credentials: "same-origin" };
  if (body !== undefined) {
    token ??= (await ask("api/v1/session")).csrf_token;
    options.method = "POST";
    options.body = typeof body === "string" ? body : JSON.stringify(body);
    options.headers = { ...options.headers, "Content-Type": "application/json", "X-CSRF-Token": token };
  }
  let answer;
  try {
    answer = await fetch(`${root}/${path}`, options);
  } catch {
    throw new Error("The dashboard does not answer. Is it still running?");
  }
  const document_ = await answer.json().catch(() => ({}));
  if (answer.ok) return document_;
  const error = new Error(document_.error?.message ?? `The dashboard answered ${answer.status}.`);
  error.kind = document_.error?.kind;
  throw error;
}

/** Send an action; once more with a new token if the old one is not taken any more. */
export async function act(path, body) {
  try {
    return await ask(path, body);
  } catch (error) {
    if (error.kind !== "csrf" || token === null) throw error;
    token = null;
    return ask(path, body);
  }
}

// -- saying what happened ---------------------------------------------------------------------------------------------

function make(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...inside);
  return made;
}

// Pages without lists have no styles for what is said here.
if (!document.querySelector('link[href$="/lists.css"]')) {
  document.head.append(make("link", { rel: "stylesheet", href: `${root}/static/lists.css` }));
}
const toasts = make("div", { class: "toasts", role: "status", "aria-live": "polite" });
document.body.append(toasts);

export function say(message, tone = "good") {
  const close = make("button", { type: "button", class: "tool", "aria-label": "Close" }, "×");
  const toast = make("div", { class: `note toast ${tone}` }, make("span", {}, message), close);
  const leave = () => toast.remove();
  close.addEventListener("click", leave);
  toasts.append(toast);
  if (tone !== "bad") setTimeout(leave, 7000);
  return toast;
}

/** Bring the page up to date, or go elsewhere. What is said survives it. */
export function renew(message, address = null) {
  hold("leaving");
  sessionStorage.setItem(SAID, message);
  if (address !== null) location.assign(address);
  else location.reload();
}

addEventListener("pageshow", () => release("leaving")); // the buttons work again when the user comes back

const before = sessionStorage.getItem(SAID);
if (before) {
  sessionStorage.removeItem(SAID);
  say(before);
}

// -- asking first -----------------------------------------------------------------------------------------------------

/** Ask a question in a dialog. Gives the fields' values, or null. */
export function question(text, { go = "Go on", danger = false, fields = [], detail = "" } = {}) {
  const title = make("h2", { id: "question-title" }, text);
  const form = make("form", { method: "dialog" }, title);
  if (detail) form.append(make("p", { class: "muted" }, detail));
  for (const field of fields) {
    const input = make("input", { name: field.name, value: field.value ?? "", required: true, autocomplete: "off", type: "text" });
    form.append(make("label", { class: "field" }, make("span", {}, field.label), input, make("small", {}, field.hint ?? "")));
  }
  const no = make("button", { class: "button", value: "", formnovalidate: true }, "Go back"); // "Cancel" is what some jobs are asked to
  const yes = make("button", { class: `button ${danger ? "danger solid" : "primary"}`, value: "go" }, go);
  form.append(make("p", { class: "actions" }, no, yes));
  const dialog = make("dialog", { class: "dialog", "aria-labelledby": "question-title" }, form);
  document.body.append(dialog);
  // Enter in a field goes on; it would press the first button otherwise, which leaves.
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.tagName === "INPUT") {
      event.preventDefault();
      if (form.reportValidity()) dialog.close("go");
    }
  });
  hold("question");
  dialog.showModal();
  (form.querySelector("input") ?? (danger ? no : yes)).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const values = Object.fromEntries(new FormData(form));
      dialog.remove();
      release("question");
      resolve(dialog.returnValue === "go" ? values : null);
    });
  });
}

const WHEN = {
  name: "when",
  label: "When",
  hint: "From now: 30s, 5m, 2h, 1d. Or a moment with its time zone: 2027-01-31T18:00+01:00.",
  value: "5m",
};

/** Ask for a time. Gives what the API takes, or null. */
export async function askWhen(text) {
  const values = await question(text, { go: "Reschedule", fields: [WHEN] });
  if (values === null) return null;
  const said = values.when.trim();
  return /^\d{4}-/.test(said) ? { at: said.replace(" ", "T") } : { in: said };
}

// -- what takes long --------------------------------------------------------------------------------------------------

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Show an operation until it has ended, and say how. */
export async function follow(operation) {
  const bar = make("progress", { "aria-label": "Progress" });
  const words = make("span", {}, "Working…");
  const toast = make("div", { class: "note toast" }, words, bar);
  toasts.append(toast);
  let found = operation;
  let pause = 150;
  try {
    while (found.state === "waiting" || found.state === "running") {
      await wait(pause);
      pause = Math.min(pause * 1.5, 1500);
      found = await ask(`api/v1/operations/${found.id}`);
      if (found.matched) {
        bar.max = found.matched;
        bar.value = found.done;
        words.textContent = `${found.done.toLocaleString("en")} of ${found.matched.toLocaleString("en")}`;
      }
    }
  } finally {
    toast.remove();
  }
  if (found.state === "failed") throw new Error(found.error?.message ?? "It failed.");
  return found;
}

// -- buttons ----------------------------------------------------------------------------------------------------------

export const jobs = (number) => (number === 1 ? "1 job" : `${number.toLocaleString("en")} jobs`);

/** Say what an answer means, in words. */
function outcome(answer) {
  if (answer.state === "done") return answer.changed === 0 ? "Nothing was changed." : `${answer.changed.toLocaleString("en")} changed.`;
  if (answer.told) return `Told to ${answer.told}; it hears of it at its next beat.`;
  if (answer.paused === true) return `${answer.name ?? answer.task} is paused.`;
  if (answer.paused === false) return `${answer.name ?? answer.task} goes on.`;
  if (answer.removed) return `${answer.name} is removed.`;
  if (answer.left !== undefined) return `Dropped; ${answer.left.toLocaleString("en")} left.`;
  if (answer.created === true) return `Enqueued as ${answer.id}.`;
  if (answer.created === false) return "An equal job waits already.";
  return "Done.";
}

/** Count first, if the button wants it: gives the question with the number in it, or null if there is nothing to do. */
async function counted(button, path, body) {
  const text = button.dataset.confirm;
  if (!("countFirst" in button.dataset)) {
    return button.dataset.of === undefined ? text : text.replace("#", jobs(Number(button.dataset.of)));
  }
  const found = await act(path, { ...body, dry_run: true });
  if (!found.matched && !found.at_least) return null;
  return text.replace("#", found.matched ? `${found.at_least ? "at least " : ""}${jobs(found.matched)}` : "all jobs");
}

async function press(button) {
  const { action: path } = button.dataset;
  let body = JSON.parse(button.dataset.body || "{}");
  if (button.dataset.when) {
    const when = await askWhen(button.dataset.when);
    if (when === null) return;
    body = { ...body, ...when };
  } else if (button.dataset.confirm) {
    const text = await counted(button, path, body);
    if (text === null) {
      say("There is nothing to do: no such job is there any more.", "");
      return;
    }
    const [first, ...rest] = text.split(/(?<=\?) /);
    const sure = await question(first, { go: button.textContent.trim(), danger: button.classList.contains("danger"), detail: rest.join(" ") });
    if (sure === null) return;
  }
  hold("acting"); // what is acted on may be gone, and the page about it with it
  const answer = await act(path, body);
  const said = outcome(answer.state === undefined ? answer : await follow(answer));
  if (button.dataset.then || !button.closest("[data-live][id]")) return renew(said, button.dataset.then ?? null);
  say(said);
  return refresh();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-action]");
  if (!button || button.disabled) return;
  button.setAttribute("aria-busy", "true");
  button.disabled = true;
  try {
    await press(button);
  } catch (error) {
    say(error.message, "bad");
  } finally {
    release("acting");
    button.disabled = false;
    button.removeAttribute("aria-busy");
  }
});
