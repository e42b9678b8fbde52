#include "pserver/tables/lifecycle_words.h"

#include <limits>

#include "pserver/tables/row_words.h"

namespace weir {

void LifecycleWords::Stamp(char* words, const RowTime& time, const float* shows) const {
  if (places_.shows >= 0 && shows != nullptr) {
    SetFloatWord(words, places_.shows, FloatWord(words, places_.shows) + shows[0]);
    SetFloatWord(words, places_.clicks, FloatWord(words, places_.clicks) + shows[1]);
  }
  if (places_.step >= 0) SetWord(words, places_.step, static_cast<uint32_t>(time.step));
  if (places_.second >= 0) SetWord(words, places_.second, static_cast<uint32_t>(static_cast<int64_t>(time.seconds)));
  if (places_.count >= 0) {
    const uint32_t count = Word(words, places_.count);
    SetWord(words, places_.count, count + (count < std::numeric_limits<uint32_t>::max() ? 1 : 0));
  }
}

bool LifecycleWords::Expired(const char* words, const RowTime& time) const {
  return (places_.step >= 0 && rules_.ExpiredByStep(Word(words, places_.step), time.step)) ||
         (places_.second >= 0 && rules_.ExpiredByClock(Word(words, places_.second), time.seconds));
}

double LifecycleWords::Score(const char* words) const {
  return places_.shows < 0 ? 0 : rules_.Score(FloatWord(words, places_.shows), FloatWord(words, places_.clicks));
}

bool LifecycleWords::Fade(char* words) const {
  SetFloatWord(words, places_.shows, FloatWord(words, places_.shows) * rules_.decay());
  SetFloatWord(words, places_.clicks, FloatWord(words, places_.clicks) * rules_.decay());
  return Faded(words);
}

bool LifecycleWords::Faded(const char* words) const {
  return rules_.Faded(FloatWord(words, places_.shows), FloatWord(words, places_.clicks));
}

uint64_t LifecycleWords::Keep(const char* words, const RowTime& time) const {
  return rules_.Keep(Word(words, places_.step), places_.count < 0 ? 0 : Word(words, places_.count), Score(words),
                     time.step);
}

}  // namespace weir
