// Where a curve's points lie in its frame: pure, and apart from the page's elements.

export const WIDTH = 300, HEIGHT = 120, PAD = 4;

// The places of lines of `[x, y]` in the frame, of `level`, a value to be reached, and of `marks`, places along x.
// Points that are no numbers are left out: a line is in several parts there. Null when there is no point at all.
export function placed(lines, level = null, marks = []) {
  const points = lines.flatMap((line) => line.points).filter(isNumber);
  if (!points.length) return null;
  const [first, last] = ends(points.map(([x]) => x));
  const [low, high] = ends([...points.map(([, y]) => y), ...(level === null ? [] : [level])]);
  const x = (place) => PAD + within((place - first) / (last - first || 1)) * (WIDTH - 2 * PAD);
  // What does not change lies in the middle. Half of each, since the difference of two numbers can be none.
  const y = (number) => HEIGHT - PAD - (high > low ? within((number / 2 - low / 2) / (high / 2 - low / 2)) : 0.5) * (HEIGHT - 2 * PAD);
  const place = ([along, up]) => [x(along), y(up)];
  return {
    first, last, low, high,
    lines: lines.map((line) => ({ kind: line.kind, parts: parts(line.points).map((part) => part.map(place)) })),
    level: level === null ? null : y(level),
    marks: marks.filter((mark) => mark >= first && mark <= last).map(x),
  };
}

function isNumber([x, y]) { return Number.isFinite(x) && Number.isFinite(y); }

function within(part) { return Math.min(1, Math.max(0, part)); }

// The longest runs of points that are numbers.
function parts(points) {
  const found = [[]];
  for (const point of points) {
    if (isNumber(point)) found[found.length - 1].push(point);
    else if (found[found.length - 1].length) found.push([]);
  }
  return found.filter((part) => part.length);
}

function ends(numbers) {
  return numbers.reduce(([least, most], number) => [Math.min(least, number), Math.max(most, number)], [Infinity, -Infinity]);
}
