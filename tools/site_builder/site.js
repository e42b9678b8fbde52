// The search field of every page, the page of results, and the table of contents of wide screens.
"use strict";

(function () {
  const root = document.documentElement.dataset.root;
  const input = document.querySelector("header input[type=search]");
  const suggestions = document.getElementById("suggestions");
  const results = document.getElementById("found");

  // A script and no request, which a page of file:// could not make.
  let waiting = null;
  function withIndex(callback) {
    if (window.weirIndex) {
      callback(window.weirIndex);
    } else if (waiting) {
      waiting.push(callback);
    } else {
      waiting = [callback];
      const script = document.createElement("script");
      script.src = root + "index.js";
      script.onload = () => waiting.forEach((each) => each(window.weirIndex));
      document.head.appendChild(script);
    }
  }

  // Appends a text whose words are marked.
  function appendMarked(parent, text, words) {
    const lower = text.toLowerCase();
    let at = 0;
    while (at < text.length) {
      let next = -1;
      let length = 0;
      for (const word of words) {
        const place = lower.indexOf(word, at);
        if (place >= 0 && (next < 0 || place < next || (place === next && word.length > length))) {
          next = place;
          length = word.length;
        }
      }
      if (next < 0) break;
      parent.append(text.slice(at, next));
      const mark = document.createElement("mark");
      mark.textContent = text.slice(next, next + length);
      parent.append(mark);
      at = next + length;
    }
    parent.append(text.slice(at));
  }

  function item(each, words) {
    const entry = document.createElement("li");
    const anchor = document.createElement("a");
    anchor.href = root + each.page + (each.anchor ? "#" + each.anchor : "");
    const where = document.createElement("span");
    where.className = "where";
    appendMarked(where, each.title === each.pageTitle ? each.title : each.pageTitle + ": " + each.title, words);
    const excerpt = document.createElement("span");
    excerpt.className = "excerpt";
    appendMarked(excerpt, weirExcerpt(each.text, words), words);
    anchor.append(where, excerpt);
    entry.append(anchor);
    return entry;
  }

  function suggest() {
    const query = input.value;
    if (weirWords(query).length === 0) {
      suggestions.hidden = true;
      return;
    }
    withIndex((index) => {
      if (input.value !== query) return;
      const found = weirFind(index, query).slice(0, 12);
      suggestions.replaceChildren(...found.map((each) => item(each, weirWords(query))));
      suggestions.hidden = found.length === 0;
    });
  }

  input.addEventListener("input", suggest);
  input.addEventListener("focus", suggest);
  document.addEventListener("click", (event) => {
    if (!input.form.contains(event.target)) suggestions.hidden = true;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape") {
      suggestions.hidden = true;
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !suggestions.hidden) {
      const links = [input, ...suggestions.querySelectorAll("a")];
      const now = links.indexOf(document.activeElement);
      if (now < 0) return;
      event.preventDefault();
      links[(now + (event.key === "ArrowDown" ? 1 : links.length - 1)) % links.length].focus();
    }
  });

  if (results) {
    const query = new URLSearchParams(location.search).get("q") || "";
    const words = weirWords(query);
    if (words.length > 0) {
      input.value = query;
      withIndex((index) => {
        const found = weirFind(index, query);
        const shown = found.slice(0, 50);
        const count = document.getElementById("found-count");
        count.textContent = found.length === 0 ? "Nothing has all of these words: " + words.join(" ")
            : found.length + (found.length === 1 ? " section" : " sections")
              + (found.length > shown.length ? "; the first " + shown.length : "");
        results.replaceChildren(...shown.map((each) => item(each, words)));
      });
    }
  }

  // Beside the text there is room for the table of contents; above it, on a small screen, it stays closed.
  const contents = document.querySelector("nav.contents details");
  if (contents && matchMedia("(min-width: 85rem)").matches) contents.open = true;
})();
