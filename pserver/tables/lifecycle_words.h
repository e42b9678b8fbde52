// Reads and writes the words that a lifecycle keeps with a row, or with a candidate. Immutable; a view of its rules.
#ifndef WEIR_PSERVER_TABLES_LIFECYCLE_WORDS_H_
#define WEIR_PSERVER_TABLES_LIFECYCLE_WORDS_H_

#include <cstdint>

#include "pserver/tables/lifecycle_rules.h"

namespace weir {

class LifecycleWords {
 public:
  // `places`: rules.row_words() or rules.candidate_words(). Borrows `rules`.
  LifecycleWords(const LifecycleRules& rules, const LifecycleRules::Words& places) : rules_(rules), places_(places) {}

  // Records a step that has the id. `shows`: [2], its shows and clicks, or null.
  void Stamp(char* words, const RowTime& time, const float* shows) const;
  // Returns true if the time to live is over.
  bool Expired(const char* words, const RowTime& time) const;
  // Returns the score; 0 without scores.
  double Score(const char* words) const;
  // Decays shows and clicks. Returns true if the score is now too low.
  bool Fade(char* words) const;
  // Returns true if the score is too low.
  bool Faded(const char* words) const;
  // Returns the rank by which the id is kept (LifecycleRules::Keep).
  uint64_t Keep(const char* words, const RowTime& time) const;

 private:
  const LifecycleRules& rules_;
  const LifecycleRules::Words& places_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_LIFECYCLE_WORDS_H_
