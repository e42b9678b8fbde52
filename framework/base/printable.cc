#include "framework/base/printable.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/utf8.h"

namespace weir {
namespace {

constexpr std::string_view kCut = "...";

unsigned Byte(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

// Returns true if a terminal acts on the character, or shows nothing of it.
bool IsInvisible(std::string_view character) {
  if (character.size() == 1) return Byte(character, 0) < 0x20 || Byte(character, 0) == 0x7f;
  // Up to U+009F: the controls of terminals of 8 bits. U+00AD: a soft hyphen.
  if (character.size() == 2) return character < "\u00A0" || character == "\u00AD";
  // The mark of byte order; characters without a width, marks and overrides of directions, separators of lines.
  return character == "\uFEFF" || (character >= "\u200B" && character <= "\u200F") ||
         (character >= "\u2028" && character <= "\u202E") || (character >= "\u2060" && character <= "\u206F");
}

}  // namespace

std::string Printable(std::string_view text, size_t most) {
  most = std::max(most, kCut.size());
  std::string shown;
  size_t room_for_cut = 0;  // length of `shown` up to which kCut fits behind it
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    const std::string_view piece = text.substr(0, std::max<size_t>(length, 1));
    if (length > 0 && !IsInvisible(piece)) {
      shown.append(piece);
    } else {
      for (size_t i = 0; i < piece.size(); ++i) {
        absl::StrAppend(&shown, "\\x", absl::Hex(Byte(piece, i), absl::kZeroPad2));
      }
    }
    if (shown.size() > most) {
      shown.resize(room_for_cut);
      shown.append(kCut);
      return shown;
    }
    if (shown.size() + kCut.size() <= most) room_for_cut = shown.size();
    text.remove_prefix(piece.size());
  }
  return shown;
}

}  // namespace weir
