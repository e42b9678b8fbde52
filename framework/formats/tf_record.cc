// Records of TFRecord files: messages tf.train.Example (proto/tf_example.proto). trainer/files/tf_record_source.h finds
// the records in a file.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/schema.h"
#include "framework/formats/slot_columns.h"
#include "framework/formats/slot_schema.h"
#include "proto/tf_example.pb.h"

namespace weir {
namespace {

using Type = v1::TfRecord::Feature;

// A feature that the job names: a variable's, or the weights of one.
struct Feature {
  std::string name;
  Type::Type type = Type::FLOAT;
  bool weights = false;
  DataSlot slot = {};   // not of weights
  int weights_of = -1;  // of ids: the feature with their weights, or -1
};

// Bytes of a message, read from the front.
class Wire {
 public:
  explicit Wire(std::string_view bytes) : p_(bytes.data()), end_(p_ + bytes.size()) {}
  bool at_end() const { return p_ == end_; }
  size_t left() const { return static_cast<size_t>(end_ - p_); }
  // Takes one byte if it is `tag`: the tags of these messages have one.
  bool Tag(uint8_t tag) {
    if (p_ == end_ || static_cast<uint8_t>(*p_) != tag) return false;
    ++p_;
    return true;
  }
  bool Varint(uint64_t* value) {
    if (p_ != end_ && static_cast<uint8_t>(*p_) < 0x80) {
      *value = static_cast<uint8_t>(*p_++);
      return true;
    }
    return LongVarint(value);
  }
  // Takes a length and as many bytes.
  bool Bytes(std::string_view* bytes) {
    uint64_t size;
    if (!Varint(&size) || size > left()) return false;
    *bytes = {p_, static_cast<size_t>(size)};
    p_ += size;
    return true;
  }
  bool Float(float* value) {
    if (left() < sizeof(*value)) return false;
    std::memcpy(value, p_, sizeof(*value));
    p_ += sizeof(*value);
    return true;
  }

 private:
  bool LongVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (p_ == end_) return false;
      const auto byte = static_cast<uint8_t>(*p_++);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  const char* p_;
  const char* const end_;
};

constexpr uint8_t Delimited(int field) { return static_cast<uint8_t>(field << 3 | 2); }
constexpr uint8_t kVarint = 1 << 3 | 0, kFixed32 = 1 << 3 | 5;  // values of lists that are not packed

class TfRecordParser : public LineParser {
 public:
  TfRecordParser(std::vector<Column> columns, std::vector<Feature> features)
      : LineParser(std::move(columns)), features_(std::move(features)) {
    for (size_t i = 0; i < features_.size(); ++i) {
      by_name_.emplace(features_[i].name, static_cast<int>(i));
      const DataSlot& slot = features_[i].slot;
      if (features_[i].weights || slot.is_float) continue;
      const auto position = static_cast<size_t>(slot.position);
      if (feature_of_slot_.size() <= position) feature_of_slot_.resize(position + 1);
      feature_of_slot_[position] = i;
    }
  }

  absl::Status Parse(std::string_view record, Example* example) const override {
    Values values(*this, example);
    return ReadFast(record, &values) && values.Finish().ok() ? absl::OkStatus() : ParsePlain(record, example);
  }

  absl::Status ParsePlain(std::string_view record, Example* example) const override {
    v1::TfExample message;
    if (!message.ParseFromArray(record.data(), static_cast<int>(record.size()))) {
      return absl::InvalidArgumentError("is no message tf.train.Example");
    }
    absl::flat_hash_map<std::string, const std::string*> last;
    for (const v1::TfFeatures::Entry& entry : message.features().feature()) last[entry.key()] = &entry.value();
    Values values(*this, example);
    for (size_t i = 0; i < features_.size(); ++i) {
      const auto found = last.find(features_[i].name);
      if (found == last.end()) continue;
      v1::TfFeature feature;
      if (!feature.ParseFromString(*found->second)) return Error(features_[i], "is no message tf.train.Feature");
      RETURN_IF_ERROR(AddPlainly(i, feature, &values));
    }
    return values.Finish();
  }

  std::vector<NamedInput> named_inputs() const override {
    std::vector<DataSlot> slots;
    for (const Feature& feature : features_) {
      if (!feature.weights) slots.push_back(feature.slot);
    }
    return NamedInputsOf("data.tf_record.feature", "feature", slots);
  }
  std::string NamesIn(std::string_view record) const override {
    v1::TfExample message;
    if (!message.ParseFromArray(record.data(), static_cast<int>(record.size()))) return "";
    std::vector<std::string_view> names;
    for (const v1::TfFeatures::Entry& entry : message.features().feature()) names.push_back(entry.key());
    return ShownNames(names);
  }

 private:
  // The values of a record as far as it has been read. Ids and weights are collected feature by feature, as the record
  // has them.
  class Values {
   public:
    Values(const TfRecordParser& parser, Example* example) : parser_(parser), example_(*example) {
      std::fill(example_.floats.begin(), example_.floats.end(), std::numeric_limits<float>::quiet_NaN());
      std::fill(example_.counts.begin(), example_.counts.end(), uint16_t{0});
      example_.ids.clear();
      example_.weights.clear();
      example_.scratch_ids.clear();
      example_.scratch_weights.clear();
      const size_t features = parser.features_.size();
      example_.scratch_slots.assign(2 * features + (features + 31) / 32, 0);
    }

    // Vectors to which a feature's ids, or weights, are appended.
    std::vector<int64_t>& ids() { return example_.scratch_ids; }
    std::vector<float>& weights() { return example_.scratch_weights; }
    std::vector<int32_t>& hints() { return example_.hints; }
    float* floats(size_t feature) { return example_.floats.data() + parser_.features_[feature].slot.position; }
    // Says that the values behind `begin` of ids() or weights() are the feature's. A feature is set once.
    void Set(size_t feature, size_t begin) {
      const size_t end = parser_.features_[feature].weights ? weights().size() : ids().size();
      Begin(feature) = static_cast<uint32_t>(begin);
      Count(feature) = static_cast<uint32_t>(end - begin);
    }

    // Notes that the record has the feature. Returns false if it has had it before.
    bool See(size_t feature) {
      uint32_t& seen = example_.scratch_slots[2 * parser_.features_.size() + feature / 32];
      const uint32_t bit = uint32_t{1} << feature % 32;
      const bool first = (seen & bit) == 0;
      seen |= bit;
      return first;
    }

    absl::Status Finish() {
      const bool weighted = !example_.scratch_weights.empty();
      example_.ids.resize(example_.scratch_ids.size());
      int64_t* out = example_.ids.data();
      for (size_t slot = 0; slot < parser_.feature_of_slot_.size(); ++slot) {
        const size_t feature = parser_.feature_of_slot_[slot];
        const size_t count = Count(feature);
        const int64_t* const ids = example_.scratch_ids.data() + Begin(feature);
        if (weighted) RETURN_IF_ERROR(AddWeights(feature));
        if (count == 1) {
          example_.counts[slot] = 1;
          *out++ = *ids;
          continue;
        }
        if (count > size_t{Example::kMaxSlotIds}) {
          return Error(parser_.features_[feature],
                       absl::StrCat("has ", count, " values; at most ", Example::kMaxSlotIds, " are possible"));
        }
        example_.counts[slot] = static_cast<uint16_t>(count);
        out = std::copy_n(ids, count, out);
      }
      return absl::OkStatus();
    }

   private:
    // Appends the weights of a feature's ids.
    absl::Status AddWeights(size_t feature) {
      const Feature& f = parser_.features_[feature];
      const size_t count = Count(feature);
      const size_t weights = f.weights_of < 0 ? 0 : Count(static_cast<size_t>(f.weights_of));
      if (weights == 0) {
        example_.weights.insert(example_.weights.end(), count, 1.0f);
        return absl::OkStatus();
      }
      if (weights != count) {
        return Error(f, absl::StrCat("has ", count, " ids, and its weights '",
                                     parser_.features_[static_cast<size_t>(f.weights_of)].name, "' are ", weights));
      }
      const float* const from = example_.scratch_weights.data() + Begin(static_cast<size_t>(f.weights_of));
      example_.weights.insert(example_.weights.end(), from, from + weights);
      return absl::OkStatus();
    }
    uint32_t& Begin(size_t feature) { return example_.scratch_slots[2 * feature]; }
    uint32_t& Count(size_t feature) { return example_.scratch_slots[2 * feature + 1]; }

    const TfRecordParser& parser_;
    Example& example_;
  };

  static absl::Status Error(const Feature& feature, const std::string& text) {
    return absl::InvalidArgumentError(absl::StrCat("feature '", feature.name, "': ", text));
  }

  absl::Status AddPlainly(size_t i, const v1::TfFeature& feature, Values* values) const {
    const Feature& f = features_[i];
    const auto wrong_list = [&](const char* wanted) {
      constexpr const char* kLists[] = {"no list", "a bytes_list", "a float_list", "an int64_list"};
      return Error(f, absl::StrCat("is ", kLists[static_cast<size_t>(feature.kind_case())], ", expected ", wanted));
    };
    if (feature.kind_case() == v1::TfFeature::KIND_NOT_SET) return absl::OkStatus();
    if (f.weights) {
      if (!feature.has_float_list()) return wrong_list("a float_list, of weights");
      const size_t begin = values->weights().size();
      for (const float weight : feature.float_list().value()) {
        if (!std::isfinite(weight)) return Error(f, absl::StrCat("the weight ", weight, " is not a finite number"));
        values->weights().push_back(weight);
      }
      values->Set(i, begin);
      return absl::OkStatus();
    }
    if (f.type == Type::FLOAT) {
      std::vector<float> floats(feature.float_list().value().begin(), feature.float_list().value().end());
      for (const int64_t value : feature.int64_list().value()) floats.push_back(static_cast<float>(value));
      if (feature.has_bytes_list()) return wrong_list("a float_list or an int64_list; texts are of type TEXT");
      if (!floats.empty() && floats.size() != static_cast<size_t>(f.slot.dim)) {
        return Error(f, absl::StrCat("expected ", f.slot.dim, f.slot.dim == 1 ? " value" : " values",
                                     ", or 0 for missing, got ", floats.size()));
      }
      for (const float value : floats) {
        if (std::isinf(value)) return Error(f, absl::StrCat("'", value, "' is not a finite number"));
      }
      std::copy(floats.begin(), floats.end(), values->floats(i));
      return absl::OkStatus();
    }
    const size_t begin = values->ids().size();
    if (f.type == Type::ID) {
      if (!feature.has_int64_list()) return wrong_list("an int64_list; texts are of type TEXT");
      values->ids().insert(values->ids().end(), feature.int64_list().value().begin(),
                           feature.int64_list().value().end());
    } else {
      if (!feature.has_bytes_list()) return wrong_list("a bytes_list; numbers are of type ID");
      for (const std::string& text : feature.bytes_list().value()) {
        values->ids().push_back(static_cast<int64_t>(StableHash(text)));
      }
    }
    values->Set(i, begin);
    return absl::OkStatus();
  }

  // Reads a record in the form that writers give it. Returns false for any other, and for one with errors, which
  // ParsePlain then parses or explains.
  bool ReadFast(std::string_view record, Values* values) const {
    Wire example(record);
    std::string_view bytes;
    if (example.at_end()) return true;
    if (!example.Tag(Delimited(1)) || !example.Bytes(&bytes) || !example.at_end()) return false;
    Wire features(bytes);
    // Records usually have their features in the order of the record before.
    std::vector<int32_t>& hints = values->hints();
    for (size_t at = 0; !features.at_end(); ++at) {
      std::string_view key, value;
      if (!features.Tag(Delimited(1)) || !features.Bytes(&bytes)) return false;
      Wire entry(bytes);
      if (!entry.Tag(Delimited(1)) || !entry.Bytes(&key)) return false;
      if (!entry.Tag(Delimited(2)) || !entry.Bytes(&value) || !entry.at_end()) return false;
      if (at >= hints.size()) hints.resize(at + 1, -1);
      int32_t& hint = hints[at];
      if (hint < 0 || hint >= static_cast<int32_t>(features_.size()) ||
          features_[static_cast<size_t>(hint)].name != key) {
        const auto found = by_name_.find(absl::string_view(key.data(), key.size()));
        hint = found == by_name_.end() ? -1 : found->second;
        if (hint < 0) continue;
      }
      const auto i = static_cast<size_t>(hint);
      if (!values->See(i)) return false;
      if (!ReadFeature(i, value, values)) return false;
    }
    return true;
  }

  bool ReadFeature(size_t i, std::string_view bytes, Values* values) const {
    Wire feature(bytes);
    if (feature.at_end()) return true;
    std::string_view list;
    const bool texts = feature.Tag(Delimited(1)), floats = !texts && feature.Tag(Delimited(2));
    if (!texts && !floats && !feature.Tag(Delimited(3))) return false;
    if (!feature.Bytes(&list) || !feature.at_end()) return false;
    const Feature& f = features_[i];
    if (f.weights) return floats && ReadWeights(i, list, values);
    if (f.type == Type::FLOAT) {
      float* const out = values->floats(i);
      return floats ? ReadFloats(list, f.slot.dim, out) : !texts && ReadIntegersAsFloats(list, f.slot.dim, out);
    }
    const size_t begin = values->ids().size();
    if (!(f.type == Type::ID ? !texts && !floats && ReadIds(list, values) : texts && ReadTexts(list, values))) {
      return false;
    }
    values->Set(i, begin);
    return true;
  }

  static bool ReadFloats(std::string_view list, int dim, float* out) {
    if (list.empty()) return true;
    Wire wire(list);
    if (std::string_view packed; wire.Tag(Delimited(1))) {
      if (!wire.Bytes(&packed) || !wire.at_end()) return false;
      if (packed.empty()) return true;
      if (packed.size() != static_cast<size_t>(dim) * sizeof(float)) return false;
      std::memcpy(out, packed.data(), packed.size());
    } else {
      for (int d = 0; d < dim; ++d) {
        if (!wire.Tag(kFixed32) || !wire.Float(out + d)) return false;
      }
      if (!wire.at_end()) return false;
    }
    return std::none_of(out, out + dim, [](float x) { return std::isinf(x); });
  }

  // Calls add(value) for each number of an int64_list.
  template <typename Add>
  static bool ForIntegers(std::string_view list, const Add& add) {
    Wire wire(list);
    uint64_t value;
    if (std::string_view packed; wire.Tag(Delimited(1))) {
      if (!wire.Bytes(&packed) || !wire.at_end()) return false;
      for (Wire values(packed); !values.at_end();) {
        if (!values.Varint(&value)) return false;
        add(static_cast<int64_t>(value));
      }
      return true;
    }
    while (!wire.at_end()) {
      if (!wire.Tag(kVarint) || !wire.Varint(&value)) return false;
      add(static_cast<int64_t>(value));
    }
    return true;
  }

  static bool ReadIntegersAsFloats(std::string_view list, int dim, float* out) {
    int got = 0;
    const bool read = ForIntegers(list, [&](int64_t value) {
      if (got < dim) out[got] = static_cast<float>(value);
      ++got;
    });
    return read && (got == 0 || got == dim);
  }

  static bool ReadIds(std::string_view list, Values* values) {
    return ForIntegers(list, [&](int64_t value) { values->ids().push_back(value); });
  }

  static bool ReadTexts(std::string_view list, Values* values) {
    for (Wire wire(list); !wire.at_end();) {
      std::string_view text;
      if (!wire.Tag(Delimited(1)) || !wire.Bytes(&text)) return false;
      values->ids().push_back(static_cast<int64_t>(StableHash(text)));
    }
    return true;
  }

  static bool ReadWeights(size_t i, std::string_view list, Values* values) {
    const size_t begin = values->weights().size();
    Wire wire(list);
    float weight;
    if (std::string_view packed; wire.Tag(Delimited(1))) {
      if (!wire.Bytes(&packed) || !wire.at_end() || packed.size() % sizeof(float) != 0) return false;
      for (Wire weights(packed); !weights.at_end();) {
        if (!weights.Float(&weight) || !std::isfinite(weight)) return false;
        values->weights().push_back(weight);
      }
    }
    while (!wire.at_end()) {
      if (!wire.Tag(kFixed32) || !wire.Float(&weight) || !std::isfinite(weight)) return false;
      values->weights().push_back(weight);
    }
    values->Set(i, begin);
    return true;
  }

  const std::vector<Feature> features_;
  absl::flat_hash_map<std::string, int> by_name_;
  std::vector<size_t> feature_of_slot_;
};

absl::StatusOr<std::unique_ptr<LineParser>> MakeTfRecordParser(const v1::TfRecord& config) {
  std::vector<DataSlot> slots;
  std::vector<Feature> features;
  for (const v1::TfRecord::Feature& in : config.feature()) {
    slots.push_back({.name = in.name(),
                     .output = in.output(),
                     .is_float = in.type() == Type::FLOAT,
                     .dim = in.dim(),
                     .id_kind = in.type() == Type::TEXT ? IdKind::kText : IdKind::kInteger});
    features.push_back({.name = in.name(), .type = in.type()});
  }
  ASSIGN_OR_RETURN(std::vector<Column> columns, LayOutSlots("data.tf_record.feature", {}, &slots));
  for (size_t i = 0; i < slots.size(); ++i) {
    features[i].slot = std::move(slots[i]);
    const std::string& weights = config.feature(static_cast<int>(i)).weights();
    if (weights.empty()) continue;
    features[i].weights_of = static_cast<int>(features.size());
    features.push_back({.name = weights, .weights = true});
  }
  return std::make_unique<TfRecordParser>(std::move(columns), std::move(features));
}

absl::StatusOr<std::vector<v1::VarDesc>> TfRecordSchema(const v1::TfRecord& m, const SettingErrors& at) {
  SlotSchema vars("feature", at);
  for (int i = 0; i < m.feature_size(); ++i) {
    const v1::TfRecord::Feature& feature = m.feature(i);
    const std::string path = absl::StrCat("feature[", i, "]");
    const bool is_float = feature.type() == Type::FLOAT;
    RETURN_IF_ERROR(vars.Name(feature.name(), path));
    RETURN_IF_ERROR(CheckSlotDim(feature.dim(), is_float, feature.has_dim(), path,
                                 "is for FLOAT features; one of ids holds any number of them", at));
    RETURN_IF_ERROR(vars.Add(feature.output().empty() ? feature.name() : feature.output(),
                             is_float ? v1::DENSE : v1::IDS, is_float ? feature.dim() : 1, path, path + ".dim"));
  }
  std::set<std::string> names;
  for (const v1::TfRecord::Feature& feature : m.feature()) names.insert(feature.name());
  for (int i = 0; i < m.feature_size(); ++i) {
    const v1::TfRecord::Feature& feature = m.feature(i);
    if (feature.weights().empty()) continue;
    const std::string path = absl::StrCat("feature[", i, "].weights");
    if (feature.type() == Type::FLOAT) return at.Error(path, "is for features of ids");
    if (!names.insert(feature.weights()).second) {
      return at.Error(path,
                      absl::StrCat("'", feature.weights(), "' is a feature or has weights of another one already"));
    }
  }
  return std::move(vars).Finish("");
}

WEIR_REGISTER_DATA_SCHEMA(v1::TfRecord, TfRecordSchema);
WEIR_REGISTER_LINE_PARSER(v1::TfRecord, MakeTfRecordParser);

}  // namespace
}  // namespace weir
