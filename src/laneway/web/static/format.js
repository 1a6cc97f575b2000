/* Numbers and times as text, in the words that the server uses (pages/filters.py): counts, rates, bytes, seconds, shares, and how
   far away a moment is. Pure functions; nothing here touches the page. */

const SPANS = [[365 * 86400, "y"], [86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** A number with three digits that count. */
function digits(value) {
  const size = Math.abs(value);
  const text = value.toLocaleString("en", { maximumFractionDigits: size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2 });
  return text;
}

function count(value) {
  for (const [least, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]]) {
    if (Math.abs(value) >= least * 0.9999995) return `${digits(value / least)} ${unit}`;
  }
  return value.toLocaleString("en", { maximumFractionDigits: Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : 1 });
}

function rate(value) {
  if (value > 0 && value < 0.005) return "<0.01/s";
  return `${value >= 1e6 ? count(value) : digits(value)}/s`;
}

function bytes(value) {
  for (const [least, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= least) return `${digits(value / least)} ${unit}`;
  }
  return `${Math.round(value).toLocaleString("en")} B`;
}

function seconds(value) {
  if (value <= 0) return "0 s";
  if (value < 0.0009995) return `${Math.round(value * 1e6)} µs`;
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 59.95) return `${digits(Math.round(value * 10) / 10)} s`;
  const whole = Math.round(value);
  const at = SPANS.findIndex(([length]) => whole >= length);
  const [length, unit] = SPANS[at];
  const [part, smaller] = SPANS[at + 1];
  const rest = Math.floor((whole % length) / part);
  return `${Math.floor(whole / length).toLocaleString("en")} ${unit}${rest ? ` ${rest} ${smaller}` : ""}`;
}

function share(value) {
  const percent = value * 100;
  return percent > 0 && percent < 0.01 ? "<0.01 %" : `${digits(percent)} %`;
}

const UNITS = { count, rate, bytes, seconds, share };

/** A number in its unit: count, rate, bytes, seconds or share. */
export function say(value, unit = "count") {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return UNITS[unit](value);
}

/** How far away a moment is: "3 min ago", "in 2 h". */
export function away(moment, now = Date.now()) {
  const apart = (moment - now) / 1000;
  for (const [length, unit] of SPANS) {
    if (Math.abs(apart) >= length) {
      const said = `${Math.floor(Math.abs(apart) / length)} ${unit}`;
      return apart > 0 ? `in ${said}` : `${said} ago`;
    }
  }
  return "now";
}

const two = (number) => String(number).padStart(2, "0");

/** The time of day where the reader is. */
export function clock(moment, withSeconds = false) {
  const at = new Date(moment);
  return `${two(at.getHours())}:${two(at.getMinutes())}${withSeconds ? `:${two(at.getSeconds())}` : ""}`;
}

/** A day, by the calendar of UTC, as the store counts days. */
export function day(moment, withYear = false) {
  return new Date(moment).toLocaleDateString("en", {
    timeZone: "UTC", day: "numeric", month: "short", ...(withYear ? { year: "numeric", weekday: "short" } : {}),
  });
}
