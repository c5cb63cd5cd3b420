// What pages do besides what they do without scripts: copy, and keys. No text of a page becomes markup here.
(() => {
  const root = document.documentElement;
  root.dataset.js = "";

  // A press on a copy button copies its value.
  addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard?.writeText(button.dataset.copy);
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  });

  // A form is sent once, however often its button is pressed.
  addEventListener("submit", (event) => {
    if (event.target.method !== "post" || event.defaultPrevented) return;
    if (event.target.dataset.sent) return event.preventDefault();
    event.target.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent));

  const links = () => [...document.querySelectorAll(".nav a")];
  let going = 0;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    if (event.key === "g") {
      going = Date.now();
    } else if (Date.now() - going < 1500) {
      going = 0;
      links().find((link) => link.dataset.key === event.key)?.click();
    }
  });
})();
