// Copies of a stripe's rows, and of ids without a row, ordered by (logical shard, id).
#ifndef WEIR_PSERVER_TABLES_STRIPE_COPY_H_
#define WEIR_PSERVER_TABLES_STRIPE_COPY_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "pserver/tables/disk_tier.h"
#include "pserver/tables/row_layout.h"
#include "pserver/tables/row_store.h"
#include "pserver/tables/stripe.h"

namespace weir {

// Copies rows that are all in memory to rows [ids.size(), layout.floats()].
void CopyRows(const RowStore& store, const RowLayout& layout, uint32_t logical_shards, std::vector<int64_t>* ids,
              std::vector<float>* rows);
// Copies rows in memory and on disk likewise. `range`: first and last MixId of the stripe. Returns errors of ColdRows.
absl::Status CopyFromBoth(const DiskTier& disk, Stripe& stripe, std::pair<uint64_t, uint64_t> range,
                          const RowLayout& layout, uint32_t logical_shards, std::vector<int64_t>* ids,
                          std::vector<float>* rows);
// Copies entries of `size` 4-byte words to words [ids.size(), size].
void CopyEntries(const RowStore& store, int size, uint32_t logical_shards, std::vector<int64_t>* ids,
                 std::vector<float>* words);

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_STRIPE_COPY_H_
