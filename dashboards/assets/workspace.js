// The workspace: runs on the left, charts of all their metrics on the right. It runs in the dashboard, where a source
// answers from the server, and in an exported page, where the source is a part of the page.
(function () {
  const DEFAULTS = { x: "step", y: "auto", smooth: "20", sort: "attention", group: "", q: "", find: "", wide: "" };
  const LISTS = ["runs", "cols", "pin", "hide", "order", "closed"];
  const NUMBER_STATES = { crashed: 1, critical: 1, warn: 1 };
  const MARGIN = { left: 52, right: 10, top: 8, bottom: 22 };
  const GRID_POINTS = 200;
  const FIRST_RUNS = 8;
  const ROWS = 200;
  const NOTE_REACH = 6; // pixels from a note at which its text is shown

  // --- small helpers ---

  function element(tag, attributes, children) {
    const made = document.createElement(tag);
    Object.entries(attributes || {}).forEach(function ([key, value]) {
      if (value === null || value === undefined || value === false) return;
      if (key === "text") made.textContent = value;
      else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else made.setAttribute(key, value === true ? "" : value);
    });
    (children || []).forEach(function (child) { if (child) made.append(child); });
    return made;
  }

  // At most 4 significant digits.
  function words(value) {
    if (typeof value !== "number") return value === null || value === undefined ? "" : String(value);
    if (!Number.isFinite(value)) return String(value);
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2).replace(/\.?0*e\+?/, "e");
    if (size >= 1000) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(4)));
  }

  function natural(one, other) {
    return one.localeCompare(other, "en", { numeric: true });
  }

  function ticks(low, high, most) {
    const span = high - low;
    if (!(span > 0)) return [low];
    const rough = span / most, power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((n) => n * power).find((size) => size >= rough) || 10 * power;
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9 * span; at += step) {
      found.push(Math.abs(at) < step * 1e-6 ? 0 : at);
    }
    return found;
  }

  function decades(low, high) {
    const first = Math.ceil(low - 1e-9), last = Math.floor(high + 1e-9);
    if (last - first < 1) return ticks(Math.pow(10, low), Math.pow(10, high), 4).map(Math.log10);
    const step = Math.ceil((last - first) / 4);
    const found = [];
    for (let at = first; at <= last; at += step) found.push(at);
    return found;
  }

  // The index of the last point at or before a place.
  function before(x, place) {
    let low = 0, high = x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] <= place) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  function nearest(x, place) {
    const at = before(x, place);
    if (at < 0) return 0;
    return at + 1 < x.length && x[at + 1] - place < place - x[at] ? at + 1 : at;
  }

  function between(line, place) {
    const at = before(line.x, place);
    if (at < 0 || place > line.x[line.x.length - 1]) return null;
    if (at === line.x.length - 1) return line.y[at];
    const a = line.y[at], b = line.y[at + 1];
    if (a === null || b === null) return a;
    return a + ((b - a) * (place - line.x[at])) / (line.x[at + 1] - line.x[at] || 1);
  }

  function quantile(sorted, share) {
    const at = share * (sorted.length - 1), low = Math.floor(at);
    return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (at - low);
  }

  function faded(colour, opacity) {
    const n = parseInt(colour.slice(1), 16);
    return "rgba(" + [n >> 16, (n >> 8) & 255, n & 255, opacity].join(",") + ")";
  }

  function split(text) {
    return (text || "").split(",").filter(Boolean).map(function (part) {
      try { return decodeURIComponent(part); } catch (error) { return part; }
    });
  }

  function joined(list) {
    return list.map((part) => part.replace(/[%,]/g, encodeURIComponent)).join(",");
  }

  // --- the view: what the address says ---

  function readView(search) {
    const query = new URLSearchParams(search), view = {};
    Object.keys(DEFAULTS).forEach(function (key) { view[key] = query.get(key) ?? DEFAULTS[key]; });
    LISTS.forEach(function (key) { view[key] = query.has(key) ? split(query.get(key)) : null; });
    ["pin", "hide", "order", "closed"].forEach(function (key) { view[key] = view[key] || []; });
    const zoom = (query.get("zoom") || "").split(":").map(Number);
    view.zoom = zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? zoom : null;
    return view;
  }

  function writeView(view) {
    const query = new URLSearchParams();
    LISTS.forEach(function (key) {
      if (view[key] && (view[key].length || key === "runs" || key === "cols")) query.set(key, joined(view[key]));
    });
    Object.keys(DEFAULTS).forEach(function (key) { if (view[key] !== DEFAULTS[key]) query.set(key, view[key]); });
    if (view.zoom) query.set("zoom", view.zoom.map((end) => String(Number(end.toPrecision(8)))).join(":"));
    return query.toString();
  }

  // --- the workspace ---

  function Workspace(root, source, options) {
    const self = this;
    this.root = root;
    this.source = source;
    this.options = options;
    this.view = readView(source.address());
    this.rows = [];
    this.byId = new Map();
    this.groups = [];
    this.offered = [];
    this.views = {};
    this.metrics = [];
    this.known = new Map(); // run -> { metrics, reach, axis, version }
    this.version = new Map(); // run -> what its row said when its lines were asked for
    this.slots = new Map(); // run or group -> place in the palette
    this.charts = new Map();
    this.problems = {};
    this.tableRows = new Map();
    this.asking = null;
    this.hover = null;
    this.marked = null;
    this.drawn = { count: 0, ms: 0 };
    this.shown = ROWS;
    this.watcher = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        const chart = entry.target.chart;
        chart.near = entry.isIntersecting;
        if (chart.near) self.paint(chart);
        else chart.clear();
      });
      self.fetch();
    }, { rootMargin: "300px 0px" });
    this.build();
    this.resizer = new ResizeObserver(function () { self.paintAll(); });
    this.resizer.observe(this.main);
    this.ask();
  }

  Workspace.prototype = {
    alive: function () { return this.root.isConnected; },

    save: function () { this.source.keep(writeView(this.view)); },

    ask: function () { this.source.rows({ columns: this.columns(), group: this.view.group }); },

    // Whether the rows that are there are in the chosen groups.
    grouped: function () { return this.view.group && this.groupedBy === this.view.group ? this.view.group : ""; },

    columns: function () { return this.view.cols || ["reward/mean:last", "accuracy/val:best"]; },

    // --- what is selected ---

    on: function () {
      const self = this;
      if (!this.view.runs && !this.first) { // chosen once: rows that change places change no charts
        const chosen = this.firstShown();
        if (chosen.length) this.first = chosen;
      }
      return (this.view.runs || this.first || []).filter((id) => self.byId.has(id)).slice(0, this.options.maxRuns);
    },

    // The runs to show before anybody chose: those that need attention, or as many of each group, to compare groups.
    firstShown: function () {
      const drawable = this.rows.filter((row) => row.drawable && !row.archived), groups = new Map();
      if (!this.grouped()) return drawable.slice(0, FIRST_RUNS).map((row) => row.id);
      drawable.forEach((row) => { groups.set(row.group, (groups.get(row.group) || []).concat([row.id])); });
      const each = Math.max(1, Math.floor(this.options.maxRuns / groups.size));
      return [].concat(...Array.from(groups.values(), (ids) => ids.slice(0, each)));
    },

    toggle: function (ids, show) {
      const now = this.on(), wanted = new Set(ids);
      const kept = now.filter((id) => show || !wanted.has(id));
      this.view.runs = show ? now.concat(ids.filter((id) => !now.includes(id))) : kept;
      const over = this.view.runs.length - this.options.maxRuns;
      if (over > 0) this.view.runs = this.view.runs.slice(0, this.options.maxRuns);
      this.say(over > 0 ? "At most " + this.options.maxRuns + " runs are drawn at once." : "");
      this.changed();
    },

    only: function (ids) {
      this.view.runs = ids.slice(0, this.options.maxRuns);
      this.changed();
    },

    // The place of a run, or of its group, in the palette: it keeps it while it is shown.
    slot: function (key, keys) {
      const wanted = new Set(keys);
      Array.from(this.slots.keys()).forEach((known) => { if (!wanted.has(known)) this.slots.delete(known); });
      if (!this.slots.has(key)) {
        const taken = new Set(this.slots.values());
        let free = 0;
        while (taken.has(free)) free += 1;
        this.slots.set(key, free);
      }
      return this.slots.get(key);
    },

    colours: function () {
      const self = this, on = this.on(), found = new Map(), palette = this.options.colours;
      const keyOf = (id) => (self.grouped() ? "=" + self.byId.get(id).group : id);
      const keys = on.map(keyOf);
      on.forEach(function (id) {
        const place = self.slot(keyOf(id), keys);
        found.set(id, { colour: palette[place % palette.length], dash: Math.floor(place / palette.length) % 3 });
      });
      return found;
    },

    changed: function () {
      this.save();
      this.table();
      this.sections();
      this.fetch();
      this.paintAll();
    },

    // --- answers ---

    take: function (answer) {
      if (!answer || !answer.rows) return;
      const self = this;
      this.rows = answer.rows;
      this.rowsSeen = (this.rowsSeen || 0) + 1;
      if (this.groupedBy !== answer.group) this.first = null;
      this.groupedBy = answer.group;
      this.groups = answer.groups;
      if (this.view.group && !this.groups.some((group) => group.value === this.view.group)) {
        this.view.group = "";
        this.save();
        return this.ask();
      }
      this.offered = answer.columns;
      this.byId = new Map(this.rows.map((row) => [row.id, row]));
      this.rows.forEach(function (row) {
        self.version.set(row.id, [row.step, row.state, row.noted].join("|"));
      });
      this.fillChoices();
      this.table();
      this.sections();
      this.fetch();
    },

    key: function () {
      const zoom = this.view.zoom ? this.view.zoom.join(":") : "";
      const few = this.on().length;
      return [this.view.x, this.view.smooth, zoom, few > 8 ? "many" : few > 4 ? "some" : "few"].join("|");
    },

    // What charts on the screen lack: one question at a time.
    fetch: function () {
      const self = this;
      if (this.asking && Date.now() - this.asking.at < 15000) return;
      const key = this.key(), on = this.on();
      const runs = new Set(), metrics = new Set();
      on.forEach(function (id) {
        const known = self.known.get(id);
        if (!self.problems[id] && (!known || known.x !== self.view.x || known.version !== self.version.get(id))) runs.add(id);
      });
      this.charts.forEach(function (chart) {
        if (!chart.near || !chart.figure.isConnected) return;
        on.forEach(function (id) {
          const have = chart.have.get(id);
          if (self.problems[id] || (have && have.key === key && have.version === self.version.get(id))) return;
          const known = self.known.get(id);
          if (known && !known.names.has(chart.metric)) return;
          runs.add(id);
          metrics.add(chart.metric);
        });
      });
      if (!runs.size) return this.busy(false);
      const versions = {};
      runs.forEach((id) => { versions[id] = self.version.get(id) || ""; });
      this.asking = { at: Date.now(), key: key, versions: versions };
      this.busy(true);
      this.source.lines({
        runs: Array.from(runs),
        metrics: Array.from(metrics).slice(0, 40),
        count: on.length,
        x: this.view.x,
        smooth: Number(this.view.smooth) || 0,
        window: this.view.zoom,
        key: key,
        versions: versions,
        at: this.asking.at,
      });
    },

    receive: function (answer) {
      if (!answer || !answer.asked) return;
      const self = this, asked = answer.asked;
      if (this.asking && this.asking.at === asked.at) this.asking = null;
      Object.entries(answer.problems).forEach(([id, problem]) => { self.problems[id] = problem; });
      Object.entries(answer.runs).forEach(function ([id, told]) {
        delete self.problems[id];
        self.known.set(id, {
          names: new Set(told.metrics), list: told.metrics, reach: told.reach, axis: told.axis, x: asked.x, notes: told.notes,
          version: asked.versions[id],
        });
      });
      asked.metrics.forEach(function (metric) {
        const chart = self.charts.get(metric), given = answer.charts[metric];
        if (!chart) return;
        if (given) chart.about = given.about;
        asked.runs.forEach(function (id) {
          if (!answer.runs[id]) return;
          chart.have.set(id, { key: asked.key, version: asked.versions[id], line: (given && given.lines[id]) || null });
        });
        chart.cache = null;
      });
      this.sections();
      this.paintAll();
      this.fetch();
    },

    takeViews: function (answer) {
      if (!answer) return;
      this.views = answer.views || {};
      this.fillViews();
      this.say(answer.problem || "");
    },

    // --- the frame ---

    build: function () {
      const self = this, fixed = this.source.fixed;
      this.message = element("p", { class: "workspace-message", role: "status" });
      this.search = element("input", { type: "search", class: "workspace-input", placeholder: "search runs", "aria-label": "search runs", value: this.view.q });
      this.search.addEventListener("input", function () { self.view.q = self.search.value; self.save(); self.table(); });
      this.sorting = this.select("sort", "sort runs", [["attention", "needs attention"], ["-created", "newest"], ["name", "name"]], function () { self.table(); });
      this.grouping = this.select("group", "group runs", [["", "no grouping"]], function () { self.slots.clear(); self.ask(); self.changed(); });
      this.body = element("tbody");
      this.head = element("tr");
      this.more = element("button", { class: "plain workspace-more", hidden: true, onclick: function () { self.shown += ROWS; self.table(); } });
      this.picker = this.columnPicker();
      const table = element("table", { class: "workspace-table" }, [
        element("caption", { class: "runs-hidden", text: "Runs; the first column shows a run in the charts" }),
        element("thead", {}, [this.head]),
        this.body,
      ]);
      this.count = element("span", { class: "quiet small" });
      this.side = element("aside", { class: "workspace-side card", "aria-label": "runs" }, [
        element("div", { class: "workspace-side-head" }, [element("h2", { text: "Runs" }), this.count, element("span", { class: "spring" }), fixed ? null : this.picker]),
        element("div", { class: "workspace-side-tools" }, [this.search, this.sorting, fixed ? null : this.grouping]),
        element("div", { class: "workspace-scroll", tabindex: "0", role: "group", "aria-label": "table of runs" }, [table, this.more]),
      ]);
      this.find = element("input", { type: "search", class: "workspace-input", placeholder: "search metrics (a*b, a|b)   /", "aria-label": "search metrics: * is any text, | is or", value: this.view.find });
      this.find.addEventListener("input", function () { self.view.find = self.find.value; self.save(); self.sections(); self.fetch(); });
      const axes = [["step", "x: steps"], ["tokens", "x: tokens"], ["time", "x: time"]];
      const smooths = this.options.smooths.map((n) => [String(n), n ? "mean over " + n + " steps" : "no smoothing"]);
      this.reset = element("button", { class: "plain workspace-button", text: "Reset zoom", hidden: true, onclick: function () { self.zoom(null); } });
      this.viewsMenu = element("details", { class: "save workspace-views" });
      this.tools = element("div", { class: "workspace-tools" }, [
        this.find,
        fixed ? null : (this.axes = this.select("x", "x axis", axes, function () { self.view.zoom = null; self.changed(); })),
        this.select("y", "y axis", [["auto", "y: auto"], ["linear", "y: linear"], ["log", "y: log"]], function () { self.paintAll(); }),
        fixed ? null : this.select("smooth", "smoothing: the mean of the last so many steps", smooths, function () { self.changed(); }),
        this.select("wide", "charts per row", [["", "charts: auto"], ["1", "1 per row"], ["2", "2 per row"], ["3", "3 per row"], ["4", "4 per row"]], function () { self.layout(); }),
        this.reset,
        element("span", { class: "spring" }),
        fixed ? null : this.viewsMenu,
        fixed ? null : element("a", { class: "workspace-button", href: "#", text: "Compare", onclick: function (event) { event.preventDefault(); self.source.compare(self.on()); } }),
        fixed ? null : element("button", { class: "workspace-button plain", text: "Export", "data-export": "1", title: "one HTML file that opens without a server", onclick: function () { self.exported(); } }),
      ]);
      this.main = element("div", { class: "workspace-main" });
      this.tip = element("div", { class: "workspace-tip card", hidden: true });
      this.root.replaceChildren(this.side, element("div", { class: "workspace-right" }, [this.tools, this.message, this.main]), this.tip);
      this.fillViews();
    },

    select: function (key, label, choices, then) {
      const self = this;
      const made = element("select", { class: "workspace-input", "aria-label": label }, choices.map(([value, text]) => element("option", { value: value, text: text })));
      if (!choices.some(([value]) => value === this.view[key])) {
        made.append(element("option", { value: this.view[key], text: label + ": " + this.view[key] }));
      }
      made.value = this.view[key];
      made.addEventListener("change", function () { self.view[key] = made.value; self.save(); then(); });
      return made;
    },

    say: function (text) { this.message.textContent = text; },

    busy: function (now) { this.main.setAttribute("aria-busy", now ? "true" : "false"); },

    fillChoices: function () {
      const now = this.view.group;
      if (this.groups.map((group) => group.value).join() === this.groupsShown) return;
      this.groupsShown = this.groups.map((group) => group.value).join();
      this.grouping.replaceChildren(...this.groups.map((group) => element("option", { value: group.value, text: group.value ? "group: " + group.label : "no grouping" })));
      this.grouping.value = now;
      this.metricChoices.replaceChildren(...this.offered.map((name) => element("option", { value: name })));
    },

    columnPicker: function () {
      const self = this;
      this.metricChoices = element("datalist", { id: "workspace-offered" });
      const name = element("input", { class: "workspace-input", list: "workspace-offered", placeholder: "metric or setting", "aria-label": "metric or setting of the new column" });
      const which = element("select", { class: "workspace-input", "aria-label": "which value" }, this.options.statistics.map((word) => element("option", { value: word, text: word })));
      const list = element("ul", { class: "workspace-columns" });
      const filled = function () {
        list.replaceChildren(...self.columns().map((column) => element("li", {}, [
          element("span", { text: self.title(column) }),
          element("button", { class: "help", text: "✕", "aria-label": "remove column " + column, onclick: function () { set(self.columns().filter((other) => other !== column)); } }),
        ])));
      };
      const set = function (columns) { self.view.cols = columns.slice(0, 12); self.save(); filled(); self.ask(); };
      const add = function () {
        if (!name.value) return;
        const metric = name.value.includes("/");
        set(self.columns().concat([metric ? name.value + ":" + which.value : name.value]));
        name.value = "";
      };
      filled();
      return element("details", { class: "save workspace-picker" }, [
        element("summary", { class: "help", text: "⊞", title: "columns", "aria-label": "columns of the table" }),
        element("div", { class: "saves" }, [list, name, this.metricChoices, which, element("button", { class: "workspace-button", text: "Add column", onclick: add })]),
      ]);
    },

    title: function (column) {
      const at = column.lastIndexOf(":");
      return at > 0 && this.options.statistics.includes(column.slice(at + 1)) ? column.slice(0, at) + " " + column.slice(at + 1) : column;
    },

    fillViews: function () {
      const self = this;
      if (!this.viewsMenu || this.source.fixed) return;
      const name = element("input", { class: "workspace-input", placeholder: "name of this view", "aria-label": "name of this view" });
      const items = Object.keys(this.views).sort(natural).map((view) => element("div", { class: "workspace-view" }, [
        element("button", { class: "plain", text: view, onclick: function () { self.load(self.views[view]); } }),
        element("button", { class: "help", text: "✕", "aria-label": "delete view " + view, onclick: function () { self.source.save({ name: view, query: null }); } }),
      ]));
      const open = this.viewsMenu.open;
      this.viewsMenu.replaceChildren(
        element("summary", { class: "workspace-button", text: "Views" + (items.length ? " (" + items.length + ")" : "") }),
        element("div", { class: "saves" }, [...items, name, element("button", { class: "workspace-button", text: "Save this view", onclick: function () {
          self.source.save({ name: name.value, query: writeView(self.view) });
        } })])
      );
      this.viewsMenu.open = open;
    },

    load: function (query) {
      this.view = readView("?" + query);
      this.save();
      this.slots.clear();
      this.build();
      this.groupsShown = null;
      this.fillChoices();
      this.ask();
      this.changed();
    },

    exported: function () { this.say("Preparing the file …"); this.source.exported({ query: writeView(this.view), runs: this.on(), count: this.on().length, x: this.view.x, smooth: Number(this.view.smooth) || 0 }); },

    // --- the table ---

    matching: function () {
      const wanted = (this.view.q || "").toLowerCase().split(/\s+/).filter(Boolean);
      const archived = wanted.includes("archived");
      const terms = wanted.filter((word) => word !== "archived");
      return this.rows.filter((row) => row.archived === archived && terms.every((word) => row.search.includes(word)));
    },

    ordered: function (rows) {
      const sort = this.view.sort, down = sort.startsWith("-"), by = sort.replace(/^-/, "");
      if (by === "attention") return rows;
      const place = this.columns().indexOf(by);
      const value = (row) => (by === "name" ? row.name : by === "created" ? row.created : row.cells[place]);
      const known = rows.filter((row) => value(row) !== null && value(row) !== undefined);
      const rest = rows.filter((row) => !known.includes(row));
      known.sort(function (one, other) {
        const a = value(one), b = value(other);
        const way = typeof a === "number" && typeof b === "number" ? a - b : natural(String(a), String(b));
        return down ? -way : way;
      });
      return known.concat(rest);
    },

    table: function () {
      if (!this.rows.length) return;
      const self = this, on = new Set(this.on()), colours = this.colours();
      const rows = this.ordered(this.matching()), columns = this.columns();
      this.head.replaceChildren(...this.heads(rows, on, columns));
      const wanted = [];
      if (this.grouped()) {
        const groups = new Map();
        rows.forEach((row) => { groups.set(row.group, (groups.get(row.group) || []).concat([row])); });
        groups.forEach(function (members, label) {
          if (members.length > 1) wanted.push(self.groupRow(members, label, on, colours, columns.length));
          members.forEach((row) => wanted.push(self.row(row, on, colours, members.length > 1)));
        });
      } else {
        rows.forEach((row) => wanted.push(self.row(row, on, colours, false)));
      }
      const shown = wanted.slice(0, this.shown);
      if (shown.length !== this.body.children.length || shown.some((row, at) => this.body.children[at] !== row)) {
        this.body.replaceChildren(...shown);
      }
      this.more.hidden = wanted.length <= this.shown;
      this.more.textContent = "Show " + Math.min(ROWS, wanted.length - this.shown) + " more";
      this.count.textContent = on.size + " of " + rows.length + " shown";
    },

    heads: function (rows, on, columns) {
      const self = this;
      const all = rows.filter((row) => row.drawable).slice(0, this.options.maxRuns).map((row) => row.id);
      const every = all.length > 0 && all.every((id) => on.has(id));
      const eye = this.eye(every, every ? "hide all runs" : "show the first " + all.length + " runs", function () { every ? self.toggle(all, false) : self.toggle(all, true); });
      const head = function (key, text) {
        const here = self.view.sort.replace(/^-/, "") === key, down = self.view.sort.startsWith("-");
        return element("th", { scope: "col", "aria-sort": here ? (down ? "descending" : "ascending") : "none", class: key === "name" ? "workspace-name" : "runs-number" }, [
          element("button", { class: "runs-sort", title: text, text: text.replace(/\//g, "/\u200b") + (here ? (down ? " ▾" : " ▴") : ""), onclick: function () {
            self.view.sort = here && down ? key : here ? "-" + key : key === "name" ? key : "-" + key;
            self.sorting.value = self.view.sort;
            self.save();
            self.table();
          } }),
        ]);
      };
      return [element("th", { class: "workspace-eye" }, [eye]), head("name", "Run"), ...columns.map((column) => head(column, self.title(column)))];
    },

    eye: function (shown, label, pressed) {
      return element("button", { class: "workspace-box", "aria-pressed": shown ? "true" : "false", "aria-label": label, title: label, text: shown ? "◉" : "○", onclick: pressed });
    },

    swatch: function (look) {
      return element("span", { class: "workspace-swatch", style: look ? "background:" + look.colour + (look.dash ? ";opacity:.55" : "") : "background:transparent" });
    },

    row: function (row, on, colours, member) {
      const self = this, look = colours.get(row.id), problem = this.problems[row.id];
      const signature = JSON.stringify([row, on.has(row.id), look, member, problem]);
      const known = this.tableRows.get(row.id);
      if (known && known.signature === signature) return known.element;
      const made = element("tr", { class: (member ? "workspace-member " : "") + (on.has(row.id) ? "on" : "") }, [
        element("td", { class: "workspace-eye" }, [row.drawable ? this.eye(on.has(row.id), (on.has(row.id) ? "hide " : "show ") + row.name, function () { self.toggle([row.id], !self.on().includes(row.id)); }) : null]),
        element("th", { scope: "row", class: "workspace-name" }, [
          this.swatch(on.has(row.id) ? look : null),
          element(this.source.fixed ? "span" : "a", { class: "workspace-label", title: row.id, href: this.source.fixed ? null : "/run?run=" + encodeURIComponent(row.id) }, [element("bdi", { text: row.name })]),
          element("div", { class: "workspace-state" }, [
            element("span", { class: NUMBER_STATES[row.verdict] ? "severity " + (row.verdict === "warn" ? "warn" : "critical") : "quiet", text: row.verdictWords }),
            element("span", { class: "quiet", text: row.stateIcon + " " + row.state }),
            ...row.tags.map((tag) => element("span", { class: "pill tiny", text: tag })),
            problem ? element("span", { class: "severity critical", text: problem }) : null,
          ]),
        ]),
        ...row.cells.map((cell) => element("td", { class: "runs-number", text: words(cell), title: typeof cell === "number" ? String(cell) : null })),
      ]);
      made.addEventListener("mouseenter", function () { self.mark(row.id); });
      made.addEventListener("mouseleave", function () { self.mark(null); });
      made.addEventListener("dblclick", function (event) { if (!event.target.closest("a, button")) self.only([row.id]); });
      this.focusKept(known, made);
      this.tableRows.set(row.id, { signature: signature, element: made });
      return made;
    },

    groupRow: function (members, label, on, colours, columns) {
      const self = this, ids = members.filter((row) => row.drawable).map((row) => row.id);
      const shown = ids.filter((id) => on.has(id)), all = shown.length === ids.length && ids.length > 0;
      const text = members[0].groupLabel || label, part = shown.length && shown.length < members.length ? shown.length + " of " : "";
      const made = element("tr", { class: "workspace-group" }, [
        element("td", { class: "workspace-eye" }, [this.eye(all, (all ? "hide " : "show ") + "all runs of " + text, function () { self.toggle(ids, !all); })]),
        element("th", { scope: "row", class: "workspace-name", colspan: String(1 + columns) }, [
          this.swatch(shown.length ? colours.get(shown[0]) : null),
          element("span", { text: text, title: text }), element("span", { class: "pill tiny", text: part + members.length, title: "runs that are shown, and runs of the group" }),
        ]),
      ]);
      const known = this.tableRows.get("=" + label);
      this.focusKept(known, made);
      this.tableRows.set("=" + label, { element: made });
      return made;
    },

    // A row that is made again keeps the focus that its button had.
    focusKept: function (known, made) {
      const focused = known && known.element.contains(document.activeElement) && document.activeElement.className;
      if (focused) setTimeout(function () { const found = made.querySelector("." + focused.split(" ")[0]); if (found) found.focus(); }, 0);
    },

    mark: function (id) {
      this.marked = id;
      this.paintAll();
    },

    // --- sections of charts ---

    names: function () {
      const self = this, found = new Set();
      this.on().forEach((id) => { const known = self.known.get(id); if (known) known.list.forEach((name) => found.add(name)); });
      return Array.from(found);
    },

    wanted: function (name) {
      const text = this.view.find.trim().toLowerCase();
      if (!text) return true;
      return text.split("|").filter((part) => part.replace(/\*/g, "").trim()).some(function (part) {
        let at = 0;
        return part.trim().split("*").every(function (piece) {
          const found = name.toLowerCase().indexOf(piece, at);
          at = found + piece.length;
          return found >= 0;
        });
      });
    },

    // As the viewer arranged them, then metrics that every run is looked at with, then the others by name.
    inOrder: function (names) {
      const order = this.view.order.concat(this.options.first);
      const place = (name) => (order.includes(name) ? order.indexOf(name) : order.length);
      return names.sort((one, other) => place(one) - place(other) || natural(one, other));
    },

    sectionsNow: function () {
      const self = this, view = this.view, found = new Map();
      const names = this.names().filter((name) => self.wanted(name) && !view.hide.includes(name));
      const pinned = view.pin.filter((name) => names.includes(name));
      if (pinned.length) found.set("Pinned", pinned);
      const heads = this.options.families;
      const place = (head) => (heads.includes(head) ? heads.indexOf(head) : heads.length);
      const byHead = new Map();
      names.filter((name) => !pinned.includes(name)).forEach(function (name) {
        const head = name.includes("/") ? name.slice(0, name.indexOf("/")) : "other";
        byHead.set(head, (byHead.get(head) || []).concat([name]));
      });
      Array.from(byHead.keys()).sort((a, b) => place(a) - place(b) || natural(a, b)).forEach(function (head) {
        found.set(head, self.inOrder(byHead.get(head)));
      });
      return found;
    },

    // Offer each metric of the shown runs as an x axis.
    offerAxes: function () {
      if (!this.axes) return;
      const names = new Set();
      this.on().forEach((id) => { const known = this.known.get(id); if (known) known.list.forEach((name) => names.add(name)); });
      const wanted = Array.from(names).sort(natural).slice(0, 300), signature = JSON.stringify(wanted);
      if (signature === this.axesOffered) return;
      this.axesOffered = signature;
      const fixedOnes = Array.from(this.axes.children).filter((option) => ["step", "tokens", "time"].includes(option.value));
      const group = element("optgroup", { label: "a metric" }, wanted.map((name) => element("option", { value: name, text: "x: " + name })));
      this.axes.replaceChildren(...fixedOnes, group);
      if (!["step", "tokens", "time"].includes(this.view.x) && !names.has(this.view.x)) {
        this.axes.append(element("option", { value: this.view.x, text: "x: " + this.view.x }));
      }
      this.axes.value = this.view.x;
    },

    sections: function () {
      const self = this, found = this.sectionsNow(), view = this.view;
      this.offerAxes();
      const signature = JSON.stringify([Array.from(found), view.closed, view.hide, view.pin, view.find, this.on().length]);
      if (signature === this.laidOut) return;
      this.laidOut = signature;
      const parts = [];
      found.forEach(function (names, head) {
        const open = !view.closed.includes(head);
        const grid = element("div", { class: "workspace-grid" }, open ? names.map((name) => self.chart(name).figure) : []);
        parts.push(element("section", { class: "workspace-section" }, [
          element("h2", {}, [element("button", { class: "workspace-fold", "aria-expanded": open ? "true" : "false", onclick: function () {
            view.closed = open ? view.closed.concat([head]) : view.closed.filter((other) => other !== head);
            self.changed();
          } }, [element("span", { class: "arrow", "aria-hidden": "true", text: open ? "▾ " : "▸ " }), element("span", { text: head }), element("span", { class: "quiet small", text: " " + names.length })])]),
          grid,
        ]));
      });
      if (view.hide.length) {
        parts.push(element("p", { class: "quiet workspace-hidden" }, [
          element("span", { text: view.hide.length + (view.hide.length === 1 ? " chart is hidden. " : " charts are hidden. ") }),
          element("button", { class: "plain workspace-button", text: "Show all", onclick: function () { view.hide = []; self.changed(); } }),
        ]));
      }
      if (!parts.length) parts.push(this.nothing());
      this.main.replaceChildren(...parts);
      this.layout();
    },

    nothing: function () {
      const loading = this.on().some((id) => !this.known.has(id) && !this.problems[id]);
      const text = !this.rows.length || loading ? "Loading …" : !this.on().length ? "Show a run with the circle beside its name." : this.view.find ? "No metric matches this search." : "These runs have no numbers yet.";
      return element("p", { class: "empty", text: text });
    },

    layout: function () {
      this.main.style.setProperty("--workspace-wide", this.view.wide || "auto-fill");
      this.main.classList.toggle("fixed", Boolean(this.view.wide));
      this.paintAll();
    },

    chart: function (metric) {
      let chart = this.charts.get(metric);
      if (!chart) {
        chart = new ChartCard(this, metric);
        this.charts.set(metric, chart);
        this.watcher.observe(chart.figure);
      }
      chart.pinned();
      return chart;
    },

    turn: function (key, metric) {
      const list = this.view[key];
      this.view[key] = list.includes(metric) ? list.filter((name) => name !== metric) : list.concat([metric]);
      this.changed();
    },

    move: function (metric, by) {
      const names = Array.from(this.sectionsNow().values()).find((list) => list.includes(metric)) || [];
      const at = names.indexOf(metric), to = at + by;
      if (at < 0 || to < 0 || to >= names.length) return;
      names.splice(to, 0, names.splice(at, 1)[0]);
      if (this.view.pin.includes(metric)) this.view.pin = names;
      else this.view.order = this.view.order.filter((name) => !names.includes(name)).concat(names.slice(0, Math.max(at, to) + 1));
      this.changed();
    },

    // --- drawing ---

    reach: function () {
      const self = this;
      let low = Infinity, high = -Infinity;
      this.on().forEach(function (id) {
        const known = self.known.get(id);
        if (!known || known.x !== self.view.x || !known.list.length) return;
        low = Math.min(low, known.reach[0]);
        high = Math.max(high, known.reach[1]);
      });
      return low < high ? [low, high] : Number.isFinite(low) ? [low - 1, low + 1] : [0, 1];
    },

    range: function () { return this.view.zoom || this.reach(); },

    axisTitle: function () {
      const known = this.on().map((id) => this.known.get(id)).find(Boolean);
      return known ? known.axis : "step";
    },

    zoom: function (range) {
      this.view.zoom = range;
      this.reset.hidden = !range;
      this.paintAll();
      clearTimeout(this.later);
      const self = this;
      this.later = setTimeout(function () { self.save(); self.asking = null; self.fetch(); }, 150);
    },

    pan: function (by) {
      const range = this.range(), span = range[1] - range[0];
      this.zoom([range[0] + by * span, range[1] + by * span]);
    },

    // What viewers wrote at steps of the shown runs.
    notes: function (on, colours) {
      const self = this;
      return [].concat(...on.map(function (id) {
        const known = self.known.get(id), told = known && known.x === self.view.x ? known.notes : [];
        return told.map(([x, step, text]) => ({ ...colours.get(id), x: x, text: "★ step " + step + ": " + text, label: self.byId.get(id).name }));
      }));
    },

    // What all charts share, computed once for a picture.
    prepare: function () {
      const on = this.on(), colours = this.colours();
      this.frame = { on: on, colours: colours, notes: this.notes(on, colours), range: this.range(), signature: [on.join(), this.grouped(), this.rowsSeen].join("|") };
      this.style = this.style || getComputedStyle(document.documentElement);
      this.ink = { grid: this.style.getPropertyValue("--edge").trim(), quiet: this.style.getPropertyValue("--quiet").trim() };
      this.font = this.font || "11px " + getComputedStyle(document.body).fontFamily;
    },

    paintAll: function () {
      const self = this;
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(function () {
        self.waiting = false;
        if (!self.alive()) return;
        const began = performance.now();
        self.reset.hidden = !self.view.zoom;
        self.prepare();
        self.charts.forEach(function (chart) { if (chart.near) chart.draw(); });
        self.drawn = { count: self.drawn.count + 1, ms: performance.now() - began };
      });
    },

    paint: function (chart) {
      if (!this.alive()) return;
      this.prepare();
      chart.draw();
    },

    hoverAt: function (place, chart) {
      const self = this;
      this.hover = place;
      if (this.hovering) return;
      this.hovering = true;
      requestAnimationFrame(function () {
        self.hovering = false;
        self.charts.forEach(function (other) { if (other.near) other.overlay(); });
        self.hint(self.hover === null ? null : chart);
      });
    },

    // What is said of the hovered place: the lines of that chart, the nearest to the mouse in bold.
    hint: function (chart) {
      if (!chart || this.hover === null || !chart.lines.length) { this.tip.hidden = true; return; }
      const self = this;
      const found = chart.lines.map(function (line) {
        const at = nearest(line.x, self.hover);
        return { line: line, value: line.y[at], x: line.x[at] };
      }).filter((item) => item.value !== null && item.value !== undefined);
      if (!found.length) { this.tip.hidden = true; return; }
      const near = chart.mouse && found.slice().sort((a, b) => Math.abs(chart.up(a.value) - chart.mouse.y) - Math.abs(chart.up(b.value) - chart.mouse.y))[0];
      found.sort((a, b) => b.value - a.value);
      const shown = found.slice(0, 12), count = found.length - shown.length;
      const noted = this.frame.notes.filter((note) => Math.abs(chart.across(note.x) - chart.across(self.hover)) < NOTE_REACH);
      this.tip.replaceChildren(
        element("div", { class: "quiet small", text: this.axisTitle() + " " + words((near || found[0]).x) }),
        ...shown.map((item) => element("div", { class: "workspace-said" + (item === near ? " near" : "") }, [
          self.swatch(item.line), element("span", { class: "workspace-who", text: item.line.label }), element("span", { class: "workspace-value", text: words(item.value) }),
        ])),
        count ? element("div", { class: "quiet small", text: "and " + count + " more" }) : "",
        ...noted.slice(0, 5).map((note) => element("div", { class: "workspace-note" }, [self.swatch(note), element("span", { text: note.label + " " + note.text })]))
      );
      this.tip.hidden = false;
      const box = chart.stage.getBoundingClientRect(), width = this.tip.offsetWidth, height = this.tip.offsetHeight;
      const x = box.left + chart.across(this.hover);
      const left = x + 14 + width < window.innerWidth ? x + 14 : Math.max(4, x - 14 - width);
      this.tip.style.left = left + "px";
      this.tip.style.top = Math.max(4, Math.min(window.innerHeight - height - 4, box.top + 8)) + "px";
    },
  };

  // --- one chart ---

  function ChartCard(owner, metric) {
    const self = this;
    this.owner = owner;
    this.metric = metric;
    this.have = new Map();
    this.about = { unit: "", meaning: "", kind: "real" };
    this.near = false;
    this.lines = [];
    this.cache = null;
    this.back = element("canvas", { "aria-hidden": "true" });
    this.front = element("canvas", { "aria-hidden": "true" });
    this.stage = element("div", { class: "workspace-stage", tabindex: "0", role: "group" }, [this.back, this.front]);
    this.unit = element("span", { class: "quiet small" });
    this.points = element("span", { class: "quiet small workspace-points" });
    this.pin = element("button", { class: "help tool", onclick: function () { owner.turn("pin", metric); } }, [
      element("span", { class: "icon icon-star" }),
    ]);
    const action = function (text, act) {
      return element("button", { text: text, onclick: function () { menu.open = false; act(); } });
    };
    const menu = element("details", { class: "save" }, [
      element("summary", { class: "help", text: "⋯", "aria-label": "more about " + metric }),
      element("div", { class: "saves" }, [
        action("Enlarge", function () { self.enlarge(); }),
        action("Move earlier", function () { owner.move(metric, -1); }),
        action("Move later", function () { owner.move(metric, 1); }),
        action("Hide", function () { owner.turn("hide", metric); }),
        action("Save PNG", function () { self.picture(); }),
        action("Save CSV", function () { self.table(); }),
      ]),
    ]);
    this.title = element("span", { class: "chart-title", text: metric, title: metric });
    this.figure = element("figure", { class: "card workspace-chart", "data-metric": metric }, [
      element("figcaption", {}, [this.title, this.unit, element("span", { class: "names" }), this.points, this.pin, menu]),
      this.stage,
    ]);
    this.figure.chart = this;
    this.listen();
  }

  ChartCard.prototype = {
    pinned: function () {
      const now = this.owner.view.pin.includes(this.metric);
      this.pin.setAttribute("aria-pressed", now ? "true" : "false");
      this.pin.setAttribute("aria-label", (now ? "unpin " : "pin ") + this.metric);
    },

    clear: function () {
      this.back.width = this.front.width = 0;
    },

    // The lines to draw: runs, or groups as a median with a band.
    gather: function () {
      const self = this, owner = this.owner, colours = owner.frame.colours;
      const lines = [];
      owner.frame.on.forEach(function (id) {
        const have = self.have.get(id), row = owner.byId.get(id);
        if (!have || !have.line || !row) return;
        lines.push({ id: id, label: row.name, group: row.group, ...colours.get(id), ...have.line });
      });
      if (!owner.grouped()) return lines;
      const groups = new Map();
      lines.forEach((line) => { groups.set(line.group, (groups.get(line.group) || []).concat([line])); });
      return Array.from(groups.values()).map((members) => (members.length > 1 ? self.together(members) : members[0]));
    },

    together: function (members) {
      const low = Math.min(...members.map((line) => line.x[0])), high = Math.max(...members.map((line) => line.x[line.x.length - 1]));
      const label = this.owner.byId.get(members[0].id).groupLabel + ", median of " + members.length;
      const made = { ...members[0], label: label, members: members, x: [], y: [], low: [], high: [], faint: null };
      const few = members.length < 4;
      for (let at = 0; at < GRID_POINTS; at += 1) {
        const place = low + ((high - low) * at) / (GRID_POINTS - 1);
        const values = members.map((line) => between(line, place)).filter((value) => value !== null).sort((a, b) => a - b);
        if (!values.length) continue;
        made.x.push(place);
        made.y.push(quantile(values, 0.5));
        made.low.push(quantile(values, few ? 0 : 0.25));
        made.high.push(quantile(values, few ? 1 : 0.75));
      }
      made.drawn = made.of = 0;
      return made;
    },

    across: function (place) { return MARGIN.left + ((place - this.x0) / (this.x1 - this.x0)) * this.inner; },

    up: function (value) {
      const at = this.log ? Math.log10(value) : value;
      return MARGIN.top + (1 - (at - this.y0) / (this.y1 - this.y0)) * this.tall;
    },

    place: function (pixels) { return this.x0 + ((pixels - MARGIN.left) / this.inner) * (this.x1 - this.x0); },

    draw: function () {
      const owner = this.owner, ratio = window.devicePixelRatio || 1;
      const width = this.stage.clientWidth, height = this.stage.clientHeight;
      if (!width || !height) return;
      [this.back, this.front].forEach(function (canvas) {
        if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
          canvas.width = Math.round(width * ratio);
          canvas.height = Math.round(height * ratio);
        }
      });
      const signature = owner.frame.signature;
      if (!this.cache || this.cache.signature !== signature) this.cache = { signature: signature, lines: this.gather() };
      this.lines = this.cache.lines;
      [this.x0, this.x1] = owner.frame.range;
      this.inner = width - MARGIN.left - MARGIN.right;
      this.tall = height - MARGIN.top - MARGIN.bottom;
      this.scale();
      const pen = this.back.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, height);
      this.axes(pen, width, height);
      pen.save();
      pen.beginPath();
      pen.rect(MARGIN.left, MARGIN.top - 2, this.inner, this.tall + 4);
      pen.clip();
      const chart = this;
      owner.frame.notes.forEach(function (note) { chart.note(pen, note); });
      this.lines.forEach(function (line) { chart.behind(pen, line); });
      this.lines.forEach(function (line) { chart.stroke(pen, line.x, line.y, line, chart.opacity(line), 1.6); });
      pen.restore();
      this.overlay();
      this.told();
    },

    opacity: function (line) {
      const marked = this.owner.marked;
      if (!marked || !this.lines.length) return 1;
      return line.id === marked || (line.members || []).some((member) => member.id === marked) ? 1 : 0.15;
    },

    scale: function () {
      const kindly = this.about.kind === "positive" && this.lines.some((line) => line.log);
      const some = this.lines.some((line) => line.y.some((value) => value > 0));
      this.log = some && (this.owner.view.y === "log" || (this.owner.view.y === "auto" && kindly));
      const floors = this.lines.map((line) => line.floor).filter((floor) => floor > 0);
      this.floor = floors.length ? Math.min(...floors) : 0;
      let low = Infinity, high = -Infinity;
      const chart = this;
      this.lines.forEach(function (line) {
        (line.members || [line]).forEach(function (part) {
          for (let at = 0; at < part.y.length; at += 1) {
            const value = part.y[at];
            if (value === null || part.x[at] < chart.x0 || part.x[at] > chart.x1 || (chart.log && value <= chart.floor)) continue;
            if (value < low) low = value;
            if (value > high) high = value;
          }
        });
      });
      if (!(low <= high)) [low, high] = this.log ? [1, 10] : [0, 1];
      if (this.log) [low, high] = [Math.log10(low), Math.log10(high)];
      const size = Math.max(Math.abs(low), Math.abs(high)) || 1;
      const pad = high - low > 1e-9 * size ? 0.06 * (high - low) : 0.1 * size;
      [this.y0, this.y1] = [low - pad, high + pad];
      if (!this.log && low >= 0 && this.y0 < 0) this.y0 = 0;
    },

    axes: function (pen, width, height) {
      pen.font = this.owner.font;
      pen.fillStyle = this.owner.ink.quiet;
      pen.strokeStyle = this.owner.ink.grid;
      pen.lineWidth = 1;
      pen.textBaseline = "middle";
      pen.textAlign = "right";
      const marks = this.log ? decades(this.y0, this.y1) : ticks(this.y0, this.y1, 4);
      marks.forEach((at) => {
        const y = Math.round(MARGIN.top + (1 - (at - this.y0) / (this.y1 - this.y0)) * this.tall) + 0.5;
        pen.beginPath();
        pen.moveTo(MARGIN.left, y);
        pen.lineTo(width - MARGIN.right, y);
        pen.stroke();
        pen.fillText(words(this.log ? Number(Math.pow(10, at).toPrecision(4)) : Number(at.toPrecision(6))), MARGIN.left - 6, y);
      });
      pen.textBaseline = "top";
      const across = ticks(this.x0, this.x1, Math.max(3, Math.floor(this.inner / 80)));
      across.forEach((at, index) => {
        const x = this.across(at), text = at >= 10000 ? words(at / 1000) + "k" : words(at);
        const wide = pen.measureText(text).width / 2;
        pen.textAlign = x + wide > width ? "right" : "center";
        pen.fillText(text, Math.min(x, width), height - MARGIN.bottom + 7);
      });
    },

    // A note: an upright line in the colour of its run, with a star.
    note: function (pen, note) {
      const x = Math.round(this.across(note.x)) + 0.5;
      pen.strokeStyle = pen.fillStyle = note.colour;
      pen.setLineDash([5, 3, 1, 3]);
      pen.beginPath();
      pen.moveTo(x, MARGIN.top + 10);
      pen.lineTo(x, MARGIN.top + this.tall);
      pen.stroke();
      pen.setLineDash([]);
      pen.font = this.owner.font;
      pen.textAlign = "center";
      pen.textBaseline = "top";
      pen.fillText("★", x, MARGIN.top - 2);
    },

    behind: function (pen, line) {
      if (line.members) {
        const chart = this;
        pen.fillStyle = faded(line.colour, 0.15);
        pen.beginPath();
        line.x.forEach(function (x, at) { pen.lineTo(chart.across(x), chart.up(line.high[at])); });
        for (let at = line.x.length - 1; at >= 0; at -= 1) pen.lineTo(this.across(line.x[at]), this.up(line.low[at]));
        pen.fill();
        line.members.forEach(function (member) { chart.stroke(pen, member.x, member.y, line, 0.3 * chart.opacity(line), 1); });
      } else if (line.faint) {
        this.stroke(pen, line.faint.x, line.faint.y, line, 0.25 * this.opacity(line), 1);
      }
    },

    stroke: function (pen, x, y, look, opacity, width) {
      pen.globalAlpha = opacity;
      pen.strokeStyle = look.colour;
      pen.lineWidth = width;
      pen.lineJoin = "round";
      pen.setLineDash([[], [6, 3], [2, 3]][look.dash || 0]);
      pen.beginPath();
      const first = Math.max(0, before(x, this.x0)), last = Math.min(x.length - 1, before(x, this.x1) + 1);
      let joined = false, lonely = null;
      for (let at = first; at <= last; at += 1) {
        const value = y[at];
        if (value === null || (this.log && value <= this.floor)) { joined = false; continue; }
        const px = this.across(x[at]), py = this.up(value);
        if (joined) pen.lineTo(px, py);
        else pen.moveTo(px, py);
        if (!joined && (at === last || y[at + 1] === null)) lonely = [px, py];
        joined = true;
      }
      pen.stroke();
      if (lonely) { pen.fillStyle = look.colour; pen.fillRect(lonely[0] - 1.5, lonely[1] - 1.5, 3, 3); }
      pen.globalAlpha = 1;
      pen.setLineDash([]);
    },

    // The hover line, the points on it, and a range that is being chosen.
    overlay: function () {
      const pen = this.front.getContext("2d"), ratio = window.devicePixelRatio || 1, owner = this.owner;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, this.front.width, this.front.height);
      if (!this.inner || !this.front.width) return;
      if (this.choosing) {
        const [a, b] = this.choosing;
        pen.fillStyle = faded("#6c8fc0", 0.2);
        pen.fillRect(Math.min(a, b), MARGIN.top, Math.abs(b - a), this.tall);
      }
      if (owner.hover === null || owner.hover < this.x0 || owner.hover > this.x1) return;
      const x = Math.round(this.across(owner.hover)) + 0.5;
      pen.strokeStyle = owner.ink.quiet;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(x, MARGIN.top);
      pen.lineTo(x, MARGIN.top + this.tall);
      pen.stroke();
      this.lines.forEach((line) => {
        const at = nearest(line.x, owner.hover), value = line.y[at];
        if (value === null || value === undefined || (this.log && value <= this.floor)) return;
        pen.fillStyle = line.colour;
        pen.beginPath();
        pen.arc(this.across(line.x[at]), this.up(value), 3, 0, 7);
        pen.fill();
      });
    },

    told: function () {
      const drawn = this.lines.filter((line) => line.of);
      const most = drawn.reduce((a, b) => (b.of > a.of ? b : a), { drawn: 0, of: 0 });
      this.points.textContent = most.drawn < most.of ? most.drawn.toLocaleString("en-US") + " of " + most.of.toLocaleString("en-US") + " points" : "";
      this.unit.textContent = this.about.unit;
      this.title.title = this.metric + (this.about.meaning ? ": " + this.about.meaning : "");
      this.stage.setAttribute("aria-label", this.metric + ", " + this.lines.length + (this.lines.length === 1 ? " line" : " lines") + "; arrow keys move along it");
    },

    listen: function () {
      const self = this, owner = this.owner, stage = this.stage;
      const at = (event) => { const box = stage.getBoundingClientRect(); return { x: event.clientX - box.left, y: event.clientY - box.top }; };
      let began = null;
      stage.addEventListener("pointermove", function (event) {
        const mouse = self.mouse = at(event);
        if (began && began.pans) {
          const span = began.range[1] - began.range[0], by = ((began.x - mouse.x) / self.inner) * span;
          owner.zoom([began.range[0] + by, began.range[1] + by]);
        } else if (began) {
          self.choosing = [began.x, Math.max(MARGIN.left, Math.min(MARGIN.left + self.inner, mouse.x))];
        }
        const inside = mouse.x >= MARGIN.left && mouse.x <= MARGIN.left + self.inner;
        owner.hoverAt(inside ? self.place(mouse.x) : null, self);
      });
      stage.addEventListener("pointerleave", function () { if (!began) { self.mouse = null; owner.hoverAt(null, self); } });
      stage.addEventListener("pointerdown", function (event) {
        if (event.button !== 0 || event.pointerType === "touch") return;
        const mouse = at(event);
        began = { x: mouse.x, range: owner.range(), pans: event.shiftKey || mouse.y > MARGIN.top + self.tall };
        stage.setPointerCapture(event.pointerId);
      });
      stage.addEventListener("pointerup", function () {
        const chosen = self.choosing;
        if (began && !began.pans && chosen && Math.abs(chosen[1] - chosen[0]) > 6) {
          owner.zoom([Math.min(...chosen), Math.max(...chosen)].map((x) => self.place(x)));
        }
        began = self.choosing = null;
        self.overlay();
      });
      stage.addEventListener("dblclick", function () { owner.zoom(null); });
      stage.addEventListener("keydown", function (event) {
        const range = owner.range(), step = (range[1] - range[0]) / 100;
        const ways = { ArrowLeft: -step, ArrowRight: step };
        if (event.key in ways) {
          const from = owner.hover === null ? (range[0] + range[1]) / 2 : owner.hover;
          self.mouse = null;
          owner.hoverAt(Math.max(range[0], Math.min(range[1], from + ways[event.key])), self);
        } else if (event.key === "Escape") {
          owner.hoverAt(null, self);
        } else return;
        event.preventDefault();
      });
      stage.addEventListener("blur", function () { owner.hoverAt(null, self); });
    },

    enlarge: function () {
      const now = !this.figure.classList.contains("large");
      document.querySelectorAll(".workspace-chart.large").forEach((other) => other.classList.remove("large"));
      this.figure.classList.toggle("large", now);
      document.body.classList.toggle("veiled", now);
      this.owner.paintAll();
    },

    picture: function () {
      const page = getComputedStyle(document.documentElement), ratio = window.devicePixelRatio || 1;
      const legend = 18 * Math.ceil(this.lines.length / 2) + 8, width = this.back.width / ratio, height = this.back.height / ratio;
      const canvas = element("canvas", {}), pen = canvas.getContext("2d");
      canvas.width = this.back.width;
      canvas.height = (height + 30 + legend) * ratio;
      pen.scale(ratio, ratio);
      pen.fillStyle = page.getPropertyValue("--surface").trim();
      pen.fillRect(0, 0, width, height + 30 + legend);
      pen.fillStyle = page.getPropertyValue("--text").trim();
      pen.font = "600 14px sans-serif";
      pen.fillText(this.metric + (this.about.unit ? " (" + this.about.unit + ")" : ""), 10, 20);
      pen.drawImage(this.back, 0, 30, width, height);
      pen.font = "11px sans-serif";
      this.lines.forEach(function (line, index) {
        const x = 10 + (index % 2) * (width / 2), y = height + 44 + 18 * Math.floor(index / 2);
        pen.fillStyle = line.colour;
        pen.fillRect(x, y - 5, 14, 3);
        pen.fillStyle = page.getPropertyValue("--text").trim();
        pen.fillText(line.label.slice(0, 60), x + 20, y);
      });
      canvas.toBlob((blob) => saved(blob, this.metric + ".png"));
    },

    table: function () {
      const rows = ["run,x,value"];
      this.lines.forEach(function (line) {
        line.x.forEach((x, at) => rows.push('"' + line.label.replace(/^([=+@-])/, "'$1").replace(/"/g, '""') + '",' + x + "," + (line.y[at] ?? "")));
      });
      saved(new Blob([rows.join("\n") + "\n"], { type: "text/csv" }), this.metric + ".csv");
    },
  };

  function saved(blob, name) {
    const link = element("a", { href: URL.createObjectURL(blob), download: name.replace(/[^A-Za-z0-9._-]+/g, "-") });
    link.click();
    setTimeout(function () { URL.revokeObjectURL(link.href); }, 1000);
  }

  document.addEventListener("keydown", function (event) {
    const page = document.querySelector(".workspace");
    if (!page || !page.workspace || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      const large = document.querySelector(".workspace-chart.large");
      if (large) large.chart.enlarge();
    }
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key === "/" && !typing) {
      event.preventDefault();
      page.workspace.find.focus();
    }
  });

  document.addEventListener("click", function (event) {
    document.querySelectorAll(".workspace details.save[open]").forEach(function (menu) {
      if (!menu.contains(event.target)) menu.open = false;
    });
  });

  // --- where answers come from ---

  // The dashboard: stores that callbacks of the server fill.
  const live = {
    fixed: false,
    address: function () { return window.location.search; },
    keep: function (query) {
      const now = window.location.pathname + (query ? "?" + query : "");
      window.history.replaceState(window.history.state, "", now);
    },
    rows: function (ask) { set("workspace-ask", { ...ask, at: Date.now() }); },
    lines: function (want) { set("workspace-want", want); },
    save: function (view) { set("workspace-save", { ...view, at: Date.now() }); },
    compare: function (runs) { window.location.assign("/compare?" + new URLSearchParams({ runs: joined(runs) })); },
    exported: function (view) { set("workspace-export", { ...view, at: Date.now() }); },
  };

  function set(id, data) { window.dash_clientside.set_props(id, { data: data }); }

  function open() {
    const root = document.getElementById("workspace");
    return root && root.workspace;
  }

  function nothing() { return window.dash_clientside.no_update; }

  window.stabilizerWorkspace = function (root, source, options) {
    root.workspace = new Workspace(root, source, options);
    return root.workspace;
  };

  // An exported page holds all answers.
  function fixed(root, told) {
    document.documentElement.setAttribute("data-mantine-color-scheme", told.options.theme);
    const source = {
      fixed: true,
      address: function () { return "?" + told.query; },
      keep: function () {},
      rows: function () { setTimeout(function () { root.workspace.take(told.rows); }, 0); },
      lines: function (want) { setTimeout(function () { root.workspace.receive({ ...told.lines, asked: want }); }, 0); },
    };
    window.stabilizerWorkspace(root, source, told.options);
  }

  const embedded = document.getElementById("workspace-data");
  if (embedded) fixed(document.getElementById("workspace"), JSON.parse(embedded.textContent));

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    stabilizer_workspace: {
      options: function (options) {
        const root = document.getElementById("workspace");
        if (root && options && !root.workspace) window.stabilizerWorkspace(root, live, options);
        const views = root && root.workspace && root.pendingViews;
        if (views) root.workspace.takeViews(views);
        return nothing();
      },
      rows: function (answer) { if (open()) open().take(answer); return nothing(); },
      exported: function (answer) { if (open() && answer) open().say(answer.words); return nothing(); },
      lines: function (answer) { if (open()) open().receive(answer); return nothing(); },
      views: function (answer) {
        const root = document.getElementById("workspace");
        if (root && root.workspace) root.workspace.takeViews(answer);
        else if (root) root.pendingViews = answer;
        return nothing();
      },
    },
  });
})();
