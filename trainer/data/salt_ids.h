// SaltId of framework/base/feature_id.h for an array of ids at once.
#ifndef WEIR_TRAINER_DATA_SALT_IDS_H_
#define WEIR_TRAINER_DATA_SALT_IDS_H_

#include <cstddef>
#include <cstdint>

namespace weir {

// Sets out[i] = SaltId(salts[i], ids[i]) for n ids at `ids`, not aligned: int64_t each, or uint32_t if not `wide`.
void SaltIds(const uint64_t* salts, const char* ids, bool wide, size_t n, int64_t* out);
// Salts ids of slots that may be empty: slot i takes the next of the ids when counts[i] is 1, and missing[i] when it is
// 0. `counts` are n uint16_t, not aligned, none above 1. Returns the number of ids taken.
size_t SaltIdsOrMissing(const uint64_t* salts, const int64_t* missing, const char* counts, const char* ids, bool wide,
                        size_t n, int64_t* out);
// Compute both without vector instructions: the reference.
void SaltIdsPlainly(const uint64_t* salts, const char* ids, bool wide, size_t n, int64_t* out);
size_t SaltIdsOrMissingPlainly(const uint64_t* salts, const int64_t* missing, const char* counts, const char* ids,
                               bool wide, size_t n, int64_t* out);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_SALT_IDS_H_
