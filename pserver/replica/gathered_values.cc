#include "pserver/replica/gathered_values.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "pserver/replica/packed_rows.h"

namespace weir {

namespace {

// Header in front of the ids and the values of the rows of a block.
struct RowsHeader {
  int64_t block = 0, rows = 0;
};

int WidthOf(const v1::PlacedBlock& block) {
  return block.sparse_gradient() && block.dims_size() == 2 ? static_cast<int>(block.dims(1)) : 0;
}

}  // namespace

GatheredValues::GatheredValues(std::vector<v1::PlacedBlock> blocks, Collective* collective)
    : blocks_(std::move(blocks)), collective_(*collective), begins_(blocks_.size(), 0) {
  std::array<int64_t, 2> sizes = {0, 0};
  for (int trainer = 0; trainer < collective_.size(); ++trainer) {
    for (size_t region : {kDense, kRows}) regions_[region].begins.push_back(sizes[region]);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      if (blocks_[b].trainer() != trainer) continue;
      int64_t& size = sizes[RegionOf(blocks_[b])];
      begins_[b] = size;
      size += blocks_[b].element_count();
    }
  }
  for (size_t region : {kDense, kRows}) {
    regions_[region].begins.push_back(sizes[region]);
    regions_[region].values.resize(static_cast<size_t>(sizes[region]));
  }
  for (size_t b = 0; b < blocks_.size(); ++b) {
    CHECK(blocks_[b].trainer() >= 0 && blocks_[b].trainer() < collective_.size()) << blocks_[b].name();
    if (blocks_[b].trainer() == collective_.rank()) own_.push_back(static_cast<int>(b));
    if (WidthOf(blocks_[b]) > 0) by_rows_[blocks_[b].parameter()].push_back(static_cast<int>(b));
  }
}

absl::Span<float> GatheredValues::values(int block) {
  const v1::PlacedBlock& placed = blocks_[static_cast<size_t>(block)];
  return absl::MakeSpan(regions_[RegionOf(placed)].values)
      .subspan(static_cast<size_t>(begins_[static_cast<size_t>(block)]), static_cast<size_t>(placed.element_count()));
}

absl::Status GatheredValues::CopyRows(std::string_view parameter, absl::Span<const int64_t> ids, int width,
                                      float* out) const {
  const auto found = by_rows_.find(parameter);
  if (found == by_rows_.end() || WidthOf(blocks_[static_cast<size_t>(found->second[0])]) != width) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(parameter), "' is no matrix of width ", width, " with a gradient by rows"));
  }
  const auto end_of = [this](int block) {
    const v1::PlacedBlock& placed = blocks_[static_cast<size_t>(block)];
    return placed.element_begin() + placed.element_count();
  };
  const std::vector<int>& blocks = found->second;
  const int64_t height = end_of(blocks.back()) / width;
  for (const int64_t id : ids) {
    if (id < 0 || id >= height) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", std::string(parameter), "' has no row ", id, ", only ", height));
    }
    const auto block = std::find_if(blocks.begin(), blocks.end(), [&](int each) { return id * width < end_of(each); });
    const int64_t at = id * width - blocks_[static_cast<size_t>(*block)].element_begin();
    const float* const row = values(*block).data() + at;
    out = std::copy(row, row + width, out);
  }
  return absl::OkStatus();
}

std::string GatheredValues::NextName(std::string_view what) {
  return absl::StrCat(std::string(what), ".", ++exchanges_);
}

absl::Status GatheredValues::Gather(size_t region) {
  Region& all = regions_[region];
  if (all.values.empty()) return absl::OkStatus();
  return collective_.AllGather(NextName("values"), v1::FLOAT32, all.begins, all.values.data())->Wait();
}

absl::Status GatheredValues::GatherAll() {
  RETURN_IF_ERROR(Gather(kDense));
  return Gather(kRows);
}

absl::Status GatheredValues::GatherStep(const std::map<int, std::vector<int64_t>>& rows) {
  if (by_rows_.empty()) return Gather(kDense);
  std::vector<std::string> all;
  const Collective::PendingPtr sent = collective_.AllGatherBytes(NextName("rows"), PackRows(rows), &all);
  const absl::Status gathered = Gather(kDense);
  // It writes to `all` until then.
  const absl::Status came = sent->Wait();
  RETURN_IF_ERROR(gathered);
  RETURN_IF_ERROR(came);
  for (int from = 0; from < collective_.size(); ++from) {
    if (from != collective_.rank()) RETURN_IF_ERROR(ReadRows(all[static_cast<size_t>(from)], from));
  }
  return absl::OkStatus();
}

absl::Status GatheredValues::Broadcast(int root) {
  for (size_t region : {kDense, kRows}) {
    std::vector<float>& values = regions_[region].values;
    if (values.empty()) continue;
    RETURN_IF_ERROR(
        collective_
            .Broadcast(NextName("values"), v1::FLOAT32, {static_cast<int64_t>(values.size())}, root, values.data())
            ->Wait());
  }
  return absl::OkStatus();
}

std::string GatheredValues::PackRows(const std::map<int, std::vector<int64_t>>& rows) const {
  std::string bytes;
  for (const auto& [block, ids] : rows) {
    const int width = WidthOf(blocks_[static_cast<size_t>(block)]);
    CHECK_GT(width, 0) << blocks_[static_cast<size_t>(block)].name();
    if (ids.empty()) continue;
    const RowsHeader header = {block, static_cast<int64_t>(ids.size())};
    AppendPacked(&header, 1, &bytes);
    AppendPacked(ids.data(), ids.size(), &bytes);
    const size_t end = bytes.size() + PackedValueBytes(header.rows, width);
    const float* const all = values(block).data();
    for (const int64_t id : ids) AppendPacked(all + id * width, static_cast<size_t>(width), &bytes);
    bytes.resize(end, '\0');
  }
  return bytes;
}

absl::Status GatheredValues::ReadRows(const std::string& bytes, int from) {
  const auto wrong = [from](const std::string& what) {
    return absl::DataLossError(absl::StrCat("rows that trainer ", from, " has updated: ", what));
  };
  size_t at = 0;
  while (at < bytes.size()) {
    RowsHeader header;
    if (bytes.size() - at < sizeof(header)) return wrong("cut short");
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    at += sizeof(header);
    const bool known = header.block >= 0 && header.block < static_cast<int64_t>(blocks_.size());
    const v1::PlacedBlock* const placed = known ? &blocks_[static_cast<size_t>(header.block)] : nullptr;
    const int width = known ? WidthOf(*placed) : 0;
    if (width == 0 || placed->trainer() != from) {
      return wrong(absl::StrCat("block ", header.block, ", which it does not update by rows"));
    }
    const int64_t height = placed->element_count() / width;
    // A block has fewer rows than would overflow the sizes below.
    if (header.rows < 0 || header.rows > height ||
        bytes.size() - at < static_cast<size_t>(header.rows) * sizeof(int64_t) + PackedValueBytes(header.rows, width)) {
      return wrong(absl::StrCat(header.rows, " rows of width ", width, " do not fit ", bytes.size() - at, " bytes"));
    }
    const char* const ids = bytes.data() + at;
    const char* const rows = ids + static_cast<size_t>(header.rows) * sizeof(int64_t);
    float* const to = values(static_cast<int>(header.block)).data();
    for (int64_t r = 0; r < header.rows; ++r) {
      int64_t id = 0;
      std::memcpy(&id, ids + static_cast<size_t>(r) * sizeof(id), sizeof(id));
      if (id < 0 || id >= height) return wrong(absl::StrCat("row ", id, " of ", height));
      const size_t row_bytes = static_cast<size_t>(width) * sizeof(float);
      std::memcpy(to + id * width, rows + static_cast<size_t>(r) * row_bytes, row_bytes);
    }
    at += static_cast<size_t>(header.rows) * sizeof(int64_t) + PackedValueBytes(header.rows, width);
  }
  return absl::OkStatus();
}

}  // namespace weir
