// Tables that sort by a column: kernels and rules.
function table(target, caption, columns, rows) {
  let by = null, up = true;
  const body = make("tbody");
  const heads = columns.map((column, i) => {
    const head = make("th", { scope: "col", class: column.number ? "number" : "" });
    head.append(make("button", { type: "button", onclick: () => sort(i) }, column.name));
    return head;
  });
  function fill(shown) {
    body.replaceChildren(...shown.map((row) => make("tr", {}, ...columns.map((column) => {
      const cell = column.show(row);
      const classes = [column.number ? "number" : "", column.mark && column.mark(row) ? "mark" : ""];
      return make("td", { class: classes.join(" ").trim() }, cell ?? "");
    }))));
  }
  let shown = rows;
  function sort(i) {
    up = by === i ? !up : !columns[i].number;
    by = i;
    heads.forEach((h, j) => (j === i ? h.setAttribute("aria-sort", up ? "ascending" : "descending") : h.removeAttribute("aria-sort")));
    const key = columns[i].key;
    shown = [...shown].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (up ? 1 : -1));
    fill(shown);
  }
  target.append(make("caption", {}, caption), make("thead", {}, make("tr", {}, ...heads)), body);
  fill(rows);
  return (some) => { shown = some; fill(some); };
}

function kernelTable() {
  const measured = data.timing ? Object.fromEntries(data.timing.kernels.map((k) => [k.name, k])) : {};
  const columns = [
    { name: "kernel", key: (k) => k.name, show: (k) => make("a", { href: "#program", onclick: () => program.choose("after", k.node) }, k.name) },
    { name: "kind", key: (k) => k.kind, show: (k) => k.kind },
    { name: "estimate", number: true, key: (k) => k.estimate_s, show: (k) => time(k.estimate_s) },
    { name: "bound by", key: (k) => k.bound, show: (k) => k.bound },
    { name: "share of the roof", number: true, key: (k) => k.share, show: (k) => `${Math.round(100 * k.share)} %` },
    { name: "moved", number: true, key: (k) => k.bytes, show: (k) => bytes(k.bytes) },
    { name: "Mflop", number: true, key: (k) => k.flops, show: (k) => (k.flops / 1e6).toFixed(2) },
    { name: "rules", key: (k) => k.rules.join(), show: (k) => k.rules.join(" ← ") || "as written" },
  ];
  if (data.timing) {
    const clock = (k) => measured[k.name]?.median_s ?? 0;
    columns.splice(3, 0,
      { name: "clock", number: true, key: clock, show: (k) => time(clock(k)) },
      { name: "estimate/clock", number: true, key: (k) => k.estimate_s / clock(k), show: (k) => (k.estimate_s / clock(k)).toFixed(2), mark: (k) => measured[k.name]?.is_off });
  }
  table(byId("kernel-table"), `${count(data.kernels.length, "kernel")}; press a heading to sort`, columns, data.kernels);
}

function ruleTable() {
  const rules = data.rules;
  const used = rules.filter((r) => r.in_winner);
  const why = (r) => r.in_winner ? `built ${count(r.in_winner, "node")} of the program` : r.why;
  const set = table(byId("rule-table"), "Rules in use; those of the program are shown until you search", [
    { name: "rule", key: (r) => r.name, show: (r) => make("code", {}, r.name) },
    { name: "matched", number: true, key: (r) => r.fired, show: (r) => String(r.fired) },
    { name: "in the program", number: true, key: (r) => r.in_winner, show: (r) => String(r.in_winner) },
    { name: "what it says", key: (r) => r.says, show: (r) => make("code", {}, r.says) },
    { name: "why, or why not", key: why, show: why },
    { name: "where it is written", key: (r) => r.place, show: (r) => r.place },
  ], used);
  const field = byId("rule-search");
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const some = words.length ? rules.filter((r) => words.every((w) => `${r.name} ${r.says} ${r.place}`.toLowerCase().includes(w))) : used;
    set(some.slice(0, 200));
    byId("rules-found").textContent = words.length ? `${count(some.length, "rule")} of ${rules.length}` : `${count(used.length, "rule")} of ${rules.length} built the program`;
  };
  field.addEventListener("input", filter);
  filter();
  const missed = byId("missed");
  for (const text of data.missed) missed.append(make("li", {}, text));
  if (!data.missed.length) missed.append(make("li", {}, "none"));
}
