// Ids salted in rows are those salted one by one.

#include <cstring>
#include <string>
#include <vector>

#include "framework/base/feature_id.h"
#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/salt_ids.h"

namespace weir {
namespace {

TEST(SaltIdsTest, EachWayGivesWhatOneByOneGives) {
  for (size_t n = 0; n < 70; ++n) {
    std::vector<uint64_t> salts;
    std::vector<int64_t> wide_expected, narrow_expected;
    // One byte in front, so that nothing is aligned.
    std::string wide = "x", narrow = "x";
    for (size_t i = 0; i < n; ++i) {
      const PhiloxBlock r = Philox(3, n, i);
      salts.push_back(SlotSalt("cat", std::to_string(i)));
      const int64_t id = i == 0 ? -1 : static_cast<int64_t>(static_cast<uint64_t>(r.v[0]) << 32 | r.v[1]);
      const uint32_t small = i == 0 ? 0xFFFFFFFF : r.v[2];
      wide.append(reinterpret_cast<const char*>(&id), 8);
      narrow.append(reinterpret_cast<const char*>(&small), 4);
      wide_expected.push_back(SaltId(salts.back(), id));
      narrow_expected.push_back(SaltId(salts.back(), small));
    }
    for (const auto salt : {SaltIds, SaltIdsPlainly}) {
      // What stands behind is left alone.
      std::vector<int64_t> out(n + 1, 77);
      salt(salts.data(), wide.data() + 1, true, n, out.data());
      EXPECT_EQ(out.back(), 77);
      out.pop_back();
      EXPECT_EQ(out, wide_expected) << n;
      out.assign(n + 1, 77);
      salt(salts.data(), narrow.data() + 1, false, n, out.data());
      EXPECT_EQ(out.back(), 77);
      out.pop_back();
      EXPECT_EQ(out, narrow_expected) << n;
    }
  }
}

}  // namespace
}  // namespace weir
