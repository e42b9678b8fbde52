// Finds sections by words. The index (index.js) has the text of every section; it is small enough to be read as a whole
// for each search, so that parts of words and Chinese text are found without a list of words.
"use strict";

// Returns the words of a query: those of identifiers stay together (ids.min_count).
function weirWords(query) {
  return query.toLowerCase().split(/[\s,;"'`()]+/).filter((word) => word.length > 0);
}

// Returns how well a word fits a text in lower case: 0 if it is not there, more for a whole word than for a part.
function weirFit(text, word) {
  let best = 0;
  let count = 0;
  for (let at = text.indexOf(word); at >= 0 && count < 10; at = text.indexOf(word, at + word.length)) {
    const before = at === 0 ? "" : text[at - 1];
    const after = text[at + word.length] || "";
    const begins = !/[a-z0-9]/.test(before);
    const ends = !/[a-z0-9]/.test(after);
    best = Math.max(best, begins && ends ? 4 : begins ? 2 : 1);
    count++;
  }
  return best === 0 ? 0 : best + Math.log(count);
}

// Returns [{page, pageTitle, anchor, title, text}] of the sections that have every word, best first.
function weirFind(index, query) {
  const words = weirWords(query);
  if (words.length === 0) return [];
  if (!index.lower) index.lower = index.sections.map((each) => [each[2].toLowerCase(), each[3].toLowerCase()]);
  const found = [];
  for (let i = 0; i < index.sections.length; i++) {
    const [title, text] = index.lower[i];
    let score = 0;
    for (const word of words) {
      const inTitle = weirFit(title, word);
      const inText = weirFit(text, word);
      if (inTitle + inText === 0) {
        score = 0;
        break;
      }
      score += 4 * inTitle + inText;
    }
    if (score === 0) continue;
    const phrase = words.join(" ");
    if (title === phrase) score += 30;
    if (words.length > 1 && text.includes(phrase)) score += 6;
    // The shorter of two sections that fit says more about the words.
    found.push([score - Math.log(text.length + 100) / 2, i]);
  }
  found.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  return found.map(([, i]) => {
    const [page, anchor, title, text] = index.sections[i];
    return {page: index.pages[page][0], pageTitle: index.pages[page][1], anchor, title, text};
  });
}

// Returns the part of a text around the first of the words.
function weirExcerpt(text, words) {
  const lower = text.toLowerCase();
  const places = words.map((word) => lower.indexOf(word)).filter((at) => at >= 0);
  let begin = places.length ? Math.max(0, Math.min(...places) - 60) : 0;
  if (begin > 0) begin = text.indexOf(" ", begin) + 1 || begin;
  return (begin > 0 ? "... " : "") + text.slice(begin, begin + 180) + (begin + 180 < text.length ? " ..." : "");
}
