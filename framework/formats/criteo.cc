// The Criteo text layout: label, integers, hexadecimal categoricals, tab-separated, empty field = missing.
//
// Columns: "label" [B, 1], "dense" [B, integers], "cat" with one id per slot C1, C2, ... The fast parsers read short
// integers; a line with any other finite decimal number takes the plain parser.

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/formats/fields512.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/numbers.h"
#include "framework/formats/schema.h"

namespace weir {
namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();
constexpr uint64_t kBytes = 0x0101010101010101ULL;  // times b: b in every byte

// Reads eight hexadecimal digits at once, the first in the lowest byte. Returns false if a byte is no digit.
inline bool HexDigits8(uint64_t x, uint32_t* value) {
  const uint64_t letter = (x & (kBytes * 0x40)) >> 6;  // 1 in the bytes with bit 0x40: letters, if valid
  const uint64_t letters = letter * 0xFF;
  // High bit set where a digit is above '9', or a letter is outside a-f and A-F. No byte carries: all are below 0x80.
  const uint64_t bad_digit = ((x ^ (kBytes * 0x30)) + kBytes * 0x76) & ~letters;
  const uint64_t low = x & (kBytes * 0x1F);
  const uint64_t bad_letter = ((low + kBytes * 0x79) | ~(low + kBytes * 0x7F)) & letters;
  if (((x | bad_digit | bad_letter) & (kBytes * 0x80)) != 0) return false;
  uint64_t v = (x & (kBytes * 0x0F)) + letter * 9;
  // The first character is the lowest byte and the highest digit.
  v = ((v & 0x000F000F000F000FULL) << 4) | ((v & 0x0F000F000F000F00ULL) >> 8);
  v = ((v & 0x000000FF000000FFULL) << 8) | ((v >> 16) & 0x000000FF000000FFULL);
  *value = static_cast<uint32_t>(((v & 0xFFFF) << 16) | ((v >> 32) & 0xFFFF));
  return true;
}

// Reads four words of eight hexadecimal digits, as HexDigits8 does. Sets *bad if a byte is no digit.
inline void HexWords4(const uint64_t words[4], int64_t values[4], bool* bad) {
  __m128i valid = _mm_set1_epi8(-1);
  const auto pairs = [&](uint64_t first, uint64_t second) {
    const __m128i x = _mm_set_epi64x(static_cast<int64_t>(second), static_cast<int64_t>(first));
    // Distances from '0' and from 'a'. `sign` makes the signed comparisons unsigned, so that a byte below is far away.
    const __m128i digit = _mm_sub_epi8(x, _mm_set1_epi8('0'));
    const __m128i letter = _mm_sub_epi8(_mm_or_si128(x, _mm_set1_epi8(0x20)), _mm_set1_epi8('a'));
    const __m128i sign = _mm_set1_epi8(-128);
    const __m128i is_digit = _mm_cmplt_epi8(_mm_xor_si128(digit, sign), _mm_set1_epi8(-128 + 10));
    const __m128i is_letter = _mm_cmplt_epi8(_mm_xor_si128(letter, sign), _mm_set1_epi8(-128 + 6));
    valid = _mm_and_si128(valid, _mm_or_si128(is_digit, is_letter));
    const __m128i nibbles =
        _mm_or_si128(_mm_and_si128(is_digit, digit), _mm_and_si128(is_letter, _mm_add_epi8(letter, _mm_set1_epi8(10))));
    // Combine two digits in every second byte.
    return _mm_and_si128(_mm_or_si128(_mm_slli_epi16(nibbles, 4), _mm_srli_epi16(nibbles, 8)), _mm_set1_epi16(0xFF));
  };
  const __m128i bytes = _mm_packus_epi16(pairs(words[0], words[1]), pairs(words[2], words[3]));
  *bad |= _mm_movemask_epi8(valid) != 0xFFFF;
  uint32_t swapped[4];
  std::memcpy(swapped, &bytes, sizeof(swapped));
  for (int i = 0; i < 4; ++i) values[i] = __builtin_bswap32(swapped[i]);
}

inline int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr int kMostFields = 256;  // of a line that ParseAvx512 reads

// Writes the ends of a line's fields to `ends`: the places of the tabs, then `size`. `ends` has room for 64 more than
// `fields`. Returns false when the line has another number of fields.
WEIR_FOR_FIELDS512 bool FieldEnds(const char* line, size_t size, int fields, int32_t* ends) {
  const __m512i tab = _mm512_set1_epi8('\t');
  int found = 0;
  for (size_t at = 0; at < size; at += 64) {
    const size_t left = size - at;
    const __mmask64 there = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const __mmask64 tabs = _mm512_mask_cmpeq_epi8_mask(there, _mm512_maskz_loadu_epi8(there, line + at), tab);
    const int count = __builtin_popcountll(tabs);
    if (found + count >= fields) return false;
    AddPlaces(tabs, static_cast<int32_t>(at), ends + found);
    found += count;
  }
  ends[found] = static_cast<int32_t>(size);
  return found + 1 == fields;
}

// Returns the first eight bytes of eight fields, of those in `there`, and sets their sizes. ends[-1] is the end of the
// field before the first one.
WEIR_FOR_FIELDS512 inline __m512i Fields8(const char* line, const int32_t* ends, __mmask8 there, __m512i* sizes) {
  const __m512i begins =
      _mm512_add_epi64(_mm512_cvtepi32_epi64(_mm256_maskz_loadu_epi32(there, ends - 1)), _mm512_set1_epi64(1));
  *sizes = _mm512_maskz_sub_epi64(there, _mm512_cvtepi32_epi64(_mm256_maskz_loadu_epi32(there, ends)), begins);
  return _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), there, begins, line, 1);
}

// Reads n whole numbers of up to eight characters, a sign included; an empty field is NaN. Returns false if a field is
// no such number.
WEIR_FOR_FIELDS512 bool Numbers(const char* line, const int32_t* ends, int n, float* out) {
  const __m512i eight = _mm512_set1_epi64(8);
  for (int i = 0; i < n; i += 8) {
    const __mmask8 there = static_cast<__mmask8>(n - i >= 8 ? 0xFF : (1 << (n - i)) - 1);
    __m512i sizes;
    __m512i text = Fields8(line, ends + i, there, &sizes);
    if (_mm512_cmpgt_epi64_mask(sizes, eight) != 0) return false;
    const __mmask8 present = _mm512_test_epi64_mask(sizes, sizes);
    const __mmask8 negative =
        _mm512_mask_cmpeq_epi64_mask(present, _mm512_and_si512(text, _mm512_set1_epi64(0xFF)), _mm512_set1_epi64('-'));
    sizes = _mm512_mask_sub_epi64(sizes, negative, sizes, _mm512_set1_epi64(1));
    text = _mm512_mask_srli_epi64(text, negative, text, 8);
    if (_mm512_mask_testn_epi64_mask(negative, sizes, sizes) != 0) return false;
    const __m512i digits = _mm512_sllv_epi64(_mm512_xor_si512(text, _mm512_set1_epi8('0')), ShiftOf(sizes));
    if (_mm512_cmpgt_epu8_mask(digits, _mm512_set1_epi8(9)) != 0) return false;
    __m256 floats = _mm512_cvtepu64_ps(CombineDigits(digits));
    floats = _mm256_mask_xor_ps(floats, negative, floats, _mm256_set1_ps(-0.0f));
    _mm256_mask_storeu_ps(out + i, there, _mm256_mask_blend_ps(present, _mm256_set1_ps(kMissing), floats));
  }
  return true;
}

// Reads n hexadecimal numbers of up to eight digits. `ids`, with room for seven more, gets those of fields that are not
// empty, counts[i] whether field i is one. Returns their number, or -1 if a field is no such number.
WEIR_FOR_FIELDS512 int HexNumbers(const char* line, const int32_t* ends, int n, int64_t* ids, uint16_t* counts) {
  const __m512i eight = _mm512_set1_epi64(8);
  const __m512i zeros = _mm512_set1_epi8('0');
  int found = 0;
  for (int i = 0; i < n; i += 8) {
    const __mmask8 there = static_cast<__mmask8>(n - i >= 8 ? 0xFF : (1 << (n - i)) - 1);
    __m512i sizes;
    const __m512i text = Fields8(line, ends + i, there, &sizes);
    if (_mm512_cmpgt_epi64_mask(sizes, eight) != 0) return -1;
    const __m512i padded =
        _mm512_or_si512(_mm512_sllv_epi64(text, ShiftOf(sizes)), _mm512_srlv_epi64(zeros, _mm512_slli_epi64(sizes, 3)));
    const __m512i digits = _mm512_sub_epi8(padded, zeros);
    const __m512i letters = _mm512_sub_epi8(_mm512_or_si512(padded, _mm512_set1_epi8(0x20)), _mm512_set1_epi8('a'));
    const __mmask64 is_digit = _mm512_cmplt_epu8_mask(digits, _mm512_set1_epi8(10));
    const __mmask64 is_letter = _mm512_cmplt_epu8_mask(letters, _mm512_set1_epi8(6));
    if (~(is_digit | is_letter) != 0) return -1;
    const __m512i nibbles = _mm512_mask_add_epi8(digits, is_letter, letters, _mm512_set1_epi8(10));
    const __m512i twos = _mm512_maddubs_epi16(nibbles, _mm512_set1_epi16(0x0110));
    const __m512i fours = _mm512_madd_epi16(twos, _mm512_set1_epi32(0x00010100));
    const __m512i values = _mm512_and_si512(_mm512_or_si512(_mm512_slli_epi64(fours, 16), _mm512_srli_epi64(fours, 32)),
                                            _mm512_set1_epi64(0xFFFFFFFF));
    const __mmask8 present = _mm512_test_epi64_mask(sizes, sizes);
    _mm512_storeu_si512(ids + found, _mm512_maskz_compress_epi64(present, values));
    _mm_mask_storeu_epi16(counts + i, there, _mm_maskz_set1_epi16(present, 1));
    found += __builtin_popcount(present);
  }
  return found;
}

class CriteoParser : public LineParser {
 public:
  CriteoParser(std::vector<Column> columns, int integers, int categoricals)
      : LineParser(std::move(columns)),
        integers_(integers),
        categoricals_(categoricals),
        fields_(1 + integers + categoricals) {}

  absl::Status Parse(std::string_view line, Example* example) const override {
    const bool fast = HasFields512() && fields_ <= kMostFields ? ParseAvx512(line, example) : ParseFast(line, example);
    return fast ? absl::OkStatus() : ParsePlain(line, example);
  }

  absl::Status ParsePlain(std::string_view line, Example* example) const override {
    const char* p = line.data();
    const char* const end = p + line.size();
    float* number = example->floats.data();
    if (!Number(&p, end, number)) return Explain(line);
    for (int i = 0; i < integers_; ++i) {
      if (p == end) return Explain(line);
      ++p;  // the tab
      if (!Number(&p, end, ++number)) return Explain(line);
    }
    example->ids.resize(static_cast<size_t>(categoricals_));
    int64_t* id = example->ids.data();
    uint16_t* count = example->counts.data();
    for (int i = 0; i < categoricals_; ++i) {
      if (p == end) return Explain(line);
      ++p;
      uint32_t value = 0;
      const char* const begin = p;
      if (end - p >= 8 && HexDigits8(internal::Load8(p), &value)) {
        p += 8;
      } else {
        for (int digit; p < end && (digit = HexDigit(*p)) >= 0; ++p) value = value << 4 | static_cast<uint32_t>(digit);
        if (p - begin > 8) return Explain(line);
      }
      if (p < end && *p != '\t') return Explain(line);
      *id = value;
      const bool present = p > begin;
      *count++ = present;
      id += present;
    }
    if (p < end) return Explain(line);
    example->ids.resize(static_cast<size_t>(id - example->ids.data()));
    example->weights.clear();
    return absl::OkStatus();
  }

 private:
  // Parses a line whose numbers are integers of up to eight characters. Returns false for lines left to ParsePlain.
  bool ParseFast(std::string_view line, Example* example) const {
    const char* p = line.data();
    const char* const end = p + line.size();
    Marks tabs(p, end, '\t');
    bool bad = false;
    float* const numbers = example->floats.data();
    for (int i = 0; i <= integers_; ++i) {
      const char* const tab = tabs.Next();
      const bool negative = *p == '-';
      const ptrdiff_t size = tab - p - negative;
      if (size > 8 || tab == end) return false;
      if (size <= 0) {
        bad |= negative;
        numbers[i] = kMissing;
      } else {
        const float value = static_cast<float>(static_cast<uint32_t>(ShortUnsigned(p + negative, size, &bad)));
        numbers[i] = negative ? -value : value;
      }
      p = tab + 1;
    }
    // HexWords4 writes four ids at a time, so up to three more than there are.
    example->ids.resize(static_cast<size_t>(categoricals_) + 3);
    int64_t* const ids = example->ids.data();
    uint16_t* const counts = example->counts.data();
    uint64_t words[4];
    size_t present = 0;
    for (int i = 0; i < categoricals_; ++i) {
      const char* const tab = tabs.Next();
      const ptrdiff_t size = tab - p;
      if (size > 8 || (tab == end) != (i + 1 == categoricals_)) return false;
      counts[i] = size > 0;
      if (size > 0) {
        words[present++ % 4] = ZerosBefore(p, size);
        if (present % 4 == 0) HexWords4(words, ids + present - 4, &bad);
      }
      p = tab + 1;
    }
    if (present % 4 != 0) {
      for (size_t i = present % 4; i < 4; ++i) words[i] = kBytes * '0';
      HexWords4(words, ids + present / 4 * 4, &bad);
    }
    if (bad || categoricals_ == 0) return false;
    example->ids.resize(present);
    example->weights.clear();
    return true;
  }

  // Parses the same lines as ParseFast, with AVX-512.
  bool ParseAvx512(std::string_view line, Example* example) const {
    int32_t places[1 + kMostFields + 64];
    places[0] = -1;
    int32_t* const ends = places + 1;
    if (line.size() > size_t{kMostFields} * 64 || !FieldEnds(line.data(), line.size(), fields_, ends)) return false;
    if (!Numbers(line.data(), ends, 1 + integers_, example->floats.data())) return false;
    // HexNumbers writes eight ids at a time, so up to seven more than there are.
    const size_t most = static_cast<size_t>(categoricals_) + 7;
    if (example->ids.size() < most) example->ids.resize(most);
    const int found =
        HexNumbers(line.data(), ends + 1 + integers_, categoricals_, example->ids.data(), example->counts.data());
    if (found < 0) return false;
    example->ids.resize(static_cast<size_t>(found));
    example->weights.clear();
    return true;
  }

  // Returns the `size` characters at p, from 1 to 8, as the last of eight, with the digit 0 before them.
  static uint64_t ZerosBefore(const char* p, ptrdiff_t size) {
    if (size == 8) return internal::Load8(p);
    return internal::Load8(p) << (64 - 8 * size) | (kBytes * '0') >> (8 * size);
  }

  // Reads one field up to its tab or the end of the line.
  static bool Number(const char** at, const char* end, float* out) {
    const char* p = *at;
    const bool negative = p < end && *p == '-';
    const char* const digits = p + negative;
    uint32_t value = 0;
    p = digits;
    for (unsigned digit; p < end && (digit = static_cast<unsigned char>(*p) - unsigned{'0'}) <= 9; ++p) {
      value = value * 10 + digit;
    }
    if ((p < end && *p != '\t') || p - digits > 9 || (p == digits && negative)) return SlowNumber(at, end, out);
    *out = p == digits ? kMissing : negative ? -static_cast<float>(value) : static_cast<float>(value);
    *at = p;
    return true;
  }

  static bool SlowNumber(const char** at, const char* end, float* out) {
    const char* tab = static_cast<const char*>(std::memchr(*at, '\t', static_cast<size_t>(end - *at)));
    if (tab == nullptr) tab = end;
    const std::string_view field(*at, static_cast<size_t>(tab - *at));
    *at = tab;
    return ParseFinite(field, out);
  }

  // Returns what is wrong with a line that ParsePlain has refused.
  absl::Status Explain(std::string_view line) const {
    std::vector<std::string_view> fields;
    for (size_t begin = 0;;) {
      const size_t tab = line.find('\t', begin);
      fields.push_back(line.substr(begin, tab - begin));
      if (tab == std::string_view::npos) break;
      begin = tab + 1;
    }
    const size_t expected = size_t{1} + static_cast<size_t>(integers_) + static_cast<size_t>(categoricals_);
    if (fields.size() != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected ", expected, " tab-separated fields, got ", fields.size()));
    }
    for (size_t i = 0; i < expected; ++i) {
      const std::string text(fields[i].substr(0, 40));
      const int field = static_cast<int>(i);
      if (field <= integers_) {
        const char* p = fields[i].data();
        float value;
        if (Number(&p, p + fields[i].size(), &value)) continue;
        const std::string name = i == 0 ? "label" : absl::StrCat("I", field);
        return absl::InvalidArgumentError(
            absl::StrCat("field ", i + 1, " (", name, "): '", text, "' ", WhyNotFinite(fields[i])));
      }
      bool hex = fields[i].size() <= 8;
      for (const char c : fields[i]) hex = hex && HexDigit(c) >= 0;
      if (!hex) {
        return absl::InvalidArgumentError(absl::StrCat("field ", i + 1, " (C", field - integers_, "): '", text,
                                                       "' is not a hexadecimal number of up to 8 digits"));
      }
    }
    return absl::InternalError("a line that is right was taken for wrong");
  }

  const int integers_;
  const int categoricals_;
  const int fields_;
};

absl::StatusOr<std::unique_ptr<LineParser>> MakeCriteoParser(const v1::Criteo& config) {
  if (config.integers() < 0 || config.categoricals() < 0 || (config.integers() == 0 && config.categoricals() == 0)) {
    return absl::InvalidArgumentError(absl::StrCat("data.criteo: integers ", config.integers(), " and categoricals ",
                                                   config.categoricals(), " must not be negative, nor both 0"));
  }
  std::vector<Column> columns = {{.name = "label"}};
  if (config.integers() > 0) {
    columns.push_back({.name = "dense", .width = config.integers()});
    for (int i = 1; i <= config.integers(); ++i) columns.back().value_names.push_back(absl::StrCat("I", i));
  }
  if (config.categoricals() > 0) {
    Column cat{.name = "cat", .kind = v1::IDS, .width = config.categoricals()};
    for (int i = 1; i <= config.categoricals(); ++i) cat.slot_names.push_back(absl::StrCat("C", i));
    cat.id_kinds.assign(cat.slot_names.size(), IdKind::kHex);
    columns.push_back(std::move(cat));
  }
  return std::make_unique<CriteoParser>(std::move(columns), config.integers(), config.categoricals());
}

absl::StatusOr<std::vector<v1::VarDesc>> CriteoSchema(const v1::Criteo& m, const SettingErrors& at) {
  for (const auto& [field, value] : {std::pair{"integers", m.integers()}, {"categoricals", m.categoricals()}}) {
    if (value < 0) return at.Error(field, absl::StrCat("must not be negative, got ", value));
    if (value > kMaxColumns) return at.Error(field, absl::StrCat("must be at most ", kMaxColumns, ", got ", value));
  }
  std::vector<v1::VarDesc> vars = {DataVariable("label", v1::DENSE, 1)};
  if (m.integers() > 0) vars.push_back(DataVariable("dense", v1::DENSE, m.integers()));
  if (m.categoricals() > 0) vars.push_back(DataVariable("cat", v1::IDS, m.categoricals()));
  return vars;
}

WEIR_REGISTER_DATA_SCHEMA(v1::Criteo, CriteoSchema);
WEIR_REGISTER_LINE_PARSER(v1::Criteo, MakeCriteoParser);

}  // namespace
}  // namespace weir
