// Encodes floats for the wire (weir.v1.WireFormat): n floats in groups. A group is a row of a table, or kDenseGroup
// elements of a dense block, whose last group may be shorter. Little-endian.
//
//   WIRE_FLOAT32    [n] f32
//   WIRE_FLOAT16    [n] IEEE binary16, nearest even. Finite values beyond 65504 become 65504 of their sign.
//   WIRE_BFLOAT16   [n] the upper half of f32, nearest even. Finite values beyond 3.39e38 become that of their sign.
//   WIRE_INT8       [groups] f32 scales, zeros up to a multiple of 64 bytes, [n] i8. A value is i8 * scale; the
//                   scale is the group's greatest magnitude / 127, or 0 if that is below the smallest normal float.
//
// Inf and NaN are preserved, so that a policy about them applies; with WIRE_INT8 the whole group becomes NaN. Each
// function has a vector form with equal bits (for a NaN: some NaN), chosen by the machine's instruction sets.
//
// In pushes WIRE_FLOAT16 has the range of float32: a group with finite values beyond 65504 has an exponent e, and is
// encoded divided by 2^e. Its values below 2^(e - 24) become 0.
#ifndef WEIR_FRAMEWORK_WIRE_CODECS_H_
#define WEIR_FRAMEWORK_WIRE_CODECS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "proto/table.pb.h"

namespace weir {

inline constexpr size_t kDenseGroup = 256;

// Returns the encoded bytes of n floats in groups of `group`.
size_t EncodedBytes(v1::WireFormat format, size_t n, size_t group);
// Returns the number of whole groups of `group` floats whose encoding fits in `bytes`.
size_t EncodedGroups(v1::WireFormat format, size_t bytes, size_t group);

// Encodes n floats. `out` has EncodedBytes and is aligned to 64 bytes.
void Encode(v1::WireFormat format, const float* in, size_t n, size_t group, char* out);
// Decodes n floats. `in` is aligned to 4 bytes.
void Decode(v1::WireFormat format, const char* in, size_t n, size_t group, float* out);

// Greatest exponent of a group: 65504 * 2^112 is 3.40e38.
inline constexpr int kMostExponent = 112;
// Returns the number of finite values beyond the range of WIRE_FLOAT16.
size_t CountBeyondFloat16(const float* in, size_t n);
// Encodes n floats in WIRE_FLOAT16, and returns the exponent of each group as a byte: the least by which its finite
// values fit. Finite values beyond 65504 * 2^112 become that of their sign, less than a rounding step away.
std::string EncodeWithExponents(const float* in, size_t n, size_t group, char* out);
// Decodes n floats that EncodeWithExponents has encoded. `exponents` has one byte for each group, at most
// kMostExponent.
void DecodeWithExponents(const char* in, size_t n, size_t group, std::string_view exponents, float* out);
// Returns whether these are exponents of n floats in groups of `group`.
bool AreExponents(std::string_view exponents, size_t n, size_t group);

// Reference forms that Encode and Decode are tested against.
void EncodePlain(v1::WireFormat format, const float* in, size_t n, size_t group, char* out);
void DecodePlain(v1::WireFormat format, const char* in, size_t n, size_t group, float* out);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_CODECS_H_
