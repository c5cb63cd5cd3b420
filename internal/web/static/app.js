// What pages do besides what they do without scripts: copy, and keys. No text of a page becomes markup here.
(() => {
  const root = document.documentElement;
  root.dataset.js = "";

  // A press on a copy button copies its value, or the text before it.
  addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard?.writeText(button.dataset.copy || button.previousElementSibling.textContent);
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  });

  // What stands behind # in the address fills its field, and is sent.
  const filled = document.querySelector("[data-from-hash]");
  if (filled && location.hash.length > 1) {
    filled.value = decodeURIComponent(location.hash.slice(1));
    filled.form.requestSubmit();
  }

  // A form is sent once, however often its button is pressed.
  addEventListener("submit", (event) => {
    if (event.target.method !== "post" || event.defaultPrevented) return;
    if (event.target.dataset.sent) return event.preventDefault();
    event.target.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent));

  const pause = (ms) => new Promise((done) => setTimeout(done, ms));

  // Puts the parts of another page, by their ids, in place of the same parts of this page, except those that have the focus.
  const take = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    for (const part of document.querySelectorAll("[data-part]")) {
      const next = page.getElementById(part.id);
      if (next && !part.matches(":focus-within, :has(details[open])")) part.replaceWith(next);
    }
  };

  // A page that follows its workspace waits for news while it is seen, and then reads itself again, twice a second at most.
  const follow = async (at) => {
    let { after } = at.dataset;
    const mark = (on) => document.querySelectorAll(".live-mark").forEach((m) => (m.hidden = !on));
    mark(true);
    for (;;) {
      if (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
      // A hidden page does not wait: a browser has few connections for one service.
      const unseen = new AbortController();
      const hidden = () => document.hidden && unseen.abort();
      document.addEventListener("visibilitychange", hidden);
      const res = await fetch(`${at.dataset.follow}?after=${after}`, { signal: unseen.signal }).catch(() => null);
      document.removeEventListener("visibilitychange", hidden);
      if (unseen.signal.aborted) continue;
      if (!res || res.status >= 500 || res.status === 429) {
        mark(false);
        await pause(10000);
        continue;
      }
      if (!res.ok) return mark(false); // signed out
      const last = await res.text();
      if (last !== after) {
        const page = await fetch(location.href).catch(() => null);
        if (page?.ok) {
          take(await page.text());
          after = last;
        }
        await pause(500);
      }
      mark(true);
    }
  };
  document.querySelectorAll("[data-follow]").forEach(follow);

  // A form that shows what it makes sends itself a moment after a change, and takes that part of the answer.
  let typing = 0;
  addEventListener("input", (event) => {
    const form = event.target.closest("form[data-live]");
    if (!form) return;
    clearTimeout(typing);
    typing = setTimeout(async () => {
      const body = new URLSearchParams(new FormData(form));
      body.set("preview", "live");
      const res = await fetch(form.action, { method: "POST", body }).catch(() => null);
      if (res) take(await res.text());
    }, 400);
  });

  // The palette, or the field of the documentation, shows what the page of the search finds, while a person types.
  const palette = document.getElementById("palette");
  const jump = document.getElementById("jump");
  const jumps = document.getElementById("jumps");
  let asked = 0;
  let later = 0;
  const found = async () => {
    const mine = ++asked;
    const text = jump.value.trim();
    const answer = text && await fetch(`${jump.form.action}?q=${encodeURIComponent(text)}&list=`, { headers: { Accept: "text/html" } });
    if (mine !== asked) return;
    const page = answer && new DOMParser().parseFromString(await answer.text(), "text/html");
    const items = page ? [...page.querySelectorAll("[data-found] a")] : [];
    jumps.replaceChildren(...items.slice(0, 12).map((item, at) => {
      const row = document.createElement("li");
      const link = document.createElement("a");
      row.setAttribute("role", "none");
      link.setAttribute("role", "option");
      link.setAttribute("aria-selected", String(at === 0));
      const to = new URL(item.getAttribute("href"), location.origin);
      link.href = to.pathname + to.hash;
      link.append(item.querySelector("bdi").textContent, Object.assign(document.createElement("small"), { textContent: item.querySelector("small").textContent }));
      row.append(link);
      return row;
    }));
  };
  jump?.addEventListener("input", () => {
    clearTimeout(later);
    later = setTimeout(found, 120);
  });
  jump?.addEventListener("keydown", (event) => {
    const rows = [...jumps.querySelectorAll("a")];
    const at = rows.findIndex((row) => row.getAttribute("aria-selected") === "true");
    if (event.key === "Enter" && at >= 0 && rows.length) {
      event.preventDefault();
      rows[at].click();
    } else if (event.key === "Escape" && !palette) {
      jumps.replaceChildren();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && rows.length) {
      event.preventDefault();
      const next = (at + (event.key === "ArrowDown" ? 1 : rows.length - 1)) % rows.length;
      rows.forEach((row, i) => row.setAttribute("aria-selected", String(i === next)));
      rows[next].scrollIntoView({ block: "nearest" });
    }
  });

  const links = () => [...document.querySelectorAll(".nav a")];

  // A list of all keys.
  const help = () => {
    const make = (name, text, ...children) => {
      const element = Object.assign(document.createElement(name), { textContent: text });
      element.append(...children);
      return element;
    };
    const pages = links().filter((link) => link.dataset.key).map((link) => [`g ${link.dataset.key}`, link.textContent]);
    const keys = [["/", "Search"], ["Ctrl K", "Search or jump to"], ["?", "Show this list"], ["Esc", "Close"], ...pages];
    const list = make("dl", "", ...keys.map(([key, what]) => make("div", "", make("dt", "", make("kbd", key)), make("dd", what))));
    const box = make("dialog", "", make("h2", "Keyboard shortcuts"), list);
    box.className = "palette keys";
    box.setAttribute("aria-label", "Keyboard shortcuts");
    box.addEventListener("click", () => box.close());
    box.addEventListener("close", () => box.remove());
    document.body.append(box);
    box.showModal();
  };

  let going = 0;
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "k" && palette) {
      event.preventDefault();
      palette.showModal();
      return jump.select();
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    if (event.key === "/") {
      event.preventDefault();
      (document.getElementById("search") ?? jump)?.focus();
    } else if (event.key === "?" && palette) {
      help();
    } else if (event.key === "g") {
      going = Date.now();
    } else if (Date.now() - going < 1500) {
      going = 0;
      links().find((link) => link.dataset.key === event.key)?.click();
    }
  });
})();
