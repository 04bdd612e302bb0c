"use strict";
// Puts the document on the page. Text of users is set as textContent, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") found.className = value;
    else if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
    else found.setAttribute(name, value);
  }
  found.append(...children);
  return found;
}

function time(s) {
  if (s === null || s === undefined) return "";
  if (s >= 1) return `${s.toPrecision(3)} s`;
  if (s >= 1e-3) return `${(s * 1e3).toPrecision(3)} ms`;
  return `${(s * 1e6).toPrecision(3)} µs`;
}

function bytes(n) {
  let unit = 0;
  while (n >= 1024 && unit < 3) { n /= 1024; unit += 1; }
  return `${unit ? n.toFixed(1) : n} ${["B", "KiB", "MiB", "GiB"][unit]}`;
}

function count(n, one, many) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many ?? `${one}s`}`;
}

function bars(target, rows, text) {
  const most = Math.max(...rows.map((r) => r[1]), 1e-12);
  const box = make("div", { class: "bars" });
  for (const [name, value] of rows) {
    box.append(
      make("span", {}, name),
      make("div", { class: "bar", style: `width:${(100 * value) / most}%`, "aria-hidden": "true" }),
      make("span", { class: "number" }, text(value)),
    );
  }
  target.append(box);
}

function summary() {
  byId("what").textContent = data.subtitle;
  const figures = [
    ["estimated for one thread", time(data.estimate_s)],
    ["kernels", data.kernels.length.toLocaleString("en")],
    ["NumPy takes, as written", data.estimate_s ? `${(data.numpy_s / data.estimate_s).toFixed(2)} × as long` : "–"],
    ["most memory", bytes(data.peak_bytes)],
    ["compiled in", time(Object.values(data.phases_s).reduce((a, b) => a + b, 0))],
  ];
  if (data.timing) {
    figures.splice(1, 0, ["measured", time(data.timing.program.median_s)]);
    figures.splice(2, 0, ["NumPy, measured", `${data.timing.speedup.toFixed(2)} × as long`]);
  }
  for (const [what, value] of figures) {
    byId("figures").append(make("div", {}, make("dt", {}, what), make("dd", {}, value)));
  }
  bars(byId("compare"), [
    [`NumPy, ${count(data.numpy_calls, "operation")}`, data.numpy_s],
    [`${data.backend} without fusion`, data.unfused_s],
    [`${data.backend}, ${count(data.kernels.length, "kernel")}`, data.estimate_s],
  ], time);
  for (const remark of data.remarks) byId("remarks").append(make("li", {}, remark));
}

function sources() {
  const list = byId("source-list");
  for (const [language, text] of Object.entries(data.sources)) {
    const body = make("pre", { tabindex: "0" });
    const box = make("details", {}, make("summary", {}, `${language}, ${count(text.split("\n").length, "line")}`), body);
    box.addEventListener("toggle", () => { if (box.open && !body.textContent) body.textContent = text; });
    list.append(box);
  }
}

function themes() {
  const button = byId("theme");
  const media = matchMedia("(prefers-color-scheme: dark)");
  const set = (dark) => {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.setAttribute("aria-pressed", String(dark));
    program.draw();
  };
  button.addEventListener("click", () => set(document.documentElement.dataset.theme !== "dark"));
  media.addEventListener("change", (e) => set(e.matches));
  set(media.matches);
}

function start() {
  for (const section of document.querySelectorAll("main > section")) {
    const name = section.querySelector("h2").textContent;
    byId("parts").append(make("li", {}, make("a", { href: `#${section.id}` }, name)));
  }
  summary();
  program.start();
  kernelTable();
  roofline();
  memory();
  ruleTable();
  sources();
  bars(byId("phases"), Object.entries(data.phases_s), time);
  byId("made").textContent = data.made;
  themes();
}

start();
