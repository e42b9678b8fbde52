// What floats are while they travel (weir.v1.WireFormat): n floats in groups, a group is a row, or of dense blocks
// kDenseGroup elements with a shorter last one. Little-endian.
//
//   WIRE_FLOAT32    [n] f32
//   WIRE_FLOAT16    [n] IEEE binary16, nearest even. What is beyond 65504 and finite becomes 65504 of its sign.
//   WIRE_BFLOAT16   [n] the upper half of f32, nearest even. Likewise at its greatest, 3.39e38.
//   WIRE_INT8       [groups] f32 scales, zeros up to a multiple of 64 bytes, [n] i8. A value is i8 * scale; the scale
//   is the
//                   group's greatest magnitude / 127, or 0 when that is below the smallest normal float.
//
// Inf and NaN stay what they are, so that a policy about them sees them; with WIRE_INT8 the whole group becomes NaN.
// Each function has a vector form that gives the same bits (of NaNs: some NaN), chosen by what the machine can do.
#ifndef WEIR_FRAMEWORK_WIRE_CODECS_H_
#define WEIR_FRAMEWORK_WIRE_CODECS_H_

#include <cstddef>
#include <cstdint>

#include "proto/table.pb.h"

namespace weir {

inline constexpr size_t kDenseGroup = 256;

// Bytes of n floats in groups of `group`.
size_t EncodedBytes(v1::WireFormat format, size_t n, size_t group);
// How many such floats fit in `bytes`, for n a multiple of `group`: whole groups.
size_t EncodedGroups(v1::WireFormat format, size_t bytes, size_t group);

// `out` at a multiple of 64 bytes, of EncodedBytes.
void Encode(v1::WireFormat format, const float* in, size_t n, size_t group, char* out);
// `in` at a multiple of 4 bytes.
void Decode(v1::WireFormat format, const char* in, size_t n, size_t group, float* out);

// The forms that the two above are tested against.
void EncodePlain(v1::WireFormat format, const float* in, size_t n, size_t group, char* out);
void DecodePlain(v1::WireFormat format, const char* in, size_t n, size_t group, float* out);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_CODECS_H_
