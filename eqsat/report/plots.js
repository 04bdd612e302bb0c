// The roofline and the memory over time, as SVG with its numbers in words.
const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes = {}, text = null) {
  const found = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  if (text !== null) found.textContent = text;
  return found;
}

function canvasOf(label, width, height) {
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  return svg;
}

function short(n) {
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (n >= size) return `${+(n / size).toPrecision(3)} ${unit}`;
  return `${+n.toPrecision(2)} `;
}

function roofline() {
  const points = data.kernels.filter((k) => k.flops > 0 && k.bytes > 0 && k.estimate_s > 0)
    .map((k) => ({ k, x: k.flops / k.bytes, y: k.flops / k.estimate_s }));
  const target = byId("roofline");
  if (!points.length) { target.append(make("p", {}, "No kernel computes with fractions.")); return; }
  const d = data.device, W = 720, H = 380, L = 70, B = 46, T = 14, R = 16;
  const xs = [...points.map((p) => p.x), d.flops_per_s / d.memory_bytes_per_s, 0.05], ys = [...points.map((p) => p.y), d.flops_per_s * 1.5, d.memory_bytes_per_s * 0.1];
  const x0 = Math.floor(Math.log10(Math.min(...xs))), x1 = Math.ceil(Math.log10(Math.max(...xs)) + 0.3);
  const y0 = Math.floor(Math.log10(Math.min(...ys))), y1 = Math.ceil(Math.log10(Math.max(...ys)));
  const X = (v) => L + ((Math.log10(v) - x0) / (x1 - x0)) * (W - L - R);
  const Y = (v) => H - B - ((Math.log10(v) - y0) / (y1 - y0)) * (H - B - T);
  const worst = points.reduce((a, b) => (a.k.estimate_s > b.k.estimate_s ? a : b));
  const svg = canvasOf(`Roofline of ${count(points.length, "kernel")}. The longest, ${worst.k.name}, does ${short(worst.y)}flop/s at ${worst.x.toPrecision(2)} flop a byte, ${Math.round(100 * worst.k.share)} % of its roof. The table of kernels has all shares.`, W, H);
  for (let e = x0; e <= x1; e += 1) {
    svg.append(shape("line", { x1: X(10 ** e), x2: X(10 ** e), y1: T, y2: H - B, class: "grid" }));
    svg.append(shape("text", { x: X(10 ** e), y: H - B + 18, "text-anchor": "middle" }, e < 0 ? (10 ** e).toFixed(-e) : short(10 ** e)));
  }
  for (let e = y0; e <= y1; e += 1) {
    svg.append(shape("line", { x1: L, x2: W - R, y1: Y(10 ** e), y2: Y(10 ** e), class: "grid" }));
    svg.append(shape("text", { x: L - 8, y: Y(10 ** e) + 4, "text-anchor": "end" }, short(10 ** e)));
  }
  svg.append(shape("text", { x: (L + W) / 2, y: H - 8, "text-anchor": "middle" }, "floating operations for each byte moved"));
  svg.append(shape("text", { x: 14, y: H / 2, transform: `rotate(-90 14 ${H / 2})`, "text-anchor": "middle" }, "flop/s"));
  for (const [peak, name] of [[d.flops_per_s, "products"], [d.map_flops_per_s, "other arithmetic"]]) {
    const knee = peak / d.memory_bytes_per_s, from = Math.max(10 ** x0, 10 ** y0 / d.memory_bytes_per_s);
    svg.append(shape("path", { d: `M${X(from)} ${Y(d.memory_bytes_per_s * from)} L${X(knee)} ${Y(peak)} L${X(10 ** x1)} ${Y(peak)}`, class: "roof" }));
    svg.append(shape("text", { x: W - R - 4, y: Y(peak) - 5, "text-anchor": "end" }, name));
  }
  const longest = Math.max(...points.map((p) => p.k.estimate_s));
  for (const p of points) {
    const dot = shape("circle", { cx: X(p.x), cy: Y(p.y), r: 4 + 8 * Math.sqrt(p.k.estimate_s / longest), style: `fill: var(--${KINDS.has(p.k.kind) ? p.k.kind : "other"})`, "fill-opacity": 0.8 });
    dot.append(shape("title", {}, `${p.k.name}: ${short(p.y)}flop/s, ${time(p.k.estimate_s)}`));
    svg.append(dot);
  }
  target.append(svg);
}

function memory() {
  const steps = data.memory, W = 720, H = 240, L = 80, B = 40, T = 14, R = 16;
  const target = byId("memory-plot");
  if (!steps.length) { target.append(make("p", {}, "Nothing is kept.")); return; }
  const most = Math.max(...steps.map((s) => s.bytes), 1), peak = steps.findIndex((s) => s.bytes === most);
  const X = (i) => L + (i / steps.length) * (W - L - R), Y = (v) => H - B - (v / most) * (H - B - T);
  const svg = canvasOf(`Memory of intermediates and results over ${count(steps.length, "step")}: at most ${bytes(most)}, at ${steps[peak].name}.`, W, H);
  for (const part of [0, 0.5, 1]) {
    svg.append(shape("line", { x1: L, x2: W - R, y1: Y(most * part), y2: Y(most * part), class: "grid" }));
    svg.append(shape("text", { x: L - 8, y: Y(most * part) + 4, "text-anchor": "end" }, bytes(Math.round(most * part))));
  }
  let path = `M${X(0)} ${Y(0)}`;
  steps.forEach((s, i) => { path += ` L${X(i)} ${Y(s.bytes)} L${X(i + 1)} ${Y(s.bytes)}`; });
  svg.append(shape("path", { d: `${path} L${X(steps.length)} ${Y(0)} Z`, class: "area" }));
  svg.append(shape("text", { x: (L + W) / 2, y: H - 10, "text-anchor": "middle" }, `steps of the program; the most at ${steps[peak].name}`));
  target.append(svg, make("p", {}, `At most ${bytes(data.peak_bytes)}; with every intermediate kept, as NumPy does until the end, ${bytes(data.baseline_peak_bytes)}.`));
}
