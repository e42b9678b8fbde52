// Rows as trainers give them to each other: bytes of structs, ids and values, one behind the other.
#ifndef WEIR_PSERVER_REPLICA_PACKED_ROWS_H_
#define WEIR_PSERVER_REPLICA_PACKED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir {

// Returns the bytes of the values of some rows, padded so that what follows is aligned.
inline size_t PackedValueBytes(int64_t rows, int width) {
  const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(width) * sizeof(float);
  return (bytes + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
}

template <typename T>
void AppendPacked(const T* from, size_t count, std::string* to) {
  to->append(reinterpret_cast<const char*>(from), count * sizeof(T));
}

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_PACKED_ROWS_H_
