/* What every page does with scripts: it follows the store, draws its charts, listens to keys, and keeps its times true. */

import { drawCharts } from "./charts.js";
import { away, say } from "./format.js";
import { listenForKeys } from "./keys.js";
import { follow } from "./live.js";

/** The time between two updates of times on the page, milliseconds. */
const TICK = 10_000;
/** The number of the stream's figures over which a rate is shown. */
const OVER = 6;

const seen = [];

/** Put what the stream told into the counters. */
function count({ counts, totals, workers }) {
  const known = { ...counts, processed: totals.processed, failed: totals.failed, workers: workers.count };
  for (const place of document.querySelectorAll("[data-count]")) {
    const value = known[place.dataset.count];
    if (value === undefined) continue;
    const text = say(value);
    if (place.textContent !== text) place.textContent = text;
    if (value >= 1e6) place.title = value.toLocaleString("en");
  }
}

/** Tell what happens just now. */
function tellNow({ totals, workers }) {
  seen.push({ at: performance.now(), done: totals.processed ?? 0, failed: totals.failed ?? 0 });
  if (seen.length > OVER) seen.shift();
  const [first, last] = [seen[0], seen.at(-1)];
  const passed = (last.at - first.at) / 1000;
  const now = { memory: say(workers.memory, "bytes"), busy: say(workers.busy) };
  if (passed > 1.5) now.rate = say((last.done - first.done) / passed, "rate");
  for (const place of document.querySelectorAll("[data-now]")) {
    const text = now[place.dataset.now];
    if (text !== undefined && place.textContent !== text) place.textContent = text;
  }
}

/** Say times anew, and where the reader is in their title. */
function sayTimes() {
  for (const place of document.querySelectorAll("time[datetime]")) {
    const at = new Date(place.dateTime);
    const text = away(at.getTime());
    if (place.textContent !== text) place.textContent = text;
    if (!place.dataset.here) {
      place.dataset.here = "said";
      place.title = `${at.toLocaleString("sv")} here · ${place.title}`;
    }
  }
}

addEventListener("laneway:figures", ({ detail }) => {
  count(detail);
  tellNow(detail);
});
document.addEventListener("visibilitychange", () => seen.splice(0));
sayTimes();
setInterval(sayTimes, TICK);
addEventListener("laneway:refreshed", sayTimes);

drawCharts();
listenForKeys();
follow();
