// The run page: view settings (kept in the address), the buttons of a chart, and the keyboard.
(function () {
  var KEYS = ["x", "y", "smooth", "find", "open", "pin", "link", "zoom", "marks"];
  var USUAL = { x: "step", y: "auto", smooth: "5" };
  var zooming = false;
  // Where a spreadsheet would start a formula: at the start of a cell, or after a character it may treat as a
  // separator.
  var FORMULA = /(^|[\t\r\n;,|"'])(?=[=+@\uff1d\uff0b\uff0d\uff20\t\r\n-])/g;

  function settings() {
    var query = new URLSearchParams(window.location.search);
    var said = {};
    KEYS.forEach(function (key) {
      if (query.get(key)) said[key] = query.get(key);
    });
    return said;
  }

  function write(said) {
    var query = new URLSearchParams(window.location.search);
    KEYS.forEach(function (key) {
      if (said[key] && said[key] !== USUAL[key]) query.set(key, said[key]);
      else query.delete(key);
    });
    var search = "?" + query;
    if (search !== window.location.search) {
      window.history.replaceState(window.history.state, "", search + window.location.hash);
    }
  }

  function show(said) {
    write(said);
    window.dash_clientside.set_props("settings", { data: settings() });
  }

  // Add or remove a word in a list of words.
  function turned(list, word) {
    var words = (list || "").split(",").filter(Boolean);
    var at = words.indexOf(word);
    if (at < 0) words.push(word);
    else words.splice(at, 1);
    return words.join(",");
  }

  function turn(key, word) {
    var said = settings();
    said[key] = turned(said[key], word);
    show(said);
  }

  function plots() {
    return Array.prototype.slice.call(document.querySelectorAll("#grid .chart .js-plotly-plot"));
  }

  // An SVG is XML, which allows no control characters, but names from a log may contain some.
  function drawable(value) {
    if (typeof value === "string") return value.replace(/[\u0000-\u001f\u007f-\u009f\ud800-\udfff\ufffe\uffff]/gu, " ");
    if (Array.isArray(value)) return value.map(drawable);
    if (!value || Object.getPrototypeOf(value) !== Object.prototype) return value;
    return Object.fromEntries(Object.entries(value).map(function (pair) { return [pair[0], drawable(pair[1])]; }));
  }

  // A picture of a chart as currently displayed, with its title and background.
  function picture(button, kind) {
    var card = button.closest(".chart, .savable");
    var plot = card.querySelector(".js-plotly-plot");
    var title = button.getAttribute("data-title");
    var style = getComputedStyle(document.documentElement);
    var layout = Object.assign({}, plot.layout, {
      title: { text: title.replace(/&/g, "&amp;").replace(/</g, "&lt;"), x: 0.02, y: 0.97, font: { size: 15 } },
      margin: Object.assign({}, plot.layout.margin, { t: ((plot.layout.margin || {}).t || 20) + 30 }),
      paper_bgcolor: style.getPropertyValue("--surface").trim(),
      plot_bgcolor: style.getPropertyValue("--surface").trim(),
      showlegend: card.querySelectorAll(".swatch").length > 1,
    });
    window.Plotly.downloadImage(
      { data: drawable(plot.data), layout: drawable(layout), config: { plotlyServerURL: "" } },
      { format: kind, width: 960, height: 480, scale: kind === "png" ? 2 : 1, filename: named(title) }
    );
  }

  function named(title) {
    var run = new URLSearchParams(window.location.search).get("run") || window.location.pathname.slice(1);
    return (run + "-" + title).replace(/[^A-Za-z0-9._-]+/g, "-").slice(0, 120);
  }

  function cell(value) {
    if (typeof value === "number") return String(value);
    var words = String(value === null || value === undefined ? "" : value).replace(/<[^>]*>/g, " ");
    words = words.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&quot;/g, '"').replace(/&#x27;/g, "'").replace(/&amp;/g, "&");
    return '"' + words.replace(FORMULA, "$1'").replace(/"/g, '""') + '"';
  }

  // The displayed numbers, one row per point.
  function points(button) {
    var plot = button.closest(".chart, .savable").querySelector(".js-plotly-plot");
    var rows = ["series,x,y,text"];
    plot._fullData.forEach(function (trace, index) {
      var text = Array.isArray(trace.text) ? trace.text : [];
      Array.from(trace.x || []).forEach(function (x, at) {
        rows.push([cell(trace.name || "trace " + index), cell(x), cell(trace.y[at]), cell(text[at])].join(","));
      });
    });
    var link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([rows.join("\n") + "\n"], { type: "text/csv" }));
    link.download = named(button.getAttribute("data-title")) + ".csv";
    link.click();
    setTimeout(function () {
      URL.revokeObjectURL(link.href);
    }, 1000);
  }

  function save(button) {
    var kind = button.getAttribute("data-save");
    button.closest("details").open = false;
    if (kind !== "csv") return picture(button, kind);
    if (!button.getAttribute("data-chart")) return points(button);
    window.dash_clientside.set_props("wanted", {
      data: { chart: button.getAttribute("data-chart"), name: named(button.getAttribute("data-title")), at: Date.now() },
    });
  }

  // Notifications of the browser, while this tab is open: about incidents that open, and fixes that wait for an answer.
  var NOTIFY = "stabilizer-notify", known = null, knownRun = null;

  function notifies() {
    return "Notification" in window && Notification.permission === "granted" && localStorage.getItem(NOTIFY) === "1";
  }

  function notify() {
    if (!("Notification" in window)) return;
    if (notifies()) localStorage.removeItem(NOTIFY);
    else {
      localStorage.setItem(NOTIFY, "1");
      Notification.requestPermission();
    }
  }

  function news() {
    var button = document.querySelector("[data-notify]");
    if (button) {
      var words = notifies() ? "✓ notifies you" : "notify me";
      if ("Notification" in window && Notification.permission === "denied") words = "notifications are blocked";
      if (button.textContent !== words) button.textContent = words;
    }
    var run = new URLSearchParams(window.location.search).get("run"), now = {};
    document.querySelectorAll("#incidents .incident:not(.resolved), #now .waiting").forEach(function (card) {
      var fix = card.classList.contains("waiting"), link = card.querySelector(".incident-link");
      var words = fix ? "waits for your answer: " + card.querySelector("code").textContent : "";
      var summary = card.querySelector(".summary");
      now[link && !fix ? link.getAttribute("href") : words] = words || (summary ? summary.textContent.slice(0, 200) : "");
    });
    if (!document.querySelector(".page.run #incidents h2")) return;
    if (known && knownRun === run && notifies()) {
      Object.keys(now).forEach(function (key) {
        if (!(key in known)) new Notification("stabilizer: " + run, { body: now[key], tag: run + key });
      });
    }
    known = now;
    knownRun = run;
  }
  setInterval(news, 1000);

  // The legend hides and shows lines. The choice belongs to the card, because the figure is replaced as the run grows.
  function hide(button) {
    var card = button.closest(".chart"), shown = button.getAttribute("aria-pressed") !== "false";
    button.setAttribute("aria-pressed", shown ? "false" : "true");
    lines(card.querySelector(".js-plotly-plot"));
  }

  function lines(plot) {
    var card = plot && plot.closest(".chart");
    var keys = card ? Array.prototype.slice.call(card.querySelectorAll("[data-line]")) : [];
    if (!keys.length || !plot.data || plot.hiding) return;
    var visible = [], places = [], raw = settings().smooth !== "0" ? keys.length : 0;
    keys.forEach(function (key, index) {
      var wanted = key.getAttribute("aria-pressed") === "false" ? false : true;
      [index].concat(raw ? [index + raw] : []).forEach(function (place) {
        if (!plot.data[place] || (plot.data[place].visible !== false) === wanted) return;
        visible.push(wanted);
        places.push(place);
      });
    });
    if (!places.length) return;
    plot.hiding = true;
    window.Plotly.restyle(plot, { visible: visible }, places).finally(function () { plot.hiding = false; });
  }

  function large(card) {
    var now = card && !card.classList.contains("large");
    document.querySelectorAll(".chart.large").forEach(function (other) {
      other.classList.remove("large");
    });
    if (now) card.classList.add("large");
    document.body.classList.toggle("veiled", Boolean(now));
  }

  function keys(open) {
    var dialog = document.getElementById("keys");
    if (!dialog) return;
    if (open && !dialog.open) dialog.showModal();
    else dialog.close();
  }

  document.addEventListener("click", function (event) {
    var at = function (name) {
      return event.target.closest ? event.target.closest("[" + name + "]") : null;
    };
    var button;
    if ((button = at("data-pin"))) turn("pin", button.getAttribute("data-pin"));
    else if ((button = at("data-family"))) turn("open", button.getAttribute("data-family"));
    else if ((button = at("data-save"))) save(button);
    else if ((button = at("data-line"))) hide(button);
    else if ((button = at("data-notify"))) notify();
    else if ((button = at("data-large"))) large(button.closest(".chart"));
    else if ((button = at("data-keys"))) keys(button.getAttribute("data-keys") === "1");
    else if (document.body.classList.contains("veiled") && !event.target.closest(".chart.large")) large(null);
    document.querySelectorAll("details.save[open]").forEach(function (menu) {
      if (!menu.contains(event.target)) menu.open = false;
    });
  });

  function incident(step) {
    var links = Array.prototype.slice.call(document.querySelectorAll(".incident-link"));
    if (!links.length) return;
    var at = links.indexOf(document.activeElement);
    var next = at < 0 ? (step > 0 ? 0 : links.length - 1) : (at + step + links.length) % links.length;
    links[next].focus();
    links[next].closest(".incident").scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", function (event) {
    var page = document.querySelector(".page.run");
    if (!page || event.ctrlKey || event.metaKey || event.altKey) return;
    var typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;
    if (event.key === "Escape") {
      large(null);
      if (event.target.id === "find") event.target.blur();
      return;
    }
    if (typing) return;
    if (event.key === "/") document.getElementById("find").focus();
    else if (event.key === "j") incident(1);
    else if (event.key === "k") incident(-1);
    else if (event.key === "?") keys(true);
    else return;
    event.preventDefault();
  });

  function axisRange(change, axis) {
    var range = change[axis + ".range"] || [change[axis + ".range[0]"], change[axis + ".range[1]"]];
    return range[0] === undefined || range[1] === undefined ? null : range.map(Number);
  }

  function rounded(range) {
    return range.map(function (end) { return String(Number(end.toPrecision(8))); }).join(":");
  }

  // Zooming changes the address; the server answers with all points of the range. With linked zoom the range of one
  // chart is that of all. The y axis fits what is visible, unless it was chosen too.
  function zoomed(plot, change) {
    if (zooming) return;
    var said = settings();
    var graph = plot.closest(".graph");
    var x = axisRange(change, "xaxis"), y = axisRange(change, "yaxis");
    var whole = change["xaxis.autorange"] === true;
    if (!graph || (!whole && !x && !y) || (plot.rescaling && !whole && !x)) return;
    if (!whole && !x) x = plot._fullLayout.xaxis.range.map(Number);
    if (said.link === "1") {
      together(plot, whole ? { "xaxis.autorange": true, "yaxis.autorange": true } : { "xaxis.range": x });
      said.zoom = whole ? "" : rounded(x);
    } else {
      var id = JSON.parse(graph.id).chart;
      var others = (said.zoom || "").split("~").filter(function (part) {
        return part && part.slice(0, part.indexOf(":")) !== id;
      });
      if (!whole) others.push(id + ":" + rounded(y ? x.concat(y) : x));
      said.zoom = others.join("~");
    }
    show(said);
  }

  function together(plot, change) {
    zooming = true;
    var others = plots().filter(function (other) { return other !== plot; });
    Promise.all(others.map(function (other) { return window.Plotly.relayout(other, change); })).finally(function () {
      zooming = false;
    });
  }

  // A chart that grows removes the label of a hovered point: request it again at the current mouse position.
  var mouse = null;
  document.addEventListener("mousemove", function (event) {
    if (event.isTrusted) mouse = { clientX: event.clientX, clientY: event.clientY, buttons: event.buttons };
  });

  function again(plot) {
    var under = mouse && !mouse.buttons && document.elementFromPoint(mouse.clientX, mouse.clientY);
    if (!under || !plot.contains(under) || !under.closest(".draglayer")) return;
    under.dispatchEvent(new MouseEvent("mousemove", { clientX: mouse.clientX, clientY: mouse.clientY, bubbles: true }));
  }

  function listen() {
    document.querySelectorAll(".js-plotly-plot").forEach(function (plot) {
      if (plot.hovered || !plot.on) return;
      plot.hovered = true;
      plot.on("plotly_afterplot", function () {
        setTimeout(again, 0, plot);
      });
    });
    plots().forEach(function (plot) {
      if (plot.stabilizer || !plot.on) return;
      plot.stabilizer = true;
      plot.on("plotly_relayout", function (change) {
        zoomed(plot, change);
      });
      plot.on("plotly_afterplot", function () { setTimeout(lines, 0, plot); });
    });
  }
  setInterval(listen, 500);

  // A response in flight while another run (or other colours) was opened fills the new page with the old run. The page
  // then reloads itself.
  var last = null;

  function recheck() {
    var run = new URLSearchParams(window.location.search).get("run");
    var page = document.querySelector(".page.run") && window.location.pathname === "/run";
    if (!page || !run || !last) return;
    var scheme = window.dash_clientside.stabilizer.scheme();
    if (last.run === run && last.theme === scheme) return;
    last = null;
    window.dash_clientside.set_props("scheme", { data: scheme });
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    stabilizer_run: {
      // Request new settings immediately. During a poll the next one does it, because two would overlap.
      nudge: function (chosen, waiting) {
        return waiting ? window.dash_clientside.no_update : JSON.stringify(chosen);
      },
      astray: function (seen) {
        last = seen;
        setTimeout(recheck, 300);
        return window.dash_clientside.no_update;
      },
      choose: function (x, y, smooth, find, linked, marks) {
        var said = settings();
        said.x = x;
        said.y = y;
        said.smooth = smooth;
        said.find = find || "";
        said.link = linked ? "1" : "";
        said.marks = marks ? "" : "0";
        if (!linked) said.zoom = "";
        if (x !== (settings().x || "step")) said.zoom = "";
        var before = JSON.stringify(settings());
        write(said);
        return JSON.stringify(settings()) === before ? window.dash_clientside.no_update : settings();
      },
    },
  });
})();
