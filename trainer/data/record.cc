#include "trainer/data/record.h"

#include <cstring>
#include <limits>

#include "glog/logging.h"

namespace weir {
namespace {

// Before the floats, the counts, the ids (4 or 8 bytes each) and, with weights, the weights.
struct Header {
  uint32_t ids;
  uint16_t wide;
  uint16_t weighted;
};

template <typename T>
char* Put(char* out, const std::vector<T>& values) {
  if (values.empty()) return out;
  std::memcpy(out, values.data(), values.size() * sizeof(T));
  return out + values.size() * sizeof(T);
}

template <typename T>
const char* Get(const char* in, std::vector<T>* values) {
  if (values->empty()) return in;
  std::memcpy(values->data(), in, values->size() * sizeof(T));
  return in + values->size() * sizeof(T);
}

}  // namespace

Record::Record(const Example& example) {
  uint64_t all = 0;
  for (const int64_t id : example.ids) all |= static_cast<uint64_t>(id);
  const bool wide = all > std::numeric_limits<uint32_t>::max();
  const size_t ids = example.ids.size();
  const size_t bytes = sizeof(Header) + example.floats.size() * sizeof(float) + example.counts.size() * sizeof(uint16_t) +
                       ids * (wide ? 8 : 4) + example.weights.size() * sizeof(float);
  CHECK_LE(bytes, std::numeric_limits<uint32_t>::max());  // a line has at most 16 MiB
  bytes_ = static_cast<uint32_t>(bytes);
  data_.reset(new char[bytes]);
  const Header header = {static_cast<uint32_t>(ids), wide, !example.weights.empty()};
  std::memcpy(data_.get(), &header, sizeof(header));
  char* out = Put(data_.get() + sizeof(header), example.floats);
  out = Put(out, example.counts);
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

void Record::CopyTo(Example* example) const {
  Header header;
  std::memcpy(&header, data_.get(), sizeof(header));
  const char* in = Get(data_.get() + sizeof(header), &example->floats);
  in = Get(in, &example->counts);
  example->ids.resize(header.ids);
  if (header.wide) {
    in = Get(in, &example->ids);
  } else {
    for (int64_t& id : example->ids) {
      uint32_t narrow;
      std::memcpy(&narrow, in, 4);
      id = narrow;
      in += 4;
    }
  }
  example->weights.resize(header.weighted ? header.ids : 0);
  Get(in, &example->weights);
}

}  // namespace weir
