// The query box: while one types, it offers what could come next, as a list box below it.
//
// What there is to offer stands in the page: states, the names of queues, the names of tasks. Nothing is asked of the store. The
// box works without this script; with it, arrows choose, Enter and Tab take, Escape closes, and a reader hears the number.

const holder = document.querySelector("[data-query]");
const KEYS = ["state:", "queue:", "task:", "lane:", "error:", "args:", "is:failing"];
const STATES = ["scheduled", "ready", "retrying", "blocked", "running", "dead", "done", "cancelled", "finished"];
const MOST = 8;

const quoted = (value) => (/^[^\s"\\:]+$/.test(value) ? value : `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`);

/** Return the word at the cursor: where it begins, and what it is. */
function wordAt(text, place) {
  const begin = text.slice(0, place).search(/(?:[^\s"]|"[^"]*"?)*$/);
  return { begin, word: text.slice(begin, place) };
}

/** Return what could stand in place of a word. */
function offers(word, names) {
  const colon = word.indexOf(":");
  if (colon < 0) return KEYS.filter((key) => key.startsWith(word.toLowerCase()) && key !== word);
  const key = word.slice(0, colon).toLowerCase();
  const typed = word.slice(colon + 1).replace(/^"/, "").toLowerCase();
  const known = { state: STATES, queue: names.queues, task: names.tasks }[key] ?? [];
  const begin = known.filter((name) => name.toLowerCase().startsWith(typed));
  const inside = known.filter((name) => !begin.includes(name) && name.toLowerCase().includes(typed));
  return [...begin, ...inside].filter((name) => name.toLowerCase() !== typed).map((name) => `${key}:${quoted(name)}`);
}

function start() {
  const input = holder.querySelector("input");
  const names = { queues: JSON.parse(holder.dataset.queues), tasks: JSON.parse(holder.dataset.tasks) };
  const list = document.createElement("ul");
  Object.assign(list, { id: "offers", className: "offers", hidden: true });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  holder.append(list);
  for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "offers" })) {
    input.setAttribute(name, value);
  }
  let chosen = -1;

  const close = () => {
    list.hidden = true;
    chosen = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };

  const choose = (number) => {
    const options = [...list.children];
    chosen = options.length ? (number + options.length) % options.length : -1;
    options.forEach((option, place) => option.setAttribute("aria-selected", String(place === chosen)));
    if (chosen >= 0) {
      input.setAttribute("aria-activedescendant", options[chosen].id);
      options[chosen].scrollIntoView({ block: "nearest" });
    }
  };

  const open = () => {
    const { word } = wordAt(input.value, input.selectionStart ?? input.value.length);
    const found = offers(word, names).slice(0, MOST);
    list.replaceChildren(
      ...found.map((text, place) => {
        const option = document.createElement("li");
        Object.assign(option, { id: `offer-${place}`, textContent: text });
        option.setAttribute("role", "option");
        option.setAttribute("aria-selected", "false");
        return option;
      }),
    );
    chosen = -1;
    list.hidden = found.length === 0;
    input.setAttribute("aria-expanded", String(found.length > 0));
    input.removeAttribute("aria-activedescendant");
  };

  const take = (option) => {
    const place = input.selectionStart ?? input.value.length;
    const { begin } = wordAt(input.value, place);
    const text = option.textContent;
    const put = text.endsWith(":") ? text : `${text} `;
    input.setRangeText(put, begin, place, "end");
    input.focus();
    if (text.endsWith(":")) open();
    else close();
  };

  input.addEventListener("input", open);
  input.addEventListener("click", open);
  input.addEventListener("blur", () => setTimeout(close, 120));
  list.addEventListener("pointerdown", (event) => {
    const option = event.target.closest("li");
    if (option) {
      event.preventDefault();
      take(option);
    }
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" && list.hidden) open();
    if (list.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      choose(event.key === "ArrowDown" ? chosen + 1 : chosen < 0 ? -1 : chosen - 1);
    } else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) {
      event.preventDefault();
      take(list.children[chosen]);
    } else if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  });
}

if (holder) start();
// On a phone the open tab may be far to the right.
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
