// Ranks what the search finds: guides first, then the reference; measurements, decisions and changes last.
const BONUS = [
  [/^(README|docs\/tutorial|docs\/how-to\/)/, 12],
  [/^docs\/(which-index|glossary|support|guarantees)/, 6],
  [/^docs\/reference/, 4],
  [/^docs\/(spec|decisions|architecture)/, -6],
  [/^(docs\/benchmarks|CHANGELOG|CONTRIBUTING)/, -10],
];

var Scorer = {
  // A result is [page, title, anchor, description, score, file, ...].
  score: (result) => {
    const found = BONUS.find(([pages]) => pages.test(result[0]));
    return result[4] + (found ? found[1] : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
