// Reads and writes the 4-byte words that a row has beside its values. `i` counts words; `words` need not be aligned.
#ifndef WEIR_PSERVER_TABLES_ROW_WORDS_H_
#define WEIR_PSERVER_TABLES_ROW_WORDS_H_

#include <bit>
#include <cstdint>
#include <cstring>

namespace weir {

inline uint32_t Word(const char* words, int i) {
  uint32_t word;
  std::memcpy(&word, words + 4 * i, sizeof(word));
  return word;
}
inline void SetWord(char* words, int i, uint32_t word) { std::memcpy(words + 4 * i, &word, sizeof(word)); }

inline float FloatWord(const char* words, int i) { return std::bit_cast<float>(Word(words, i)); }
inline void SetFloatWord(char* words, int i, float x) { SetWord(words, i, std::bit_cast<uint32_t>(x)); }

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_ROW_WORDS_H_
