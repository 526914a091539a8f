// A small curve over wall time, with a mark wherever a new attempt began.

import { el, figure, span } from "/web/dom.js";

const WIDTH = 300, HEIGHT = 120, PAD = 4;
const SVG = "http://www.w3.org/2000/svg";

export function chart(title, points, value) {
  if (!points.length) return el("figure", { class: "chart" }, el("figcaption", {}, title, el("span", {}, "not measured")));
  const values = points.map(value), times = points.map((point) => point.time_s);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [first, last] = [times[0], times[times.length - 1]];
  const x = (time) => PAD + ((time - first) / (last - first || 1)) * (WIDTH - 2 * PAD);
  const y = (number) => HEIGHT - PAD - ((number - low) / (high - low || 1)) * (HEIGHT - 2 * PAD);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
  for (const part of [0, 0.5, 1]) {
    const level = PAD + part * (HEIGHT - 2 * PAD);
    drawing.append(svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: level, y2: level }));
  }
  for (let index = 1; index < points.length; index += 1) {
    if (points[index].attempt !== points[index - 1].attempt) {
      const place = x(times[index]);
      drawing.append(svg("line", { class: "mark", x1: place, x2: place, y1: 0, y2: HEIGHT }));
    }
  }
  drawing.append(svg("polyline", { class: "curve", points: points.map((_, index) => `${x(times[index]).toFixed(1)},${y(values[index]).toFixed(1)}`).join(" ") }));
  return el("figure", { class: "chart" },
    el("figcaption", {}, title, el("b", {}, figure(values[values.length - 1]))), drawing,
    el("figcaption", {}, `${figure(low)} … ${figure(high)}`, el("span", {}, span(last - first))));
}

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
