// The list of runs: clicks in it have one handler, `/` focuses the search, the address keeps the view.
(function () {
  var clicks = 0;

  document.addEventListener("click", function (event) {
    var part = event.target.closest && event.target.closest("[data-runs]");
    if (part && window.dash_clientside && window.dash_clientside.set_props) {
      clicks += 1;
      window.dash_clientside.set_props("runs-click", {
        data: { what: part.dataset.runs, value: part.dataset.value, n: clicks },
      });
    }
  });

  // The link to all runs, from a filtered list of them, clears the filter.
  document.addEventListener("click", function (event) {
    var link = event.target.closest && event.target.closest("a[href='/']");
    if (link && window.location.pathname === "/" && window.location.search && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      event.stopPropagation();
      window.location.assign("/");
    }
  }, true);

  document.addEventListener("keydown", function (event) {
    var typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;
    var search = document.getElementById("runs-find");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey || !search) return;
    event.preventDefault();
    search.focus();
    search.select();
  });

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    stabilizer_runs: {
      keep: function (view) {
        if (window.location.pathname === "/") {
          var query = new URLSearchParams(view || {}).toString();
          window.history.replaceState(window.history.state, "", query ? "/?" + query : "/");
        }
        return window.dash_clientside.no_update;
      },
    },
  });
})();
