"use strict";
// Asks for the page again when the log says that something happened; what is the same stays as it is.
(() => {
  const connection = document.querySelector(".connection");
  const say = (state, text) => { connection.className = `connection ${state}`; connection.textContent = text; };
  let tag = "", isAsking = false, isStale = false;

  async function renew() {
    if (isAsking) { isStale = true; return; }
    isAsking = true;
    try {
      const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.ok) {
        tag = answer.headers.get("ETag") || "";
        const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
        replace(next);
      }
      say("live", "live");
    } catch {
      say("lost", "connection lost");
    }
    isAsking = false;
    if (isStale) { isStale = false; renew(); }
  }

  function replace(next) {
    const main = document.querySelector("main");
    if (!next || next.innerHTML === main.innerHTML) return;
    const scroll = main.querySelector(".scroll");
    const isAtEnd = scroll && scroll.scrollLeft + scroll.clientWidth >= scroll.scrollWidth - 4;
    const left = scroll ? scroll.scrollLeft : 0;
    const focus = document.activeElement && document.activeElement.closest("main") ? document.activeElement : null;
    const place = focus && (focus.id ? `#${CSS.escape(focus.id)}` : focus.getAttribute("href") && `[href="${CSS.escape(focus.getAttribute("href"))}"]`);
    const open = [...main.querySelectorAll("details[open]")].map((each) => each.closest("[id]")?.id);
    main.replaceChildren(...next.childNodes);
    for (const id of open) if (id) document.getElementById(id)?.querySelector("details")?.setAttribute("open", "");
    const now = main.querySelector(".scroll");
    if (now) now.scrollLeft = isAtEnd ? now.scrollWidth : left;
    if (place) main.querySelector(place)?.focus({ preventScroll: true });
  }

  const scroll = document.querySelector(".scroll");
  if (scroll && !location.hash) scroll.scrollLeft = scroll.scrollWidth;
  // A browser keeps pages that were left, for whoever goes back.
  let seen = "", timer = 0, isShown = true, turn = 0;
  async function follow() {
    const mine = ++turn;
    try {
      const answer = await fetch("/live", { cache: "no-store", signal: AbortSignal.timeout(10000) });
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      if (!isShown) return;
      say("live", "live");
      if (text !== seen) { seen = text; await renew(); }
    } catch (error) {
      if (isShown) { seen = ""; say("lost", error instanceof TypeError || error.name === "TimeoutError" ? "connection lost" : error.message); }
    }
    if (isShown && mine === turn) timer = setTimeout(follow, 1000);
  }
  follow();
  addEventListener("pagehide", () => { isShown = false; clearTimeout(timer); say("", ""); });
  addEventListener("pageshow", (event) => { if (event.persisted) { isShown = true; follow(); } });
})();
