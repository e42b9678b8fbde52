#include "trainer/predict/scores.h"

#include <algorithm>
#include <cstring>

namespace weir {
namespace {

constexpr size_t kPlace = 2 * sizeof(int64_t);

void PutPlace(const InputPosition& position, std::string* out) {
  const int64_t place[2] = {position.file, position.offset};
  out->append(reinterpret_cast<const char*>(place), sizeof place);
}

InputPosition GetPlace(const char* p) {
  int64_t place[2];
  std::memcpy(place, p, sizeof place);
  return {.file = place[0], .offset = place[1]};
}

}  // namespace

std::string Scores::Serialize() const {
  const int64_t head[2] = {width, static_cast<int64_t>(skipped.size())};
  std::string out(reinterpret_cast<const char*>(head), sizeof head);
  for (const InputPosition& position : skipped) PutPlace(position, &out);
  for (size_t i = 0; i < positions.size(); ++i) {
    PutPlace(positions[i], &out);
    out.append(reinterpret_cast<const char*>(values.data() + i * static_cast<size_t>(width)),
               static_cast<size_t>(width) * sizeof(float));
  }
  return out;
}

absl::Status Scores::Append(std::string_view bytes) {
  const absl::Status bad = absl::InternalError("scores of a trainer cannot be read");
  int64_t head[2];
  if (bytes.size() < sizeof head) return bad;
  std::memcpy(head, bytes.data(), sizeof head);
  bytes.remove_prefix(sizeof head);
  const int64_t its_width = head[0];
  if (head[1] < 0 || static_cast<uint64_t>(head[1]) > bytes.size() / kPlace) return bad;
  const std::string_view its_skipped = bytes.substr(0, static_cast<size_t>(head[1]) * kPlace);
  bytes.remove_prefix(its_skipped.size());
  // A width beyond what came would wrap when it is multiplied.
  if (its_width < 0 || static_cast<uint64_t>(its_width) > bytes.size() / sizeof(float)) return bad;
  if (its_width == 0 && !bytes.empty()) return bad;
  if (its_width != 0 && width != 0 && width != its_width) return bad;
  const size_t record = kPlace + static_cast<size_t>(its_width) * sizeof(float);
  if (bytes.size() % record != 0) return bad;
  for (size_t at = 0; at < its_skipped.size(); at += kPlace) skipped.push_back(GetPlace(its_skipped.data() + at));
  if (its_width != 0) width = its_width;
  for (size_t at = 0; at < bytes.size(); at += record) {
    positions.push_back(GetPlace(bytes.data() + at));
    values.resize(values.size() + static_cast<size_t>(width));
    std::memcpy(values.data() + values.size() - static_cast<size_t>(width), bytes.data() + at + kPlace,
                static_cast<size_t>(width) * sizeof(float));
  }
  return absl::OkStatus();
}

std::vector<Scores::Line> Scores::InOrder() const {
  std::vector<Line> lines;
  lines.reserve(positions.size() + skipped.size());
  for (size_t i = 0; i < positions.size(); ++i) lines.push_back({positions[i], static_cast<int64_t>(i)});
  for (const InputPosition& position : skipped) lines.push_back({position, -1});
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.position < b.position; });
  return lines;
}

}  // namespace weir
