// Salting ids in rows gives the same ids as salting them one by one.

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
    // One byte in front makes the ids unaligned.
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
      // The element behind the ids must stay unchanged.
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

TEST(SaltIdsTest, EmptySlotsGetTheirMissingIdEachWay) {
  for (size_t n = 0; n < 70; ++n) {
    std::vector<uint64_t> salts;
    std::vector<int64_t> missing, expected;
    std::string wide = "x", narrow = "x", counts = "x";
    size_t ids = 0;
    for (size_t i = 0; i < n; ++i) {
      const PhiloxBlock r = Philox(4, n, i);
      const uint16_t count = n % 5 == 0 ? 1 : n % 5 == 1 ? 0 : r.v[1] % 2;
      salts.push_back(SlotSalt("cat", std::to_string(i)));
      missing.push_back(MissingId(salts.back()));
      counts.append(reinterpret_cast<const char*>(&count), 2);
      expected.push_back(count == 0 ? missing.back() : SaltId(salts.back(), r.v[0]));
      if (count == 0) continue;
      const int64_t id = r.v[0];
      wide.append(reinterpret_cast<const char*>(&id), 8);
      narrow.append(reinterpret_cast<const char*>(&r.v[0]), 4);
      ++ids;
    }
    for (const auto salt : {SaltIdsOrMissing, SaltIdsOrMissingPlainly}) {
      for (const bool is_wide : {true, false}) {
        std::vector<int64_t> out(n + 1, 77);
        EXPECT_EQ(salt(salts.data(), missing.data(), counts.data() + 1, (is_wide ? wide : narrow).data() + 1, is_wide,
                       n, out.data()),
                  ids);
        EXPECT_EQ(out.back(), 77);
        out.pop_back();
        EXPECT_EQ(out, expected) << n;
      }
    }
  }
}

}  // namespace
}  // namespace weir
