// A job's page: copying its id, and trying it again with other arguments.
//
// What is wrong with the arguments is said in the dialog, which stays open: first what is no JSON, then what the task's signature
// refuses. Once it is enqueued, the new job's page is shown. While it is open, nothing changes below it (live.js).

import { hold, release } from "./live.js";

const root = (document.documentElement.dataset.root || "/").replace(/\/+$/, "");

async function copy(button) {
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(button.dataset.copy); // not there without HTTPS, except on this machine
    button.textContent = "Copied";
  } catch {
    const place = document.createRange();
    place.selectNodeContents(button.previousSibling ?? button.parentElement);
    getSelection().removeAllRanges();
    getSelection().addRange(place);
    button.textContent = "Selected: press Ctrl-C";
  }
  setTimeout(() => (button.textContent = said), 1500);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}

/** Read a field as JSON of the right kind, or throw what is wrong with it. */
function read(form, name, kind) {
  let value;
  try {
    value = JSON.parse(form.elements[name].value);
  } catch (error) {
    throw new Error(`${name === "args" ? "The arguments are" : "The named arguments are"} no JSON: ${error.message}`);
  }
  const fits = kind === "list" ? Array.isArray(value) : value !== null && typeof value === "object" && !Array.isArray(value);
  if (!fits) throw new Error(kind === "list" ? 'Arguments are a list: [1, "ada"]' : 'Named arguments are an object: {"to": "ada"}');
  return form.elements[name].value;
}

/** Enqueue it; numbers travel as they were typed, since JavaScript would round large ones. */
async function again(dialog) {
  const { act, renew } = await import("./act.js");
  const form = dialog.querySelector("form");
  const args = read(form, "args", "list");
  const kwargs = read(form, "kwargs", "object");
  const done = await act(dialog.dataset.path, `{"args":${args},"kwargs":${kwargs}}`);
  renew(done.created ? `Enqueued anew as ${done.id}.` : "An equal job waits already.", `${root}/jobs/${encodeURIComponent(done.id)}`);
}

const dialog = document.querySelector("[data-edit-dialog]");
const edit = document.querySelector("[data-edit]");
if (dialog && edit) {
  edit.hidden = false;
  edit.addEventListener("click", () => {
    hold("edit");
    dialog.showModal();
  });
  dialog.addEventListener("close", () => release("edit"));
  dialog.querySelector("[data-edit-go]").addEventListener("click", async (event) => {
    event.preventDefault();
    const trouble = dialog.querySelector("[data-edit-error]");
    trouble.hidden = true;
    event.target.disabled = true;
    try {
      await again(dialog);
    } catch (error) {
      trouble.textContent = error.message;
      trouble.hidden = false;
    } finally {
      event.target.disabled = false;
    }
  });
}
