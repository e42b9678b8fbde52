// SaltId of framework/base/feature_id.h for a row of ids at once.
#ifndef WEIR_TRAINER_DATA_SALT_IDS_H_
#define WEIR_TRAINER_DATA_SALT_IDS_H_

#include <cstddef>
#include <cstdint>

namespace weir {

// out[i] = SaltId(salts[i], ids[i]), of n ids that stand at `ids`, not aligned: int64_t each, or uint32_t where not `wide`.
void SaltIds(const uint64_t* salts, const char* ids, bool wide, size_t n, int64_t* out);
// The same without vectors: the reference.
void SaltIdsPlainly(const uint64_t* salts, const char* ids, bool wide, size_t n, int64_t* out);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_SALT_IDS_H_
