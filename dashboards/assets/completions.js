// Completions: the address follows the display, arrow keys walk through the steps.
(function () {
  function typing(element) {
    return element && (element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) ||
      ["slider", "listbox", "option", "radio", "tab"].indexOf(element.getAttribute("role")) >= 0);
  }
  document.addEventListener("keydown", function (event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || typing(event.target)) return;
    var name = { ArrowLeft: "completions-prev", ArrowRight: "completions-next" }[event.key];
    var button = name && document.getElementById(name);
    if (button) {
      event.preventDefault();
      button.click();
    } else if (event.key === "/" && document.getElementById("completions-q")) {
      event.preventDefault();
      document.getElementById("completions-q").focus();
    }
  });

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    stabilizer_completions: {
      address: function (query) {
        if (query && window.location.pathname === "/completions") {
          window.history.replaceState(window.history.state, "", "?" + query);
        }
        return window.dash_clientside.no_update;
      },
    },
  });
})();
