// Texts from outside, made safe for a log, a terminal or a page.

#include "framework/base/printable.h"

#include <string>

#include "framework/base/utf8.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(PrintableTest, TextInUtf8StaysAsItIs) {
  EXPECT_EQ(Printable(""), "");
  EXPECT_EQ(Printable("host-1:4711 \\ \"naïve\" 中文 😀"), "host-1:4711 \\ \"naïve\" 中文 😀");
}

TEST(PrintableTest, ControlCharactersAndEscapeSequencesBecomeNumbers) {
  EXPECT_EQ(Printable("a\nb\r\tc"), "a\\x0ab\\x0d\\x09c");
  EXPECT_EQ(Printable(std::string("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(Printable("\x1b[2J\x1b]0;title\x07"), "\\x1b[2J\\x1b]0;title\\x07");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J")
      << "the same sequence in 8 bits";
}

TEST(PrintableTest, CharactersThatReorderALineOrBreakItBecomeNumbers) {
  EXPECT_EQ(Printable("a\u202eb\u2028c\u2066d"), "a\\xe2\\x80\\xaeb\\xe2\\x80\\xa8c\\xe2\\x81\\xa6d");
}

TEST(PrintableTest, CharactersThatShowNothingBecomeNumbers) {
  EXPECT_EQ(Printable("\uFEFFid a\u200Bb\u00ADc"), "\\xef\\xbb\\xbfid a\\xe2\\x80\\x8bb\\xc2\\xadc");
}

TEST(PrintableTest, BytesThatAreNoUtf8BecomeNumbers) {
  EXPECT_EQ(Printable("\xff"
                      "a\xe4\xb8"),
            "\\xffa\\xe4\\xb8");
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf") << "longer than necessary";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair of UTF-16";
}

TEST(PrintableTest, ALongTextIsCutBetweenCharacters) {
  EXPECT_EQ(Printable("abcdef", 6), "abcdef");
  EXPECT_EQ(Printable("abcdefg", 6), "abc...");
  EXPECT_EQ(Printable("ab中文", 7), "ab...") << "5 bytes and 3 are more than 7";
  EXPECT_EQ(Printable("a\n\n", 8), "a\\x0a...");
  EXPECT_EQ(Printable("abc", 0), "abc");
  EXPECT_EQ(Printable("abcd", 0), "...");
}

TEST(PrintableTest, ASecondCallChangesNothing) {
  const std::string once = Printable("a\x1b[0m\n\xff and more of it", 20);
  EXPECT_EQ(Printable(once, 20), once);
}

}  // namespace
}  // namespace weir
