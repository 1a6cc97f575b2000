/* Charts, drawn from tables.

   Each figure[data-chart] holds a table: a row for each moment (data-at, seconds since 1970), a cell for each number (data-v). The
   server writes it, screen readers read it, and browsers without scripts show it. Here it becomes an SVG of lines, areas or
   stacked bars, with axes. Pointing, touching, and the arrow keys show the values of a moment. When the table changes or the
   place for it does, it is drawn again. Text goes in as text, never as markup. */

import { clock, day, say } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const PAD = { top: 8, right: 6, bottom: 22, left: 6 };
const DAY = 86400;
/** Steps of a time axis, seconds. */
const STEPS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY, 3 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 61 * DAY, 92 * DAY];

/** Draw every chart of the page, and keep them drawn. */
export function drawCharts(root = document) {
  for (const figure of root.querySelectorAll("figure[data-chart]")) new Chart(figure);
}

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.kind = figure.dataset.chart;
    this.unit = figure.dataset.unit;
    this.plot = figure.querySelector("[data-plot]");
    this.plot.hidden = false;
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "img");
    this.at = null;
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.plot);
    addEventListener("laneway:refreshed", () => this.draw());
    this.draw();
  }

  // -- what is to be drawn ---------------------------------------------------------------------------------------

  read() {
    const table = this.figure.querySelector("table");
    this.names = [...table.tHead.rows[0].cells].slice(1).map((cell) => ({ label: cell.textContent, tone: cell.dataset.tone }));
    this.rows = [...table.tBodies[0].rows].map((row) => ({
      at: Number(row.dataset.at),
      values: [...row.cells].slice(1).map((cell) => (cell.dataset.v === "" ? null : Number(cell.dataset.v))),
    }));
    this.days = this.rows.length > 1 && this.rows[1].at - this.rows[0].at >= DAY;
  }

  top() {
    const heights = this.rows.map(({ values }) => (this.kind === "bars" ? sum(values) : Math.max(0, ...values)));
    return Math.max(0, ...heights);
  }

  // -- drawing ---------------------------------------------------------------------------------------------------

  draw() {
    const width = this.plot.clientWidth;
    const height = this.plot.clientHeight;
    if (!width || !height) return;
    this.read();
    this.plot.setAttribute("aria-label", this.words());
    const most = this.top();
    if (!this.rows.length || !this.rows.some(({ values }) => values.some((value) => value !== null))) {
      this.plot.replaceChildren(element("div", { class: "plot-empty" }, "Nothing yet"));
      return;
    }
    this.ticks = niceTicks(most, this.unit, height < 150 ? 2 : 3);
    const widest = Math.max(...this.ticks.map((tick) => say(tick, this.unit).length));
    this.box = { left: PAD.left + widest * 6.4 + 6, right: width - PAD.right, top: PAD.top, bottom: height - PAD.bottom };
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    svg.append(...this.grid(), ...this.times(), ...(this.kind === "bars" ? this.bars() : this.lines()));
    this.hover = draw("g", {});
    svg.append(this.hover);
    this.tip = element("div", { class: "tip" });
    this.tip.hidden = true;
    this.plot.replaceChildren(svg, this.tip);
    if (this.at !== null) this.point(Math.min(this.at, this.rows.length - 1));
  }

  /** Where a row stands: bars have a place each, lines go from edge to edge. */
  x(index) {
    const { left, right } = this.box;
    if (this.kind === "bars") return left + ((index + 0.5) * (right - left)) / this.rows.length;
    return this.rows.length < 2 ? (left + right) / 2 : left + (index * (right - left)) / (this.rows.length - 1);
  }

  y(value) {
    const { top, bottom } = this.box;
    return bottom - (value / this.ticks.at(-1)) * (bottom - top);
  }

  grid() {
    return this.ticks.flatMap((tick) => {
      const y = Math.round(this.y(tick)) + 0.5;
      return [
        draw("line", { class: "grid-line", x1: this.box.left, x2: this.box.right, y1: y, y2: y }),
        draw("text", { x: this.box.left - 8, y: y + 3.5, "text-anchor": "end" }, say(tick, this.unit)),
      ];
    });
  }

  times() {
    const { left, right, bottom } = this.box;
    const [from, to] = [this.rows[0].at, this.rows.at(-1).at];
    const room = Math.max(2, Math.floor((right - left) / 66));
    const whole = to - from > 3 * DAY; // where only days are told, a step is a day at least
    const step = STEPS.find((one) => (to - from) / one <= room && (!whole || one >= DAY)) ?? (to - from) / room;
    const shift = step >= DAY ? 0 : -new Date(from * 1000).getTimezoneOffset() * 60;
    const labels = [];
    this.rows.forEach(({ at }, index) => {
      const begins = Math.floor((at + shift) / step);
      const before = index ? Math.floor((this.rows[index - 1].at + shift) / step) : begins;
      const x = this.x(index);
      if (begins !== before && x - left > 18 && right - x > 18) {
        labels.push(draw("text", { x, y: bottom + 16, "text-anchor": "middle" }, step >= DAY ? day(at * 1000) : clock(at * 1000)));
      }
    });
    return labels;
  }

  lines() {
    return this.names.flatMap(({ tone }, series) => {
      const stretches = unbroken(this.rows.map(({ values }, index) => [this.x(index), values[series]]));
      const path = stretches.map((points) => `M${points.map(([x, value]) => `${round(x)},${round(this.y(value))}`).join("L")}h.01`).join(""); // a point without neighbours is a dot
      const made = [draw("path", { class: `series ${tone}`, d: path })];
      if (this.kind === "area") {
        const areas = stretches.map((points) => {
          const line = points.map(([x, value]) => `L${round(x)},${round(this.y(value))}`).join("");
          return `M${round(points[0][0])},${this.box.bottom}${line}L${round(points.at(-1)[0])},${this.box.bottom}Z`;
        });
        made.unshift(draw("path", { class: `fill ${tone}`, d: areas.join("") }));
      }
      return made;
    });
  }

  bars() {
    const place = (this.box.right - this.box.left) / this.rows.length;
    const width = Math.max(1, Math.min(place * 0.78, 36));
    return this.rows.flatMap(({ values }, index) => {
      let below = 0;
      return values.flatMap((value, series) => {
        if (!value) return [];
        const from = this.y(below);
        below += value;
        const to = this.y(below);
        const height = Math.max(from - to, 0.75);
        return [draw("rect", {
          class: `bar ${this.names[series].tone}`, x: round(this.x(index) - width / 2), y: round(from - height), width: round(width),
          height: round(height), rx: width > 6 ? 1.5 : 0,
        })];
      });
    });
  }

  // -- pointing --------------------------------------------------------------------------------------------------

  listen() {
    const near = (event) => this.point(this.nearest(event.clientX - this.plot.getBoundingClientRect().left));
    this.plot.addEventListener("pointermove", near);
    this.plot.addEventListener("pointerdown", near);
    this.plot.addEventListener("pointerleave", () => this.unpoint());
    this.plot.addEventListener("blur", () => this.unpoint());
    this.plot.addEventListener("keydown", (event) => {
      const last = this.rows.length - 1;
      const to = { ArrowLeft: (this.at ?? last + 1) - 1, ArrowRight: (this.at ?? last - 1) + 1, Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.point(Math.max(0, Math.min(to, last)));
    });
  }

  nearest(x) {
    if (!this.box || !this.rows.length) return null;
    const { left, right } = this.box;
    const part = (x - left) / (right - left);
    const index = this.kind === "bars" ? Math.floor(part * this.rows.length) : Math.round(part * (this.rows.length - 1));
    return Math.max(0, Math.min(index, this.rows.length - 1));
  }

  point(index) {
    if (index === null || !this.tip || !this.rows[index]) return;
    this.at = index;
    const { at, values } = this.rows[index];
    const x = round(this.x(index));
    const spots = this.kind === "bars" ? [] : values.flatMap((value, series) =>
      value === null ? [] : [draw("circle", { class: `spot ${this.names[series].tone}`, cx: x, cy: round(this.y(value)), r: 4 })]);
    this.hover.replaceChildren(draw("line", { class: "cursor", x1: x, x2: x, y1: this.box.top, y2: this.box.bottom }), ...spots);
    const lines = this.names.map(({ label, tone }, series) => {
      const line = element("div", {});
      line.append(element("span", { class: `swatch ${tone}` }), element("span", {}, label), element("span", {}, say(values[series], this.unit)));
      return line;
    });
    this.tip.replaceChildren(element("b", {}, this.moment(at)), ...lines);
    this.tip.hidden = false;
    const room = this.plot.clientWidth - this.tip.offsetWidth;
    const beside = x + 12 > room ? x - this.tip.offsetWidth - 12 : x + 12;
    this.tip.style.transform = `translate(${Math.max(0, Math.min(beside, room))}px, ${this.box.top}px)`;
  }

  unpoint() {
    this.at = null;
    this.hover?.replaceChildren();
    if (this.tip) this.tip.hidden = true;
  }

  moment(at) {
    if (this.days) return `${day(at * 1000, true)}`;
    const long = this.rows.at(-1).at - this.rows[0].at > 3 * 3600;
    const name = long ? new Date(at * 1000).toLocaleDateString("en", { weekday: "short", day: "numeric", month: "short" }) : "";
    return `${name} ${clock(at * 1000, !long)}`.trim();
  }

  words() {
    const title = this.figure.querySelector("figcaption h2")?.textContent ?? "Chart";
    const told = this.names.map(({ label }, series) => {
      const known = this.rows.map(({ values }) => values[series]).filter((value) => value !== null);
      if (!known.length) return `${label}: nothing`;
      return `${label}: last ${say(known.at(-1), this.unit)}, highest ${say(Math.max(...known), this.unit)}`;
    });
    return `${title}. ${told.join(". ")}. Arrow keys walk along; the table below has all figures.`;
  }
}

// -- arithmetic ----------------------------------------------------------------------------------------------------

function sum(values) {
  return values.reduce((total, value) => total + (value ?? 0), 0);
}

function round(value) {
  return Math.round(value * 100) / 100;
}

/** Round numbers from 0 to at least `most`; of bytes, round ones by 1024. */
function niceTicks(most, unit, wanted) {
  if (!(most > 0)) return unit === "bytes" ? [0, 2 ** 20] : [0, 1];
  const base = unit === "bytes" ? 1024 ** Math.floor(Math.log(most) / Math.log(1024)) : 1;
  const rough = most / base / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const whole = unit === "count";
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999 && (!whole || one % 1 === 0)) ?? 1;
  const ticks = [];
  for (let tick = 0; tick < most / base + step * 0.999; tick += step) ticks.push(tick * base);
  return ticks;
}

/** Stretches of points between those that are not known. */
function unbroken(points) {
  const stretches = [[]];
  for (const [x, value] of points) {
    if (value === null) stretches.push([]);
    else stretches.at(-1).push([x, value]);
  }
  return stretches.filter((stretch) => stretch.length);
}

// -- nodes ---------------------------------------------------------------------------------------------------------

function draw(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function element(name, attributes, text) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
