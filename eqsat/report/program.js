// The program as a drawing on a canvas, of which only what can be seen is drawn, and as a list, of which only
// the rows that can be seen exist: 5,000 nodes are as quick as 50.
const KINDS = new Set(["map", "row", "contract", "attention", "library"]);
const ROW = 28, WIDE = 170, TALL = 74, BOX_W = 150, BOX_H = 40;

const program = {
  which: "after", chosen: -1, shown: [], x: 0, y: 0, scale: 1,

  start() {
    this.canvas = byId("drawing");
    this.listen();
    this.show("after");
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  },

  get graph() { return data.graphs[this.which]; },

  show(which) {
    this.which = which;
    this.chosen = -1;
    for (const name of ["before", "after"]) {
      byId(`tab-${name}`).setAttribute("aria-selected", String(name === which));
      byId(`tab-${name}`).tabIndex = name === which ? 0 : -1;
    }
    byId("panel").setAttribute("aria-labelledby", `tab-${which}`);
    this.reads = this.graph.nodes.map(() => []);
    this.readers = this.graph.nodes.map(() => []);
    for (const [a, b] of this.graph.edges) { this.readers[a].push(b); this.reads[b].push(a); }
    this.filter();
    this.whole();
    byId("details").replaceChildren(make("p", {}, "Choose a node in the list or in the drawing."));
  },

  filter() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (n) => { const text = `${n.name} ${n.text} ${n.type} ${n.line}`.toLowerCase(); return words.every((w) => text.includes(w)); };
    this.shown = this.graph.nodes.map((_, i) => i).filter((i) => fits(this.graph.nodes[i]));
    this.matching = words.length ? new Set(this.shown) : null;
    byId("found").textContent = words.length ? `${count(this.shown.length, "node")} of ${this.graph.nodes.length}` : count(this.graph.nodes.length, "node");
    byId("nodes").scrollTop = 0;
    this.list();
    this.draw();
  },

  list() {
    const box = byId("nodes"), rows = byId("rows");
    rows.style.height = `${this.shown.length * ROW}px`;
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4), last = Math.min(this.shown.length, first + Math.ceil(box.clientHeight / ROW) + 8);
    const found = [];
    for (let place = first; place < last; place += 1) {
      const i = this.shown[place], n = this.graph.nodes[i];
      found.push(make("div", {
        role: "option", id: `node-${i}`, "aria-selected": String(i === this.chosen), "aria-setsize": this.shown.length, "aria-posinset": place + 1,
        style: `top:${place * ROW}px`, onclick: () => this.choose(this.which, i),
      }, [n.name, n.text, n.type].filter(Boolean).join("  ")));
    }
    rows.replaceChildren(...found);
    const there = this.chosen >= 0 && document.getElementById(`node-${this.chosen}`);
    if (there) box.setAttribute("aria-activedescendant", there.id); else box.removeAttribute("aria-activedescendant");
  },

  choose(which, i, center = true) {
    if (which !== this.which) this.show(which);
    if (i < 0 || i >= this.graph.nodes.length) return;
    this.chosen = i;
    let place = this.shown.indexOf(i);
    if (place < 0) { byId("search").value = ""; this.filter(); place = i; }
    const box = byId("nodes"), top = place * ROW;
    if (top < box.scrollTop || top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 2;
    this.list();
    if (center) { const n = this.graph.nodes[i]; this.scale = Math.max(this.scale, 0.6); this.x = n.x * WIDE; this.y = n.layer * TALL; }
    this.draw();
    this.details(i);
  },

  details(i) {
    const n = this.graph.nodes[i], box = byId("details");
    const link = (j) => make("a", { href: "#program", onclick: (e) => { e.preventDefault(); this.choose(this.which, j); } }, this.graph.nodes[j].name || this.graph.nodes[j].text);
    const links = (some) => { const found = []; some.slice(0, 30).forEach((j, at) => { if (at) found.push(", "); found.push(link(j)); }); if (some.length > 30) found.push(` and ${some.length - 30} more`); return found; };
    const rows = [["is", n.text], ["type", n.type], ["line", n.line], ["kernel", ""]];
    const list = make("dl");
    for (const [what, value] of rows) if (value) list.append(make("dt", {}, what), make("dd", {}, value));
    if (this.reads[i].length) list.append(make("dt", {}, "reads"), make("dd", {}, ...links(this.reads[i])));
    if (this.readers[i].length) list.append(make("dt", {}, "read by"), make("dd", {}, ...links(this.readers[i])));
    const parts = [make("h3", {}, n.name || n.text), list];
    const k = this.which === "after" ? data.kernels.find((k) => k.node === i) : null;
    if (k) parts.push(...this.kernel(k));
    box.replaceChildren(...parts);
    box.scrollTop = 0;
  },

  kernel(k) {
    const list = make("dl");
    const rows = [["estimate", `${time(k.estimate_s)}, bound by ${k.bound}`], ["moved", bytes(k.bytes)], ["flop", `${(k.flops / 1e6).toFixed(2)} M`],
      ["of the roof", `${Math.round(100 * k.share)} %`], ["operations", k.ops.join(" ")], ["rules", k.rules.join(" ← ") || "as written"], ["lines", k.lines.join("\n")]];
    for (const [what, value] of rows) if (value) list.append(make("dt", {}, what), make("dd", { style: "white-space: pre-line" }, value));
    const found = [list];
    for (const c of k.classes) {
      const rows = c.nodes.map((n) => make("tr", {}, make("td", {}, n.chosen ? "●" : "", make("code", {}, n.text)), make("td", { class: "number" }, n.price_s === null ? "" : time(n.price_s)), make("td", {}, n.rule || "as written")));
      const head = make("tr", {}, make("th", { scope: "col" }, "alternative"), make("th", { scope: "col" }, "price alone"), make("th", { scope: "col" }, "rule"));
      const more = c.more ? `; ${c.more} more are not shown` : "";
      found.push(make("details", {}, make("summary", {}, `e-class of ${c.name}, ${count(c.nodes.length + c.more, "node")}`),
        make("table", {}, make("caption", {}, `● is part of the program${more}`), make("thead", {}, head), make("tbody", {}, ...rows))));
    }
    return found;
  },

  whole() {
    const { nodes } = this.graph, c = this.canvas;
    if (!nodes.length) return;
    const xs = nodes.map((n) => n.x * WIDE), ys = nodes.map((n) => n.layer * TALL);
    const low = [Math.min(...xs) - WIDE, Math.min(...ys) - TALL], high = [Math.max(...xs) + WIDE, Math.max(...ys) + TALL];
    this.x = (low[0] + high[0]) / 2;
    this.y = (low[1] + high[1]) / 2;
    const fit = Math.min(c.clientWidth / (high[0] - low[0]), c.clientHeight / (high[1] - low[1]), 1);
    this.scale = Math.max(fit, 0.02);
    if (fit < 0.35) { this.scale = 0.7; this.y = low[1] + c.clientHeight / 2 / this.scale; this.x = nodes[0].x * WIDE; }
    this.draw();
  },

  zoom(factor, at = null) {
    const c = this.canvas, px = at ? at[0] - c.clientWidth / 2 : 0, py = at ? at[1] - c.clientHeight / 2 : 0;
    const next = Math.min(3, Math.max(0.01, this.scale * factor));
    this.x += px / this.scale - px / next;
    this.y += py / this.scale - py / next;
    this.scale = next;
    this.draw();
  },

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  },

  paint() {
    const c = this.canvas, ratio = devicePixelRatio || 1, w = c.clientWidth, h = c.clientHeight, s = this.scale;
    if (!w || !h) return;
    if (c.width !== Math.round(w * ratio) || c.height !== Math.round(h * ratio)) { c.width = Math.round(w * ratio); c.height = Math.round(h * ratio); }
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const g = c.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, h);
    const X = (n) => (n.x * WIDE - this.x) * s + w / 2, Y = (n) => (n.layer * TALL - this.y) * s + h / 2;
    const { nodes, edges } = this.graph, bw = BOX_W * s, bh = BOX_H * s;
    g.lineWidth = 1;
    const near = new Set(this.chosen < 0 ? [] : [this.chosen]);
    for (const strong of [false, true]) {
      g.strokeStyle = colour(strong ? "mark" : "line");
      g.lineWidth = strong ? 2 : 1;
      g.beginPath();
      for (const [a, b] of edges) {
        if ((near.has(a) || near.has(b)) !== strong) continue;
        const x1 = X(nodes[a]), y1 = Y(nodes[a]) + bh / 2, x2 = X(nodes[b]), y2 = Y(nodes[b]) - bh / 2;
        if (Math.max(y1, y2) < 0 || Math.min(y1, y2) > h || Math.max(x1, x2) < 0 || Math.min(x1, x2) > w) continue;
        g.moveTo(x1, y1);
        g.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2);
      }
      g.stroke();
    }
    g.textBaseline = "middle";
    g.textAlign = "center";
    const size = 12 * s;
    for (let i = 0; i < nodes.length; i += 1) {
      const n = nodes[i], x = X(n), y = Y(n);
      if (x < -bw || x > w + bw || y < -bh || y > h + bh) continue;
      const dim = this.matching && !this.matching.has(i);
      g.globalAlpha = dim ? 0.25 : 1;
      g.fillStyle = colour(i === this.chosen ? "accent" : "wash");
      g.strokeStyle = colour(KINDS.has(n.kind) ? n.kind : "other");
      g.lineWidth = i === this.chosen ? 3 : 1.5;
      g.beginPath();
      g.roundRect(x - bw / 2, y - bh / 2, bw, bh, (n.kind === "input" || n.kind === "constant" ? 20 : 5) * s);
      g.fill();
      g.stroke();
      if (size >= 6) {
        g.fillStyle = colour(i === this.chosen ? "on-accent" : "ink");
        g.font = `600 ${size}px system-ui, sans-serif`;
        g.fillText(this.cut(n.name || n.text, 22), x, y - 8 * s);
        g.font = `${size * 0.92}px system-ui, sans-serif`;
        g.fillText(this.cut(n.type, 26), x, y + 9 * s);
      }
      g.globalAlpha = 1;
    }
  },

  cut(text, most) { return text.length > most ? `${text.slice(0, most - 1)}…` : text; },

  at(px, py) {
    const c = this.canvas, gx = (px - c.clientWidth / 2) / this.scale + this.x, gy = (py - c.clientHeight / 2) / this.scale + this.y;
    return this.graph.nodes.findIndex((n) => Math.abs(n.x * WIDE - gx) < BOX_W / 2 && Math.abs(n.layer * TALL - gy) < BOX_H / 2);
  },

  listen() {
    const c = this.canvas;
    let held = null, moved = false;
    c.addEventListener("pointerdown", (e) => { held = [e.clientX, e.clientY]; moved = false; c.setPointerCapture(e.pointerId); });
    c.addEventListener("pointermove", (e) => {
      if (!held) return;
      const dx = e.clientX - held[0], dy = e.clientY - held[1];
      if (!moved && Math.hypot(dx, dy) < 4) return;
      moved = true;
      held = [e.clientX, e.clientY];
      this.x -= dx / this.scale;
      this.y -= dy / this.scale;
      this.draw();
    });
    c.addEventListener("pointerup", (e) => {
      if (!moved) { const box = c.getBoundingClientRect(), i = this.at(e.clientX - box.left, e.clientY - box.top); if (i >= 0) this.choose(this.which, i, false); }
      held = null;
    });
    c.addEventListener("wheel", (e) => { e.preventDefault(); const box = c.getBoundingClientRect(); this.zoom(Math.exp(-e.deltaY / 400), [e.clientX - box.left, e.clientY - box.top]); }, { passive: false });
    c.addEventListener("keydown", (e) => {
      const step = 60 / this.scale, moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
      if (moves[e.key]) { this.x += moves[e.key][0]; this.y += moves[e.key][1]; this.draw(); } else if (e.key === "+" || e.key === "=") this.zoom(1.25);
      else if (e.key === "-") this.zoom(0.8); else if (e.key === "0") this.whole(); else return;
      e.preventDefault();
    });
    byId("nearer").addEventListener("click", () => this.zoom(1.25));
    byId("farther").addEventListener("click", () => this.zoom(0.8));
    byId("whole").addEventListener("click", () => this.whole());
    byId("search").addEventListener("input", () => this.filter());
    byId("search").addEventListener("keydown", (e) => {
      if (e.key === "Enter" && this.shown.length) { this.choose(this.which, this.shown[0]); byId("nodes").focus(); }
      if (e.key === "Escape") { e.target.value = ""; this.filter(); }
    });
    byId("nodes").addEventListener("scroll", () => this.list());
    byId("nodes").addEventListener("keydown", (e) => {
      const now = this.shown.indexOf(this.chosen), last = this.shown.length - 1;
      const to = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: last, PageDown: now + 8, PageUp: now - 8 }[e.key];
      if (to === undefined || last < 0) return;
      e.preventDefault();
      this.choose(this.which, this.shown[Math.min(last, Math.max(0, to))]);
    });
    for (const name of ["before", "after"]) {
      const tab = byId(`tab-${name}`), other = name === "before" ? "after" : "before";
      tab.addEventListener("click", () => this.show(name));
      tab.addEventListener("keydown", (e) => { if (e.key === "ArrowLeft" || e.key === "ArrowRight") { this.show(other); byId(`tab-${other}`).focus(); e.preventDefault(); } });
    }
  },
};
