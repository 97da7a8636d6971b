// Saves the page as one HTML file that opens without a server: its elements and styles as they are now, without scripts.
// The workspace has numbers in its canvases, so it exports itself, with all its interactions.
(function () {
  const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:";
  const INERT = "script, .save, .tool, .tools, .answers, .keys, .remarks-form, .glimpse, .modebar-container";

  function styles() {
    return Array.from(document.styleSheets).map(function (sheet) {
      try {
        return Array.from(sheet.cssRules).map((rule) => rule.cssText).join("\n");
      } catch (error) {
        return ""; // of another site; there is none
      }
    }).join("\n");
  }

  // A copy of the elements, with what is typed and drawn in them.
  function copied(page) {
    const copy = page.cloneNode(true);
    const pairs = (what) => Array.from(page.querySelectorAll(what)).map((one, at) => [one, copy.querySelectorAll(what)[at]]);
    pairs("input").forEach(function ([now, then]) {
      then.setAttribute("value", now.type === "password" ? "" : now.value);
      then.toggleAttribute("checked", now.checked);
    });
    pairs("textarea").forEach(([now, then]) => { then.textContent = now.value; });
    pairs("canvas").forEach(function ([now, then]) {
      const drawn = document.createElement("img");
      drawn.src = now.toDataURL();
      drawn.alt = "";
      drawn.className = then.className;
      then.replaceWith(drawn);
    });
    copy.querySelectorAll(INERT).forEach((one) => one.remove());
    copy.querySelectorAll("a[href]").forEach((link) => link.removeAttribute("href"));
    copy.querySelectorAll("button").forEach((button) => { button.disabled = true; });
    return copy;
  }

  function file() {
    const made = document.implementation.createHTMLDocument(document.title);
    const about = made.createElement("p"), policy = made.createElement("meta"), sheet = made.createElement("style");
    Array.from(document.documentElement.attributes).forEach((one) => made.documentElement.setAttribute(one.name, one.value));
    policy.setAttribute("http-equiv", "Content-Security-Policy");
    policy.setAttribute("content", POLICY);
    sheet.textContent = styles();
    about.className = "quiet small page";
    about.textContent = "A copy of this page as it was on " + new Date().toLocaleString() + ", saved by stabilizer.";
    made.head.prepend(policy);
    made.head.append(sheet);
    made.body.append(made.importNode(copied(document.getElementById("page")), true), about);
    return "<!doctype html>\n" + made.documentElement.outerHTML;
  }

  function save() {
    const own = document.querySelector("[data-export]");
    if (own) return own.click();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([file()], { type: "text/html" }));
    link.download = (document.title.replace(/[^\w.-]+/g, "-").replace(/^-+|-+$/g, "") || "page") + ".html";
    link.click();
    setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
  }

  document.addEventListener("click", function (event) {
    if (event.target.closest && event.target.closest("#save-page")) save();
  });
})();
