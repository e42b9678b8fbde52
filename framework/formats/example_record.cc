#include "framework/formats/example_record.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "glog/logging.h"

namespace weir {
namespace {

using Header = internal::ExampleRecordHeader;

template <typename T>
T Load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
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

ExampleRecordSizes SizesOf(const Example& example) {
  uint64_t all = 0;
  for (const int64_t id : example.ids) all |= static_cast<uint64_t>(id);
  ExampleRecordSizes sizes;
  sizes.wide = all > std::numeric_limits<uint32_t>::max();
  sizes.one_each = example.ids.size() == example.counts.size() && OneEach(example.counts);
  const size_t counts = example.counts.size() * sizeof(uint16_t);
  const size_t bytes = sizeof(Header) + example.floats.size() * sizeof(float) + counts +
                       example.ids.size() * (sizes.wide ? 8 : 4) + example.weights.size() * sizeof(float);
  CHECK_LE(bytes, std::numeric_limits<uint32_t>::max());  // a line has at most 16 MiB
  sizes.full_bytes = static_cast<uint32_t>(bytes);
  sizes.bytes = static_cast<uint32_t>(sizes.one_each ? bytes - counts : bytes);
  return sizes;
}

void WriteExampleRecord(const Example& example, const ExampleRecordSizes& sizes, char* out) {
  const Header header = {static_cast<uint32_t>(example.ids.size()), sizes.wide, sizes.one_each,
                         !example.weights.empty()};
  std::memcpy(out, &header, sizeof(header));
  out = Put(out + sizeof(header), example.floats);
  if (!sizes.one_each) out = Put(out, example.counts);
  if (sizes.wide) {
    out = Put(out, example.ids);
  } else {
    for (const int64_t id : example.ids) {
      const uint32_t narrow = static_cast<uint32_t>(id);
      std::memcpy(out, &narrow, sizeof(narrow));
      out += sizeof(narrow);
    }
  }
  Put(out, example.weights);
}

void ReadExampleRecord(const char* data, Example* example) {
  const ExampleRecordView view = LookAtExampleRecord(data, example->floats.size(), example->counts.size());
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
      id = Load<uint32_t>(in);
      in += sizeof(uint32_t);
    }
  }
  example->weights.resize(view.weights != nullptr ? view.id_count : 0);
  if (view.weights != nullptr) Get(view.weights, &example->weights);
}

uint64_t internal::SumOfCounts(const char* counts, size_t slots) {
  uint64_t sum = 0;
  for (size_t slot = 0; slot < slots; ++slot) sum += Load<uint16_t>(counts + slot * sizeof(uint16_t));
  return sum;
}

}  // namespace weir
