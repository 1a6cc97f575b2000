/* Colours: as the system says, or as the user chose here.

   Loaded before the page is painted and not as a module, so that the other colours never flash up. The choice lives in
   localStorage; where that is not allowed, it lives as long as the page. */
(() => {
  "use strict";

  const KEY = "laneway-theme";
  const CHOICES = ["system", "light", "dark"];

  function stored() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  }

  function store(choice) {
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      /* it lasts as long as the page */
    }
  }

  let chosen = CHOICES.includes(stored()) ? stored() : "system";

  function apply() {
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    for (const button of document.querySelectorAll("[data-theme-toggle]")) {
      const said = `Colours: ${chosen === "system" ? "as the system" : chosen}`;
      button.hidden = false;
      button.title = `${said} (t)`;
      button.setAttribute("aria-label", said);
    }
  }

  function next() {
    chosen = CHOICES[(CHOICES.indexOf(chosen) + 1) % CHOICES.length];
    store(chosen);
    apply();
  }

  apply();
  addEventListener("laneway:theme", next);
  addEventListener("storage", (event) => {
    if (event.key === KEY && CHOICES.includes(event.newValue)) {
      chosen = event.newValue;
      apply();
    }
  });
  addEventListener("DOMContentLoaded", () => {
    apply();
    for (const button of document.querySelectorAll("[data-theme-toggle]")) button.addEventListener("click", next);
  });
})();
