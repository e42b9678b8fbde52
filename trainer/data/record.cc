#include "trainer/data/record.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "glog/logging.h"

namespace weir {
namespace {

// Before the floats, the counts unless every slot has one id, the ids (4 or 8 bytes each) and, with weights, the
// weights.
struct Header {
  uint32_t ids;
  uint8_t wide;
  uint8_t one_each;
  uint16_t weighted;
};

// Four at a time, and the last four again.
bool OneEach(const std::vector<uint16_t>& counts) {
  constexpr uint64_t kOnes = 0x0001000100010001ULL;
  if (counts.size() < 4) return std::all_of(counts.begin(), counts.end(), [](uint16_t count) { return count == 1; });
  uint64_t others = 0;
  const auto look = [&](size_t at) {
    uint64_t four;
    std::memcpy(&four, counts.data() + at, sizeof(four));
    others |= four ^ kOnes;
  };
  for (size_t at = 0; at + 4 <= counts.size(); at += 4) look(at);
  look(counts.size() - 4);
  return others == 0;
}

template <typename T>
char* Put(char* out, const std::vector<T>& values) {
  if (values.empty()) return out;
  std::memcpy(out, values.data(), values.size() * sizeof(T));
  return out + values.size() * sizeof(T);
}

template <typename T>
void Get(const char* in, std::vector<T>* values) {
  if (!values->empty()) std::memcpy(values->data(), in, values->size() * sizeof(T));
}

}  // namespace

char* RecordPool::Take(size_t bytes) {
  if (bytes > kLargest) return new char[bytes];
  const size_t grains = (bytes + kGrain - 1) / kGrain;
  const size_t size = grains * kGrain;
  std::vector<char*>& free = free_[grains];
  if (!free.empty()) {
    char* const taken = free.back();
    free.pop_back();
    if (free.size() >= kAhead) {
      const char* const later = free[free.size() - kAhead];
      for (size_t at = 0; at < size; at += 64) __builtin_prefetch(later + at, 1);
    }
    return taken;
  }
  if (left_ < size) AddChunk();
  left_ -= size;
  return chunks_.back().get() + left_;
}

void RecordPool::AddChunk() {
  chunk_ = chunk_ == 0 ? kFirstChunk : std::min(2 * chunk_, kPage);
  char* const chunk = static_cast<char*>(std::aligned_alloc(chunk_, chunk_));
  CHECK(chunk != nullptr) << chunk_;
  // Records are read in random order: with large pages the machine finds them without a search of its own. A wish only.
  if (chunk_ == kPage) (void)::madvise(chunk, chunk_, MADV_HUGEPAGE);
  chunks_.emplace_back(chunk);
  left_ = chunk_;
}

void RecordPool::Give(char* data, size_t bytes) {
  if (bytes > kLargest) {
    delete[] data;
    return;
  }
  free_[(bytes + kGrain - 1) / kGrain].push_back(data);
}

Record::Record(const Example& example, RecordPool* pool) : pool_(pool) {
  uint64_t all = 0;
  for (const int64_t id : example.ids) all |= static_cast<uint64_t>(id);
  const bool wide = all > std::numeric_limits<uint32_t>::max();
  const size_t ids = example.ids.size();
  const size_t counts = example.counts.size() * sizeof(uint16_t);
  const bool one_each = ids == example.counts.size() && OneEach(example.counts);
  const size_t bytes = sizeof(Header) + example.floats.size() * sizeof(float) + counts + ids * (wide ? 8 : 4) +
                       example.weights.size() * sizeof(float);
  CHECK_LE(bytes, std::numeric_limits<uint32_t>::max());  // a line has at most 16 MiB
  bytes_ = static_cast<uint32_t>(bytes);
  size_ = static_cast<uint32_t>(one_each ? bytes - counts : bytes);
  data_ = pool_ == nullptr ? new char[size_] : pool_->Take(size_);
  const Header header = {static_cast<uint32_t>(ids), wide, one_each, !example.weights.empty()};
  std::memcpy(data_, &header, sizeof(header));
  char* out = Put(data_ + sizeof(header), example.floats);
  if (!one_each) out = Put(out, example.counts);
  if (wide) {
    out = Put(out, example.ids);
  } else {
    for (const int64_t id : example.ids) {
      const uint32_t narrow = static_cast<uint32_t>(id);
      std::memcpy(out, &narrow, 4);
      out += 4;
    }
  }
  Put(out, example.weights);
}

Record::~Record() {
  if (data_ == nullptr) return;
  if (pool_ == nullptr) {
    delete[] data_;
  } else {
    pool_->Give(data_, size_);
  }
}

Record::View Record::Look(size_t floats, size_t slots) const {
  Header header;
  std::memcpy(&header, data_, sizeof(header));
  View view;
  view.floats = data_ + sizeof(header);
  const char* const behind = view.floats + floats * sizeof(float);
  view.counts = header.one_each != 0 ? nullptr : behind;
  view.ids = header.one_each != 0 ? behind : behind + slots * sizeof(uint16_t);
  view.id_count = header.ids;
  view.wide = header.wide != 0;
  view.weights = header.weighted != 0 ? view.ids + size_t{header.ids} * (view.wide ? 8 : 4) : nullptr;
  return view;
}

void Record::CopyTo(Example* example) const {
  const View view = Look(example->floats.size(), example->counts.size());
  Get(view.floats, &example->floats);
  if (view.counts != nullptr) {
    Get(view.counts, &example->counts);
  } else {
    std::fill(example->counts.begin(), example->counts.end(), uint16_t{1});
  }
  example->ids.resize(view.id_count);
  if (view.wide) {
    Get(view.ids, &example->ids);
  } else {
    const char* in = view.ids;
    for (int64_t& id : example->ids) {
      uint32_t narrow;
      std::memcpy(&narrow, in, 4);
      id = narrow;
      in += 4;
    }
  }
  example->weights.resize(view.weights != nullptr ? view.id_count : 0);
  if (view.weights != nullptr) Get(view.weights, &example->weights);
}

}  // namespace weir
