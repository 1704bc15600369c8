/* Sphinx's own scores, but for titles: a page called by the word comes before fields and types of that name. The gallery and
   recorded results, which only show a thing, come after what explains it. */
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 30,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) => (/^(docs\/gallery|experiments\/results)/.test(page) ? score / 4 : score),
};
