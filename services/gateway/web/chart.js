// Small curves: one over wall time, with a mark wherever a new attempt began, or several over whatever they share; bars.

import { el, figure, span } from "/web/dom.js";
import { HEIGHT, PAD, WIDTH, placed } from "/web/drawing.js";

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
  const found = placed(lines, level, marks);
  if (found === null) return el("figure", { class: "chart" }, el("figcaption", {}, title, el("span", {}, "not measured")));
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
  const across = (kind, height) => drawing.append(svg("line", { class: kind, x1: 0, x2: WIDTH, y1: height, y2: height }));
  for (const part of [0, 0.5, 1]) across("grid", PAD + part * (HEIGHT - 2 * PAD));
  if (found.level !== null) across("level", found.level);
  for (const place of found.marks) drawing.append(svg("line", { class: "mark", x1: place, x2: place, y1: 0, y2: HEIGHT }));
  for (const { kind, parts } of found.lines) for (const part of parts) {
    // A point alone is a line of no length, which has round ends.
    const path = [...part, ...(part.length === 1 ? part : [])].map((place) => place.map((number) => number.toFixed(1)).join(",")).join(" ");
    drawing.append(svg("polyline", { class: `curve ${kind ?? ""}${part.length === 1 ? " point" : ""}`, points: path }));
  }
  return el("figure", { class: "chart" },
    el("figcaption", {}, title, el("b", {}, said)), drawing,
    el("figcaption", {}, `${figure(found.low)} … ${figure(found.high)}`, el("span", {}, along(found.first, found.last))));
}

// A bar of parts `{ kind, size }`, one behind the other, of `most` in all; `mark` is a size that is drawn across it.
export function bar(title, parts, most, mark = null) {
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", role: "img", "aria-label": title });
  const along = (size) => ((WIDTH * size) / (most || 1)).toFixed(1);
  let before = 0;
  for (const { kind, size } of parts) {
    drawing.append(svg("rect", { class: kind, x: along(before), y: 1, width: along(size), height: 8 }));
    before += size;
  }
  if (mark !== null) drawing.append(svg("line", { class: "mark", x1: along(mark), x2: along(mark), y1: 0, y2: 10 }));
  return drawing;
}

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
