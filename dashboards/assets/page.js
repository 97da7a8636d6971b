// Script of every page: the active colour scheme, and the age of the run's last sign of life.
(function () {
  function scheme() {
    return document.documentElement.getAttribute("data-mantine-color-scheme") === "dark" ? "dark" : "light";
  }
  new MutationObserver(function () {
    if (window.dash_clientside && window.dash_clientside.set_props) {
      // Reload the page in the other colours; the address already names them.
      window.dash_clientside.set_props("url", { search: window.location.search });
      window.dash_clientside.set_props("scheme", { data: scheme() });
    }
  }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });

  var lastPolls = -1;

  function ago(seconds) {
    if (seconds < 60) return Math.max(0, Math.round(seconds)) + " s";
    if (seconds < 3600) return Math.round(seconds / 60) + " min";
    if (seconds < 86400) return Math.round(seconds / 3600) + " h";
    return Math.round(seconds / 86400) + " d";
  }

  // Skip points that a figure already has: two overlapping responses may both contain them.
  function unseen(change, figure) {
    (change.operations || []).forEach(function (points) {
      var at = points.location, line = figure && figure.data && figure.data[at[1]];
      if (points.operation !== "Extend" || at.length !== 3 || at[2] !== "x" || !line || !Array.isArray(line.x)) {
        return;
      }
      var last = line.x[line.x.length - 1];
      var known = points.params.value.filter(function (x) { return x <= last; }).length;
      change.operations.forEach(function (other) {
        if (known && other.operation === "Extend" && other.location[1] === at[1]) {
          other.params.value = other.params.value.slice(known);
        }
      });
    });
    return change;
  }

  // The lowest and highest visible value of a chart's lines on its y axis, as that axis counts.
  function heights(plot, range) {
    var low = Infinity, high = -Infinity;
    plot._fullData.forEach(function (trace) {
      if (trace.visible !== true || trace.yaxis !== "y" || trace.xaxis !== "x" || !trace.x || !trace.y) return;
      for (var at = 0; at < trace.x.length; at += 1) {
        var x = trace.x[at], y = trace.y[at];
        if (typeof x !== "number" || typeof y !== "number" || x < range[0] || x > range[1]) continue;
        if (y < low) low = y;
        if (y > high) high = y;
      }
    });
    if (plot._fullLayout.yaxis.type === "log") {
      low = Math.log10(low);
      high = Math.log10(high);
    }
    return low < high && Number.isFinite(low) ? [low - 0.06 * (high - low), high + 0.06 * (high - low)] : null;
  }

  // After a zoom along the x axis, fit the y axis to what is visible.
  function rescaled(plot, change) {
    var x = plot._fullLayout && plot._fullLayout.xaxis, y = plot._fullLayout && plot._fullLayout.yaxis;
    var names = Object.keys(change || {});
    if (!x || !y || plot.rescaling || x.type !== "linear" || (y.type !== "linear" && y.type !== "log")) return;
    if (names.some(function (name) { return name.indexOf("yaxis") === 0; })) return;
    if (!names.some(function (name) { return name.indexOf("xaxis") === 0; })) return;
    var range = change["xaxis.autorange"] === true ? null : heights(plot, x.range);
    plot.rescaling = true;
    window.Plotly.relayout(plot, range ? { "yaxis.range": range } : { "yaxis.autorange": true }).finally(function () {
      plot.rescaling = false;
    });
  }

  // The icon of the tab has the colour of the verdict, where a page has one.
  var shown = "";

  function icon() {
    var pill = document.querySelector(".head .pill[class*='verdict-']");
    var verdict = pill ? /verdict-(\w+)/.exec(pill.className)[1] : "";
    var colour = { critical: "#b4133f", crashed: "#b4133f", warn: "#b26a00", healthy: "#0b7a4b" }[verdict] || "#1c5cab";
    if (colour === shown) return;
    shown = colour;
    var link = document.querySelector("link[rel~='icon']") || document.head.appendChild(document.createElement("link"));
    var picture = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><circle cx='8' cy='8' r='7' fill='" +
      colour + "'/></svg>";
    link.rel = "icon";
    link.type = "image/svg+xml";
    link.href = "data:image/svg+xml," + encodeURIComponent(picture);
  }

  // The tab says how the open run stands, what is bad before what is only over, and which page it is.
  setInterval(function () {
    var bad = document.querySelector(".head .pill.verdict-critical, .head .pill.verdict-crashed, .head .pill.verdict-warn");
    var state = bad || document.querySelector(".head .pill[class*='state-'], .head .pill[class*='finding-']");
    var heading = document.querySelector("main h1"), run = new URLSearchParams(window.location.search).get("run");
    var words = [state && state.textContent.replace("verdict: ", ""), heading && heading.textContent, run, "stabilizer"];
    words = words.filter(function (word, at) { return word && words.indexOf(word) === at; }).join(" · ");
    if (document.title !== words) document.title = words;
    icon();
  }, 1000);

  setInterval(function () {
    document.querySelectorAll(".js-plotly-plot").forEach(function (plot) {
      if (plot.rescales || !plot.on) return;
      plot.rescales = true;
      plot.on("plotly_relayout", function (change) { rescaled(plot, change); });
    });
  }, 500);

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    stabilizer: {
      scheme: scheme,
      chosen: function (search) {
        return new URLSearchParams(search || "").get("run");
      },
      // Choosing another run keeps the open page if it is one about a run.
      choose: function (run, path, search) {
        var none = window.dash_clientside.no_update;
        var now = new URLSearchParams(search || "").get("run");
        if (!run || run === now) return [none, none];
        return [now ? none : "/run", "?run=" + encodeURIComponent(run)];
      },
      // Polling waits for each response. If one never arrives (the server was restarted), poll again and show that.
      watchdog: function (checks, waiting, polls) {
        var stuck = checks > 1 && Boolean(waiting) && polls === lastPolls; // a new page has no earlier check
        lastPolls = polls;
        document.body.classList.toggle("lost", stuck);
        return stuck ? false : window.dash_clientside.no_update;
      },
      // Charts on or near the screen: only these are redrawn at every step, the others when they come into view.
      visible: function (_, __, known) {
        var found = [];
        document.querySelectorAll(".graph").forEach(function (graph) {
          var box = graph.getBoundingClientRect();
          if (box.bottom > -200 && box.top < window.innerHeight + 200) found.push(JSON.parse(graph.id).chart);
        });
        return JSON.stringify(found) === JSON.stringify(known) ? window.dash_clientside.no_update : found;
      },
      // Update only charts that still exist: a response may arrive after they were replaced.
      grow: function (growth, ids, figures) {
        return ids.map(function (id, place) {
          var name = id.chart;
          return Object.hasOwn(growth, name) ? unseen(growth[name], figures[place]) : window.dash_clientside.no_update;
        });
      },
      age: function (_, beat) {
        var place = document.getElementById("age");
        if (place) {
          var words = place.getAttribute("data-words") || "";
          place.textContent = beat ? words.replace("{age}", ago(Date.now() / 1000 - beat)) : "";
        }
        return window.dash_clientside.no_update;
      },
    },
  });
})();
