#include "pserver/params/push_parser.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "pserver/tables/sparse_table.h"

namespace weir {

namespace {

absl::Status Wrong(const v1::PushItem& item, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("gradient of ", item.name().substr(0, 200), ": ", what));
}

uint64_t Key(int64_t id) { return MixId(static_cast<uint64_t>(id)); }

// Leaves gradient->order empty when the ids already ascend; checks that each is there once and belongs here.
absl::Status OrderIds(const v1::PushItem& item, ServerParams& params, Gradient* gradient) {
  const int64_t* const ids = gradient->ids;
  const size_t count = static_cast<size_t>(gradient->count);
  bool ascending = true;
  for (size_t i = 1; i < count && ascending; ++i) ascending = Key(ids[i - 1]) < Key(ids[i]);
  if (!ascending) {
    gradient->order.resize(count);
    std::iota(gradient->order.begin(), gradient->order.end(), 0u);
    std::sort(gradient->order.begin(), gradient->order.end(),
              [ids](uint32_t a, uint32_t b) { return Key(ids[a]) < Key(ids[b]); });
    for (size_t i = 1; i < count; ++i) {
      if (ids[gradient->order[i - 1]] == ids[gradient->order[i]]) {
        return Wrong(
            item, absl::StrCat("id ", ids[gradient->order[i]], " stands there twice; merge rows by id before sending"));
      }
    }
  }
  const auto at = [&](size_t i) { return ids[gradient->order.empty() ? i : gradient->order[i]]; };
  if (gradient->of_table) {
    // The server's shards are one interval of the order, so the ends speak for all.
    const SparseTable& table = params.table(gradient->target);
    for (const int64_t id : {at(0), at(count - 1)}) {
      if (!table.Owns(id)) return Wrong(item, absl::StrCat("id ", id, " belongs to a logical shard of another server"));
    }
    return absl::OkStatus();
  }
  const int64_t rows = params.block(gradient->target).rows;
  for (size_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= rows)
      return Wrong(item, absl::StrCat("row ", ids[i], " of a block with ", rows, " rows"));
  }
  return absl::OkStatus();
}

// Owner of a gradient's memory. Ids and counts, which are checked and then used, are copies: the sender of bytes in
// shared memory can change them. Values may be any; the payload is kept only for those that lie in it.
struct GradientMemory {
  std::shared_ptr<const void> payload;
  std::unique_ptr<int64_t[]> ids;
  std::unique_ptr<float[]> counts, values;
};

template <typename T>
std::unique_ptr<T[]> Copy(const char* from, size_t n) {
  std::unique_ptr<T[]> copy(new T[n]);
  if (n > 0) std::memcpy(copy.get(), from, n * sizeof(T));
  return copy;
}

// Sets the gradient's values to n floats of the payload at `data`, or decodes them.
void SetValues(const v1::PushItem& item, const char* data, size_t n, size_t group, const Slice& payload,
               GradientMemory* memory, Gradient* gradient) {
  if (item.format() == v1::WIRE_FLOAT32) {
    memory->payload = payload.owner;
    gradient->values = reinterpret_cast<const float*>(data);
    return;
  }
  memory->values.reset(new float[n]);
  if (item.has_exponents()) {
    DecodeWithExponents(data, n, group, item.exponents(), memory->values.get());
  } else {
    Decode(item.format(), data, n, group, memory->values.get());
  }
  gradient->decoded_bytes = n * sizeof(float);
  gradient->values = memory->values.get();
}

absl::Status CheckFormat(const v1::PushItem& item, const v1::Wire& wire) {
  if (item.format() == wire.push()) return absl::OkStatus();
  return Wrong(item, absl::StrCat("comes as ", v1::WireFormat_Name(item.format()), "; by the plan it travels as ",
                                  v1::WireFormat_Name(wire.push())));
}

// Checks the exponents of n values in groups of `group`, if there are any.
absl::Status CheckExponents(const v1::PushItem& item, size_t n, size_t group) {
  if (!item.has_exponents()) return absl::OkStatus();
  if (item.format() != v1::WIRE_FLOAT16) {
    return Wrong(item, absl::StrCat("comes as ", v1::WireFormat_Name(item.format()),
                                    " with exponents, which only WIRE_FLOAT16 has"));
  }
  if (AreExponents(item.exponents(), n, group)) return absl::OkStatus();
  return Wrong(item, absl::StrCat(item.exponents().size(), " exponents for ", n, " values in groups of ", group,
                                  "; it takes one for each group, from 0 to ", kMostExponent));
}

// `end`: offset in the payload behind the item.
absl::Status ParseRows(const v1::PushItem& item, const Slice& payload, ServerParams& params, Gradient* gradient,
                       uint64_t* end) {
  gradient->target = params.FindTable(item.name());
  gradient->of_table = gradient->target >= 0;
  int width = 0;
  if (gradient->of_table) {
    width = params.table(gradient->target).width();
  } else {
    gradient->target = params.FindBlock(item.name());
    if (gradient->target < 0) return Wrong(item, "this server has no such table or block");
    width = params.block(gradient->target).sparse_width;
    if (width == 0) return Wrong(item, "rows came, but the block takes a dense gradient");
  }
  RETURN_IF_ERROR(
      CheckFormat(item, gradient->of_table ? params.wire_of_table(gradient->target) : params.wire_of_blocks()));
  if (item.width() != width)
    return Wrong(item, absl::StrCat("rows of ", item.width(), " floats; it has rows of ", width));
  gradient->width = width;
  // No product below can overflow: the count is bounded by the payload first, a width by 2^20.
  const uint64_t left = payload.size - static_cast<uint64_t>(item.offset());
  const uint64_t count = static_cast<uint64_t>(item.count());
  const uint64_t ids_bytes = count * sizeof(int64_t), group = static_cast<uint64_t>(width);
  if (count > left / sizeof(int64_t) || AlignUp(ids_bytes) > left ||
      EncodedBytes(item.format(), count * group, group) > left - AlignUp(ids_bytes)) {
    return Wrong(item, absl::StrCat(count, " rows of width ", width, " do not fit in the ", left,
                                    " bytes of payload behind offset ", item.offset()));
  }
  const bool counts = gradient->of_table && params.counts_shows(gradient->target);
  if (item.shows_and_clicks() != counts) {
    return Wrong(item, counts ? "comes without shows and clicks, which this table counts"
                              : "brings shows and clicks, which nobody counts");
  }
  RETURN_IF_ERROR(CheckExponents(item, count * group, group));
  const uint64_t values_bytes = AlignUp(ids_bytes) + EncodedBytes(item.format(), count * group, group);
  const uint64_t values_end = AlignUp(values_bytes);
  *end = static_cast<uint64_t>(item.offset()) + (counts ? values_end + count * 2 * sizeof(float) : values_bytes);
  if (counts && (values_end > left || count > (left - values_end) / (2 * sizeof(float)))) {
    return Wrong(item, absl::StrCat("shows and clicks of ", count, " rows do not fit in the ", left,
                                    " bytes of payload behind offset ", item.offset()));
  }
  const char* const at = payload.data + item.offset();
  auto memory = std::make_shared<GradientMemory>();
  if (counts) {
    memory->counts = Copy<float>(at + values_end, 2 * count);
    gradient->counts = memory->counts.get();
    if (!std::all_of(gradient->counts, gradient->counts + 2 * count, [](float n) { return std::isfinite(n); })) {
      return Wrong(item, "shows or clicks are not finite");
    }
  }
  memory->ids = Copy<int64_t>(at, count);
  gradient->ids = memory->ids.get();
  SetValues(item, at + AlignUp(ids_bytes), count * group, group, payload, memory.get(), gradient);
  gradient->keep = std::move(memory);
  return OrderIds(item, params, gradient);
}

// `nodes`: disjoint, ascending.
bool HasNode(const std::vector<LaneRange>& nodes, const LaneRange& node) {
  const auto at = std::lower_bound(nodes.begin(), nodes.end(), node,
                                   [](const LaneRange& a, const LaneRange& b) { return a.begin < b.begin; });
  return at != nodes.end() && *at == node;
}

absl::Status ParseDense(const v1::PushItem& item, const Slice& payload, ServerParams& params, Gradient* gradient,
                        uint64_t* end) {
  gradient->target = params.FindBlock(item.name());
  if (gradient->target < 0) return Wrong(item, "this server has no such block");
  const ServerParams::BlockInfo& block = params.block(gradient->target);
  RETURN_IF_ERROR(CheckFormat(item, params.wire_of_blocks()));
  if (block.sparse_width > 0) return Wrong(item, absl::StrCat("the block takes rows of width ", block.sparse_width));
  if (item.begin() < 0 || item.begin() > block.count || item.count() > block.count - item.begin()) {
    return Wrong(item, absl::StrCat("elements [", item.begin(), ", ", item.begin(), " + ", item.count(),
                                    ") of a block of ", block.count));
  }
  const uint64_t left = payload.size - static_cast<uint64_t>(item.offset());
  const uint64_t count = static_cast<uint64_t>(item.count());
  if (count > left || EncodedBytes(item.format(), count, kDenseGroup) > left) {
    return Wrong(item, absl::StrCat(item.count(), " floats do not fit in the ", left,
                                    " bytes of payload behind offset ", item.offset()));
  }
  RETURN_IF_ERROR(CheckExponents(item, count, kDenseGroup));
  *end = static_cast<uint64_t>(item.offset()) + EncodedBytes(item.format(), count, kDenseGroup);
  auto memory = std::make_shared<GradientMemory>();
  SetValues(item, payload.data + item.offset(), count, kDenseGroup, payload, memory.get(), gradient);
  gradient->keep = std::move(memory);
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseGradients(const v1::PushRequest& request, const Slice& payload, const std::vector<LaneRange>& nodes,
                            ServerParams& params, std::vector<Gradient>* gradients) {
  // Items that bring something are in the payload, each from a multiple of kAlignment on.
  gradients->reserve(std::min(static_cast<size_t>(request.items_size()), payload.size / kAlignment + 1));
  uint64_t end = 0;  // of the items so far
  for (const v1::PushItem& item : request.items()) {
    Gradient gradient;
    gradient.node = {item.lane(), item.lanes()};
    if (!HasNode(nodes, gradient.node)) {
      return Wrong(item,
                   absl::StrCat("lanes [", item.lane(), ", ", item.lane(), " + ", item.lanes(),
                                ") are not one of the largest aligned runs of ",
                                request.merged().empty() ? "the trainer's lanes" : "its trainers' lanes together"));
    }
    if (item.count() < 0) return Wrong(item, absl::StrCat("count is ", item.count()));
    if (item.count() == 0) continue;  // nothing came: the node is absent, not zero
    if (item.offset() < 0 || item.offset() % static_cast<int64_t>(kAlignment) != 0 ||
        static_cast<uint64_t>(item.offset()) > payload.size) {
      return Wrong(item, absl::StrCat("offset ", item.offset(), " is not a multiple of ", kAlignment,
                                      " inside a payload of ", payload.size, " bytes"));
    }
    // Every byte is decoded once: what that takes is bounded by the payload.
    if (static_cast<uint64_t>(item.offset()) < end) {
      return Wrong(item,
                   absl::StrCat("offset ", item.offset(), " lies before byte ", end,
                                ", where the item before it ends; items stand one behind the other in the payload"));
    }
    gradient.begin = item.begin();
    gradient.count = item.count();
    if (item.width() > 0) {
      RETURN_IF_ERROR(ParseRows(item, payload, params, &gradient, &end));
    } else {
      RETURN_IF_ERROR(ParseDense(item, payload, params, &gradient, &end));
    }
    gradients->push_back(std::move(gradient));
  }
  return absl::OkStatus();
}

}  // namespace weir
