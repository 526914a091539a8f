// Small curves: one over wall time, with a mark wherever a new attempt began, or several over whatever they share.

import { el, figure, span } from "/web/dom.js";

const WIDTH = 300, HEIGHT = 120, PAD = 4;
const SVG = "http://www.w3.org/2000/svg";

export function chart(title, points, value) {
  const begins = points.filter((point, index) => index > 0 && point.attempt !== points[index - 1].attempt);
  return curves(title, [{ points: points.map((point) => [point.time_s, value(point)]) }], {
    said: points.length ? figure(value(points[points.length - 1])) : "",
    marks: begins.map((point) => point.time_s),
  });
}

// Lines are `{ points: [[x, y], …], kind }`, later ones above earlier ones; `level` is a value to be reached.
export function curves(title, lines, { said = "", marks = [], level = null, along = (first, last) => span(last - first) } = {}) {
  const points = lines.flatMap((line) => line.points);
  if (!points.length) return el("figure", { class: "chart" }, el("figcaption", {}, title, el("span", {}, "not measured")));
  const [first, last] = ends(points.map(([x]) => x));
  const [low, high] = ends([...points.map(([, y]) => y), ...(level === null ? [] : [level])]);
  const x = (place) => PAD + ((place - first) / (last - first || 1)) * (WIDTH - 2 * PAD);
  const y = (number) => HEIGHT - PAD - ((number - low) / (high - low || 1)) * (HEIGHT - 2 * PAD);
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
  const across = (kind, height) => drawing.append(svg("line", { class: kind, x1: 0, x2: WIDTH, y1: height, y2: height }));
  for (const part of [0, 0.5, 1]) across("grid", PAD + part * (HEIGHT - 2 * PAD));
  if (level !== null) across("level", y(level));
  for (const place of marks) drawing.append(svg("line", { class: "mark", x1: x(place), x2: x(place), y1: 0, y2: HEIGHT }));
  for (const line of lines) {
    const path = line.points.map(([place, number]) => `${x(place).toFixed(1)},${y(number).toFixed(1)}`).join(" ");
    drawing.append(svg("polyline", { class: `curve ${line.kind ?? ""}`, points: path }));
  }
  return el("figure", { class: "chart" },
    el("figcaption", {}, title, el("b", {}, said)), drawing,
    el("figcaption", {}, `${figure(low)} … ${figure(high)}`, el("span", {}, along(first, last))));
}

function ends(numbers) {
  return numbers.reduce(([least, most], number) => [Math.min(least, number), Math.max(most, number)], [Infinity, -Infinity]);
}

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
